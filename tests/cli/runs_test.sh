# runs_test.sh - what one does to a run that goes on: ps, top, logs, kill, signals; and a launcher that is killed.
#
# The ranks tell by a FIFO that they are there, with their traps set, and what has reached them.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

PATH=${TEST_BINARY_DIR:?}/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run GATE=$work/gate
mkfifo "$GATE"
exec 9<>"$GATE"
cd "$work"
bad=0

complain() { # complain <text>...
    echo "$*"
    bad=1
}

hear() { # hear <line>: waits until a rank says that
    local line
    while read -r -t 60 line <&9; do
        [ "$line" != "$1" ] || return 0
    done
    complain "no rank said $1"
    exit 1
}

# shellcheck disable=SC2016
program='trap "echo usr1 >$GATE" USR1; trap "exit 9" TERM; echo up >$GATE
    while :; do read -r -t 0.1 x <"$GATE.none" || :; echo line $FIBER_RANK; done'
mkfifo "$GATE.none"
exec 8<>"$GATE.none"

until_ps() { # until_ps <pattern>: until a line of ps is so; a run that has ended will never be
    until fiber ps >listed && grep -qE "$1" listed; do
        kill -0 "$pid" || { complain "no line of ps is $1: $(cat listed)"; exit 1; }
    done
}

start() { # start <option>...: two ranks in the background, $pid; returns when both run, and their launcher knows it
    env --default-signal=INT fiber run -n 2 --name demo --oversubscribe "$@" bash -c "$program" >out 2>err 8<&- 9<&- &
    pid=$!
    hear up
    hear up
    until_ps '^[0-9a-f]{8} +demo .* 2/2 +0 .*bash -c'
}

ended() { # ended <code> <what>
    local code=0
    wait "$pid" || code=$?
    [ "$1" = any ] || [ "$code" = "$1" ] || complain "$2: exit code $code, expected $1; it said: $(cat err)"
}

start
fiber ps --json | grep -q '"name":"demo",.*"size":2,.*"running":2' || complain "ps --json: $(fiber ps --json)"
id=$(fiber ps | awk '/demo/ {print $1}')
for command in 'top demo -c 1' 'top demo -c 1 --json' 'stack demo' 'stack demo --json'; do
    # shellcheck disable=SC2086
    ! fiber $command >/dev/full 2>said || complain "$command to a full disk: exit code 0"
    grep -q '^fiber: cannot write standard output: No space left' said || complain "$command to a full disk: $(cat said)"
done
fiber top "$id" -c 2 -d 100ms >said
grep -qE '^ +1 running ' said || complain "top: $(cat said)"
fiber top demo -c 1 --json | grep -q '"ranks":\[{"rank":0,"state":"running"' || complain "top --json: $(fiber top demo -c 1 --json)"
{ fiber logs -f demo 1 || :; } | { # ends when its reader has gone
    read -r line
    [ "$line" = "line 1" ] || echo "$line" >wrong
}
[ ! -e wrong ] || complain "logs -f: $(cat wrong)"
fiber kill -USR1 demo 1
hear usr1
kill -USR1 "$pid"
hear usr1
hear usr1
! fiber kill demo 7 2>said || complain "kill of rank 7 was taken"
grep -q 'there is no rank 7' said || complain "kill of rank 7: $(cat said)"
fiber kill demo
ended any "fiber kill"
[ "$(fiber ps --json)" = "[]" ] || complain "after its end: $(fiber ps)"
fiber ps -a >listed
grep -q "^$id.* exit " listed || complain "ps -a: $(cat listed)"

# One whose ranks have ended is over, although nobody has read its output yet.
mkfifo unread
exec 7<>unread
fiber run -n 1 --name silent head -c 200000 /dev/zero >unread 2>err 7<&- 8<&- 9<&- &
pid=$!
until fiber ps -a >listed && grep -qE ' silent +ring +local +exit 0 ' listed; do
    kill -0 "$pid" || { complain "ps -a, unread: $(cat listed)"; exit 1; }
done
kill "$pid"
ended 143 "unread output"
exec 7<&-

# One that is stopped is not called dead, also when so many have called that it takes no more callers.
start
kill -STOP "$pid"
until grep -q ' T ' "/proc/$pid/stat"; do :; done
fiber ps >listed & # each waits for seconds, and all wait together
callers=($!)
fiber top demo -c 1 >topped &
callers+=($!)
! fiber kill demo --signal USR1 2>said || complain "kill, stopped: exit code 0"
grep -q "process $pid, does not answer: .* takes effect when the launcher continues" said || complain "kill, stopped: $(cat said)"
wait "${callers[@]}" || complain "top, stopped: exit code $?"
grep -qE '^[0-9a-f]{8} +demo +ring +local +no answer +\?/2 ' listed || complain "ps, stopped: $(cat listed)"
grep -qE "^no answer for [0-9]+ s: its launcher, process $pid, is stopped" topped || complain "top, stopped: $(cat topped)"
callers=()
for _ in {1..24}; do
    fiber ps >>listed &
    callers+=($!)
done
wait "${callers[@]}"
fiber ps | grep -qE ' demo +ring +local +no answer ' || complain "ps, crowded: $(fiber ps)"
! fiber kill demo 2>said || complain "kill, crowded: exit code 0"
grep -q "process $pid, does not answer" said || complain "kill, crowded: $(cat said)"
kill -CONT "$pid"
hear usr1 # as it was told
hear usr1
fiber kill demo
ended any "fiber kill of one that was stopped"

start
kill -TSTP "$pid"
until grep -q ' T ' "/proc/$pid/stat"; do :; done # stopped itself, after its ranks
kill -CONT "$pid"
kill -USR1 "$pid"
hear usr1 # they go on
kill -INT "$pid"
ended 130 "Ctrl-C"

start --grace 60s
kill -INT "$pid"
kill -INT "$pid" || :
ended 130 "Ctrl-C twice"

start
kill -TERM "$pid"
ended 143 "SIGTERM"

start
kill -KILL "$pid"
ended 137 "SIGKILL"
[ "$(fiber ps --json)" = "[]" ] || complain "after its launcher was killed: $(fiber ps)"
fiber ps -a >listed
grep -q " lost " listed || complain "ps -a: $(cat listed)"
left=$(find run/fiber -mindepth 1 ! -path 'run/fiber/ended*' ! -path run/fiber/cpus)
[ -z "$left" ] || complain "left behind: $left"
exit $bad
