# new_backend_test.sh - a backend is three files: its own with its table, a line of the registry, its page. A copy of the
# tree gets one, and the command and a pool use it.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

source=${TEST_SOURCE_DIR:?}
git -C "$source" rev-parse --git-dir >"/dev/null" 2>&1 || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
tree=$work/tree build=$work/build
mkdir "$tree" "$work/cabin" "$work/run"
git -C "$source" ls-files -z | (cd "$source" && xargs -0 tar -cf - --ignore-failed-read) | tar -xf - -C "$tree"

# --- the three files
mkdir "$tree/backends/cabin"
cp "$source/tests/backends/new_backend.c" "$tree/backends/cabin/cabin.c"
sed -i 's/^#define BACKENDS(X) .*/&\n    X(cabin) \\/' "$tree/backends/backends.c"
echo "# Cabin" >"$tree/docs/cabin.md"

# Without optimization, and with names that are the same in each run, so that ccache has most of it the next time.
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
if ! {
    cmake -S "$tree" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DFIBER_WERROR=ON &&
        cmake --build "$build" --target fiber_cli fiber
} >"$work/log" 2>&1; then
    tail -30 "$work/log"
    exit 1
fi

export PATH=$build/cli:$PATH HOME=$work XDG_RUNTIME_DIR=$work/run
bad=0
expect() { # expect <what it says> <command>...
    local pattern=$1 said
    shift
    said=$("$@" 2>&1) || true
    if ! grep -qE -- "$pattern" <<<"$said"; then
        printf '%s: expected %s, but it said:\n%s\n' "$*" "$pattern" "$said"
        bad=1
    fi
}
cd "$work"

# --- it is known without being used: words, settings with their types, advice
expect 'cabin' fiber version
expect 'cabin' fiber run --help
expect '^cabin_dir' fiber config show
expect 'backend cabin: how many' fiber config show cabin_beds
expect 'cabin_beds' env FIBER_CABIN_BEDS=9 fiber config show
expect 'did you mean "?FIBER_CABIN_BEDS' env FIBER_CABIN_BED=2 fiber config show
expect '^cabin$' fiber __complete fiber run --backend ''
expect 'bad +backend cabin +there is no cabin_dir' fiber doctor -b cabin
expect 'set cabin_dir' fiber doctor -b cabin

# --- and used
export FIBER_CABIN_DIR=$work/cabin
expect 'ok +backend cabin +can be used' fiber doctor -b cabin
# shellcheck disable=SC2016 # ranks expand it
expect '^rank 1 of 2$' fiber run -b cabin -n 2 sh -c 'echo rank $FIBER_RANK of $FIBER_SIZE'
cc -o pool -I"$tree/include" "$tree/examples/hello_pool.c" -L"$build" -lfiber \
    -Wl,-rpath,"$build",--build-id=sha1
expect '^10 squared is 100$' env FIBER_BACKEND=cabin ./pool
expect '^10 squared is 100$' env CABIN_JOB=1 ./pool
expect 'there is no cabin_dir' env CABIN_JOB=1 FIBER_CABIN_DIR="$work/none" ./pool
expect '^nothing to remove$' fiber gc -b cabin

# --- what its jobs leave behind
touch cabin/0123abcd.process-7
expect '^0123abcd +- +- +cabin ' fiber ps -b cabin
expect 'kept +cabin job process-7 of run 0123abcd' fiber gc
expect 'or rm cabin/0123abcd.process-7' fiber gc
expect 'removed +cabin job process-7' fiber gc --all 0123abcd
expect '^nothing to remove$' fiber gc -b cabin
exit $bad
