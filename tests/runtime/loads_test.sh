# loads_test.sh - what processes load: on unix sockets no OpenSSL, from the start to the end, which is the
# larger half of a worker; an agent none of hwloc's plugins, which bring X11 and XML along.
#
# SPDX-License-Identifier: Apache-2.0
unset FIBER_TRANSPORT FIBER_BACKEND
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work" || :' EXIT
failed=0

loaded_by() { # loaded_by <library>: how many processes
    grep -l "file=[^ ]*$1" "$work"/ld.* | wc -l
}

load() { # load <command>...
    rm -f "$work"/ld.*
    if ! LD_DEBUG=files LD_DEBUG_OUTPUT="$work/ld" "$@" >"$work/out" 2>&1; then
        cat "$work/out"
        echo "$1 failed"
        exit 1
    fi
}

expect() { # expect <what> <number> <number it should be>
    [ "$2" = "$3" ] && return
    echo "$1: $2, not $3"
    failed=1
}

load "${TEST_BINARY_DIR:?}/examples/hello_pool"
[ "$(loaded_by libnanomsg)" -gt 1 ] || expect 'processes that could load something' "$(loaded_by libnanomsg)" '2 or more'
expect 'processes of a pool that load OpenSSL' "$(loaded_by libcrypto)" 0

load "$TEST_BINARY_DIR/cli/fiber" run -n 1 /bin/true
expect 'launchers and agents' "$(loaded_by libnanomsg)" 2
expect 'processes of a ring that load OpenSSL' "$(loaded_by libcrypto)" 0
expect 'agents that load plugins of hwloc' "$(loaded_by hwloc_)" 0
exit $failed
