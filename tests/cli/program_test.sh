# program_test.sh - a program that has processes and a manager, and no ring, is a run: ps, top, logs, exec, stack and
# kill; with a pool as well, its name means the pool, and both runs end with it.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

program=${TEST_BINARY_DIR:?}/tests/cli/program_prog
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

until_ps() { # until_ps <pattern>: until a line of ps is so; a program that has ended will never be
    until fiber ps >listed && grep -qE "$1" listed; do
        kill -0 "$pid" || { complain "no line of ps is $1: $(cat listed)"; exit 1; }
    done
}

start() { # start [pool]
    "$program" "$work/gate" "$@" 9<&- >out 2>err &
    pid=$!
    until_ps ' program_prog +program +local +running +2/3 +0 '
    id=$(awk '/ program / {print $1}' listed)
}

ended() { # ended <code> <what>
    local code=0
    wait "$pid" || code=$?
    [ "$code" = "$1" ] || complain "$2: exit code $code, expected $1: $(cat err)"
    [ "$(fiber ps --json)" = "[]" ] || complain "$2: $(fiber ps)"
}

says() { # says <pattern> <what>
    grep -qE "$1" said || complain "$2: $(cat said)"
}

start
fiber top program_prog -c 1 >said
says '^program [0-9a-f]{8} +program_prog +local +2 of 3 processes run +[0-9]+s$' "top, title"
says '^NUMBER STATE +CPU% +MEMORY +PID NAME +HOST$' "top, head"
says "^ +1 running +[0-9]+ +[0-9.]+ [KM]iB +[0-9]+ manager-1 +$(uname -n)\$" "top, the manager"
says "^ +3 running +[0-9]+ +[0-9.]+ [KM]iB +[0-9]+ waiter +$(uname -n)\$" "top, the process"
fiber top -c 1 --json >said # the only one
says '"kind":"program".*"processes":\[\{"process":1,.*"name":"waiter"\}\]' "top --json"
fiber ps --json >said
says '"kind":"program","size":3,"agents":2,"running":2,"ended":1,' "ps --json"
until [ -s out ] && [ -s err ] && fiber logs program_prog >said 2>&1 && grep -q 'says so' said; do
    kill -0 "$pid" || { complain "logs: $(cat said)"; exit 1; }
done
says '^--- waiter ---$' "logs, the name"
says '^waits for a byte$' "logs"
# shellcheck disable=SC2016 # the shell of the job expands it
pidof=$(fiber exec "$id/3" -- sh -c 'echo $FIBER_PID')
[ "$(ps -o ppid= -p "$pidof" | tr -d ' ')" = "$pid" ] || complain "exec: process $pidof is not a child of $pid"
! fiber exec "$id" true 2>said || complain "exec in one of two processes"
says 'it has 2 processes: name one as RUN/NUMBER' "exec in one of two"
! fiber exec "$id/2" true 2>said || complain "exec in a process that has ended"
says 'it has no process 2 now' "exec in one that has ended"
fiber stack "$id/3" >said
says '^process 3: main thread of program_prog' "stack"
says 'wait_for_byte' "stack"
! fiber stack "$id/x" 2>said || complain "stack of process x"
! fiber logs "$id" x 2>said || complain "logs of process x"
says "\"x\" is not a process's number" "logs of process x"
! fiber scale "$id" 3 2>said || complain "a program was scaled"
says 'only pools can be scaled' "scale"
! fiber kill "$id" 2 2>said || complain "a process that has ended was killed"
says 'process 2 does not run' "kill 2"
fiber kill "$id/3" -s USR1
ended 246 "SIGUSR1 of its process" # -10
fiber ps -a >said
says "^$id +program_prog +program +local +exit 0 +3 +0 +[0-9]+s +[0-9]+s ago" "ps -a"
[ "$(fiber logs "$id" 2>&1 | grep -v 'says so')" = '--- waiter ---
waits for a byte' ] || complain "logs, ended: $(fiber logs "$id" 2>&1)"

start pool
until_ps ' program_prog +pool +local +running '
pool=$(awk '/ pool / {print $1}' listed)
fiber top program_prog -c 1 >said
says "^pool $pool " "top by the name"
fiber top -c 1 >said
says "^pool $pool " "top of the only program"
fiber top "$id" -c 1 >said
says "^program $id " "top by the id"
fiber kill program_prog
ended 143 "fiber kill"
fiber ps -a >said
for run in "$id" "$pool"; do
    says "^$run .* exit 143 .* [0-9]+s ago" "ps -a, killed"
done
# The ring shows what its ranks have started: a program that starts later is shown, and these processes are not.
fiber run -n 1 --name ring "$program" "$work/gate" 9<&- >ring.out 2>ring.err &
ring=$!
until grep -q 'waits for a byte' ring.out && fiber logs ring >said && grep -q 'waits for a byte' said; do
    kill -0 "$ring" || { complain "a rank with processes: $(cat ring.out ring.err)"; exit 1; }
done
start
[ "$(grep -c ' local ' listed)" = 2 ] || complain "ps, a rank with processes: $(cat listed)"
fiber kill "$id"
wait "$pid" || :
echo >&9
pid=$ring
ended 0 "a rank with processes"
left=$(find run/fiber -mindepth 1 ! -path 'run/fiber/ended*' ! -path run/fiber/cpus)
[ -z "$left" ] || complain "left behind: $left"
exit $bad
