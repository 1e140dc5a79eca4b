# command_detached_test.sh - the command backend with a manager whose start command prints an id and leaves; what a killed
# master leaves is listed, and removed.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

prog=${TEST_BINARY_DIR:?}/tests/engines/hosts_prog queue=${TEST_SOURCE_DIR:?}/tests/beds/queue
[[ -x $prog ]] || { echo "$prog is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir "$work/queue" "$work/tickets" "$work/run"
export QUEUE=$work/queue FIBER_BACKEND=command FIBER_COMMAND_FILE=$work/queue.ini FIBER_BIND=lo FIBER_RUN_DIR=$work/run
cat >"$work/queue.ini" <<END
kind = detached
start = '$queue' submit
status = '$queue' status {ids}
cancel = '$queue' cancel {id}
logs = '$queue' logs {id}
id = submitted job ([A-Za-z0-9]+)
poll_ms = 50
ticket_dir = $work/tickets
pending = PD
running = R
done = CD
failed = F
killed = CA
END

failed() {
    echo "FAILED: $1"
    sed 's/^/    /' "$work/out"
    exit 1
}

timeout 300 "$prog" pool 3 300 >"$work/out" 2>&1 || failed "a pool"
grep -q ' 300$' "$work/out" || failed "tasks are missing"
echo "ok: a pool"
timeout 300 "$prog" nested >"$work/out" 2>&1 || failed "jobs that start jobs"
[[ $(grep -c 'leaf on' "$work/out") == 2 ]] || failed "the output of the jobs is missing"
echo "ok: jobs that start jobs, with their exit codes and output"
[[ -z $(ls -A "$work/tickets") ]] || failed "tickets are left"

# The agent notices that its launcher is gone.
exec 3< <(echo "$BASHPID" && exec "$prog" ring 2 1 "$prog" wait 2>&1)
read -r launcher <&3
: >"$work/out"
until [[ ${line:-} == *rank* ]]; do
    IFS= read -r -t 300 line <&3 || failed "no rank came"
    echo "$line" >>"$work/out"
done
kill -INT "$launcher"
timeout 300 cat <&3 >>"$work/out" || failed "the launcher did not end"
echo "ok: the launcher is interrupted"

# Jobs that never notice: they run something else.
fiber=$TEST_BINARY_DIR/cli/fiber
export XDG_RUNTIME_DIR=$work/run
says() { # CODE PATTERN COMMAND...: it ends so, and a line of what it says is so
    local code=$1 pattern=$2 got=0
    shift 2
    timeout 60 "$@" >"$work/out" 2>&1 || got=$?
    [[ $got == "$code" ]] || failed "$*: code $got, expected $code"
    grep -qE -- "$pattern" "$work/out" || failed "$*: no line is $pattern"
}
says 1 'has no line list' "$fiber" gc --backend command
says 0 '^RUN ' "$fiber" ps --backend command
sed -i "s|^start = .*|start = '$queue' submit -l {label} tail -f /dev/null {program}|" "$work/queue.ini"
echo "list = '$queue' list" >>"$work/queue.ini"
"$prog" pool 2 300 >"$work/out" 2>&1 &
master=$!
until [[ $(cat "$work"/queue/job-*/label 2>/dev/null | wc -l) == 2 ]]; do
    kill -0 $master || failed "the pool has ended"
done
says 0 ' command +(running|starting|waiting) ' "$fiber" ps --backend command
says 0 '^nothing to remove$' "$fiber" gc --backend command
kill -KILL $master
wait $master || :
says 0 ' command +lost +2/2 .*2 jobs; master .* is gone: use fiber gc to remove what is left' "$fiber" ps --backend command
run=$(awk '/ lost / {print $1}' "$work/out")
says 1 'cannot follow' "$fiber" logs -f --backend command "$run"
says 0 '^would remove command job .* of run .*: its master is gone' "$fiber" gc --backend command --dry-run
says 0 '^removed +command job .* of run .*: its master is gone' "$fiber" gc # all engines that are configured
says 0 '^nothing to remove$' "$fiber" gc --backend command
[[ -z $(QUEUE=$work/queue "$queue" list) ]] || failed "jobs are left"
rm -f "$work"/tickets/* # theirs: they were never read
echo "ok: what a killed master leaves is listed and removed"

sed -i 's/^start = .*/start = false/' "$work/queue.ini"
if timeout 300 "$prog" nested >"$work/out" 2>&1; then failed "a start command that fails"; fi
grep -q 'the start command ended with code 1' "$work/out" || failed "it does not say that the start command failed"
sed -i 's/^start = .*/start = echo {{}/' "$work/queue.ini"
if timeout 300 "$prog" nested >"$work/out" 2>&1; then failed "a start command without an id"; fi
grep -q 'printed no id' "$work/out" || failed "it does not say that there was no id"
sed -i 's/^start = .*/start = \/no\/such\/manager/' "$work/queue.ini"
if timeout 300 "$prog" nested >"$work/out" 2>&1; then failed "a start command that is not there"; fi
grep -q 'cannot start /no/such/manager: exec: No such file' "$work/out" || failed "it does not say which command is missing"
sed -i 's/^start = .*/start = echo {{}/' "$work/queue.ini"
echo "ok: start commands that fail"
full() { mount -t tmpfs -o size=4k full "$work/tickets" && head -c 4096 /dev/zero >"$work/tickets/full" && "$prog" nested; }
export -f full
if unshare -rm true 2>/dev/null; then
    if work=$work prog=$prog unshare -rm bash -c full >"$work/out" 2>&1; then failed "a full disk"; fi
    grep -q 'cannot write its ticket to .*: No space left on device' "$work/out" || failed "it does not say that the disk is full"
    echo "ok: a disk that is full"
fi
[[ -z $(ls -A "$work/tickets") ]] || failed "tickets are left"
