# docker_test.sh - the command line over a Docker engine: doctor, run without an image, cp, stack, ps, and gc, logs and
# kill of what dead runs left.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

bed=${TEST_SOURCE_DIR:?}/tests/beds/docker/bed
PATH=${TEST_BINARY_DIR:?}/cli:$PATH
work=$(mktemp -d)
code=0
"$bed" try || code=$?
[ "$code" = 0 ] || exit "$code"
eval "$("$bed" env)"
finish() { # what a test that failed left would fail the next one
    "$bed" thaw 2>/dev/null || :
    "$bed" jobs all | while read -r id; do "$bed" vanish "$id" >/dev/null || :; done
    rm -rf "$work"
}
trap finish EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run XDG_STATE_HOME=$work/state HOME=$work
cd "$work"
bad=0

expect() { # expect <exit code> <pattern> <what> <argument>...: a line of what it says on either stream matches
    local code=$1 pattern=$2 what=$3 got=0
    shift 3
    timeout 300 "$@" >said 2>&1 </dev/null || got=$?
    if [ "$got" != "$code" ] || ! grep -qE -- "$pattern" said; then
        echo "$what: code $got, expected $code, no line is $pattern:"
        cat said
        bad=1
    fi
}

lacks() { # lacks <pattern> <what>: of what was said last
    ! grep -qE -- "$1" said || { echo "$2:"; cat said; bad=1; }
}

# doctor: what is there, and what is not
expect 0 '^ok +backend docker +can be used; its jobs reach this host at ' 'doctor' fiber doctor --backend docker
expect 0 '^ok +docker engine .*API 1\.' 'doctor' fiber doctor --backend docker
expect 0 '^ok +docker limits ' 'doctor' fiber doctor --backend docker
expect 0 '^absent +docker image +no/such:1 is not on the engine' 'an image that is not there' \
    env FIBER_IMAGE=no/such:1 fiber doctor --backend docker
expect 1 '^bad +docker network ' 'a network that is not there' env FIBER_DOCKER_NETWORK=nowhere fiber doctor --backend docker
expect 1 '-> systemctl restart docker' 'no engine' env DOCKER_HOST="unix://$work/nowhere" fiber doctor --backend docker
expect 1 '-> correct this setting' 'no path' env DOCKER_HOST=unix:// fiber doctor --backend docker
expect 1 '127\.0\.0\.2 port 2375' 'an engine without a port' env DOCKER_HOST=tcp://127.0.0.2 fiber doctor --backend docker
if setpriv --reuid 4321 --regid 4321 --clear-groups fiber version >/dev/null 2>&1; then
    expect 1 '-> usermod -aG docker ' 'an engine of others' setpriv --reuid 4321 --regid 4321 --clear-groups \
        env XDG_RUNTIME_DIR= HOME=/ fiber doctor --backend docker
else
    echo "not tested: others may not run $(command -v fiber)"
fi
"$bed" freeze
expect 1 '^bad +backend docker +no answer within 10 s' 'an engine that hangs' fiber doctor --backend docker
"$bed" thaw

# run: no image is named, so one is made of the program
autos() { # autos: the images that were made so
    "$bed" api GET /images/json | sed 's/"/\n/g' | sed -n "/^fiber-auto:/p" | sort -u
}
autos | while read -r image; do "$bed" api DELETE "/images/$image" >/dev/null; done
# shellcheck disable=SC2016
{
    expect 0 '^hi 1$' 'a shell' fiber run --backend docker -n 2 /bin/sh -c 'echo hi $FIBER_RANK'
    printf '#!/bin/sh\necho script $A\n' >script
    chmod +x script
    echo A=told >a.env
    expect 0 '^script told$' 'a script' fiber run --backend docker --env-file a.env ./script
    expect 0 '^script told$' 'the script of a shell' fiber run --backend docker --env-file a.env sh -e script
}
# a library that only this shell's environment leads to
if command -v cc >/dev/null; then
    mkdir -p own/lib
    echo 'int seven(void) { return 7; }' | cc -shared -fPIC -o own/lib/libseven.so -xc -
    echo 'int seven(void); int main(void) { return seven(); }' | cc -o seven -xc - -Lown/lib -lseven
    expect 7 'exited with code 7' 'a library of LD_LIBRARY_PATH' env LD_LIBRARY_PATH=own/lib fiber run --backend docker -n 1 ./seven
    expect 125 'libseven.so, which is not in .*LD_LIBRARY_PATH' 'a library that is nowhere' fiber run --backend docker -n 1 ./seven
fi
# interpreters: their library and the folder of a script come along; of packages there are few
python=$(command -v /usr/bin/python3 || command -v python3 || :)
if "$python" -m venv --without-pip env 2>/dev/null; then
    mkdir job
    # shellcheck disable=SC2016
    printf '#!%s\nimport json, own, os\nprint(json.dumps([own.word, os.environ["FIBER_RANK"]]))\n' "$work/env/bin/python3" >job/script.py
    chmod +x job/script.py
    echo 'word = "ours"' >job/own.py
    cd job
    expect 0 '^\["ours", "1"\]$' 'a Python script' fiber run --backend docker -n 2 ./script.py
    expect 0 '^\["ours", "0"\]$' 'a script that Python reads' fiber run --backend docker -n 1 ../env/bin/python3 -u script.py
    cd ..
    expect 0 "^$work/env 1$" 'Python code' fiber run --backend docker -n 1 env/bin/python3 -c 'import sys; print(sys.prefix, 1)'
    mkdir big
    cp job/script.py big/
    truncate -s 65M big/data
    expect 125 'the folder .*/big is too large .*FIBER_IMAGE_ADD=' 'a large folder' fiber run --backend docker -n 1 big/script.py
fi
if command -v perl >/dev/null; then
    expect 0 '^of perl 3$' 'Perl' fiber run --backend docker -n 1 perl -MList::Util=sum -e 'print "of perl ", sum(1, 2), "\n"'
fi
expect 125 'there is no program nowhere here' 'no program' fiber run --backend docker nowhere
expect 125 'image no/such:1 is not on the engine' 'no image' fiber run --backend docker --image no/such:1 /bin/true

# gc: images that were made of programs, when nothing has them and they are old enough; never those of other names
made=$(autos)
[ -n "$made" ] || { echo "no image was made"; bad=1; }
expect 0 '^nothing to remove' 'gc of young images' fiber gc --backend docker
expect 0 '^would remove docker image fiber-auto:[^ ]*: no container uses it \([0-9].*, unused for [0-9]+s\)' 'gc of images, dry' \
    fiber gc --backend docker --images 0 --dry-run
[ "$(autos)" = "$made" ] || { echo "an image is gone after --dry-run"; bad=1; }
used=${made%%$'\n'*}
"$bed" api POST '/containers/create?name=fiber-test-user' -d "{\"Image\":\"$used\",\"Entrypoint\":[\"/x\"]}" >/dev/null
expect 0 '^removed +docker image|^nothing to remove' 'gc of images' fiber gc --backend docker --images 0
lacks "$used" 'gc of an image that a container has'
[ "$(autos)" = "$used" ] || { echo "there are: $(autos); $used is used"; bad=1; }
"$bed" api DELETE /containers/fiber-test-user >/dev/null
expect 0 "^removed +docker image $used" 'gc of the last one' fiber gc --backend docker --images 0
[ -z "$(autos)" ] || { echo "there are: $(autos)"; bad=1; }
expect 0 '^hi$' 'a run after it' fiber run --backend docker /bin/echo hi

# ps and gc: a job of a dead master, one of a living, one of another host
"$bed" image fiber-cli-test /bin/sleep /bin/true /bin/sh
master() { # master: the name that a job of ours is given
    "$bed" api GET '/containers/json' | grep -o '"fiber.master":"[^"]*"' | sed -n 1p | cut -d'"' -f4
}
leave() { # leave <name> <run> <master>: a job that nobody looks after
    "$bed" api POST "/containers/create?name=$1" -d "{\"Image\":\"fiber-cli-test\",\"Entrypoint\":[\"/bin/sleep\"],
        \"Cmd\":[\"600\"],\"Labels\":{\"fiber.run\":\"$2\",\"fiber.uid\":\"$(id -u)\",\"fiber.job\":\"$1\",
        \"fiber.master\":\"$3\"}}" >/dev/null
    "$bed" api POST "/containers/$1/start"
}
mkfifo up
exec 9<>up
# shellcheck disable=SC2016
FIBER_IMAGE_ADD=$(command -v tail) fiber run --backend docker --name living sh -c 'echo up; exec tail -f /dev/null' >up 2>err &
pid=$!
read -r -t 300 line <&9 || { echo "no rank came up: $line $(cat err)"; kill -KILL $pid; exit 1; }
living=$(master)
# cp into the container, and out of it
head -c 1000000 /dev/urandom >large
if ! fiber cp large living:/there 2>said || ! fiber cp living/0:/there back 2>>said || ! cmp large back; then
    echo "cp: $(cat said)"
    bad=1
fi
expect 1 '^fiber: in the job: /none/x: No such file' 'cp to where nothing is' fiber cp large living:/none/x
mkdir -p tree/sub
cp large tree/sub/
ln -s sub tree/link
if ! fiber cp tree living:/ 2>said || ! fiber cp living/0:/tree tree.back 2>>said || ! diff -r --no-dereference tree tree.back; then
    echo "cp of a directory: $(cat said)"
    bad=1
fi
# exec, of what the image has: sh and tail, but not id
# shellcheck disable=SC2016 # the shell there
{
    expect 3 '^container$' 'exec' fiber exec living -- sh -c '[ -e /there ] && [ ! -e /bin/id ] && echo container; exit 3'
    expect 0 '^tail' 'exec beside the rank' fiber exec living/0 -- sh -c 'exec tail -c +1 "/proc/$FIBER_PID/cmdline"'
}
expect 127 '^fiber: in the job: id: no such program' 'exec of what the image lacks' fiber exec living -- id
# stack, of what is in the container
if [ -x "$TEST_BINARY_DIR/fiber/fiber-stack" ]; then
    expect 0 '^rank 0: main thread of tail' 'stack' fiber stack living
    expect 0 '^    __libc_start_main ' 'frames of it' fiber stack living/0
fi
gone=${living%.*}.1
leave fiber-test-a aaaaaaaa0000000000000000000000aa "$gone"
leave fiber-test-b bbbbbbbb0000000000000000000000bb "$living"
leave fiber-test-c cccccccc0000000000000000000000cc 'elsewhere:1:0123456789abcdef.1'
expect 0 '^[0-9a-f]{8} +living +ring +docker +running +1/1 ' 'ps' fiber ps --backend docker
expect 0 '^aaaaaaaa +- +- +docker +lost +1/1 .*gone: use fiber gc' 'ps of a lost run' fiber ps --backend docker
expect 0 '^cccccccc +- +- +docker +elsewhere +1/1 ' 'ps of another host' fiber ps --all-backends
expect 0 '^RUN ' 'ps asks no engine by itself' fiber ps
lacks '^(aaaaaaaa|cccccccc)' 'ps asks an engine'
expect 0 '^would remove docker job fiber-test-a of run aaaaaaaa: its master is gone' 'gc --dry-run' fiber gc --dry-run
lacks 'removed|fiber-test-b' 'gc --dry-run'
expect 0 '^removed +docker job fiber-test-a of run aaaaaaaa' 'gc' fiber gc
expect 0 '^kept +docker job fiber-test-c .*not on this host .elsewhere:1' 'gc keeps' fiber gc
lacks 'fiber-test-[ab]' 'gc of what is gone, or lives'
expect 0 '-> fiber gc --all cccccccc, or docker rm -f [0-9a-f]{12}' 'gc tells the command' fiber gc
expect 0 '^nothing to remove' 'gc of another run' fiber gc --all dddddddd
expect 0 '^removed +docker job fiber-test-c' 'gc --all' fiber gc --all --backend docker cccccccc
"$bed" api GET /containers/fiber-test-b/json >/dev/null || { echo "a job of a living master was removed"; bad=1; }
kill -KILL $pid
wait $pid || :
expect 0 '^removed +docker job fiber-test-b' 'gc when it is dead' fiber gc --backend docker

# logs and kill of runs that only the engine knows
talk() { # talk <name> <run> <master> <script>: a job that nobody looks after, which says something
    "$bed" api POST "/containers/create?name=$1" -d "{\"Image\":\"fiber-cli-test\",\"Entrypoint\":[\"/bin/sh\",\"-c\"],
        \"Cmd\":[\"$4\"],\"Labels\":{\"fiber.run\":\"$2\",\"fiber.uid\":\"$(id -u)\",\"fiber.job\":\"$1\",
        \"fiber.master\":\"$3\"}}" >/dev/null
    "$bed" api POST "/containers/$1/start"
}
ends() { # ends <name>: waits until it has ended
    "$bed" api POST "/containers/$1/wait" >/dev/null
}
there=elsewhere:1:0123456789abcdef.1
talk fiber-test-d dddddddd0000000000000000000000dd "$gone" 'echo said; echo cried >&2; printf open'
leave fiber-test-e dddddddd0000000000000000000000dd "$gone"
talk fiber-test-f ffffffff0000000000000000000000ff $there 'echo first; echo last'
leave fiber-test-g fffffffe0000000000000000000000fe $there
ends fiber-test-d
ends fiber-test-f
expect 0 '^\[fiber-test-d\] said$' 'logs of a lost run' fiber logs --tag dddddddd
grep -q '^\[fiber-test-d\] open$' said || { echo "a line without an end"; cat said; bad=1; }
expect 0 '^cried$' 'logs of one job' fiber logs dddddddd fiber-test-d
expect 0 '^last$' 'logs -f ends with the job' fiber logs -f --backend docker ffffffff
expect 1 'has no job nobody; it has fiber-test-[de], fiber-test-[de]$' 'logs of no job' fiber logs dddddddd nobody
expect 1 'several runs have an id that begins with fffffff' 'two runs' fiber logs fffffff
expect 1 'no run of yours on this host has the name abcdef' 'no such run' fiber logs abcdef
expect 1 'only its master, .* can forward a signal' 'a signal' fiber kill -s USR1 dddddddd
expect 1 'has no job nobody' 'kill of no job' fiber kill dddddddd nobody
"$bed" freeze
expect 1 'backend docker: .*no answer' 'an engine that hangs' fiber kill --backend docker dddddddd
"$bed" thaw
expect 0 'run dddddddd0000: 1 job removed$' 'kill of one job' fiber kill dddddddd fiber-test-e
expect 1 'has no job fiber-test-e; it has fiber-test-d$' 'kill of one that is gone' fiber kill dddddddd fiber-test-e
expect 0 'run dddddddd0000: 1 job removed$' 'kill of a lost run' fiber kill dddddddd
expect 1 'no run of yours on this host has the name dddddddd' 'kill of what is gone' fiber kill dddddddd
expect 0 '1 job removed; its master, elsewhere:1, is not on this host, and may start others' 'kill from afar' \
    fiber kill --backend docker fffffffe
expect 0 'run ffffffff0000: 1 job removed' 'kill of what has ended' fiber kill ffffffff
"$bed" empty || { echo "left behind"; bad=1; }
exec 9<&-
exit $bad
