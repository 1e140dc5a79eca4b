# slurm_test.sh - doctor, when something stands between us and a job; ps, logs and kill of runs that only Slurm knows; stack
# and cp of one that goes on.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

bed=${TEST_SOURCE_DIR:?}/tests/beds/slurm/bed
PATH=${TEST_BINARY_DIR:?}/cli:$PATH
code=0
"$bed" try 3 || code=$?
[ "$code" = 0 ] || exit "$code"
eval "$("$bed" env)"
# Where the jobs may write, too.
work=$(mktemp -d "$FIBER_SLURM_DIR/cli-XXXXXX")
sockets=$(mktemp -d) # their names must be short
trap 'heal; rm -rf "$work" "$sockets" || :' EXIT
heal() {
    "$bed" thaw
    scontrol update PartitionName=bed State=UP
}
mkdir "$sockets/run"
mkfifo "$work/gate"
export TEST_BED_DIR=${TEST_BED_DIR:-${XDG_RUNTIME_DIR:-/run}/fiber-beds} # where the bed is, whatever the next line says
export XDG_RUNTIME_DIR=$sockets XDG_STATE_HOME=$sockets/state FIBER_RUN_DIR=$sockets/run
cd "$work"
exec 9<>gate
bad=0

expect() { # expect <exit code> <pattern> <what> <argument>...: a line of what it says on either stream matches
    local code=$1 pattern=$2 what=$3 got=0
    shift 3
    timeout 60 "$@" >said 2>&1 </dev/null || got=$?
    if [ "$got" != "$code" ] || ! grep -qE -- "$pattern" said; then
        echo "$what: code $got, expected $code, no line is $pattern:"
        cat said
        bad=1
    fi
}

# stuck <what it says of the backend> <the line that mends it> <what> [<variable>=<value>]...
stuck() {
    local pattern=$1 mend=$2 what=$3
    shift 3
    expect 1 "^bad +backend slurm +$pattern" "doctor: $what" env "$@" fiber doctor --backend slurm
    grep -qE -- "^ +-> $mend" said || { echo "doctor: $what: no line that mends it is $mend: $(cat said)"; bad=1; }
    ! grep -q 'can be used' said || { echo "doctor: $what: it says that it can be used"; bad=1; }
}
expect 0 '^ok +backend slurm +can be used; its jobs reach this host at ' 'doctor' fiber doctor --backend slurm
expect 0 '^ok +slurm nodes +3 nodes of bed, ' 'doctor' fiber doctor --backend slurm
expect 0 '^ok +slurm jobs +allocation [0-9]+ on n1: ' 'doctor in an allocation' \
    salloc --quiet --nodelist=n1 fiber doctor --backend slurm
stuck 'there is no partition nowhere' 'set slurm_partition' 'another partition' FIBER_SLURM_PARTITION=nowhere
stuck 'Slurm would refuse a job: .*configuration' 'correct slurm_' 'too many GPUs' FIBER_SLURM_OPTIONS=--gres=gpu:99
stuck 'allocation 999999 is over' 'use salloc to get another' 'an allocation that is over' SLURM_JOB_ID=999999 SLURM_JOB_NODELIST=n1
stuck 'SLURM_CONF=/nowhere' 'export SLURM_CONF=' 'no slurm.conf' SLURM_CONF=/nowhere
sed "s|^AuthInfo=.*|AuthInfo=socket=$sockets/none|" "$SLURM_CONF" >slurm.conf
cp "${SLURM_CONF%/*}"/{gres,cgroup}.conf .
stuck "munge does not answer at $sockets/none" 'systemctl start munge' 'munge is away' SLURM_CONF="$work/slurm.conf"
scontrol update PartitionName=bed State=DOWN
stuck 'no job starts in partition bed' 'scontrol update PartitionName=bed State=UP' 'a partition that is down'
scontrol update PartitionName=bed State=UP
"$bed" freeze
stuck "Slurm's controller does not answer" 'on the controller' 'a controller that is away'
"$bed" thaw

# Two elements of an array, as the backend submits them, whose master is on another host.
sbatch --parsable --array=0-1 --job-name=fiber-abab0000000000000000000000000001-worker-1.5.0 \
    --comment='fiber.job=x fiber.master=elsewhere:1:0123456789abcdef.1' --output="$work/%a.out" --error="$work/%a.err" \
    --wrap="echo said; echo cried >&2; echo up >$work/gate; exec tail -f /dev/null" >id
for _ in 1 2; do read -r -t 60 _ <&9 || { echo "a job did not come up: $(squeue)"; scancel "$(cat id)"; exit 1; }; done
expect 0 '^abab0000 +- +- +slurm +elsewhere +2/2 ' 'ps' fiber ps --backend slurm
expect 0 '^said$' 'logs' fiber logs --backend slurm abab
expect 0 '^\[worker-1\] cried$' 'logs of one, with its name' fiber logs --tag --backend slurm abab "$(cat id)_1"
[ "$(grep -c said said)" = 1 ] || { echo "logs of one are of: $(cat said)"; bad=1; }
expect 1 'Slurm cannot follow .* tail -F .*/1.out .*/1.err$' 'logs -f' fiber logs -f --backend slurm abab "$(cat id)_1"
expect 1 'has no job nobody; it has worker-1' 'logs of no job' fiber logs --backend slurm abab nobody
expect 0 'run abab00000000: 2 jobs removed; its master, elsewhere:1, is not on this host' 'kill' \
    fiber kill --backend slurm abab

# Two ranks on two nodes: the stacks of both, and a directory to one and back.
FIBER_BACKEND=slurm fiber run -n 2 --per-node 1 --name two sh -c "echo up >$work/gate; exec tail -f /dev/null" >out 2>err 9<&- &
pid=$!
for _ in 1 2; do read -r -t 60 _ <&9 || { echo "no rank came up: $(cat err)"; kill -KILL $pid; exit 1; }; done
if [ -x "$TEST_BINARY_DIR/fiber/fiber-stack" ]; then
    until fiber stack two >listed 2>&1 && grep -qE '^ranks 0,1: main threads of tail' listed; do
        kill -0 $pid || { echo "the ring has ended: $(cat err listed)"; exit 1; }
    done
    expect 0 '^ +1 +n[1-3] ' 'stack of another host' fiber stack two/1
fi
expect 0 '^n[1-3]$' 'exec on another host' fiber exec two/1 -- uname -n
# shellcheck disable=SC2016 # the shell there
expect 0 '^tail -f /dev/null' 'exec beside its rank' fiber exec two/1 -- sh -c 'tr "\0" " " </proc/$FIBER_PID/cmdline'
mkdir -p tree/sub
head -c 300000 /dev/urandom >tree/sub/large
ln -s sub/large tree/link
if ! fiber cp tree "two/1:$work/there" >said 2>&1 || ! fiber cp "two/0:$work/there" back >>said 2>&1 ||
    ! diff -r --no-dereference tree back; then
    echo "cp of a directory: $(cat said)"
    bad=1
fi
kill $pid
wait $pid || :
"$bed" empty || { echo "left behind"; bad=1; }
exec 9<&-
exit $bad
