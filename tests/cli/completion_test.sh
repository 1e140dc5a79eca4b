# completion_test.sh - the completion scripts are well formed, and bash completes what stands in the tables.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

PATH=${TEST_BINARY_DIR:?}/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
export XDG_RUNTIME_DIR=$work
bad=0

for shell in bash zsh fish; do
    fiber completion $shell >"$work/fiber.$shell"
done
bash -n "$work/fiber.bash"
! command -v zsh >/dev/null || zsh -f -n "$work/fiber.zsh"
! command -v fish >/dev/null || fish --no-execute "$work/fiber.fish"
# bash completes files by itself, zsh and fish where they are told to.
for option in hostfile env-file add; do
    grep -q -e "--$option=.*:_files'" "$work/fiber.zsh" || { echo "zsh: no files for --$option"; bad=1; }
    grep -q -e " -l $option .*-r -F " "$work/fiber.fish" || { echo "fish: no files for --$option"; bad=1; }
done
# shellcheck disable=SC1091
. "$work/fiber.bash"

completes() { # completes <expected words> <word>...: the last word is the one that is being typed
    local expected=$1
    shift
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _fiber || true # compgen says 1 when it finds nothing
    if [ "${COMPREPLY[*]}" != "$expected" ]; then
        echo "$*: '${COMPREPLY[*]}', expected '$expected'"
        bad=1
    fi
}

completes "run" fiber r
completes "--bind-to" fiber run --bi
completes "core hwthread l3 numa package none" fiber run --bind-to ''
completes "restart replace" fiber run --on-failure = re
completes "abort restart shrink replace" fiber run --on-failure =
completes "config completion" fiber help co
completes "bash" fiber completion b
completes "build export unpack" fiber image ''
completes "manifest run" fiber kubernetes ''
completes "--env --entrypoint" fiber image build x --en
completes "" fiber ps x
completes "" fiber run -n ''
cd "$work"
touch argument-1
completes "argument-1" fiber run -n 4 cat argu
completes "argument-1" fiber run --mca pml ob1 cat argu
exit $bad
