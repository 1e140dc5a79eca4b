# ring_bad_place_test.sh - rings in places that are short of something: nobody's rights, no loopback, a tiny /dev/shm, no
# room for the run directory.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154,SC2016
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

[ "$(id -u)" = 0 ] || skip 'it takes root to make such places'
[ -n "${RING_PRIVATE:-}" ] || skip 'unshare does not work here'

programs=()
for m in openmpi mpich; do
    [ "$m" != openmpi ] || [ -e "$TEST_BINARY_DIR/fiber/pmix.so" ] || continue
    ! command -v "mpicc.$m" >/dev/null || ! compile "mpicc.$m" "$work/check.$m" || programs+=("$work/check.$m")
done

real=$fiber

place() { # place <file> <line>...: a script that runs fiber in the place that the lines make
    local file=$1
    shift
    printf '%s\n' '#!/bin/bash' 'set -e' "$@" >"$work/$file"
    chmod 755 "$work/$file"
    fiber=$work/$file
}

agree() { # agree <argument>...: every program, on one agent and on two
    local p code=0
    fiber_run 0 -n 2 "$@" sh -c 'echo "rank $FIBER_RANK of $FIBER_SIZE"' || code=1
    says 'rank 1 of 2' || code=1
    for p in "${programs[@]}"; do
        fiber_run 0 -n 2 "$@" "$p" window || code=1
        says 'window: 2 ranks agree' || code=1
    done
    return "$code"
}

test_nobody_runs_a_ring() {
    local code=0
    command -v setpriv >/dev/null || return 0
    mkdir -p "$work/copy/cli" # the tree may be in a place that is not everybody's
    cp "$real" "$work/copy/cli/fiber"
    [ ! -d "$TEST_BINARY_DIR/fiber" ] || cp -r "$TEST_BINARY_DIR/fiber" "$work/copy/fiber"
    place nobody "export HOME=/nonexistent; cd /; exec setpriv --reuid 65534 --regid 65534 --clear-groups $work/copy/cli/fiber \"\$@\""
    agree || code=1
    agree --per-node=1 || code=1
    # a number that is in no list of users, and no HOME that would say as much
    install -d -o 54321 -g 54321 "$work/strangers"
    place stranger "unset HOME; export XDG_RUNTIME_DIR=$work/strangers; cd /" \
        "exec setpriv --reuid 54321 --regid 54321 --clear-groups $work/copy/cli/fiber \"\$@\""
    agree || code=1
    fiber=$real
    return "$code"
}

test_a_host_without_loopback() {
    local code=0
    place quiet "exec unshare -n '$real' \"\$@\""
    agree || code=1
    fiber=$real
    return "$code"
}

test_a_tiny_shared_memory() {
    local code=0
    place tiny "exec unshare -m bash -c 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"\$0\" \"\$@\"' '$real' \"\$@\""
    agree || code=1
    fiber_run 0 --oversubscribe -n 4 -v "${programs[@]:0:1}" ${programs:+collectives} || code=1
    fiber=$real
    return "$code"
}

test_no_shared_memory_at_all() {
    local code=0
    place without "exec unshare -m bash -c 'mount -t tmpfs -o ro tmpfs /dev/shm && exec \"\$0\" \"\$@\"' '$real' \"\$@\""
    agree || code=1
    fiber=$real
    return "$code"
}

test_too_few_descriptors_are_told() { # libpmix does not: ranks would wait for ever
    local code=0
    place few "ulimit -n 64; exec '$real' \"\$@\""
    fiber_run 125 --oversubscribe -n 32 true || code=1
    says 'raise the limit (ulimit -n)' || code=1
    agree || code=1
    fiber=$real
    return "$code"
}

test_who_has_started_us_ignores_the_end_of_children() {
    local code=0
    place careless "exec env --ignore-signal=CHLD '$real' \"\$@\""
    fiber_run 7 -n 2 sh -c 'exit $((7 * FIBER_RANK))' || code=1
    fiber_run 0 -n 2 python3 -c 'import signal; exit(signal.getsignal(signal.SIGCHLD) != signal.SIG_DFL)' || code=1
    agree || code=1
    fiber=$real
    return "$code"
}

test_a_full_run_directory_is_told() {
    mkdir -p "$work/full"
    mount -t tmpfs -o size=4k,nr_inodes=3 tmpfs "$work/full"
    code=0
    FIBER_RUN_DIR=$work/full timeout "$patience" "$fiber" run -n 2 true >"$work/out" 2>"$work/err" </dev/null || code=$?
    umount "$work/full" || fail 'something still uses it' || return
    [ "$code" = 125 ] || fail "exit code $code" || return
    says "$work/full" || return
    leaves_nothing
}

test_a_program_where_none_is_executed() {
    local code=0
    mkdir -p "$work/noexec"
    mount -t tmpfs -o noexec tmpfs "$work/noexec"
    printf '#!/bin/sh\n' >"$work/noexec/program"
    chmod +x "$work/noexec/program"
    fiber_run 125 -n 1 "$work/noexec/program" || code=1
    umount "$work/noexec"
    says 'is mounted with noexec' || code=1
    return "$code"
}

run_tests test_nobody_runs_a_ring test_a_host_without_loopback test_a_tiny_shared_memory test_no_shared_memory_at_all \
    test_too_few_descriptors_are_told test_who_has_started_us_ignores_the_end_of_children \
    test_a_full_run_directory_is_told test_a_program_where_none_is_executed
