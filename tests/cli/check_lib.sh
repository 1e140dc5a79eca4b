# check_lib.sh - what the tests of `fiber run` share: a folder and a run directory of their own, and one command against what
# it should say.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

PATH=${TEST_BINARY_DIR:?}/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run XDG_STATE_HOME=$work/state
cd "$work"
bad=0

check() { # check <exit code> <pattern of standard output> <pattern of standard error> <argument>...
    local code=$1 out=$2 err=$3 got=0 said told
    shift 3
    timeout 60 fiber "$@" >out 2>err </dev/null || got=$?
    said=$(tr '\n' ' ' <out)
    told=$(sed '/^fiber: waiting for .* joined$/d' err | tr '\n' ' ') # which a busy machine says
    if [ "$got" != "$code" ] || ! [[ $said =~ ^$out$ ]] || ! [[ $told =~ $err ]]; then
        echo "fiber $*: code $got ($code), said:"
        cat out err
        # shellcheck disable=SC2034 # the test that reads this file looks at it
        bad=1
    fi
}
