# pool_test.sh - what one does to a pool that goes on: ps, top, scale, kill of a worker, kill; and what a ring refuses.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

program=${TEST_BINARY_DIR:?}/tests/cli/pool_prog
PATH=$TEST_BINARY_DIR/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run XDG_STATE_HOME=$work/state FIBER_BACKEND=local
cd "$work"
mkfifo gate
exec 9<>gate
bad=0

complain() { # complain <text>...
    echo "$*"
    bad=1
}

until_ps() { # until_ps <pattern> [<option>]: until a line of ps is so; a program that has ended will never be
    until fiber ps "${@:2}" >listed && grep -qE "$1" listed; do
        kill -0 "$pid" || { complain "no line of ps is $1: $(cat listed)"; exit 1; }
    done
}

start() { # start [<number of tasks>]
    "$program" "${1:-$work/gate}" 9<&- &
    pid=$!
    until_ps ' pool_prog +pool +local +running +2/2 +0 '
    id=$(awk '/ pool_prog / {print $1}' listed)
}

ended() { # ended <code> <what>
    local code=0
    wait "$pid" || code=$?
    [ "$code" = "$1" ] || complain "$2: exit code $code, expected $1"
    [ "$(fiber ps --json)" = "[]" ] || complain "$2: $(fiber ps)"
}

start
until_ps '"kind":"pool","size":2,.*"running":2,.*"doing":"1 task running, 0 waiting, 1 done"' --json
fiber top "$id" -c 1 >said
grep -qE '^pool [0-9a-f]{8} .* 2 of 2 workers run' said || complain "top: $(cat said)"
grep -qE '^ +[0-9]+ running +[0-9]+ +[0-9]+ +[0-9.]+ [KM]iB ' said || complain "top: $(cat said)"
! grep -q ' - ' said || complain "top, of a worker that runs, something is unknown: $(cat said)"
grep -q " $(uname -n)\$" said || complain "top, no host: $(cat said)"
fiber top -c 1 --json >said # the only one
for key in '"kind":"pool"' '"workers":\[{"worker":[0-9]' '"tasks":[0-9]' '"busy_s":[0-9]' '"busy_percent":[0-9]' '"memory":[1-9]'; do
    grep -qE "$key" said || complain "top --json has no $key: $(cat said)"
done
fiber scale "$id" 4
until_ps " pool_prog +pool +local +running +4/4 "
fiber scale pool_prog 1
until_ps " pool_prog +pool +local +running +1/1 " # the one with the task stays
! fiber scale "$id" 0 2>said || complain "scale to 0 was taken"
grep -q 'not a number of workers' said || complain "scale to 0: $(cat said)"
until fiber logs "$id" 2>&1 | grep -qF 'says so'; do
    kill -0 "$pid" || { complain "logs: $(fiber logs "$id" 2>&1)"; exit 1; }
done
fiber logs "$id" >said 2>err || complain "logs: exit code $?"
{ [ "$(sed 's/^\[[0-9]*\] //' said)" = 'waits for a byte' ] && grep -q 'says so$' err; } || complain "logs: $(cat said err)"
fiber logs -f pool_prog >followed 2>&1 &
follower=$!
fiber logs "$id" 99 2>said || complain "logs of a worker that is not there: exit code $?"
grep -q 'worker 99 of run .* has printed nothing' said || complain "logs of worker 99: $(cat said)"
! fiber kill "$id" -s USR1 2>said || complain "a pool took SIGUSR1"
grep -q 'only TERM and KILL' said || complain "kill -s USR1: $(cat said)"
! fiber kill "$id" 99 2>said || complain "a worker that is not there was killed"
grep -q 'worker 99 does not run' said || complain "kill 99: $(cat said)"
echo >&9
ended 0 "its end"
wait "$follower" || complain "logs -f: exit code $?"
grep -q 'waits for a byte$' followed || complain "logs -f: $(cat followed)"
[ "$(fiber logs "$id" 2>err)" = "$(grep -v 'says so' followed)" ] || complain "logs, ended: $(fiber logs "$id" 2>&1)"

FIBER_LOG_KEEP=0 start
! fiber logs "$id" 2>said || complain "logs of a pool of which nothing is kept"
grep -q 'because it was started with log_keep=0' said || complain "nothing kept: $(cat said)"
echo >&9
ended 0 "its end"
fiber ps -a | grep -qE "^$id .* exit 0 +2 +0 +[0-9]+s +[0-9]+s ago +[^ ]" || complain "ps -a: $(fiber ps -a)"

start
fiber top "$id" -c 1 --json >said
worker=$(grep -o '"worker":[0-9]*' said | tail -1 | cut -d: -f2)
prlimit --nofile=4: --pid "$(grep -o '"pid":[0-9]*' said | tail -1 | cut -d: -f2)"
! fiber exec "$id/$worker" true 2>said || complain "exec in a worker without descriptors: exit code 0"
grep -q '^fiber: in the job: .*file descriptors' said || complain "exec without descriptors: $(cat said)"
fiber kill "$id" "$worker"
until_ps " pool_prog +pool +local +running +2/2 +[1-9] "
fiber kill "$id"
ended 143 "fiber kill"

# A worker is not busy for longer than it was looked at: ten times as long is much more than a busy machine makes of it.
start 100000000
fiber top "$id" -c 2 -d 3s --json | tail -1 >said
share=$(grep -oE '"busy_percent":[0-9]+' said | cut -d: -f2 | sort -n | tail -1)
[ "${share:-9999}" -lt 1000 ] || complain "busy for $share %: $(cat said)"
grep -qE '"tasks_per_s":[0-9]*[1-9]' said || complain "no tasks in a second: $(cat said)"
fiber top "$id" -c 2 >said
grep -qE ' done, [0-9.]+ a second$' said || complain "top: no tasks in a second: $(cat said)"
fiber kill "$id"
ended 143 "fiber kill"

mkfifo up
exec 8<>up
fiber run -n 1 --name ring sh -c 'echo up >up; read -r x <gate' 8<&- 9<&- &
pid=$!
read -r -t 60 _ <&8
! fiber scale ring 2 2>said || complain "a ring was scaled"
grep -q 'the size of a ring is fixed' said || complain "scale of a ring: $(cat said)"
echo >&9
ended 0 "the ring's end"
left=$(find run/fiber -mindepth 1 ! -path 'run/fiber/ended*' ! -path run/fiber/cpus)
[ -z "$left" ] || complain "left behind: $left"
exit $bad
