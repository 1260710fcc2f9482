# libttr, libttr_c, libttr_model, libttr_language, libttr_language_c and libttr_mpi.
#
#   ttr_parts     objects: products and threads, which the model uses too
#   ttr_objects   objects: the rest of every room of src/ (docs/HACKING.md); ttr_zoo, the table of layers
#   ttr           the library, ttr::ttr
#   ttr_c         ttr::c
#   ttr_model     ttr::model
#   ttr_language  ttr::language; ttr_language_c, its functions for C
#   ttr_mpi       ttr::mpi
#   ttr_inside    what tests and benchmarks link, which look inside: in a shared build, where libttr shows its headers'
#                 names alone, a static library of the same objects

include(CheckLinkerFlag)

file(GLOB_RECURSE library_sources CONFIGURE_DEPENDS src/*.cc)
list(FILTER library_sources EXCLUDE REGEX "_test\\.cc$")  # a family's test is beside it
list(FILTER library_sources EXCLUDE REGEX "/src/zoo/")
file(GLOB declarations CONFIGURE_DEPENDS src/zoo/*.cc)
set(slim_definitions "")
set(slim_options "")
set(set_options "")
include(cmake/slim.cmake)  # TTR_LAYERS, TTR_TYPES, TTR_ORACLE: fewer of these files
include(cmake/instruction_sets.cmake)  # TTR_TARGETS

# What every user of the headers gets.
add_library(ttr_headers INTERFACE)
target_include_directories(ttr_headers INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(ttr_headers INTERFACE cxx_std_20)
if(BUILD_SHARED_LIBS)
  target_compile_definitions(ttr_headers INTERFACE TTR_SHARED)
endif()

if(NOT MSVC)
  # No loops over numbers: words and planning, by their size. The glue of families and plan.cc are on the way of every call,
  # and fresh_state.cc has a loop.
  file(GLOB words CONFIGURE_DEPENDS src/recipe/*.cc src/plan/*.cc)
  list(FILTER words EXCLUDE REGEX "plan/(plan|fresh_state)\\.cc$")
  set_source_files_properties(${words} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-Os>)
  set(glue ${library_sources})
  list(FILTER glue INCLUDE REGEX "(_plan|plan/plan)\\.cc$")
  set_source_files_properties(${glue} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O2>)
  # A product and a sum that a compiler fuses in one copy of a loop and not in another would make the bits of a row depend
  # on its strides; the formulas say fma where they mean it. Those of normals.cc have the same bits on every machine.
  set_source_files_properties(src/prepare/elements_f32.cc src/prepare/elements_f64.cc src/prepare/joint.cc src/prepare/rows_f32.cc
    src/prepare/rows_f64.cc src/simd/normals.cc PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
endif()

set(parts_sources ${library_sources})
list(FILTER parts_sources INCLUDE REGEX "/src/(simd|threads)/")
list(FILTER library_sources EXCLUDE REGEX "/src/(simd|threads)/")
add_library(ttr_parts OBJECT ${parts_sources})
add_library(ttr_objects OBJECT ${library_sources})
# The zoo is tables without loops, seventy small files that include the same: compiled as two, and hardly optimised, they
# take seconds and not a minute.
add_library(ttr_zoo OBJECT ${declarations})
set_target_properties(ttr_zoo PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 40)
if(NOT MSVC)
  target_compile_options(ttr_zoo PRIVATE $<IF:$<OR:${is_sanitized},$<CONFIG:Debug>>,-O0,-O1>)
endif()
set(library_objects "")
foreach(objects ttr_parts ttr_objects ttr_zoo)
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${objects} PRIVATE src)
  target_link_libraries(${objects} PRIVATE ttr_headers hwy::hwy Threads::Threads)
  target_compile_definitions(${objects} PRIVATE TTR_BUILDS_LIBRARY ${slim_definitions})
  target_compile_options(${objects} PRIVATE ${warning_options} ${slim_options} ${set_options})
  list(APPEND library_objects $<TARGET_OBJECTS:${objects}>)
endforeach()

# A shared library that lacks something fails when it is linked, not when it is loaded.
set(complete "")
check_linker_flag(CXX -Wl,--no-undefined TTR_LINKER_NO_UNDEFINED)
if(TTR_LINKER_NO_UNDEFINED AND NOT TTR_SANITIZE)
  set(complete -Wl,--no-undefined)
endif()

# public_library(TARGET): what clients of it get, and which names it shows. Names that templates of the standard library
# make are none of its own, and only a list hides them.
function(public_library target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set(abi ${PROJECT_VERSION_MAJOR})
  if(abi EQUAL 0)
    set(abi 0.${PROJECT_VERSION_MINOR})  # before 1.0 every minor version may change the classes
  endif()
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${abi} POSITION_INDEPENDENT_CODE ON)
  if(BUILD_SHARED_LIBS)
    target_compile_definitions(${target} PUBLIC TTR_SHARED)
    if(UNIX AND NOT APPLE)
      target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/public.map ${complete} ${slim_link_options})
      set_target_properties(${target} PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/public.map)
    endif()
  elseif(slim_options)
    target_link_options(${target} INTERFACE ${slim_link_options})
  endif()
endfunction()

add_library(ttr ${library_objects})
add_library(ttr::ttr ALIAS ttr)
public_library(ttr)
target_link_libraries(ttr PRIVATE hwy::hwy Threads::Threads)
set(libraries ttr)

# The C functions as a shared library of their own: one list of symbols, a SONAME per ABI. They are in libttr too.
if(TTR_C AND UNIX AND NOT APPLE)
  file(STRINGS include/ttr/c.h abi_line REGEX "define TTR_ABI_VERSION ")
  string(REGEX MATCH "[0-9]+$" abi "${abi_line}")
  file(STRINGS src/c_abi/symbols.txt symbols)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/c_abi/symbols.txt include/ttr/c.h)
  list(JOIN symbols ";\n    " symbols)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/ttr_c.map CONTENT "TTR_${abi} {\n  global:\n    ${symbols};\n  local: *;\n};\n")
  file(GLOB c_abi_sources CONFIGURE_DEPENDS src/c_abi/*.cc)
  add_library(ttr_c SHARED ${c_abi_sources})
  add_library(ttr::c ALIAS ttr_c)
  target_include_directories(ttr_c PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE src)
  target_link_libraries(ttr_c PRIVATE $<BUILD_INTERFACE:ttr>)
  target_compile_definitions(ttr_c PUBLIC TTR_SHARED PRIVATE TTR_BUILDS_LIBRARY)
  target_compile_options(ttr_c PRIVATE ${warning_options})
  target_link_options(ttr_c PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/ttr_c.map ${complete} ${slim_link_options})
  set_target_properties(ttr_c PROPERTIES EXPORT_NAME c VERSION ${abi}.${PROJECT_VERSION} SOVERSION ${abi}
    LINK_DEPENDS ${PROJECT_BINARY_DIR}/ttr_c.map)
endif()

# The outer model: a library of its own (docs/model.md).
if(TTR_MODEL)
  file(GLOB model_sources CONFIGURE_DEPENDS model/*.cc tasks/*.cc)
  add_library(ttr_model_objects OBJECT ${model_sources})
  target_include_directories(ttr_model_objects PRIVATE src ${PROJECT_SOURCE_DIR})
  target_link_libraries(ttr_model_objects PRIVATE ttr_headers Threads::Threads)
  target_compile_definitions(ttr_model_objects PRIVATE TTR_BUILDS_MODEL)
  target_compile_options(ttr_model_objects PRIVATE ${warning_options})
  set_target_properties(ttr_model_objects PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  # A shared libttr does not show products and threads: then the model has its own.
  add_library(ttr_model $<TARGET_OBJECTS:ttr_model_objects> $<$<BOOL:${BUILD_SHARED_LIBS}>:$<TARGET_OBJECTS:ttr_parts>>)
  add_library(ttr::model ALIAS ttr_model)
  public_library(ttr_model)
  target_link_libraries(ttr_model PUBLIC ttr PRIVATE Threads::Threads)
  if(BUILD_SHARED_LIBS)
    target_link_libraries(ttr_model PRIVATE hwy::hwy)
  endif()
  set_target_properties(ttr_model PROPERTIES EXPORT_NAME model)
  list(PREPEND libraries ttr_model)
endif()

# Published language models: formats, tokenizers, architectures (docs/models.md).
if(TTR_LANGUAGE AND (NOT TTR_MODEL OR TTR_LAYERS OR CMAKE_CROSSCOMPILING))
  message(STATUS "ttr::language is left out: it needs TTR_MODEL, all layers and the libraries of this machine")
  set(TTR_LANGUAGE OFF)
endif()
if(TTR_LANGUAGE)
  find_package(nlohmann_json REQUIRED)
  find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
  find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
  file(GLOB language_sources CONFIGURE_DEPENDS language/*.cc language/architectures/*.cc)
  add_library(ttr_language_objects OBJECT ${language_sources})
  set_source_files_properties(language/matrix_f32.cc PROPERTIES COMPILE_DEFINITIONS "TTR_TARGETS=(${targets})")
  target_include_directories(ttr_language_objects PRIVATE src ${PROJECT_SOURCE_DIR})
  target_link_libraries(ttr_language_objects PRIVATE ttr_headers Threads::Threads hwy::hwy nlohmann_json::nlohmann_json)
  target_compile_definitions(ttr_language_objects PRIVATE TTR_BUILDS_LANGUAGE)
  target_compile_options(ttr_language_objects PRIVATE ${warning_options})
  set_target_properties(ttr_language_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # A shared libttr does not show products, threads, per-token operations and words: then this library has its own.
  set(language_inside "")
  if(BUILD_SHARED_LIBS)
    set(language_inside $<TARGET_OBJECTS:ttr_parts>
      "$<FILTER:$<TARGET_OBJECTS:ttr_objects>,INCLUDE,/src/(prepare/|recipe/text_tools)>")
  endif()
  add_library(ttr_language $<TARGET_OBJECTS:ttr_language_objects> ${language_inside})
  add_library(ttr::language ALIAS ttr_language)
  public_library(ttr_language)
  target_link_libraries(ttr_language PUBLIC ttr_model PRIVATE Threads::Threads pcre2-8 utf8proc $<BUILD_INTERFACE:hwy::hwy>)
  set_target_properties(ttr_language PROPERTIES EXPORT_NAME language)
  list(PREPEND libraries ttr_language)
  if(TTR_C AND UNIX AND NOT APPLE)  # its C functions, as libttr_c has those of ttr
    file(STRINGS include/ttr/language_c.h abi_line REGEX "define TTR_LM_ABI_VERSION ")
    string(REGEX MATCH "[0-9]+$" abi "${abi_line}")
    file(STRINGS language/c_abi/symbols.txt symbols)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS language/c_abi/symbols.txt include/ttr/language_c.h)
    list(JOIN symbols ";\n    " symbols)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/ttr_language_c.map
      CONTENT "TTR_LM_${abi} {\n  global:\n    ${symbols};\n  local: *;\n};\n")
    add_library(ttr_language_c SHARED language/c_abi/language_c.cc)
    add_library(ttr::language_c ALIAS ttr_language_c)
    target_include_directories(ttr_language_c PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:include> PRIVATE src)
    target_link_libraries(ttr_language_c PRIVATE $<BUILD_INTERFACE:ttr_language>)
    target_compile_definitions(ttr_language_c PUBLIC TTR_SHARED PRIVATE TTR_BUILDS_LIBRARY)
    target_compile_options(ttr_language_c PRIVATE ${warning_options})
    target_link_options(ttr_language_c PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/ttr_language_c.map ${complete})
    set_target_properties(ttr_language_c PROPERTIES EXPORT_NAME language_c VERSION ${abi}.${PROJECT_VERSION}
      SOVERSION ${abi} LINK_DEPENDS ${PROJECT_BINARY_DIR}/ttr_language_c.map)
  endif()
endif()

# Sequences on the ranks of an MPI communicator (docs/scaling.md). Reads what a plan is made of, so that it is static.
if(TTR_MPI AND (BUILD_SHARED_LIBS OR CMAKE_CROSSCOMPILING))
  message(STATUS "ttr::mpi is left out: it needs static libraries, and an MPI of this machine")
  set(TTR_MPI OFF)
endif()
if(TTR_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND)
    message(STATUS "ttr::mpi is left out: there is no MPI (Debian: libopenmpi-dev openmpi-bin)")
    set(TTR_MPI OFF)
  endif()
endif()
if(TTR_MPI)
  file(GLOB mpi_sources CONFIGURE_DEPENDS mpi/*.cc)
  add_library(ttr_mpi STATIC ${mpi_sources})
  add_library(ttr::mpi ALIAS ttr_mpi)
  target_include_directories(ttr_mpi PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE src ${PROJECT_SOURCE_DIR})
  target_link_libraries(ttr_mpi PUBLIC ttr MPI::MPI_CXX)
  target_compile_options(ttr_mpi PRIVATE ${warning_options})
  set_target_properties(ttr_mpi PROPERTIES EXPORT_NAME mpi POSITION_INDEPENDENT_CODE ON)
endif()

if(BUILD_SHARED_LIBS)
  add_library(ttr_inside STATIC EXCLUDE_FROM_ALL ${library_objects})
  if(TTR_MODEL)
    target_sources(ttr_inside PRIVATE $<TARGET_OBJECTS:ttr_model_objects>)
  endif()
  if(TTR_LANGUAGE)
    target_sources(ttr_inside PRIVATE $<TARGET_OBJECTS:ttr_language_objects>)
    target_link_libraries(ttr_inside PUBLIC pcre2-8 utf8proc)
  endif()
  target_link_libraries(ttr_inside PUBLIC ttr_headers hwy::hwy Threads::Threads)
else()
  add_library(ttr_inside INTERFACE)
  target_link_libraries(ttr_inside INTERFACE ${libraries})
endif()
