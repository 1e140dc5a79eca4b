# gate_lib.sh - common head of the tests of `fiber cp` and `fiber exec`: a run directory and a folder of their own, a
# gate at which ranks say that they are up, and one command against what it should say.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

# shellcheck disable=SC2034 # the test that reads this file starts it
program=${TEST_BINARY_DIR:?}/tests/cli/pool_prog
PATH=$TEST_BINARY_DIR/cli:$PATH
work=$(mktemp -d)
trap 'jobs -p | xargs -r kill 2>/dev/null || :; rm -rf "$work" || :' EXIT
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
        # shellcheck disable=SC2034 # the test that reads this file looks at it
        bad=1
    fi
}
