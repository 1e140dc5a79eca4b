# stamp.cmake - writes stamp/fiber_stamp.h, by which modules and what loads them see whether they are of one build:
#
#     cmake -DOUT=<header> -DVERSION=<of Fiber> -DMORE=<what else counts> -DSOURCES=<files> -P stamp.cmake
#
# SOURCES are those that decide over what both sides have in memory. Builds of the same ones are one build.
#
# SPDX-License-Identifier: Apache-2.0
set(sums "${MORE}")
foreach(source ${SOURCES})
    file(SHA256 "${source}" sum)
    string(APPEND sums " ${sum}")
endforeach()
string(SHA256 sum "${sums}")
string(SUBSTRING "${sum}" 0 16 sum)
file(WRITE "${OUT}" "#define FBR_STAMP \"${VERSION} ${sum}\"\n")
