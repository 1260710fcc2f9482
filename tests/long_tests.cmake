# Writes OUTPUT, which ctest includes: a test check.long.<layer> of TOKENS tokens for every layer that `PROGRAM check --long`
# runs. A process each, so that they run beside each other and one that fails has a name.
execute_process(COMMAND ${PROGRAM} check --long --list OUTPUT_VARIABLE names RESULT_VARIABLE code
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT code EQUAL 0 OR names STREQUAL "")
  message(FATAL_ERROR "'${PROGRAM} check --long --list' gave code ${code} and the names '${names}'; there must be some")
endif()
string(REPLACE "\n" ";" names "${names}")
set(text "")
foreach(name IN LISTS names)
  string(APPEND text "add_test(check.long.${name} \"${PROGRAM}\" check --quiet --long --tokens ${TOKENS} ${name})\n"
    "set_tests_properties(check.long.${name} PROPERTIES TIMEOUT ${TIMEOUT})\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
