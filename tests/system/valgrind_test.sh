# valgrind_test.sh - programs that use Fiber run under valgrind, without an error that it sees; so does fiber run.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

command -v valgrind >/dev/null || { echo "skipped: there is no valgrind"; exit 77; }
bin=${TEST_BINARY_DIR:?}
if grep -qE 'lib(asan|tsan|ubsan)' <<<"$(ldd "$bin/libfiber.so")"; then
    echo "skipped: valgrind runs no sanitizers"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
export XDG_RUNTIME_DIR=$work
cd "$work"
bad=0

check() { # check <pattern of all that it says> <argument>...
    local pattern=$1 code=0
    shift
    timeout 300 valgrind -q --error-exitcode=9 "$@" >said 2>&1 </dev/null || code=$?
    if [ "$code" != 0 ] || ! grep -qE -- "$pattern" said; then
        echo "valgrind $*: code $code, said:"
        cat said
        bad=1
    fi
}

check '^10 squared is 100$' "$bin/examples/hello_pool"
check 'that was killed has exit code -9$' "$bin/examples/processes"
check '^twice the sum of the squares' "$bin/examples/queue_pipe"
check '^20 tasks made 20 visits$' "$bin/examples/manager_store"
check '^hi$' "$bin/cli/fiber" run -n 2 echo hi
timeout 300 valgrind -q "$bin/cli/fiber" run -n 1 ./nothing >said 2>&1 && bad=1
grep -q 'cannot start' said || { echo "a program that is not there:"; cat said; bad=1; }
exit $bad
