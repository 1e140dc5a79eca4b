# slurm_test.sh - the slurm backend on a real Slurm: pools and rings in an allocation and outside, and what goes wrong.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

bed=${TEST_SOURCE_DIR:?}/tests/beds/slurm/bed
prog=${TEST_BINARY_DIR:?}/tests/engines/hosts_prog
fiber=${TEST_FIBER:-$TEST_BINARY_DIR/cli/fiber}
[[ -x $prog && -x ${prog%/*}/docker_prog ]] || { echo "$prog or docker_prog is not built"; exit 77; }
"$bed" try 3
eval "$("$bed" env)"

work=$(mktemp -d)
mkdir "$work/shared" "$work/run"
trap heal EXIT
export FIBER_BACKEND=slurm FIBER_SLURM_DIR=$work/shared FIBER_RUN_DIR=$work/run FIBER_SLURM_POLL=200ms FIBER_GRACE=500ms

failed() {
    echo "FAILED: $1"
    [[ ! -s $work/out ]] || sed 's/^/    /' "$work/out" | tail -30
    exit 1
}

# until_true SECONDS TITLE COMMAND...
until_true() {
    local last=$((SECONDS + $1)) title=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < last)) || failed "$title"
        sleep 0.05 # between two looks
    done
}

# What a test that failed may have left.
heal() {
    local node
    "$bed" start
    for node in n1 n2 n3; do
        [[ $(sinfo -h -n $node -o %T) == @(idle|mixed|allocated) ]] || "$bed" revive $node || :
    done
    rm -rf "$work"
}

# holds TITLE COMMAND...: it ends well; what it said is in $work/out
holds() {
    local title=$1
    shift
    timeout 300 "$@" >"$work/out" 2>&1 || failed "$title: exit code not 0"
    echo "ok: $title"
}

fails() { # TITLE TEXT COMMAND...: it does not end well, and says so
    local title=$1 text=$2
    shift 2
    if timeout 300 "$@" >"$work/out" 2>&1; then failed "$title: it should have failed"; fi
    grep -q -- "$text" "$work/out" || failed "$title: it does not say '$text'"
    echo "ok: $title"
}

tasks() { # N: so many were done, by all hosts together
    [[ $(awk '/^n[0-9]+ / {n += $2} END {print n}' "$work/out") == "$1" ]] || failed "tasks are missing"
}

none_left() { ! { squeue -h -o %j && squeue -h -s -o %j; } | grep '^fiber-' >/dev/null; }
no_files() { [[ -z $(ls -A "$work/shared") ]]; }

nothing_left() {
    until_true 120 "jobs are left: $(squeue -h)" none_left
    no_files || failed "files are left: $(ls -A "$work/shared")"
}

# ---- Outside of an allocation ----

holds "a pool of queued jobs" "$prog" pool 3 300 slowly
tasks 300
holds "jobs that start jobs, with their output" "$prog" nested
[[ $(grep -c 'leaf on n' "$work/out") == 2 ]] || failed "the output of the jobs is missing"
nothing_left
odd="$work/a b'c\"d\$(e)"
mkdir "$odd"
cp "$prog" "$odd/it's; a program"
FIBER_SLURM_DIR=$odd holds "odd names of programs and folders" "$odd/it's; a program" pool 2 100
tasks 100
FIBER_SLURM_CONSTRAINT=nonsense fails "a constraint that no node has" "nvalid feature" "$prog" nested
FIBER_SLURM_OPTIONS="--cpus-per-task=100000" fails "more than any node has" "onfiguration" "$prog" nested
FIBER_SLURM_OPTIONS="--no-such-option" fails "an option that sbatch does not know" "no-such-option" "$prog" nested
FIBER_SLURM_DIR=relative fails "a folder that is not a whole path" "slurm_dir" "$prog" nested
FIBER_SLURM_MODE=step fails "steps without an allocation" "allocation" "$prog" nested

if [[ -x $fiber ]]; then
    # Each rank has one of its node's two, by --gres, and is told which; hwloc sees none here.
    # shellcheck disable=SC2016 # it is the rank's shell that expands them
    show='echo "gpus $(hostname) $SLURM_JOB_GPUS $CUDA_VISIBLE_DEVICES"'
    holds "GPUs of batch jobs" "$fiber" run -n 4 --per-node 1 --gpus-per-rank 1 -- sh -c "$show"
    [[ $(grep -cE '^gpus n[1-3] ([01]) \1$' "$work/out") == 4 && $(grep '^gpus ' "$work/out" | sort -u | wc -l) == 4 ]] ||
        failed "four ranks should have a GPU of their own each"
    # Distinct nodes, and no more ranks on one than it has processors for.
    holds "a pseudo-terminal on a node" python3 "$TEST_SOURCE_DIR/tests/system/ring_pty.py" "$fiber"
    holds "--nodes" "$fiber" run --nodes 3 -N 1 hostname
    [[ $(grep -x 'n[123]' "$work/out" | sort -u | wc -l) == 3 ]] || failed "three jobs should be on three nodes"
    fails "--nodes, more than there are" "only 3 nodes can take jobs" "$fiber" run --nodes 4 hostname
    size=$(sinfo -h -N -n n1 -o %c)
    holds "as many ranks as a node has processors" "$fiber" run -n $((2 * size)) hostname
    [[ $(grep -x 'n[123]' "$work/out" | sort | uniq -c | awk '{print $1}' | xargs) == "$size $size" ]] ||
        failed "two nodes should have $size ranks each"
    fails "more ranks than there are processors" "ranks need 4 nodes of $size" "$fiber" run -n $((4 * size)) hostname
    fails "more GPUs than a node has" "onfiguration" "$fiber" run -n 1 --gpus-per-rank 3 true
fi

# begins COMMAND...: starts it, and waits until it says that a tenth is done, or that it has begun; $master is its pid
begins() {
    local line
    rm -f "$work/enough"
    exec 3< <(echo "$BASHPID" && exec "$@" 2>&1)
    read -r master <&3
    : >"$work/out"
    while IFS= read -r -t 300 line <&3; do
        echo "$line" >>"$work/out"
        [[ $line != *"a tenth is done"* && $line != begun ]] || return 0
    done
    failed "it did not begin"
}
ends() { timeout 300 cat <&3 >>"$work/out" || failed "it did not end"; }
enough() { touch "$work/enough"; ends; } # of what goes on until then
a_job() { squeue -h -r -t running -o '%i %j' | awk '/ fiber-/ {print $1; exit}'; }

if [[ -x $fiber ]]; then
    # Suspended by Slurm before another run's agent is stopped: that one is given up, this one goes on.
    # shellcheck disable=SC2016 # it is the rank's shell that expands them
    begins env FIBER_HEARTBEAT=2s "$fiber" run -n 1 -- \
        sh -c 'echo begun; until [ -e "$0" ]; do sleep 0.1; done; echo went on' "$work/enough"
    suspended=$(a_job)
    scontrol suspend "$suspended"
    # shellcheck disable=SC2016
    FIBER_HEARTBEAT=2s fails "an agent that is stopped" "sent no heartbeat" "$fiber" run -n 1 -- \
        sh -c 'kill -STOP $PPID; exec sleep 300'
    scontrol resume "$suspended"
    enough
    grep -qx 'went on' "$work/out" || failed "a suspended job was given up"
    nothing_left
fi

begins "$prog" pool 3 600 until "$work/enough"
scancel "$(a_job)"
enough
tasks 600
echo "ok: a worker that somebody cancels"

# Where deaths are counted no worker may die but the one that is killed: none is missed for want of a heartbeat.
FIBER_HEARTBEAT=200s begins "${prog%/*}/docker_prog" jobs 2 3 300 "$work/enough"
[[ $(squeue -h -t running -o %j | grep -c '^fiber-') == 2 ]] || failed "six workers should be in two jobs: $(squeue)"
enough
for line in 'right 300 of 300' 'deaths 1'; do # one of a job, not all three
    grep -qx "$line" "$work/out" || failed "it should say '$line'"
done
nothing_left
echo "ok: jobs with three workers each, one of which is killed"

begins "$prog" pool 3 600 until "$work/enough"
node=$(squeue -h -t running -o '%N %j' | awk '/ fiber-/ {print $1; exit}')
"$bed" fail "$node"
enough
"$bed" kill "$node"
"$bed" revive "$node"
tasks 600
echo "ok: a node that is lost"

# Slurm refuses an end in the past, and `now` is the second in which scontrol began: the controller may read it in a later one.
end_soon() { scontrol update JobId="$1" EndTime=now+10; }

# A job that goes beyond its time is ended by Slurm, which looks each half minute. It is not put back into the queue, by anybody.
begins "$prog" pool 3 600 until "$work/enough"
job=$(a_job)
if scontrol requeue "$job" 2>/dev/null; then failed "a job should not be one that is requeued"; fi
end_soon "$job"
ended() { [[ $("$bed" exit-code "$job") == TIMEOUT* ]]; }
until_true 120 "Slurm should end the job" ended
enough
tasks 600
echo "ok: a worker whose time is over, which is not requeued"

exec 3< <("${prog%/*}/docker_prog" process wait 2>&1)
runs() { job=$(a_job) && [[ $job ]]; }
until_true 120 "its job should run" runs
end_soon "$job"
: >"$work/out"
ends
grep -q '^code -15: .*time limit.*slurm_time' "$work/out" || failed "it should say that its time was over"
echo "ok: a process whose time is over says so"

begins "$prog" pool 3 600 until "$work/enough"
"$bed" stop
squeue >"$work/out" 2>&1 || : # takes a while, in which the controller is missed
"$bed" start
enough
tasks 600
echo "ok: a controller that is started again"

# A squeue that hangs: it says so when it begins, and waits until it is told to go on. Or it has forgotten a job.
real=$(command -v squeue)
mkdir "$work/bin"
mkfifo "$work/hangs" "$work/goes"
cat >"$work/bin/squeue" <<END
#!/bin/bash
if [[ -e $work/hang ]]; then
    echo hangs >"$work/hangs"
    read -r <"$work/goes"
fi
[[ -e $work/forgets ]] || exec $real "\$@"
$real "\$@" | grep -v "^\$(<"$work/forgets")|"
exit "\${PIPESTATUS[0]}"
END
chmod +x "$work/bin/squeue"
exec 4<>"$work/hangs" 5<>"$work/goes"
PATH=$work/bin:$PATH begins "$prog" pool 3 600 until "$work/enough"
touch "$work/hang"
read -r -t 120 <&4 || failed "squeue was not asked"
rm "$work/hang"
echo goes >&5
enough
tasks 600
nothing_left
echo "ok: a squeue that hangs for a while"
PATH=$work/bin:$PATH begins "$prog" pool 3 600 until "$work/enough"
touch "$work/hang"
read -r -t 120 <&4 || failed "squeue was not asked"
scancel "$(a_job)" # it is replaced, although nobody says what became of it
enough
rm "$work/hang"
tasks 600
nothing_left
exec 4<&- 5<&-
echo "ok: a squeue that hangs to the end"
FIBER_HEARTBEAT=200s PATH=$work/bin:$PATH begins "${prog%/*}/docker_prog" pool 2 400 20 "$work/enough" 1 # goes on until one has died
a_job >"$work/forgotten"
mv "$work/forgotten" "$work/forgets"
enough
rm "$work/forgets"
for line in 'right 400 of 400' 'deaths 1'; do
    grep -qx "$line" "$work/out" || failed "it should say '$line'"
done
nothing_left
echo "ok: a job that Slurm does not know any more"

begins "$prog" pool 3 600 until "$work/never"
kill -KILL "$master"
exec 3<&-
until_true 120 "jobs outlive their master: $(squeue -h)" none_left
holds "what a killed master leaves in the folder is swept" "$prog" nested
nothing_left

queued() { squeue -h -t pending -o %j | grep '^fiber-' >/dev/null; }
exec 3< <(echo "$BASHPID" && FIBER_SLURM_OPTIONS=--begin=now+1hour exec "$prog" nested 2>&1)
read -r master <&3
until_true 120 "its job should wait in the queue" queued
kill -KILL "$master"
exec 3<&-
queued || failed "its job should still wait"
holds "what a killed master leaves in the queue is cancelled by the next run" "$prog" nested
nothing_left

# ---- In an allocation ----

all_idle() { [[ $(sinfo -h -t idle -o %D) == 3 ]]; }
until_true 120 "nodes do not come back" all_idle
alloc=(salloc --quiet --nodes=2 --exclusive)
holds "a pool of steps, on both nodes" "${alloc[@]}" "$prog" pool 4 400 everywhere 2
tasks 400
holds "steps that start steps" "${alloc[@]}" "$prog" nested
holds "queues, a store and segments between nodes" "${alloc[@]}" "$prog" objects 4
fails "more processors than the allocation has" "Unable to create step" "${alloc[@]}" \
    env FIBER_SLURM_OPTIONS=--cpus-per-task=100000 "$prog" nested

begins "${alloc[@]}" "$prog" pool 4 800 until "$work/enough"
scancel "$(squeue -h -s -o '%i %j' | awk '/ fiber-/ {print $1; exit}')" || :
enough
tasks 800
echo "ok: a step that somebody cancels"

# shellcheck disable=SC2016 # it is the inner shell that expands them
begins "${alloc[@]}" bash -c 'echo $$ >"$0"; exec "$@"' "$work/pid" "$prog" pool 4 1200 until "$work/never"
kill -KILL "$(<"$work/pid")"
exec 3<&-
until_true 120 "steps outlive their master" none_left
until_true 120 "nodes do not come back" all_idle # the next test says where its ranks should be
echo "ok: a killed master in an allocation"

# places WANTED: how many ranks each node had, in order
places() { [[ $(grep -xo 'n[123]' "$work/out" | sort | uniq -c | awk '{print $2 "=" $1}' | xargs) == "$1" ]] || failed "not $1"; }

if [[ -x $fiber ]]; then
    holds "a ring without an option is what the allocation is for" salloc --quiet -w n1,n2 --ntasks-per-node=2 \
        "$fiber" run hostname
    places "n1=2 n2=2"
    holds "a node and nothing else" salloc --quiet -n 3 -N 1 -w n2 "$fiber" run hostname
    places "n2=3"
    holds "-n is spread over the nodes" salloc --quiet -N 3 --ntasks-per-node=1 "$fiber" run -n 6 hostname
    places "n1=2 n2=2 n3=2"
    holds "-N is as many on each" salloc --quiet -N 3 --exclusive "$fiber" run -N 1 hostname
    places "n1=1 n2=1 n3=1"
    holds "--nodes are so many of them" salloc --quiet -N 3 --exclusive "$fiber" run --nodes 2 -n 2 hostname
    places "n1=1 n2=1"
    holds "nodes that are not used are named" salloc --quiet -N 3 -n 6 "$fiber" run -n 1 hostname
    grep -qx 'fiber: 2 of 3 nodes of the allocation are not used: n2 and n3' "$work/out" || failed "it should name two nodes"
    fails "more nodes than the allocation has" "the allocation has 2 nodes" "${alloc[@]}" "$fiber" run --nodes 3 hostname
    fails "one of several tasks of srun" "one of 2 tasks" salloc --quiet -N 2 -n 2 srun --overlap "$fiber" run hostname
    holds "a task of srun that is alone" salloc --quiet -N 1 -n 2 -w n1 srun --overlap -n 1 "$fiber" run -n 2 hostname
    places "n1=2"
    holds "the first part of a heterogeneous allocation" salloc --quiet -N 1 -n 2 -w n2 : -N 1 -w n1 \
        env -u FIBER_BACKEND "$fiber" run -n 2 hostname
    places "n2=2"
    holds "the ring of a program" salloc --quiet -N 3 --ntasks-per-node=1 "$prog" ring 3 0 "$prog" who
    for rank in 0 1 2; do
        grep -qx "rank $rank of 3 on n$((rank + 1))" "$work/out" || failed "rank $rank should be on n$((rank + 1))"
    done
    # shellcheck disable=SC2016 # it is the rank's shell that expands them
    printf '#!/bin/sh\nexec "$FIBER" run -q sh -c '\''echo "$FIBER_RANK $(hostname) $OMP_NUM_THREADS"'\''\n' >"$work/shared/job"
    FIBER=$fiber holds "a batch script" sbatch --quiet --wait -w n1,n2 --ntasks-per-node=2 --cpus-per-task=2 \
        --output="$work/shared/job.out" "$work/shared/job"
    [[ $(grep -E '^[0-3] n' "$work/shared/job.out" | sort | xargs) == "0 n1 2 1 n1 2 2 n2 2 3 n2 2" ]] ||
        failed "four ranks should have two processors each: $(cat "$work/shared/job.out")"
    rm "$work/shared/job" "$work/shared/job.out"
    holds "a ring of ranks on two nodes" "${alloc[@]}" "$fiber" run -n 4 --per-node 2 -- "$prog" who
    [[ $(grep -c 'rank' "$work/out") -ge 4 ]] || failed "ranks are missing"
    # shellcheck disable=SC2016
    holds "GPUs of an allocation" "${alloc[@]}" --gres=gpu:2 "$fiber" run -n 4 --per-node 2 --gpus-per-rank 1 -- \
        sh -c 'echo "gpus $(hostname) $CUDA_VISIBLE_DEVICES"; echo "cpus $SLURM_CPUS_PER_TASK"'
    [[ $(grep -E '^gpus n[1-3] [01]$' "$work/out" | sort -u | wc -l) == 4 ]] ||
        failed "four ranks should have a GPU of their own each"
    [[ $(grep -cx "cpus $size" "$work/out") == 4 ]] || failed "a step should have all processors of its node"
fi
nothing_left
echo "all is well"
