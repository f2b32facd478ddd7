# Compiler switches of every preset: warnings, sanitizers, static linking, the linker, ccache.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "g++ 12 or later is needed, and ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}: "
    "set CXX to a newer compiler and remove ${CMAKE_BINARY_DIR}")
endif()
# Warnings are errors for the compilers that every change is checked with. Another compiler has false warnings of its own
# (g++ 13: -Wfree-nonheap-object in std::vector), which are no reason not to build.
set(CAIRN_WERROR "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(CAIRN_WERROR -Werror)
endif()
add_library(cairn_warnings INTERFACE)
target_compile_options(cairn_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough ${CAIRN_WERROR}
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # What libstdc++ itself uses, for std::stable_sort; g++ says what we use.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
if(CAIRN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Instrumented code looks uninitialised to g++ 12 where it is not: the destructor of std::variant is one place.
  target_compile_options(cairn_warnings INTERFACE -Wno-maybe-uninitialized)
endif()

# For tests that do less where everything takes several times as long.
set(CAIRN_SANITIZED 0)
if(CAIRN_SANITIZE)
  set(CAIRN_SANITIZED 1)
  add_compile_options(-fsanitize=${CAIRN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CAIRN_SANITIZE})
endif()

# Locks check their order wherever speed is not the point.
if(CAIRN_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(CAIRN_CHECK_LOCK_RANKS)
endif()

# Not in a wheel: exceptions cross from its module to that of nanobind-backend, so both need the same libstdc++ and libgcc_s.
if(CAIRN_STATIC AND NOT SKBUILD)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

# mold takes a fraction of the time of ld for the sixty programs of a sanitizer build.
find_program(CAIRN_MOLD mold)
if(CAIRN_MOLD)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold CAIRN_LINKS_BY_MOLD)
  if(CAIRN_LINKS_BY_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

find_program(CAIRN_CCACHE ccache)
if(CAIRN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # It must be told that precompiled headers are to be trusted.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CAIRN_CCACHE})
endif()
