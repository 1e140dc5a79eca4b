# slurm_command_test.sh - Slurm by the templates of the command backend as they are shipped, which backend is chosen where
# none is named, and how often Slurm is asked.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

bed=${TEST_BED:-${TEST_SOURCE_DIR:?}/tests/beds/slurm/bed}
prog=${TEST_BINARY_DIR:?}/tests/engines/hosts_prog
one=${prog%/*}/docker_prog
fiber=$TEST_BINARY_DIR/cli/fiber
[[ -x $prog && -x $one && -x $fiber ]] || { echo "$prog, docker_prog or $fiber is not built"; exit 77; }
"$bed" try 3
eval "$("$bed" env)"

work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir "$work/shared" "$work/run" "$work/here" "$work/bin"
export FIBER_RUN_DIR=$work/run FIBER_GRACE=500ms FIBER_SLURM_DIR=$work/shared FIBER_START_TIMEOUT=300s
templates=$TEST_SOURCE_DIR/backends/command/templates
alloc=(salloc --quiet --nodes=2 --exclusive)
cd "$work/here" # the nodes have it, too

failed() {
    echo "FAILED: $1"
    tail -n 30 "$work/out" | cut -c 1-300 | sed 's/^/    /'
    exit 1
}
does() { timeout 300 "$@" >"$work/out" 2>&1; }
holds() { # TITLE COMMAND...: it ends well
    local title=$1
    shift
    does "$@" || failed "$title: exit code not 0"
    echo "ok: $title"
}
says() { # N TEXT: so many lines
    (($(grep -cE -- "$2" "$work/out") == $1)) || failed "$1 lines should be '$2'"
}

# ---- Templates ----

export FIBER_BACKEND=command FIBER_COMMAND_FILE=$templates/slurm.ini
holds "slurm.ini: a ring in an allocation" "${alloc[@]}" "$fiber" run -n 2 --per-node 1 -- "$prog" who
says 2 'rank [01] .*n[12]'
holds "slurm.ini: a pool in an allocation" "${alloc[@]}" "$prog" pool 3 300
[[ $(awk '/^n[0-9]+ / {n += $2} END {print n}' "$work/out") == 300 ]] || failed "tasks are missing"
does "${alloc[@]}" "$one" process exit 7 || :
says 1 '^code 7: '
does "${alloc[@]}" "$one" process signal 10 || :
says 1 '^code -10: '
echo "ok: slurm.ini: exit codes and signals"

# The bed has no accounting. What sacct would say, scontrol knows of jobs that ended lately.
cat >"$work/bin/sacct" <<'END'
#!/bin/bash
# As sacct(1) with --parsable2: a job that was cancelled is "CANCELLED by UID".
for word; do [[ $word != --jobs=* ]] || jobs=${word#--jobs=}; done
for id in ${jobs//,/ }; do
    scontrol --oneliner show job "$id" 2>/dev/null |
        sed -E 's/^JobId=([0-9]+).* JobState=([A-Z_]+).* ExitCode=([0-9:]+).*/\1|\2|\3/; s/CANCELLED/& by 0/'
done
END
chmod +x "$work/bin/sacct"
# slurm-batch.ini, and the other line for the states that is in it
sed -E 's/^status = .*//; s/^; (status = squeue)/\1/' "$templates/slurm-batch.ini" >"$work/squeue.ini"
for file in "$templates/slurm-batch.ini" "$work/squeue.ini"; do
    name=${file##*/}
    export FIBER_COMMAND_FILE=$file
    grep -q '^status = s' "$file" || failed "$name has no line for the states"
    PATH=$work/bin:$PATH holds "$name: a ring" "$fiber" run -n 2 --per-node 1 -- "$prog" who
    says 2 'rank [01] .*n[1-3]'
    PATH=$work/bin:$PATH does "$one" process exit 7 || :
    if [[ $file == "$templates/"* ]]; then says 1 '^code 7: '; else says 1 '^code 1: '; fi
    [[ -z $(find "$work/here" -name 'fiber-ticket-*') ]] || failed "tickets are left"
    echo "ok: $name: exit codes"
done

# Jobs of a killed master that wait in the queue.
export XDG_RUNTIME_DIR=$work/run FIBER_COMMAND_FILE=$work/held.ini
sed 's/^start = sbatch/& --hold/' "$templates/slurm-batch.ini" >"$work/held.ini"
"$one" many 2 >"$work/out" 2>&1 &
master=$!
until [[ $(squeue -h -o %j | grep -c '^fiber:') == 2 ]]; do
    kill -0 $master || failed "the master has ended"
done
kill -KILL $master
wait $master || :
holds "slurm-batch.ini: what a killed master left is listed" "$fiber" ps --backend command
says 1 ' command +lost +2/2 '
holds "and removed" "$fiber" gc --backend command
says 2 '^removed +command job '
! squeue -h -o %j | grep '^fiber:' >/dev/null || failed "jobs are left: $(squeue -h)"
unset FIBER_BACKEND FIBER_COMMAND_FILE

# ---- Which backend ----

holds "in an allocation jobs are steps of it" "${alloc[@]}" "$fiber" run -n 2 --per-node 1 -- "$prog" who
says 2 'rank [01] .*n[12]'
here=$(uname -n)
FIBER_BACKEND=local holds "unless something else is said" "${alloc[@]}" "$fiber" run -n 2 -- "$prog" who
says 2 "rank [01] .*$here"
holds "outside they are processes of this machine" "$fiber" run -n 2 -- "$prog" who
says 2 "rank [01] .*$here"

# ---- How often Slurm is asked ----

for tool in sbatch squeue; do
    cat >"$work/bin/$tool" <<END
#!/bin/bash
echo "begin $tool \$*" >>"$work/asked"
code=0
$(command -v $tool) "\$@" || code=\$?
echo "end $tool \$*" >>"$work/asked"
exit \$code
END
    chmod +x "$work/bin/$tool"
done
: >"$work/asked"
FIBER_BACKEND=slurm FIBER_SLURM_POLL=200ms PATH=$work/bin:$PATH holds "twenty jobs" "$one" many 20
says 1 '^20 ended well$'
cp "$work/asked" "$work/out"
# Jobs that are wanted within 20 ms are one array; a machine that is busy may take longer to want them all.
awk '/^begin sbatch/ { calls++; jobs += match($0, /--array=0-[0-9]+/) ? substr($0, RSTART + 10, RLENGTH - 10) + 1 : 1 }
    END { exit !(jobs == 20 && calls <= 10) }' "$work/asked" || failed "twenty jobs should be a few arrays"
# A look asks for all submissions by their ids, and the next one waits for its answer.
awk '/squeue.* --jobs=[0-9,]+/ { looks += $1 == "begin"; going += $1 == "begin" ? 1 : -1; if (going > 1) bad = 1 }
    /squeue.* --jobs=[0-9,]*_/ { bad = 1 } END { exit bad || !looks }' "$work/asked" || failed "one look is for all"
echo "ok: they are submitted as arrays, and one look tells the states of all"
