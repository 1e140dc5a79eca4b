# docker_test.sh - pools, processes and rings as containers of a Docker engine: what kills them, what stops the engine, what
# they print, and what cannot be started. The engine is the bed's (tests/beds/docker).
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/engines.sh disable=SC2016
clean() { "$bed" thaw 2>/dev/null || :; "$bed" start; }
engine=docker
. "$(dirname "$0")/engines.sh"
export FIBER_BACKEND=docker FIBER_GRACE=500ms FIBER_START_TIMEOUT=300s FIBER_IMAGE_ADD="$prog /bin/sh"
unset FIBER_IMAGE
enough=$work/enough

empty() {
    local list
    list=$("$bed" jobs all) && [[ ! $list ]]
}
nothing_left() {
    "$bed" empty || failed "containers run"
    wait_for "containers are left" empty
}

# --- what becomes of a process
does 300 "$prog" process hello
says '^hello from [0-9a-f]{12}$'
does 300 "$prog" process exit 7
says '^code 7: '
does 300 "$prog" process signal 10
says '^code -10: .*signal 10'
does 300 "$prog" process -n _.-odd-. exit 0
says '^code 0: '
ok "exit codes, signals, names"

# An engine may not see that memory ran out just after the start; it sees most.
for ((i = 0; i < 5; i++)); do
    does 300 "$prog" process -m 64 eat 200
    says '^code -9: .*memory ran out.* limit is 64 MiB'
    grep -q perhaps "$work/out" || break
done
((i < 5)) || failed "the engine should report that memory ran out"
does 300 "$prog" process -m 64 signal 9
says '^code -9: .*signal 9 \(Killed\), perhaps because memory ran out: .* limit is 64 MiB'
echo '{"HostConfig":{"Memory":67108864,"MemorySwap":67108864}}' >"$work/template"
FIBER_DOCKER_TEMPLATE=$work/template does 300 "$prog" process eat 200
says '^code -9: .*memory ran out.* limit is 64 MiB'
ok "a limit of memory is told, also that of a template"
does 300 "$prog" process -c 1000 hello
says '^code 125: .*CPUs'
ok "too many processors are told"
does 300 "$prog" process -i no-such-image:1 hello
says '^code 125: .*no-such-image:1 is not on the engine, and cannot be pulled'
ok "an image that is not there is told"
does 300 "$prog" process program /no/such/program
says 'code 125: .*cannot run in its image: exec /no/such/program failed'
ok "a program that is not there is told"
nothing_left

# As an engine that is restarted does, unless its containers live on.
begins 1 'waits in' "$prog" process wait
await_jobs 1
"$bed" api POST "/containers/$job/stop" >/dev/null
ends
says '^code -15: .*was ended by signal 15, which its program, `docker stop` or the end of the engine sent'
nothing_left
ok "a container that is stopped from outside is told"

# --- nested processes start beside their parent
does 300 "$prog" nested
[[ $(grep -c '^leaf beside its parent$' "$work/out") == 2 ]] || failed "they should be in its container"
ok "nested processes"

# --- when the program has ended, its containers are gone: their network can be removed
"$bed" api POST /networks/create -d '{"Name":"fiber-gone"}' >/dev/null
for how in pool pool ring; do
    if [[ $how == pool ]]; then
        gives 0 env FIBER_DOCKER_NETWORK=fiber-gone "$prog" pool 3 30 5
    else
        gives 0 env FIBER_DOCKER_NETWORK=fiber-gone "$fiber" run -n 2 -N 1 /bin/true
    fi
    [[ ! $("$bed" jobs all) ]] || failed "containers are there when the program has ended ($how)"
done
"$bed" api DELETE /networks/fiber-gone >"$work/out"
[[ ! -s $work/out ]] || failed "the network should be removed"
ok "containers are gone when the program has ended"

# Nothing of Fiber in it: the program is put in, with the libraries of this machine.
"$bed" has bare:1 || "$bed" image bare:1 /bin/sh >/dev/null
gives 0 "$fiber" run --image bare:1 -n 2 -N 1 /bin/sh -c 'echo "rank $FIBER_RANK of $FIBER_SIZE"'
says '^rank 0 of 2$'
says '^rank 1 of 2$'
gives 137 "$fiber" run --image bare:1 --mem 64Mi -n 1 /bin/sh -c 'x=x; while :; do x=$x$x; done'
oom='was killed by signal 9 \(Killed\): out of memory: it used up to [0-9]+ MiB, and the limit is 64 MiB'
says "^fiber: (rank 0 .*$oom|.*was killed .*because memory ran out: its container's limit is 64 MiB)" # the kernel chooses whom
FIBER_IMAGE=bare:1 does 300 "$prog" nested
[[ $(grep -c '^leaf beside its parent$' "$work/out") == 2 ]] || failed "they should be in its container"
ok "an image without our program, and a rank's limit of memory"

FIBER_IMAGE_ADD='' gives 0 "$fiber" run -N 1 -n 1 printf 'one %s\n' program : -n 1 echo another
says '^one program$'
says '^another$'
ok "an image that is made of two programs"

# A master that is in a container itself: its jobs have its image and its network, and reach it there.
if command -v docker >/dev/null; then
    "$fiber" image build fiber-inside:1 "$prog" --cluster -q
    socket=${DOCKER_HOST#unix://}
    "$bed" api GET /networks/fiber-inside >/dev/null 2>&1 || docker network create fiber-inside >/dev/null
    for network in bridge fiber-inside host; do
        does 300 docker run --rm --network $network -v "$socket:/var/run/docker.sock" -e FIBER_BACKEND=docker \
            -e FIBER_START_TIMEOUT=300s fiber-inside:1 "$prog" pool 2 50 5
        says '^right 50 of 50$'
        says '^deaths 0$'
    done
    docker network rm fiber-inside >/dev/null
    docker rmi -f fiber-inside:1 >/dev/null
    nothing_left
    ok "a master in a container"
fi

# --- the template has the last word, and what is started knows its limits
echo '{"HostConfig":{"CpusetCpus":"0"},"Labels":{"mine":"yes"}}' >"$work/template"
FIBER_DOCKER_TEMPLATE=$work/template does 300 "$prog" cpus
says '^cpus 0$'
echo '{"HostConfig":' >"$work/template"
FIBER_DOCKER_TEMPLATE=$work/template does 300 "$prog" cpus
says 'docker_template .*not JSON'
echo '[]' >"$work/template"
FIBER_DOCKER_TEMPLATE=$work/template does 300 "$prog" cpus
says 'docker_template .*not a JSON object'
FIBER_DOCKER_HOST=unix:///no/such/socket does 300 "$prog" cpus
says 'no Docker engine at /no/such/socket'
ok "template and host"

# --- output: whole lines of both streams, in order, also with a slow reader
slow_reader() {
    local piece
    while IFS= read -rn 65536 -d '' piece || [[ $piece ]]; do
        printf '%s' "$piece"
        read -rt 0.02 <> <(:) || :
    done
}
"$prog" output 10500 2>"$work/err" | slow_reader >"$work/out"
for stream in out err; do
    grep -h "^$stream [0-9]" "$work/out" "$work/err" | awk 'length($0) < 90 || $2 != n++ { bad = 1 }
        END { exit bad || n != 10500 }' || failed "lines of $stream are missing, torn or out of order"
done
ok "1 MiB of each stream"

# --- a pool whose workers die
FIBER_HEARTBEAT=200s begins 1 begun "$prog" pool 4 400 20 "$enough" 2
shows_containers() {
    local run
    run=$("$fiber" ps --json | grep -oE "\"uid\":\"[0-9a-f]+\",[^}]*\"pid\":$launcher," | grep -oE '[0-9a-f]{32}' | head -1)
    [[ $run && $("$fiber" top -c 1 "$run" | grep -cE '^ +[0-9]+ running .* [0-9a-f]{12}$') == 4 ]]
}
wait_for "top does not show the containers of 4 workers" shows_containers
await_jobs 4
"$bed" api POST "/containers/$(sed -n 1p <<<"$jobs")/kill" >/dev/null
"$bed" vanish "$(sed -n 2p <<<"$jobs")" >/dev/null
touch "$enough"
ends
says '^right 400 of 400$'
says '^deaths 2$'
rm "$enough"
nothing_left
ok "a pool survives a container that is killed and one that vanishes"

# --- several workers in each container, one of which is killed
FIBER_HEARTBEAT=200s begins 1 begun "$prog" jobs 2 3 300 "$enough"
await_jobs 2
(($(wc -l <<<"$jobs") == 2)) || failed "six workers should be in two containers"
touch "$enough"
ends
says '^right 300 of 300$'
says '^deaths 1$'
rm "$enough"
nothing_left
ok "a pool of two containers with three workers each"

# --- an engine that dies, or hangs, and comes back
FIBER_HEARTBEAT=200s begins 1 begun "$prog" pool 2 400 20 "$enough"
"$bed" stop
"$bed" start
touch "$enough"
ends
says '^right 400 of 400$'
says '^deaths 0$' # this engine ends its containers when it is back: no task is to blame
nothing_left
rm "$enough"
ok "the engine dies and comes back while a pool maps"
begins 1 'waits in' "$prog" process wait
"$bed" stop
"$bed" start
for job in $("$bed" jobs); do # unless the engine has ended it already
    "$bed" api POST "/containers/$job/kill?signal=SIGTERM" >/dev/null
done
ends
says '^code -(15|9): '
nothing_left
ok "a process is watched again when the engine is back"
FIBER_HEARTBEAT=200s begins 1 begun "$prog" pool 2 200 20 "$enough"
"$bed" freeze
read -rt 5 <> <(:) || :
touch "$enough"
"$bed" thaw
ends
says '^right 200 of 200$'
says '^deaths 0$'
ok "an engine that hangs harms nobody"

# --- a master that is killed
begins 1 begun "$prog" pool 4 400 20 "$work/never"
kill -KILL "$launcher"
ends
nothing_left
ok "nothing outlives its master"

# --- many at once
does 600 "$prog" many "${DOCKER_MANY:-40}"
says "^${DOCKER_MANY:-40} ended well$"
nothing_left
ok "many at once"

# --- rings
gives 5 "$fiber" run -n 4 -N 2 sh -c 'echo "$FIBER_RANK of $FIBER_SIZE"; [ "$FIBER_RANK" != 3 ] || exit 5'
says '^3 of 4$' # the others may have been ended before they spoke
FIBER_IMAGE_ADD="/bin/sh /bin/stty /bin/sleep /bin/cat" gives 0 python3 "$TEST_SOURCE_DIR/tests/system/ring_pty.py" "$fiber"
ok "a pseudo-terminal in a container"
hello=$TEST_BINARY_DIR/examples/mpi/mpi_hello
if [[ -x $hello ]]; then
    gives 0 "$fiber" run --oversubscribe -n 8 -N 2 "$hello"
    says 'rank 7 of 8'
    ok "an MPI program in 4 containers"
fi
for policy in restart replace; do
    begins 4 'of 4 on' "$fiber" run -n 4 -N 2 --on-failure $policy "$prog" rank
    await_jobs 1
    "$bed" api POST "/containers/$job/kill" >/dev/null
    if [[ $policy == restart ]]; then more 4 'of 4 on'; else more 2 'of 4 on'; fi
    kill -TERM "$launcher"
    ends
    nothing_left
    ok "a ring goes on after a container was killed: $policy"
done
