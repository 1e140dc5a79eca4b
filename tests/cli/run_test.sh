# run_test.sh - `fiber run` as people use it: output, exit codes, input, mistakes; and nothing is left behind.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/check_lib.sh
. "${TEST_SOURCE_DIR:?}/tests/cli/check_lib.sh"

# shellcheck disable=SC2016
{
    check 0 'hi hi ' '^' run -n 2 --quiet /bin/echo hi
    check 0 '[01] [01] ' '^' run -np 2 -q sh -c 'echo $FIBER_RANK'
    check 0 '\[0\] x ' '^' run --tag -n 1 echo x
    check 0 'yes/pmi ob1 ' '^' run -x A=yes --genv B pmi --mca pml ob1 sh -c 'echo $A/$B $OMPI_MCA_pml'
    check 0 '0 ' '^' run -n 1 --mca orte_hnp_uri 0 printenv OMPI_MCA_orte_hnp_uri
    printf '# of a test\nA=x "y"\nB=2\n\nPATH\n' >a.env
    check 0 'x "y"/3 ' '^' run -x B=1 -x B=3 --env-file a.env sh -c 'echo "$A/$B"'
    printf 'PMI_SPAWNED=1\nPMI_FD=7\nPMIX_DSTORE_X=y\nPMIX_SERVER_URI9=z\nPMI_A=b\n' >outer.env # `env` under mpirun
    check 0 '//b ' '^' run -n 1 --env-file outer.env -x FIBER_PMI=port \
        sh -c 'echo "$PMI_SPAWNED$PMI_FD/$PMIX_DSTORE_X$PMIX_SERVER_URI9/$PMI_A"'
    check 0 '/ ' '^' run --workdir / pwd
    HWLOC_SYNTHETIC='pack:1 [numa(memory=1GB indexes=70)] core:1 pu:1' HWLOC_THISSYSTEM=1 \
        check 0 'x ' '^' run -n 1 --bind-to core echo x # with more NUMA nodes than memory is bound to
    check 0 'a -n 3 ' '^' run -n 1 echo a -n 3
    check 3 '' '' run -n 2 sh -c '[ $FIBER_RANK = 0 ] || exit 3'
    check 137 '' '' run -n 1 sh -c 'kill -KILL $$'
    check 124 '' '' run --timeout 100ms tail -f /dev/null
    check 125 '' 'no such file in the working directory /.*; use --workdir DIR' run -n 1 ./no-such-program
    check 125 '' 'no such file in the working directory /; use --workdir DIR' run -n 1 --workdir / ./no-such-program
    said=$(mkdir gone && cd gone && rmdir "$PWD" && fiber run -n 1 ./x 2>&1) || :
    [[ $said == *'in the working directory (deleted); use'* ]] || { echo "in a deleted folder: $said"; bad=1; }
    deep=$work/$(printf 'deep%.0s' {1..50})/$(printf 'deep%.0s' {1..50}) # where some build systems put programs
    mkdir -p "$deep"
    printf '#!/bin/sh\necho "$@"\n' >"$deep/say"
    chmod +x "$deep/say"
    check 0 'hi ' '^' run -q -n 1 "$deep/say" hi
    PATH=$PATH:$deep check 0 'hi ' '^' run -q -n 1 say hi
    cp "$deep/say" say-it # an empty part of PATH is this folder, as for execvp()
    PATH=:$PATH check 0 'hi ' '^' run -q -n 1 say-it hi
    PATH=$PATH: check 0 'hi ' '^' run -q -n 1 say-it hi
    # the agent ends by itself: it would be killed after the grace
    check 125 '' 'cannot start /no/such/program: there is no such file' run --grace 300s -n 1 /no/such/program
    export FIBER_RUN_DIR=/nowhere
    check 125 '' 'cannot make a run directory in /nowhere: .*set run_dir' run -n 1 true
    check 125 '' 'cannot make a run directory in /nowhere: ' run --dry-run -n 1 true
    check 125 '' 'cannot make a run directory in /nowhere: ' run --dry-run --json -n 1 true
    check 125 '' 'cannot make a run directory in /nowhere: ' run --json -H localhost -n 1 true
    unset FIBER_RUN_DIR
    printf '#!/no/such/shell\n' >odd
    check 125 '' 'use chmod \+x to make it executable' run -n 1 ./odd
    chmod +x odd
    check 125 '' 'it exists, but the interpreter that it names does not' run -n 1 ./odd
    check 125 '' 'the interpreter that it names does not' run --workdir / -n 1 "$work/odd"
    printf 'echo hi\n' >odd
    check 125 '' 'nor a script that begins with #!' run -n 1 ./odd
    cp odd odd.py
    check 125 '' 'put python3 before it' run -n 1 ./odd.py
    chmod -x odd.py
    check 125 '' 'put python3 before it' run -n 1 ./odd.py
    check 125 '' 'use python3 odd.py' run -n 1 odd.py
    check 125 '' 'use ./odd' run -n 1 odd
    check 125 '' 'use ./odd' run --workdir "$work" -n 1 odd
    check 125 '' 'in PATH or in the working directory' run --workdir / -n 1 odd
    check 125 '' 'the quotes make it one word' run -n 1 'echo a; echo b'
    check 125 '' 'the quotes make it one word' run -n 1 './odd -v'
    check 125 '' 'use -x A=1 before the program' run -n 1 A=1 ./odd
    check 125 '' 'it is a directory' run -n 1 /
    check 125 '' '^fiber: output: cannot make /.*/odd/[0-9a-f]*: Not a directory' run -n 1 --output odd true
    check 2 '' 'output: the name of the directory is empty' run -n 1 --output '' true
    check 2 '' 'output: %x is not known in a pattern' run -n 1 --output a%x true
    check 2 '' 'output: % is not known in a pattern' run --dry-run -n 1 --output a% true
    check 2 '' 'output: a%h names one file for 2 ranks' run -n 2 --output a%h true
    check 0 'hi ' '^' run -q -n 1 --output deep/er/logs echo hi
    check 4 '' '^\{"uid":"[0-9a-f]{32}","code":4,.*\} $' run --json -n 1 sh -c 'exit 4'
    check 0 '.*' '^' run --dry-run -n 4 ./no-such-program
    check 0 '\{.*\} ' '^' run --dry-run --json -n 4 ./no-such-program
    # agents of one machine place their ranks together
    HWLOC_SYNTHETIC='pack:2 core:4 pu:1' check 0 '.*rank 1: [^:]*cpus 4 .*node 1: [^:]*: [^:]*cpus 2 .*rank 3: [^:]*cpus 6 .*' '^' \
        run --dry-run -n 4 --per-node 2 --map-by spread ./x
}
if [ -e "$TEST_BINARY_DIR/fiber/cluster.so" ]; then # what a cluster would get; none is asked
    check 0 '.*backend kubernetes, 2 agents .*kind: "Pod" .*image: "x:1" .*' '^' run --dry-run -b kubernetes --image x:1 -n 2 -N 1 ./x
    check 0 '\{.*"manifest":\{.*\} ' '^' run --dry-run --json -b kubernetes --image x:1 -n 2 ./x
    check 0 '.*requests: *cpu: "?6000m"? .*' '^' run --dry-run -b kubernetes --image x:1 -n 4 -N 2 --cpus-per-rank 3 ./x
    check 0 '.*requests: *cpu: "?8000m"? .*' '^' run --dry-run -b kubernetes --image x:1 -n 10 -N 8 --cpus-per-rank 1 ./x
    check 125 '.*' 'no image is set' run --dry-run -b kubernetes -n 2 ./x
    check 2 '' '--nodes 2: all jobs of backend docker run on one host' run -b docker --nodes 2 -n 2 ./x
    printf '#!/bin/sh\n' >here
    chmod +x here
    check 0 "2 ranks of $work/here .*" '^' run --dry-run -b kubernetes --image x:1 -n 2 ./here
    FIBER_BACKEND=kubernetes check 0 ".* rank 0: $work/here ranks 1 to 2: $work/here .*" '^' run --dry-run --image x:1 -n 1 ./here : -n 2 ./here
    check 0 '2 ranks of ./here .*' '^' run --dry-run -b kubernetes --image x:1 --workdir /app -n 2 ./here
    check 0 "2 ranks of $work/here .*- \"$work/here\" .*" '^' run --dry-run --in-cluster --image x:1 -n 2 ./here
    check 0 ".*command: \[\"$work/here\", \"./here\"\].*" '^' kubernetes manifest -i x:1 -- ./here ./here
fi
FIBER_COMMAND_START='ssh {host}' FIBER_COMMAND_HOSTS='a b' check 0 ".*one of 2 jobs, .* ssh a 'env -C .* FIBER_TICKET=fd:0 .*' " '^' \
    run --dry-run -b command -n 2 -N 1 ./x
check 125 '.*' 'no command that starts a job' run --dry-run -b command -n 2 ./x
check 0 '.*one of 1 job sbatch .* --mem=1024M .*FIBER_TICKET=file:.*' '^' run --dry-run -b slurm -n 2 --mem 1Gi ./x
check 0 '\{.*,"manifest":"sbatch .*"\} ' '^' run --dry-run --json -b slurm -n 2 ./x
# the first of two nodes has 3 of 4 ranks
check 0 '.* --cpus-per-task=3 .*' '^' run --dry-run -b slurm -n 4 -N 3 ./x
mkdir tools
for name in sbatch squeue scancel sinfo scontrol sacct; do
    printf '%s\n' '#!/bin/sh' "echo $name \$* >>$work/asked; exit 1" >tools/$name
    chmod +x tools/$name
done
PATH=$work/tools:$PATH FIBER_SLURM_DIR=$work/slurm check 125 '' 'sbatch printed no job id' run -b slurm -n 4 -N 3 true
grep -q 'sbatch .* --cpus-per-task=3 ' asked || { echo "an agent got other processors: $(cat asked)"; bad=1; }
SLURM_JOB_ID=1 check 0 '.*one of 1 job srun --nodelist=NODE --mpi=none --nodes=1 .* --export=ALL,FIBER_TICKET=fd:0 .*' '^' run --dry-run -b slurm -n 2 ./x
check 2 '' 'needs the API server of Kubernetes, but the backend is local' run --dry-run=server -b local -n 2 ./x
check 2 '' 'did you mean server' run --dry-run=serve -n 2 ./x
check 2 '' 'the program is missing' run -n 2
printf '#!/bin/sh\n' >mpirun
chmod +x mpirun
check 0 '' 'is a launcher itself, and each of the 2 ranks starts a run of its own: omit mpirun' run -n 2 ./mpirun -np 2 x
check 0 '' '^' run -q -n 2 ./mpirun -np 2 x
check 0 '' '^' run -n 1 ./mpirun -np 2 x
check 0 '.*' 'omit deepspeed, and use fiber run -n 2 PROGRAM' run --dry-run -n 2 deepspeed x.py
check 0 '.*' 'omit torch.distributed.run' run --dry-run -n 2 python3 -m torch.distributed.run x.py
check 2 '' 'did you mean --timeout' run --timout 3 true
check 2 '' '^fiber: --grace: grace is ' run --grace 2h true
check 2 '' 'did you mean core' run --bind-to cor true
check 0 'hi hi hi ' '^' run -H localhost:3 -q echo hi
check 125 '' '^fiber: rank 0 .*could not be started: .*there is no such file' run -q -n 1 ./no-such
check 125 '' '^fiber: an agent could not be started: (the host|cannot tell)' run -n 1 -H no-such-host.invalid:1 true
check 2 '' 'nohup fiber run ... &, which outlives the terminal' run --detach -n 1 true
check 0 'hi hi ' '^' run -q -f <(echo localhost slots=2) -n 2 echo hi
printf '# ours\nh1 slots=2\n\nh2:1 # slow\nh3\n' >hosts
check 0 '.*backend command, 2 agents node 0, h1: ranks 0 to 1 node 1, h2: rank 2 .*' '^' run --dry-run --hostfile hosts -n 3 x
check 0 '.*node 0, h2: rank 0 node 1, h3: rank 1 .*' '^' run --dry-run --hostfile hosts --host h3,h2 x
check 0 '.*"node":0,"host":"h2","ranks":\[\{"rank":0,.*' '^' run --dry-run --json -H h2 x
check 0 '.*"node":0,"host":null,.*' '^' run --dry-run --json -n 1 x
printf 'h1\nh2\n' >nodes
PBS_NODEFILE=$PWD/nodes check 0 '2 ranks of x backend command, 2 agents .*' '^' run --dry-run x
PBS_NODEFILE=$PWD/nodes FIBER_BACKEND=local check 0 '1 rank of x backend local, 1 agent .*' '^' run --dry-run x
FIBER_BACKEND=docker SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n check 0 '.*backend command, 1 agent .*' '^' run --dry-run -H h1 x
FIBER_COMMAND_START='rsh -l me {host}' check 0 '.*backend command.*' '^' run --dry-run -H h1 x
FIBER_COMMAND_START='bsub -I' check 2 '' 'FIBER_COMMAND_START: the command that starts jobs has no \{host\}' run -H h1 x
FIBER_COMMAND_FILE=/nowhere check 2 '' '/nowhere' run -H h1 x
# a shell of this host for each, where others have ssh
(
    export FIBER_BIND=127.0.0.1 FIBER_COMMAND_START='env HOST={host} sh -c {shell_command}'
    # shellcheck disable=SC2016
    check 0 '.*' '^' run -q -H h1,h2:2,h3 -o hosts.d sh -c 'echo $HOST'
    [ "$(cat hosts.d/latest/?.out | tr '\n' ' ')" = 'h1 h2 h2 h3 ' ] || { echo "ranks are on $(cat hosts.d/latest/?.out)"; bad=1; }
    FIBER_COMMAND_START='false {host}' check 125 '' "exited with code 1 .* the command that starts jobs \('false'\) has started no program" run -H h1 true
    FIBER_COMMAND_PROGRAM=/nowhere/fiber check 125 '' 'this program, or a library that it needs, is not on h1' run -H h1 true
    exit $bad
) || bad=1
check 2 '' '3 ranks are more than the 2 slots of 2 hosts: add --oversubscribe' run -H a,b -n 3 x
check 2 '' '"-oProxyCommand=x" is not a host' run --hosts -oProxyCommand=x x
check 2 '' 'for a file with hosts, use --hostfile' run --nodelist ./hosts x
check 2 '' 'not for --backend kubernetes: omit one' run -H a -b kubernetes x
check 2 '' 'hostfile: none: No such file' run --hostfile none x
check 2 '' 'hostfile: a.env:2: "A=x" is not a host' run -machinefile a.env x
printf 'h1 slots=0\n' >hosts
check 2 '' 'hosts:1: slots=0: a number from 1' run --hostfile hosts x
for ((i = 0; i < 3000; i++)); do echo "node-$i.example.org"; done >hosts # more than one line of a configuration
check 2 '' '' run --hostfile hosts --nodes 3001 x
check 0 '.*3000 agents.*node 2999, node-2999.example.org: rank 2999.*' '^' run --dry-run --hostfile hosts x
check 2 '' 'env-file: none.env: ' run --env-file none.env true
printf 'A=1\nexport B=2\n' >bad.env
check 2 '' 'bad.env:2: "export B" is not the name of a variable' run --env-file bad.env true
check 2 '' 'did you mean .fiber run' rnu
check 2 '' 'did you mean .fiber kill' stop
check 2 '' 'did you mean .fiber ps' status
check 2 '' 'to start a program, use fiber run -np 2 ' -np 2 ./x
check 2 '' 'there is no option --colour; try' --colour
printf '#!/bin/sh\n' >x
chmod +x x
check 2 '' 'fiber run ./x' ./x
check 2 '' 'did you mean docker' run --backend doker true
export FIBER_GRACE=7s
check 0 'grace = 7s   from FIBER_GRACE; .* ' '^' config show grace
unset FIBER_GRACE
check 2 '' 'did you mean grace' config show grase
fiber config show >table
begins=$(grep -o '^KEY *' table) # the second column of all lines begins where it does in the first
[ "$(cut -c "${#begins}" table | sort -u)" = " " ] || { echo "config show is not a table: $(cat table)"; bad=1; }
check 0 'fiber [0-9.]+ .*' '^' version
check 0 '\{"version":.*\} ' '^' version --json
check 0 '\[\] ' '^' ps --json
check 1 '' 'no run of yours on this host has the name x1' kill x1
check 1 '' 'no run of yours' kill -9 x1
check 1 '' 'no run of yours' kill -TERM x1 3
check 1 '' 'no run of yours' cp -r out x1:/tmp
check 1 '' 'no run of yours' logs x1
check 1 '' 'no run of yours' top x1
for command in "ps" "ps --json" "ps -A" "config show" "version" "doctor --backend local"; do
    # shellcheck disable=SC2086
    if fiber $command >/dev/full 2>err || ! grep -q '^fiber: cannot write standard output: No space left' err; then
        echo "fiber $command to a full disk: code 0, or it said: $(cat err)"
        bad=1
    fi
done

PATH=$TEST_BINARY_DIR/tests/mock:$PATH FIBER_MOCK=slow_start=6000 check 0 'x x ' 'waiting for [0-9]+ s: 2 of 2 jobs pending: the mock engine takes its time' \
    run --backend mock --nodes 2 -n 2 echo x

# without a network or an engine, an image cannot be got; that what is not here cannot be in one is seen before
check 125 '' 'there is no program ./nowhere here' run --backend docker ./nowhere
check 125 '' 'there is no program ./nowhere in /nonexist .--workdir.' run --backend docker --workdir /nonexist ./nowhere

check 0 'nothing to remove ' '^' gc --backend local
check 0 '\[\] ' '^' gc --backend local --json
mkdir -m 700 "$work/run/fiber-7-abcdef"
: >"$work/run/fiber-7-abcdef/lock"
check 0 'would remove local directory .*/fiber-7-abcdef: its run has ended ' '^' gc -b local --dry-run
[ -d "$work/run/fiber-7-abcdef" ] || { echo "gc --dry-run removes"; bad=1; }
check 0 'removed +local directory .*/fiber-7-abcdef: its run has ended ' '^' gc -b local
[ ! -e "$work/run/fiber-7-abcdef" ] || { echo "gc does not remove"; bad=1; }
export DOCKER_HOST=unix:///nowhere
check 1 '' 'backend docker: .*no Docker engine at /nowhere' gc --backend docker
check 1 'RUN .*' 'backend docker: .*no Docker engine at /nowhere' ps --backend docker
unset DOCKER_HOST

# nothing that is quoted steers a terminal
check 2 '' 'there is no subcommand ' $'\033]0;pwned\007x'
check 2 '' 'after .:.: put --version before the first program' run -n 2 true : -V
! grep -q $'\033' err || { echo "an escape sequence is shown:"; cat -v err; bad=1; }
check 2 '' '^fiber: -b: "x" is none of: ' gc -b $'\033]0;pwned\007x'
! grep -q $'\033' err || { echo "an escape sequence is shown:"; cat -v err; bad=1; }

# no file may be written: told, not killed
said=$( (ulimit -f 0; timeout 60 fiber run -n 1 true; echo "code $?") 2>&1 | cat)
[[ $said == *"File too large"*"code 125" ]] || { echo "ulimit -f 0: $said"; bad=1; }

# runs that are there at the same time do not share processors, unless there are too few
if [ "$(nproc)" -ge 2 ]; then
    mkfifo hold up
    exec 7<>hold 8<>up # open to the end: one who opens it between two writers reads an end of file
    for i in 1 2; do
        timeout 60 fiber run -n 1 --report-bindings sh -c 'echo >up; read -r x <hold' 2>bound.$i 7>&- 8>&- &
        pid=$!
        read -r _ <&8
        until grep -q cpus "bound.$i"; do kill -0 "$pid" || break; done # the rank may be faster than its report
    done
    first=$(sed -n 's/.*; cpus \([0-9,-]*\).*/\1/p' bound.1)
    second=$(sed -n 's/.*; cpus \([0-9,-]*\).*/\1/p' bound.2)
    if [ -z "$first" ] || [ -z "$second" ] || [ "$first" = "$second" ]; then
        echo "two runs are on the same processors:"
        cat bound.1 bound.2
        bad=1
    fi
    # ranks that share processors with them do not spin
    check 0 '(1 )+' 'not bound, and yield .*: your other runs are bound to [0-9]+ of the' run -n "$(($(nproc) - 1))" \
        printenv OMPI_MCA_mpi_yield_when_idle
    # so do two agents of one run on this host, which place their ranks together
    n=$(($(nproc) > 2 ? $(nproc) - 1 : 2))
    check 0 '' 'not bound, .*: another run of yours is bound to the processors' run -n "$n" -N "$(((n + 1) / 2))" true
    echo >&7
    echo >&7
    wait
    exec 7>&- 8>&-
    check 0 '' '^fiber: rank 0 on .*; cpus [0-9]' run -n 1 --report-bindings true
fi

echo input | fiber run -q -n 2 cat >out
[ "$(cat out)" = input ] || { echo "rank 0 reads our input: $(cat out)"; bad=1; }
fiber run -q --stdin none -n 2 cat >out <<<input
[ ! -s out ] || { echo "--stdin none: $(cat out)"; bad=1; }
fiber run -q -n 1 cat </ 2>err
grep -q 'cannot read standard input: Is a directory' err || { echo "a directory as our input: $(cat err)"; bad=1; }
fiber run -q -n 1 cat 0>unread 2>err # as nohup leaves it
[ ! -s err ] || { echo "no input: $(cat err)"; bad=1; }
timeout 60 fiber run -q -n 2 -o logs echo kept >/dev/null
[ "$(cat logs/latest/1.out)" = kept ] || { echo "--output: $(ls logs)"; bad=1; }
[ "$(timeout 60 fiber logs echo 1)" = kept ] || { echo "fiber logs shows no kept file"; bad=1; }
mkdir first second
ln -s first now
mkfifo go
timeout 60 fiber run -q -n 1 -o now sh -c 'cat go; echo kept >&2' 2>/dev/null &
ln -sfn second now >go # when the rank has started
wait $!
[ "$(cat first/latest/0.err)" = kept ] || { echo "--output follows a link that was changed: $(ls second)"; bad=1; }
mkdir '100%x'
(cd '100%x' && timeout 60 fiber run -q -n 1 -o logs echo kept >/dev/null && fiber run -q -n 1 -o %r echo kept >/dev/null)
[ "$(cat '100%x/logs/latest/0.out' '100%x/0')" = $'kept\nkept' ] || { echo "--output in a folder with a percent sign"; bad=1; }
# a user whom nobody knows, without a home
as=(setpriv --reuid 54321 --regid 54321 --clear-groups env -i "PATH=$PATH" "XDG_RUNTIME_DIR=$work/strange")
mkdir -m 700 strange
chmod 755 .
if [ "$(id -u)" = 0 ] && chown 54321 strange && "${as[@]}" fiber version >out 2>&1; then
    timeout 60 "${as[@]}" fiber run -n 1 echo strange >out 2>err || cat err
    [ "$(cat out)" = strange ] || { echo "a user without a name and HOME: $(cat out)"; bad=1; }
fi
left=$(find run -mindepth 1 ! -path 'run/fiber' ! -path 'run/fiber/ended*' ! -path run/fiber/cpus)
[ -z "$left" ] || { echo "left behind: $left"; bad=1; }
exit $bad
