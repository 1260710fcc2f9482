# Rules to install, find_package(ttr) from an installed tree and from this build tree, pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(vendored_highway AND NOT BUILD_SHARED_LIBS)
  message(FATAL_ERROR "TTR_INSTALL is on and Highway is built from source: an installed libttr.a would need a library that \
is not installed. Use an installed Highway, BUILD_SHARED_LIBS=ON, or TTR_INSTALL=OFF")
endif()

set(installed ttr)
foreach(target ttr_c ttr_model ttr_language ttr_language_c)
  if(TARGET ${target})
    list(APPEND installed ${target})
  endif()
endforeach()
install(TARGETS ${installed} EXPORT ttr ARCHIVE LIBRARY RUNTIME)
if(TARGET ttr_program)
  set_target_properties(ttr_program PROPERTIES INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
  install(TARGETS ttr_program RUNTIME)
  if(TARGET ttr_mpi_program)
    set_target_properties(ttr_mpi_program PROPERTIES INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
    install(TARGETS ttr_mpi_program RUNTIME)
  endif()
  if(pages)
    install(FILES ${pages}/ttr.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${pages}/ttr DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${pages}/_ttr DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  endif()
endif()
if(BUILD_SHARED_LIBS)
  set_target_properties(${installed} PROPERTIES INSTALL_RPATH $ORIGIN)
endif()
install(DIRECTORY include/ttr DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES README.md LICENSE CHANGELOG.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(is_shared OFF)
if(BUILD_SHARED_LIBS)
  set(is_shared ON)
endif()
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ttr)
configure_package_config_file(cmake/ttr-config.cmake.in ${PROJECT_BINARY_DIR}/ttr-config.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ttr-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ttr-config.cmake ${PROJECT_BINARY_DIR}/ttr-config-version.cmake DESTINATION ${config_dir})
install(EXPORT ttr NAMESPACE ttr:: FILE ttr-targets.cmake DESTINATION ${config_dir})
# Apart from the others: who does not ask for COMPONENTS mpi needs no MPI.
if(TARGET ttr_mpi)
  install(TARGETS ttr_mpi EXPORT ttr-mpi ARCHIVE LIBRARY)
  install(EXPORT ttr-mpi NAMESPACE ttr:: FILE ttr-mpi-targets.cmake DESTINATION ${config_dir})
  export(EXPORT ttr-mpi NAMESPACE ttr:: FILE ${PROJECT_BINARY_DIR}/ttr-mpi-targets.cmake)
endif()
export(EXPORT ttr NAMESPACE ttr:: FILE ${PROJECT_BINARY_DIR}/ttr-targets.cmake)

# pkg-config. Prefixes are relative to the file, so that an installed tree may be moved.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up "${up}")
function(pkg_config name description library)  # the rest: further lines
  list(JOIN ARGN "\n" further)
  file(WRITE ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc "prefix=\${pcfiledir}/${up}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}

Name: ${name}
Description: ${description}
Version: ${PROJECT_VERSION}
Libs: -L\${libdir} -l${library}
${further}
")
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
list(JOIN slim_link_options " " static_link_options)
if(BUILD_SHARED_LIBS)
  pkg_config(ttr "${PROJECT_DESCRIPTION}" ttr "Cflags: -I\${includedir} -DTTR_SHARED")
else()
  pkg_config(ttr "${PROJECT_DESCRIPTION}" "ttr -pthread ${static_link_options}" "Cflags: -I\${includedir}" "Requires: libhwy >= 1.0.3")
endif()
if(TARGET ttr_c)
  pkg_config(ttr_c "${PROJECT_DESCRIPTION}: the functions for C" ttr_c "Cflags: -I\${includedir} -DTTR_SHARED")
endif()
if(TARGET ttr_language_c)
  pkg_config(ttr_language_c "${PROJECT_DESCRIPTION}: language models for C" ttr_language_c "Cflags: -I\${includedir} -DTTR_SHARED")
endif()
if(TARGET ttr_model)
  pkg_config(ttr_model "${PROJECT_DESCRIPTION}: the outer model" ttr_model "Cflags: -I\${includedir}" "Requires: ttr = ${PROJECT_VERSION}")
endif()
