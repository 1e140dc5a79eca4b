# exec_test.sh - fiber exec beside a rank and beside a worker: streams, exit codes, and what ends what.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/gate_lib.sh
. "${TEST_SOURCE_DIR:?}/tests/cli/gate_lib.sh"

gone() { # gone <pid> <what>: waits until that process has ended
    timeout 60 tail --pid="$1" -f /dev/null || { echo "$2 goes on"; bad=1; }
}

# --- a ring
(cd there && exec fiber run -n 2 --oversubscribe --name demo sh -c "echo up >$work/gate; exec tail -f /dev/null" 9<&-) &
pid=$!
for _ in 1 2; do read -r -t 60 _ <&9 || { echo "no rank came up"; exit 1; }; done
expect 0 "^$work/there$" 'where it runs' fiber exec demo/1 -- pwd
expect 7 '^one$' 'its code' fiber exec demo/0 sh -c 'echo one; exit 7'
expect 0 ' demo ' 'a program that uses Fiber' fiber exec demo -- fiber ps
expect 137 '' 'a signal' fiber exec demo -- sh -c 'kill -9 $$'
# the rank is a shell until it has become tail, which may be later than its word
# shellcheck disable=SC2016 # the shell there
expect 0 '^tail -f /dev/null' 'the rank that it is beside' fiber exec demo/1 -- sh -c \
    'until tr "\0" " " </proc/$FIBER_PID/cmdline | grep "^tail"; do :; done'
expect 127 '^fiber: in the job: no-such: no such program$' 'what is not there' fiber exec demo -- no-such
expect 126 '^fiber: in the job: cannot start /etc/passwd: exec: Permission denied' 'no program' fiber exec demo -- /etc/passwd
expect 125 '^fiber: there is no rank 2: the run has 2' 'no such rank' fiber exec demo/2 -- true
expect 125 'is not a rank' 'no rank at all' fiber exec demo/x -- true
expect 125 'no run of yours on this host has the name other' 'no such run' fiber exec other -- true
expect 2 'the command is missing' 'no command' fiber exec demo --
expect 125 'the command has more than 65536 bytes' 'a long command' fiber exec demo -- true "$(head -c 70000 /dev/zero | tr '\0' x)"
fiber exec demo -- sh -c 'echo out; echo error >&2' >out 2>error
[ "$(cat out error)" = $'out\nerror' ] || { echo "streams are mixed: $(cat out)"; bad=1; }
fiber exec demo -- sh -c 'read -r x || echo none' <<<text >out
[ "$(cat out)" = none ] || { echo "it has read what is ours: $(cat out)"; bad=1; }
head -c 3000000 /dev/urandom >large
fiber exec -i demo/1 -- cat <large >back
cmp large back || bad=1
fiber exec -i demo -- sh -c 'head -c 10 >/dev/null; exec <&-' <large || { echo "input that nobody reads: code $?"; bad=1; }
# two that share an input which they cannot wait in: the slower one of them finds nothing
python3 - demo/0 demo/1 <<'END' || { echo "an input has ended that goes on"; bad=1; }
import os, select, subprocess, sys
theirs, ours = os.pipe()
os.set_blocking(theirs, False)
cats = [subprocess.Popen(["fiber", "exec", "-i", rank, "--", "sh", "-c", "echo; exec cat"], stdin=theirs,
                         stdout=subprocess.PIPE, bufsize=0) for rank in sys.argv[1:]]
assert all(cat.stdout.read(1) for cat in cats)
left = 20000
for _ in range(left):
    os.write(ours, b"x")
while left:
    for out in select.select([cat.stdout for cat in cats], [], [], 60)[0]:
        got = out.read(left)
        assert got
        left -= len(got)
os.close(ours)
assert [cat.wait(60) for cat in cats] == [0, 0]
END
for signal in KILL TERM; do # what ends us ends it
    fiber exec demo -- sh -c "echo \$\$ >$work/gate; exec tail -f /dev/null" 9<&- &
    ours=$!
    read -r -t 60 theirs <&9
    kill -$signal $ours
    gone "$theirs" "a command whose caller is gone ($signal)"
    wait $ours || true
done
(fiber exec demo -- sh -c "echo \$\$ >$work/gate; exec yes" 9<&- | head -n 1 >/dev/null) || true
read -r -t 60 theirs <&9
gone "$theirs" 'a command that nobody reads'
fiber exec demo/1 -- sh -c "echo \$\$ >$work/gate; exec tail -f /dev/null" 9<&- >said 2>&1 &
ours=$!
read -r -t 60 theirs <&9
kill -KILL $pid # the launcher, and with it the job
wait $pid 2>/dev/null || true
gone "$theirs" 'a command whose job has ended'
got=0
wait $ours || got=$?
if [ "$got" != 125 ] || ! grep -q 'has ended' said; then
    echo "the job ended: code $got: $(cat said)"
    bad=1
fi
expect 125 'has ended, so it has no jobs' 'a run that has ended' fiber exec demo -- true

# --- a pool
"$program" "$work/gate" 9<&- &
pid=$!
until fiber ps >listed && grep -qE ' pool_prog .* 2/2 ' listed; do
    kill -0 "$pid" || { echo "the pool has ended: $(cat listed)"; exit 1; }
done
fiber top pool_prog -c 1 >listed
worker=$(awk '$2 == "running" {print $1; exit}' listed)
expect 125 'it has 2 workers: name one' 'any worker' fiber exec pool_prog -- true
expect 125 'no worker 77' 'no such worker' fiber exec pool_prog/77 -- true
# shellcheck disable=SC2016 # the shell there
expect 0 'pool_prog' 'beside a worker' fiber exec "pool_prog/worker-$worker" -- sh -c 'readlink /proc/$FIBER_PID/exe'
kill "$pid"
wait "$pid" || :
exit $bad
