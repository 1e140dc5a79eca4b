# docker_test.sh - the command line over a Docker engine: doctor, run without an image, ps, and gc of what dead runs left.
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
trap 'rm -rf "$work"' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run HOME=$work
cd "$work"
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
"$bed" freeze
expect 1 '^bad +backend docker +no answer within 10 s' 'an engine that hangs' fiber doctor --backend docker
"$bed" thaw

# run: no image is named, so one is made of the program
# shellcheck disable=SC2016
{
    expect 0 '^hi 1$' 'a shell' fiber run --backend docker -n 2 /bin/sh -c 'echo hi $FIBER_RANK'
    printf '#!/bin/sh\necho script $A\n' >script
    chmod +x script
    echo A=told >a.env
    expect 0 '^script told$' 'a script' fiber run --backend docker --env-file a.env ./script
    expect 0 '^script told$' 'the script of a shell' fiber run --backend docker --env-file a.env sh -e script
}
expect 125 'no program nowhere here to make an image of' 'no program' fiber run --backend docker nowhere
expect 125 'image no/such:1 is not there' 'no image' fiber run --backend docker --image no/such:1 /bin/true

# ps and gc: a job of a dead master, one of a living, one of another host
"$bed" image fiber-cli-test /bin/sleep /bin/true
master() { # master: the name that a job of ours is given
    "$bed" api GET '/containers/json' | grep -o '"fiber.master":"[^"]*"' | head -1 | cut -d'"' -f4
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
read -r -t 60 line <&9 || { echo "no rank came up: $line $(cat err)"; kill -KILL $pid; exit 1; }
living=$(master)
gone=${living%.*}.1
leave fiber-test-a aaaaaaaa0000000000000000000000aa "$gone"
leave fiber-test-b bbbbbbbb0000000000000000000000bb "$living"
leave fiber-test-c cccccccc0000000000000000000000cc 'elsewhere:1:0123456789abcdef.1'
expect 0 '^[0-9a-f]{8} +living +docker +running +1/1 ' 'ps' fiber ps --backend docker
expect 0 '^aaaaaaaa +- +docker +lost +1/1 .*gone: fiber gc' 'ps of a lost run' fiber ps --backend docker
expect 0 '^cccccccc +- +docker +elsewhere +1/1 ' 'ps of another host' fiber ps --all-backends
expect 0 '^RUN ' 'ps asks no engine by itself' fiber ps
lacks '^(aaaaaaaa|cccccccc)' 'ps asks an engine'
expect 0 '^would remove docker job fiber-test-a of run aaaaaaaa: its master is gone' 'gc --dry-run' fiber gc --dry-run
lacks 'removed|fiber-test-b' 'gc --dry-run'
expect 0 '^removed +docker job fiber-test-a of run aaaaaaaa' 'gc' fiber gc
expect 0 '^kept +docker job fiber-test-c .*not on this host .elsewhere:1' 'gc keeps' fiber gc
lacks 'fiber-test-[ab]' 'gc of what is gone, or lives'
expect 0 '-> fiber gc --all cccccccc, or docker rm -f [0-9a-f]{12}' 'gc tells the command' fiber gc
expect 0 '^nothing is left behind' 'gc of another run' fiber gc --all dddd
expect 0 '^removed +docker job fiber-test-c' 'gc --all' fiber gc --all --backend docker cccc
"$bed" api GET /containers/fiber-test-b/json >/dev/null || { echo "a job of a living master was removed"; bad=1; }
kill -KILL $pid
wait $pid || :
expect 0 '^removed +docker job fiber-test-b' 'gc when it is dead' fiber gc --backend docker
"$bed" empty || { echo "left behind"; bad=1; }
exec 9<&-
exit $bad
