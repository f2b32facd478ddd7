# cairn_component(NAME HEADERS ... SOURCES ... [USES ...] [LIBRARIES ...] [PUBLIC_LIBRARIES ...] [INCLUDES ...] [ALONE ...]
#                 [TESTS ...] [THREAD_TESTS ...] [TEST_LIBRARIES ...] [TEST_DEFINITIONS ...])
#
# Adds one folder of cairn/ to the library. HEADERS are the public ones, which are installed; scripts/check_layers.py checks
# that they include only public headers, and that the header of a component (cairn/core.h and so on) leads to them. USES: the
# folders that it includes. LIBRARIES, INCLUDES: third-party libraries and include folders. ALONE: sources that are never
# compiled in a batch. TESTS become the program NAME_test; THREAD_TESTS, those that run threads, NAME_threads_test, which also
# runs under TSan. Both link only this folder and what it uses, so that a change rebuilds little.
function(cairn_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" ""
    "HEADERS;SOURCES;USES;LIBRARIES;PUBLIC_LIBRARIES;INCLUDES;ALONE;TESTS;THREAD_TESTS;TEST_LIBRARIES;TEST_DEFINITIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cairn_component(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  add_library(cairn_part_${name} STATIC ${arg_SOURCES})
  target_compile_features(cairn_part_${name} PUBLIC cxx_std_20)
  target_include_directories(cairn_part_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_include_directories(cairn_part_${name} SYSTEM PRIVATE ${arg_INCLUDES})
  list(TRANSFORM arg_USES PREPEND cairn_part_)
  target_link_libraries(cairn_part_${name} PUBLIC ${arg_USES} ${arg_PUBLIC_LIBRARIES} PRIVATE cairn_warnings ${arg_LIBRARIES})
  # It is also linked into the shared library of the C interface, which shows none of it.
  set_target_properties(cairn_part_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  cairn_batches(cairn_part_${name} EXCEPT ${arg_ALONE})

  list(TRANSFORM arg_HEADERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(cairn
    PRIVATE $<TARGET_OBJECTS:cairn_part_${name}>
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS})
  target_link_libraries(cairn PUBLIC ${arg_PUBLIC_LIBRARIES} PRIVATE ${arg_LIBRARIES})
  if(CAIRN_TESTS AND arg_TESTS)
    cairn_test(${name}_test SOURCES ${arg_TESTS} OF cairn_part_${name} LIBRARIES ${arg_TEST_LIBRARIES}
      DEFINITIONS ${arg_TEST_DEFINITIONS})
  endif()
  if(CAIRN_TESTS AND arg_THREAD_TESTS)
    cairn_test(${name}_threads_test SOURCES ${arg_THREAD_TESTS} OF cairn_part_${name} LIBRARIES ${arg_TEST_LIBRARIES}
      DEFINITIONS ${arg_TEST_DEFINITIONS} LABELS threads)
  endif()
endfunction()

# What is tested is optimised, with every check of the sanitizers. Optimising the tests themselves would double the time that
# they take to compile, which is most of a sanitizer build. These four checks take a quarter of it, and a null pointer or an
# object that is too small is found by the address sanitizer too.
set(CAIRN_TEST_OPTIONS -O0)
if(CAIRN_SANITIZE MATCHES undefined)
  list(APPEND CAIRN_TEST_OPTIONS -fno-sanitize=null,vptr,alignment,object-size)
endif()

# What nearly every test includes, compiled once for all of them: half the time that a test takes to compile.
if(CAIRN_TESTS OR CAIRN_GPU_PROGRAMS)
  add_library(cairn_test_headers OBJECT ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
  target_compile_features(cairn_test_headers PRIVATE cxx_std_20)
  target_compile_options(cairn_test_headers PRIVATE ${CAIRN_TEST_OPTIONS})
  target_link_libraries(cairn_test_headers PRIVATE cairn_warnings GTest::gmock Threads::Threads)
  target_precompile_headers(cairn_test_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <functional> <map> <memory> <optional> <random> <string> <unordered_map> <vector>)
endif()

# cairn_batches(TARGET [EXCEPT ...]): with CAIRN_BATCHES its sources are compiled eight at a time. EXCEPT: those that
# define a name of their own that another file also has; compiled together they would clash.
function(cairn_batches target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "EXCEPT")
  if(NOT CAIRN_BATCHES)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # A class of a source file may have members of that file's own types; to the compiler they all seem to be a header's.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  set_source_files_properties(${arg_EXCEPT} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# With CAIRN_BATCHES tests are compiled twelve files at a time; see join_tests.cmake. A file whose anonymous namespace does not
# hold all that is in it, such as one that replaces operator new, is compiled alone everywhere.
function(cairn_join_tests name sources_name)
  set(alone "")
  set(tests "")
  foreach(source IN LISTS ${sources_name})
    get_filename_component(path ${source} ABSOLUTE)
    file(READ ${path} text)
    if(text MATCHES "\nnamespace {\n.*\nnamespace {\n" OR
       NOT text MATCHES "\nnamespace [a-z_:]+ {\n+namespace {\n.*\n}  // namespace\n}  // namespace [a-z_:]+\n$")
      list(APPEND alone ${path})
    else()
      list(APPEND tests ${path})
    endif()
  endforeach()
  list(LENGTH tests count)
  if(count LESS 2)
    return()
  endif()
  math(EXPR batches "(${count} + 11) / 12")
  set(first 0)
  set(number 0)
  while(number LESS batches)
    math(EXPR size "(${count} + ${number}) / ${batches}")
    list(SUBLIST tests ${first} ${size} batch)
    math(EXPR first "${first} + ${size}")
    math(EXPR number "${number} + 1")
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/${name}_${number}.cc)
    add_custom_command(OUTPUT ${joined}
      COMMAND ${CMAKE_COMMAND} -D OUT=${joined} -D ROOT=${PROJECT_SOURCE_DIR} -D "SOURCES=${batch}"
        -P ${PROJECT_SOURCE_DIR}/cmake/join_tests.cmake
      DEPENDS ${batch} ${PROJECT_SOURCE_DIR}/cmake/join_tests.cmake
      COMMENT "Joining tests to ${name}_${number}.cc"
      VERBATIM)
    list(APPEND alone ${joined})
  endwhile()
  set(${sources_name} ${alone} PARENT_SCOPE)
endfunction()

# cairn_test(NAME SOURCES ... [OF TARGET] [LIBRARIES ...] [LABELS ...] [DEFINITIONS ...] [SHIPPED]): one gtest program, known
# to ctest under its name, that links the whole library or the part of it that OF names. SHIPPED: it is also part of builds without CAIRN_UNIT_TESTS, because it tests speed or whole programs.
function(cairn_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SHIPPED" "OF" "SOURCES;LIBRARIES;LABELS;DEFINITIONS")
  if(NOT CAIRN_UNIT_TESTS AND NOT arg_SHIPPED)
    return()
  endif()
  if(CAIRN_BATCHES)
    cairn_join_tests(${name} arg_SOURCES)
  endif()
  if(NOT arg_OF)
    set(arg_OF cairn)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_OF} cairn_warnings GTest::gmock_main ${arg_LIBRARIES})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  target_compile_options(${name} PRIVATE ${CAIRN_TEST_OPTIONS})
  target_precompile_headers(${name} REUSE_FROM cairn_test_headers)
  # The report is how ./test counts cases.
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1 --gtest_output=xml:${CMAKE_BINARY_DIR}/reports/${name}.xml)
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS "${arg_LABELS}")
  if(CAIRN_SANITIZE MATCHES thread)
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan_suppressions.txt)
  endif()
endfunction()
