# messages_test.sh - what `fiber` says about runs: once, in whole sentences, with a hint that helps.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

PATH=${TEST_BINARY_DIR:?}/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run
cd "$work"
bad=0

check() { # check <exit code> <whole of standard error, as a pattern; lines are joined by |> <argument>...
    local code=$1 want=$2 got=0 told
    shift 2
    timeout 60 fiber "$@" >out 2>err </dev/null || got=$?
    told=$(tr '\n' '|' <err)
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
exit $bad
