# messages_test.sh - what `fiber` says about runs: once, in whole sentences, with a hint that helps.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

PATH=${TEST_BINARY_DIR:?}/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run
cd "$work"
bad=0

check() { # check <exit code> <whole of standard error, as a pattern; lines are joined by |> <argument>...
    local code=$1 want=$2 got=0 told
    shift 2
    timeout 60 fiber "$@" >out 2>err </dev/null || got=$?
    told=$(sed '/^fiber: waiting for .* joined$/d' err | tr '\n' '|') # which a busy machine says
    if [ "$got" != "$code" ] || ! [[ $told =~ ^$want$ ]]; then
        echo "fiber $*: code $got ($code), said:"
        cat out err
        bad=1
    fi
}

# Hosts that have found the same share one line.
if [ "$(id -u)" = 0 ] && unshare -u true 2>/dev/null; then
    n=$(($(nproc) + 1))
    # shellcheck disable=SC2016
    FIBER_BIND=lo FIBER_COMMAND_START='unshare -u sh -c "hostname $0; exec \"$@\"" {host}' \
        check 0 "fiber: on 3 hosts: $((3 * n)) ranks share [^|]*\|" run -H "a:$n,b:$n,c:$n" true
fi

# shellcheck disable=SC2016
{
    # What stands right above is not repeated; what went elsewhere is shown.
    fiber run -n 1 sh -c 'echo out; echo err >&2; exit 3' >both 2>&1 || :
    grep -q 'its last lines' both && { echo "repeated:"; cat both; bad=1; }
    check 3 'err\|fiber: rank 0 \(pid [0-9]+ on [^|]*\) exited with code 3\.\|fiber: its last lines:\|fiber:     out\|' \
        run -n 1 sh -c 'echo out; echo err >&2; exit 3'
    check 127 'sh: [^|]*not found\|fiber: [^|]*code 127\.\|fiber: A shell exits with code 127 [^|]*\|' run -n 1 sh -c nosuch
    check 127 'x: error while loading shared libraries: [^|]*\|fiber: [^|]*\|fiber: [^|]* -x LD_LIBRARY_PATH=DIR [^|]*\|' \
        run -n 1 sh -c 'echo "x: error while loading shared libraries: libx.so: gone" >&2; exit 127'
    check 1 'T: The client socket has timed out [^|]*\|fiber: [^|]* code 1\.\|fiber: [^|]* -x TORCHELASTIC_USE_AGENT_STORE=False: [^|]*\|' \
        run -n 1 sh -c 'echo "T: The client socket has timed out after 15s while trying to connect to (localhost, 29500)." >&2; exit 1'
    check 1 'ValueError: [^|]*\|fiber: [^|]* code 1\.\|fiber: [^|]* --mca orte_hnp_uri 0, [^|]*\|' \
        run -n 1 sh -c 'echo "ValueError: Number of processes must be defined." >&2; exit 1'
    check 125 "fiber: [^|]* in PATH or in the working directory\\.\\|" run -n 1 nosuchprog
    check 125 'fiber: [^|]* its working directory /nonexist: No such file or directory\.\|' run --workdir /nonexist -n 1 true
    check 2 'fiber: there is no option --bogus\|Try `fiber help run`\.\|' run --bogus true
    check 0 '(fiber: [^|]*\|)*fiber: rank 0 on [^|]* has started: pid [0-9]+\|(fiber: [^|]*\|)*' run -vv -n 1 true
}

if [ "$(id -u)" = 0 ]; then
    echo 'grace = 1s' >.fiberconfig
    chown nobody .fiberconfig 2>/dev/null || chown 65534 .fiberconfig
    check 0 'fiber: \./\.fiberconfig is ignored: it belongs to another user\|' run -n 1 true
    rm .fiberconfig
fi

# Who has closed standard output is told that output is lost, unless it goes to files, too.
code=0
fiber run -n 1 echo hi >&- 2>err || code=$?
[[ $code = 1 && $(<err) == *'is lost: standard output'* ]] || { echo "closed output: code $code"; cat err; bad=1; }
fiber run -q -n 1 --output kept echo hi >&- || { echo "closed output, with --output"; bad=1; }
fiber run -n 1 true >&- || { echo 'closed output, of a silent program'; bad=1; }

# A pool whose workers cannot start tells why once, without the lines that stand on the screen already.
pool=$TEST_BINARY_DIR/examples/hello_pool
if [ -x "$pool" ]; then
    FIBER_START_PATIENCE=100ms FIBER_BACKEND=command FIBER_BIND=lo FIBER_COMMAND_HOSTS=h FIBER_COMMAND_START='sh -c "echo gone >&2; exit 3" {host}' \
        "$pool" >out 2>err && { echo "a pool without workers works"; bad=1; }
    [ "$(grep -c 'a worker did not start' err)" = 1 ] || { echo "not told once:"; cat err; bad=1; }
    ! grep -q 'warn:.*last lines' err || { echo "what it printed is repeated:"; cat err; bad=1; }
    grep -q '^hello_pool: [0-9]* workers in a row could not be started; the last one: ' err ||
        { echo "the error:"; cat err; bad=1; }
fi

# Without modules.
mkdir alone
cp "$(command -v fiber)" alone
alone/fiber doctor >out 2>&1 || :
if grep -q "cannot load Fiber's module" out; then
    grep -q 'install all of Fiber' out || { echo "doctor: no word of the installation"; cat out; bad=1; }
    ! grep -q 'apt install docker.io' out || { echo "doctor: wrong advice"; bad=1; }
fi
exit $bad
