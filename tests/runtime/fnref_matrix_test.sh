#!/bin/sh
# fnref_matrix_test.sh - function references hold between processes for every kind of executable that the compilers here make.
#
# usage: fnref_matrix_test.sh [SOURCE ROOT]   CC_LIST="gcc clang" chooses the compilers
#
# Each case compiles fnref_matrix.c with runtime/proc/fnref.c and runs it: parent and child are two processes of one file, one
# of them without ASLR. FNREF_SHORT=1: one case of each kind, with the first compiler. Then what must be refused: a module without a build-id, and references of another build.
# Exit code 0 all hold, 1 not, 77 no compiler (a skip for CTest).
#
# SPDX-License-Identifier: Apache-2.0
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 2
work=$(mktemp -d "${TMPDIR:-/tmp}/fnref.XXXXXX") || exit 2
trap 'rm -rf "$work" || :' EXIT
trap 'exit 130' INT TERM

here=tests/runtime/fnref_matrix.c
units="runtime/proc/fnref.c $work/error.o $work/buf.o"
common="-std=gnu11 -D_GNU_SOURCE -I. -Iinclude"
held=0 skipped=0 failed=0

# compile <compiler> <program> <flags...>; the first line of what went wrong is left in $work/why
compile() {
    compiler=$1 program=$2
    shift 2
    # shellcheck disable=SC2086 # lists of words
    if "$compiler" $common "$here" $units -o "$program" "$@" 2>"$work/log"; then
        return 0
    fi
    grep -m1 -E 'error|cannot|unrecognized|unsupported' "$work/log" >"$work/why" || head -n1 "$work/log" >"$work/why"
    return 1
}

good() { held=$((held + 1)); echo "ok    $1"; }
skip() { skipped=$((skipped + 1)); echo "skip  $1: $2"; }
bad() { failed=$((failed + 1)); echo "FAIL  $1: $2"; }

# holds <compiler> <case> <flags...>: this kind of program calls its functions in the child
holds() {
    compiler=$1 label="$1 $2"
    shift 2
    if ! compile "$compiler" "$work/program" -Wl,--build-id "$@"; then
        skip "$label" "cannot be built here ($(cat "$work/why"))"
    elif "$work/program" 2>"$work/log"; then
        good "$label"
    else
        bad "$label" "exit code $?: $(cat "$work/log")"
    fi
}

# refuses <label> <text> <command...>: the command fails and says the text
refuses() {
    label=$1 text=$2
    shift 2
    if "$@" >/dev/null 2>"$work/log"; then
        bad "$label" "was not refused"
    elif grep -q -- "$text" "$work/log"; then
        good "$label"
    else
        bad "$label" "says: $(cat "$work/log")"
    fi
}

# What is not under test is compiled once, position independent, for all kinds.
helpers_build() {
    for unit in error buf; do
        # shellcheck disable=SC2086
        "$1" $common -O1 -fPIC -c "runtime/base/$unit.c" -o "$work/$unit.o" || exit 2
    done
}

matrix_run() {
    holds "$1" pie -O2 -fPIE -pie
    holds "$1" no-pie -O2 -fno-pie -no-pie
    holds "$1" static -O2 -static
    holds "$1" O3-lto-stripped -O3 -flto -s
    [ -z "${FNREF_SHORT-}" ] || return
    holds "$1" static-pie -O2 -fPIE -static-pie
    holds "$1" O0 -O0
    holds "$1" O3-lto -O3 -flto
    holds "$1" O3-lto-lld -O3 -flto -fuse-ld=lld
    holds "$1" O3-lto-static -O3 -flto -static
    holds "$1" stripped -O2 -s
    holds "$1" gc-sections -O2 -ffunction-sections -Wl,--gc-sections
    holds "$1" one-segment -O2 -Wl,-z,noseparate-code
    holds "$1" gold -O2 -fuse-ld=gold
    holds "$1" lld -O2 -fuse-ld=lld
    holds "$1" id-md5 -O2 -Wl,--build-id=md5
    holds "$1" id-uuid -O2 -Wl,--build-id=uuid
    holds "$1" no-plt -O2 -fno-plt
    holds "$1" property-notes -O2 -fcf-protection
}

# The third function lives in a shared library of the program's own.
library_run() {
    if ! "$1" -O2 -fPIC -shared -DFNREF_LIBRARY "$here" -o "$work/libown.so" -Wl,--build-id 2>"$work/log"; then
        skip "$1 library" "no shared libraries"
        return
    fi
    holds "$1" library-pie -O2 -DWITH_LIBRARY -L"$work" -lown -Wl,-rpath,"$work"
    [ -z "${FNREF_SHORT-}" ] || return
    holds "$1" library-no-pie -O2 -fno-pie -no-pie -DWITH_LIBRARY -L"$work" -lown -Wl,-rpath,"$work"
    strip "$work/libown.so" 2>/dev/null && holds "$1" library-stripped -O2 -s -DWITH_LIBRARY -L"$work" -lown \
        -Wl,-rpath,"$work"
}

refusals_run() {
    compile "$1" "$work/none" -O2 -Wl,--build-id=none &&
        refuses "$1 without-id" "no build-id: link it with -Wl,--build-id" "$work/none"
    compile "$1" "$work/long" -O2 "-Wl,--build-id=0x$(printf '%080d' 1)" &&
        refuses "$1 long-id" "too long a build-id" "$work/long"
    compile "$1" "$work/a" -O2 -Wl,--build-id && compile "$1" "$work/b" -O1 -Wl,--build-id || return
    # shellcheck disable=SC2046 # one argument for each line
    refuses "$1 other-build" "both programs must be the same build" "$work/b" call $("$work/a" make)
    # shellcheck disable=SC2046
    refuses "$1 child-without-id" "this program is build (none)" "$work/none" call $("$work/a" make)
    cp "$work/a" "$work/copy" && strip "$work/copy" 2>/dev/null || return
    # shellcheck disable=SC2046
    if "$work/copy" call $("$work/a" make); then good "$1 stripped-copy"; else bad "$1 stripped-copy" "refused"; fi
}

any=
for compiler in ${CC_LIST:-gcc clang}; do
    command -v "$compiler" >/dev/null || { echo "skip  $compiler: not installed"; continue; }
    any=yes
    helpers_build "$compiler"
    matrix_run "$compiler"
    library_run "$compiler"
    refusals_run "$compiler"
    [ -z "${FNREF_SHORT-}" ] || break
done
[ "$any" ] || exit 77
echo "$held hold, $skipped skipped, $failed failed"
[ "$failed" = 0 ]
