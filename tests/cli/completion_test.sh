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

answers() { # answers <lines, without descriptions> <word>...
    local expected=$1 said
    shift
    said=$(fiber __complete "$@" 2>&1 | sed 's/\t.*//')
    if [ "$said" != "$expected" ]; then
        printf '%s: expected %s, but it says:\n%s\n' "$*" "$expected" "$said"
        bad=1
    fi
}
answers '' fiber
answers '' fiber nothing ''
answers '-f' fiber logs -f
answers '--bind-to' fiber run --bi
answers $'--dry-run\n--dry-run=client\n--dry-run=server' fiber run --dry
answers $'--on-failure=restart\n--on-failure=replace' fiber run --on-failure=re # one word in zsh and fish
answers 'server' fiber run --dry-run = s # three in bash
answers ':command 7' fiber run --dry-run -x A = B ./train
for option in hostfile env-file; do
    answers :files fiber run --$option ''
    answers :files fiber run --$option=some
done
answers :files fiber image build -a ''
answers :files fiber image build x ''
answers :files fiber cp ./
answers :folders fiber run --workdir ''
answers :folders fiber run -o=/tmp/
answers '' fiber run -n ''
answers '' fiber run -x A = ''
answers ':command 3' fiber run -- -
answers ':command 4' fiber run -qn 4 ''
answers ':command 3' fiber run -n4 ./train --option
answers ':command 4' fiber run -np 4 ./train -
answers ':command 7' fiber run -H a : 4 -q ./train -
answers ':command 5' fiber run --genv A B ./train -
answers ':command 4' fiber kubernetes run -- ./train ''
answers $'manifest\nrun' fiber kubernetes ''
answers '' fiber kill x ''
answers $'show\nset' fiber config ''
answers 'grace' fiber config set gr
answers '' fiber config set grace ''
FIBER_GRACE=nonsense answers 'grace' fiber config show gr
fiber __complete fiber config show grace | grep -q $'^grace\t.*killing it$' || { echo 'no description'; bad=1; }
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
{ fiber completion tcsh 2>&1 || :; } | grep -q '"tcsh" is none of: bash zsh fish' || { echo "tcsh: not refused"; bad=1; }
completes "--dry-run --dry-run=client --dry-run=server" fiber run --dry
completes "server" fiber run --dry-run = s
ln -s "$(command -v fiber)" "$work/fiber"
# shellcheck disable=SC2088 # bash gives what is typed
HOME=$work completes "run" '~/fiber' r
tilde() { # tilde <shell> <script>: it completes "~/fiber ki"
    command -v "$1" >/dev/null || return 0
    if ! HOME=$work "$@" "$work/fiber.$1" 2>&1 | grep -q '^kill'; then
        echo "$1: nothing for ~/fiber ki"
        bad=1
    fi
}
# shellcheck disable=SC2016 # for zsh
tilde zsh -f -c 'compdef() :; _describe() print -r -- "${(@P)2}"
    . $0; words=("~/fiber" ki) CURRENT=2; _fiber'
# shellcheck disable=SC2016 # for fish
tilde fish --no-config -c 'source $argv[1]; complete -C "~/fiber ki"'
cd "$work"
touch argument-1
completes "argument-1" fiber run -n 4 cat argu
completes "argument-1" fiber run --mca pml ob1 cat argu
exit $bad
