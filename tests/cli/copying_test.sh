# copying_test.sh - fiber cp to a rank and to a worker, and back; what it says when it cannot.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

program=${TEST_BINARY_DIR:?}/tests/cli/pool_prog
PATH=$TEST_BINARY_DIR/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -m 700 "$work/run"
mkdir "$work/there"
export XDG_RUNTIME_DIR=$work/run FIBER_BACKEND=local
cd "$work"
mkfifo gate
exec 9<>gate
bad=0

expect() { # expect <exit code> <pattern> <what> <argument>...: "": it says nothing
    local code=$1 pattern=$2 what=$3 got=0
    shift 3
    timeout 120 "$@" >said 2>&1 </dev/null || got=$?
    if [ "$got" != "$code" ] || { [ -z "$pattern" ] && [ -s said ]; } ||
        ! { echo && cat said; } | grep -E -- "$pattern" >/dev/null; then
        echo "$what: code $got, expected $code and $pattern: $(cat said)"
        bad=1
    fi
}

same() { # same <file> <file>: also their permissions
    if ! cmp "$1" "$2" || [ "$(stat -c %a "$1")" != "$(stat -c %a "$2")" ]; then
        echo "$2 is not as $1"
        bad=1
    fi
}

head -c 3000000 /dev/urandom >large # more than may be under way at once
chmod 640 large
: >empty

# a ring: the files of a rank are those of its agent
(cd there && exec fiber run -n 2 --oversubscribe --name demo sh -c "echo up >$work/gate; exec tail -f /dev/null" 9<&-) &
pid=$!
for _ in 1 2; do read -r -t 60 _ <&9 || { echo "no rank came up"; exit 1; }; done
expect 0 '' 'to rank 1' fiber cp large demo/1:copied
same large there/copied
expect 0 '' 'into a directory' fiber cp large demo:
same large there/large
expect 0 '' 'an empty one, over another' fiber cp empty demo:copied
same empty there/copied
mkdir back
expect 0 '' 'from rank 0' fiber cp demo/0:large back
same large back/large
expect 0 '' 'by its whole path' fiber cp "demo:$work/there/large" ./a:b
same large a:b
expect 1 '^fiber: there: none: No such file' 'what is not there' fiber cp demo:none back
expect 1 '^fiber: there: /proc is a directory.*tar -cf' 'a directory' fiber cp demo:/proc back
expect 1 '^fiber: there: /dev/null is there, and is no regular file' 'a device' fiber cp large demo:/dev/null
expect 1 '^fiber: none: No such file' 'what is not here' fiber cp none demo:
expect 1 '^fiber: there is no rank 2: the run has 2' 'no such rank' fiber cp large demo/2:
expect 1 'is no rank' 'no rank at all' fiber cp large demo/x:
expect 1 'no run of yours on this host is called other' 'no such run' fiber cp large other:
expect 2 'one of SRC and DST is RUN:PATH' 'two files here' fiber cp large empty
expect 2 'one of SRC and DST is a file of this host' 'two files there' fiber cp demo:large demo:x
[ "$(find there back -type f | sort | tr '\n' ' ')" = "back/large there/copied there/large " ] ||
    { echo "left: $(find there back)"; bad=1; }
kill "$pid"
wait "$pid" || :
expect 1 'has ended: its jobs, and their files, are gone' 'of a run that has ended' fiber cp large demo:

# a pool: a worker serves it while it works
"$program" "$work/gate" 9<&- &
pid=$!
until fiber ps >listed && grep -qE ' pool_prog .* 2/2 ' listed; do
    kill -0 "$pid" || { echo "the pool has ended: $(cat listed)"; exit 1; }
done
fiber top pool_prog -c 1 >listed
worker=$(awk '$2 == "running" {print $1; exit}' listed)
expect 1 'it has 2 workers: name one' 'any worker' fiber cp large "pool_prog:$work/there/w"
expect 1 'no worker 77' 'no such worker' fiber cp large pool_prog/77:x
expect 0 '' 'to a worker' fiber cp large "pool_prog/$worker:$work/there/w"
same large there/w
expect 0 '' 'from it, by its name' fiber cp "pool_prog/worker-$worker:$work/there/w" back
same large back/w
kill "$pid"
wait "$pid" || :
exit $bad
