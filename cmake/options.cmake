# options.cmake - the target fiber_options: warnings, sanitizers and link options of everything that is built here.
#
# SPDX-License-Identifier: Apache-2.0
add_library(fiber_options INTERFACE)
# A compiler that is newer than the tested ones may have new warnings. They must not end the build of a user.
set(tested_GNU 16)
set(tested_Clang 21)
string(REGEX MATCH "^[0-9]+" compiler_version "${CMAKE_C_COMPILER_VERSION}")
if(FIBER_WERROR AND compiler_version GREATER "${tested_${CMAKE_C_COMPILER_ID}}")
    message(STATUS "Warnings are no errors: this compiler is newer than those that were tested")
    set(FIBER_WERROR OFF)
endif()
# A callback often needs only some parameters of its type; tests/lint/parameters.py looks at the other functions.
target_compile_options(fiber_options INTERFACE -Wall -Wextra -Wno-unused-parameter -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wpointer-arith -Wvla $<$<BOOL:${FIBER_WERROR}>:-Werror>)
target_link_options(fiber_options INTERFACE LINKER:--build-id=sha1 LINKER:-O1 LINKER:--as-needed)

set(sanitizer_flags "")
if(FIBER_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "FIBER_FUZZ needs clang (libFuzzer): configure with -DCMAKE_C_COMPILER=clang")
    endif()
    set(sanitizer_flags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
elseif(FIBER_SANITIZER STREQUAL asan)
    # UBSan ends a program by a trap, an "ILL" whose line addr2line(1) finds. The text that it could print instead needs
    # data for each check, and AddressSanitizer of gcc guards that as it guards variables: `fiber` would have 5 MB of
    # data instead of 0.4, and take twice as long to start and to end.
    set(sanitizer_flags -fsanitize=address,undefined -fsanitize-undefined-trap-on-error)
elseif(FIBER_SANITIZER STREQUAL tsan)
    set(sanitizer_flags -fsanitize=thread)
elseif(NOT FIBER_SANITIZER STREQUAL none)
    message(FATAL_ERROR "FIBER_SANITIZER is none, asan or tsan, not ${FIBER_SANITIZER}")
endif()
if(sanitizer_flags)
    target_compile_options(fiber_options INTERFACE ${sanitizer_flags} -O1 -fno-omit-frame-pointer)
    target_link_options(fiber_options INTERFACE ${sanitizer_flags})
    # A sanitizer puts many pointers into a program. Where they need no relocation, it starts in less time, and the tests
    # start thousands.
    target_link_options(fiber_options INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()

# Only developers build these: LLVM's linker, where it is installed, takes half the time. The library that users build is
# linked as they do it, in the tests too.
find_program(FIBER_LLD ld.lld)
mark_as_advanced(FIBER_LLD)
if(FIBER_LLD AND (sanitizer_flags OR (FIBER_WERROR AND CMAKE_C_COMPILER_ID MATCHES Clang)))
    target_link_options(fiber_options INTERFACE -fuse-ld=lld)
endif()
