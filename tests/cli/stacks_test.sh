# stacks_test.sh - fiber stack of a ring in a barrier that one rank has not come to, of one that is stopped, and of a
# pool; what it says when it cannot; and the run goes on as if nobody had looked, even if the one who looks is killed.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=${TEST_BINARY_DIR:?}/tests/cli
PATH=$TEST_BINARY_DIR/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run FIBER_BACKEND=local
cd "$work"
bad=0

if [ ! -x "$TEST_BINARY_DIR/fiber/fiber-stack" ]; then
    echo "skip: built without libdw"
    exit 77
fi
ring=$folder/stuck_prog together=all_together
if command -v mpicc.openmpi >/dev/null && [ -e "$TEST_BINARY_DIR/fiber/pmix.so" ]; then
    mpicc.openmpi -g -O1 -DWITH_MPI -o mpi "${TEST_SOURCE_DIR:?}/tests/cli/stuck_prog.c"
    ring=$work/mpi together=PMPI_Barrier
fi

expect() { # expect <exit code> <pattern> <what> <argument>...: a line of what it says on either stream matches
    local code=$1 pattern=$2 what=$3 got=0
    shift 3
    timeout 120 "$@" >said 2>&1 </dev/null || got=$?
    if [ "$got" != "$code" ] || ! grep -qE -- "$pattern" said; then
        echo "$what: code $got, expected $code, no line is $pattern:"
        cat said
        bad=1
    fi
}

alive() { # alive <pid> <what>
    kill -0 "$1" 2>/dev/null || { echo "$2 has ended: $(cat out err)"; exit 1; }
}

state() { # state <pid>: R, S, T, ...
    sed 's/.*) \(.\).*/\1/' "/proc/$1/stat"
}

# nobody_is_traced <pid>...: or stopped, as soon as nobody looks any more; a job may still look for an asker that is gone
nobody_is_traced() {
    local task until=$((SECONDS + 200))
    for task in $(printf '/proc/%s/task/* ' "$@"); do
        until grep -q '^TracerPid:.0$' "$task/status" && ! grep -q '^State:.[tT]' "$task/status"; do
            if ((SECONDS > until)); then
                echo "$task: $(grep -E '^(State|TracerPid)' "$task/status")"
                bad=1
                break
            fi
        done
    done
}

# a ring: rank 1 is elsewhere, the others wait for it
mkfifo gate
exec 9<>gate
fiber run -n 4 --oversubscribe --name stuck "$ring" gate >out 2>err 9<&- &
pid=$!
seen() { # seen <function>: how many ranks' main threads are in there
    python3 - "$1" said <<'PYTHON'
import json, sys
ranks = set()
for group in json.load(open(sys.argv[2]))["groups"]:
    if group["main"] and any(frame["function"] == sys.argv[1] for frame in group["frames"]):
        ranks.update(group["ranks"])
print(*sorted(ranks))
PYTHON
}
until fiber stack stuck --json >said 2>told && [ "$(seen somewhere_else) $(seen $together)" = "1 0 2 3" ] ||
    { [ $together != PMPI_Barrier ] && [ "$(seen somewhere_else)" = "0 1 2 3" ]; }; do
    alive $pid "the ring"
done
ranks=$(python3 -c 'import json
print(*(p["pid"] for p in json.load(open("said"))["processes"]))')
first=${ranks%% *}
expect 0 '^rank 1: main thread of ' 'a rank elsewhere' fiber stack stuck
grep -qE '^    somewhere_else ' said || { echo "not where it is: $(cat said)"; bad=1; }
expect 0 "^ +2 +[^ ]+ +[0-9]+ [RSD] " 'the list' fiber stack stuck
expect 0 '^rank 3: main thread of ' 'one rank' fiber stack stuck/3
! grep -qE '^ +[012] |^ranks? [012]' said || { echo "others are shown, too: $(cat said)"; bad=1; }

# one is stopped: it is told so, and stays so
kill -STOP "$first"
until [ "$(state "$first")" = T ]; do :; done
expect 0 "^ +0 +[^ ]+ +$first T " 'a stopped one' fiber stack stuck
expect 0 "^rank 0: main thread of " 'its stack' fiber stack stuck/0
until [ "$(state "$first")" = T ]; do :; done # the kernel lets it go back to that
kill -CONT "$first"

# the client is killed, then the program that walks the stacks
for _ in 1 2 3 4 5; do
    fiber stack stuck >/dev/null 2>&1 &
    kill -KILL $! || : # it may have ended
    wait $! || :
done
agent=$(ps -o ppid= -p "$first" | tr -d ' ')
for _ in 1 2 3 4 5; do
    fiber stack stuck >said 2>&1 &
    asker=$!
    while kill -0 $asker 2>/dev/null && ! pkill -KILL -P "$agent" -x fiber-stack; do :; done
    wait $asker || { echo "the asker failed: $(cat said)"; bad=1; }
done
# shellcheck disable=SC2086
nobody_is_traced $ranks
expect 0 '^rank 1: main thread of ' 'and again' fiber stack stuck

expect 1 '^fiber: there is no rank 7: the run has 4' 'no such rank' fiber stack stuck/7
expect 1 'is not a rank' 'no rank at all' fiber stack stuck/x
expect 1 'no run of yours on this host has the name other' 'no such run' fiber stack other
expect 1 'has the name o{64},' 'a name that is too long for a run' fiber stack "$(printf 'o%.0s' {1..70})"
echo more >&9 # a byte for each; the result is as if nobody had looked
wait $pid || { echo "the ring ended with $?: $(cat err)"; bad=1; }
[ "$(cat out)" = 'sum 6' ] || { echo "not the sum: $(cat out)"; bad=1; }
expect 1 'has ended, so it has no jobs' 'of a run that has ended' fiber stack stuck
exec 9<&-

# a pool: both workers, and one of them
mkfifo task
exec 9<>task
"$folder/pool_prog" "$work/task" 9<&- >out 2>err &
pid=$!
until fiber stack pool_prog >said 2>told && grep -qE '^    wait_for_byte ' said &&
    [ "$(grep -cE '^ +[0-9]+ .* pool_prog$' said)" = 2 ]; do
    alive $pid "the pool"
done
grep -qE '^workers? [0-9,]+: main threads? of pool_prog' said || { echo "no workers: $(cat said)"; bad=1; }
worker=$(awk 'NR == 2 {print $1}' said)
expect 0 "^worker $worker: main thread of pool_prog" 'a worker' fiber stack "pool_prog/$worker"
expect 0 '"syscall": ?"' 'for programs' fiber stack "pool_prog/worker-$worker" --json
expect 1 '^fiber: worker 77 is not running|there is no' 'no such worker' fiber stack pool_prog/77
echo >&9
wait $pid || { echo "the pool ended with $?: $(cat err)"; bad=1; }
exec 9<&-
exit $bad
