# ring_lib.sh - what the tests of `fiber run` share; they source it. As root each runs with a /dev/shm of its own, so that
# whatever is left there is theirs.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC1091,SC2034,SC2154,SC2119,SC2120,SC2317
set -euo pipefail

fiber=${TEST_BINARY_DIR:?}/cli/fiber
here=${TEST_SOURCE_DIR:?}/tests/system
. "$here/../support/open_mpi.sh"

skip() { # skip <why>
    echo "skipped: $1"
    exit 77
}

[ -x "$fiber" ] || skip "$fiber is not built"
if [ -z "${RING_PRIVATE:-}" ] && unshare -m true 2>/dev/null; then
    RING_PRIVATE=1 exec unshare -m --propagation private \
        bash -c 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec bash "$@"' private "$0" "$@"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/fbrring-XXXXXX")
chmod 755 "$work"
mkdir -m 1777 "$work/run"
mkdir -m 700 "$work/own"
export XDG_RUNTIME_DIR=$work/own # runs of other tests share no processors with ours
export RING_TEST_MARK="$work" # in the environment of all that is started here
export FIBER_RUN_DIR=$work/run
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export UCX_NET_DEVICES=lo # MPICH does not start when one of all interfaces goes away meanwhile, as those of containers do
# How long a slow machine may take for anything. Nothing of a run comes to its end by a timer of the run's within that,
# unless a test sets one: what ends, ends because somebody saw why.
patience=120
export FIBER_HEARTBEAT=200s
mkfifo "$work/clock"
exec 9<>"$work/clock"
asan=0
[[ ${TEST_SANITIZER_OPTIONS:-} != *sanitize* ]] || asan=1
failed=0

processes() { # of this test, but itself
    local p pid state
    while read -r p; do
        pid=${p#/proc/}
        pid=${pid%/environ}
        [[ $pid != "$$" && $pid != "$BASHPID" && -e /proc/$pid/exe ]] || continue
        state=$(state_of "$pid") || continue
        [[ $state == [ZX] ]] || echo "$pid"
    done < <(grep -lszxF "RING_TEST_MARK=$work" /proc/[0-9]*/environ)
}

state_of() { # state_of <pid>: a letter
    local rest=
    { read -r -d '' rest <"/proc/$1/stat"; } 2>/dev/null || [ -n "$rest" ] || return
    rest=${rest##*) }
    echo "${rest%% *}"
}

foreign() { # processes of this test that are no shell of it
    local pid
    for pid in $(processes); do
        case $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") in
            *"$0"* | '') ;;
            *) echo "$pid" ;;
        esac
    done
}

end_all() {
    local pid
    for pid in $(foreign); do
        kill -KILL "$pid" 2>/dev/null || :
    done
}

cleanup() {
    end_all
    rm -rf "$work"
}
trap cleanup EXIT

tick() { # waits for a moment, or less
    read -rt 0.02 -u 9 || :
}

fail() { # fail <what>: goes on with the next test
    echo "FAILED: ${FUNCNAME[*]:1:2}: $1" >&2
    for f in "$work/out" "$work/err"; do
        [ ! -s "$f" ] || tail -n 20 "$f" | cut -c 1-300 >&2
    done
    failed=1
    return 1
}

now_ms() {
    local t=$EPOCHREALTIME
    echo $((${t%.*} * 1000 + 10#${t#*.} / 1000))
}

wait_for() { # wait_for <seconds> <command>...: until it succeeds
    local end=$(($(now_ms) + $1 * 1000))
    shift
    until "$@"; do
        [ "$(now_ms)" -lt "$end" ] || return 1
        tick
    done
}

segments() {
    if [ -n "${RING_PRIVATE:-}" ]; then
        find /dev/shm -mindepth 1
    else
        find /dev/shm -maxdepth 1 -name 'fiber-*' -newer "$work/clock" -user "$(id -un)"
    fi
}

is_clean() {
    [ -z "$(ls -A "$work/run")" ] && [ -z "$(segments)" ] && [ -z "$(foreign)" ]
}

leaves_nothing() {
    wait_for "$patience" is_clean && return
    for pid in $(foreign); do
        tr '\0' ' ' <"/proc/$pid/cmdline" | sed "s/^/left: process $pid /; s/$/\n/" >&2
    done
    find "$work/run" /dev/shm | head -20 >&2
    fail "something of the run is left"
}

fiber_run() { # fiber_run <expected code> <argument>...: out and err are its output
    local want=$1 got=0
    shift
    for _ in 1 2; do
        got=0
        timeout -k 5 "$patience" "$fiber" run "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
        [ "$got" != "$want" ] || break
        open_mpi_raced "$work/err" || break
    done
    if [ "$got" != "$want" ]; then
        fail "exit code $got, not $want: $*" || :
        leaves_nothing || :
        return 1
    fi
    leaves_nothing
}

says() { # says <text>: in either stream
    grep -qaF -- "$1" "$work/out" "$work/err" || fail "nothing says \"$1\""
}

start() { # start <argument>...: `fiber run` in the background, in its own group; launcher is its pid
    : >"$work/out"
    : >"$work/err"
    setsid env --default-signal "$fiber" run "$@" >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
}

has_said() {
    grep -qaF -- "$1" "$work/out"
}

await() { # await <text>: on the output of what start() began
    wait_for "$patience" has_said "$1" || fail "it did not come to say \"$1\""
}

gone() { # gone <pid>
    ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}

ends() { # ends <expected code>: what start() began
    local got=0
    if ! wait_for "$patience" gone "$launcher"; then
        kill -KILL "$launcher"
        fail "it does not end"
        return
    fi
    wait "$launcher" || got=$?
    [ "$got" = "$1" ] || fail "exit code $got, not $1"
}

agents() { # pids of the agents of what start() began
    pgrep -P "$launcher" | sort -n
}

compile() { # compile <compiler> <program>
    "$1" -O1 -o "$2" "$here/ring_mpi/check.c"
}

run_tests() { # run_tests <function>...: each; the rest goes on after a failure
    local test began
    for test; do
        began=$(now_ms)
        "$test" || {
            failed=1
            echo "FAILED: $test" >&2
            end_all
            rm -rf "$work"/run/*
        }
        echo "$test: $(($(now_ms) - began)) ms"
    done
    exit $failed
}
