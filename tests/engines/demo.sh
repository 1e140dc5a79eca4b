# demo.sh - runs ./demo on the engine of a bed, a small one, and looks at what it says. Tests source it, after `engine` is set.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # `engine` is of those who source it
set -euo pipefail

bed=${TEST_SOURCE_DIR:?}/tests/beds/$engine/bed
for program in examples/mixed examples/mpi/sgd_ring; do
    [[ -x ${TEST_BINARY_DIR:?}/$program ]] || { echo "skipped: $program is not built"; exit 77; }
done
[[ ! ${TEST_SANITIZER_OPTIONS-} ]] || { echo "skipped: it takes too long under a sanitizer"; exit 77; }
if [[ $engine == kubernetes ]]; then "$bed" try; else "$bed" try 3; fi
eval "$("$bed" env)"
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT

failed() {
    echo "FAILED: $1"
    tail -n 40 "$work/out" | cut -c 1-300 | sed 's/^/    /'
    exit 1
}
says() { grep -qE -- "$1" "$work/out" || failed "it should say '$1'"; }

# demo HOST: each rank is on a host of such a name. It kills a worker and a rank itself, and judges what was learned.
demo() {
    DEMO_BUILD=$TEST_BINARY_DIR FIBER_START_TIMEOUT=300s TMPDIR=$work timeout 900 "$TEST_SOURCE_DIR/demo" --backend "$engine" \
        --quick --ranks 2 --workers 1,2 </dev/null >"$work/out" 2>&1 || failed "exit code $?"
    says '^held-out accuracy 9[0-9]\.[0-9] %'
    says '^ring: 2 ranks, 16 epochs in [0-9.]+ s, restarts 1$'
    says '^pool: .* lost 0, delivered twice 0$'
    for rank in 0 1; do says "^  rank $rank +pid [0-9]+ on $1,"; done
    "$bed" empty || failed "jobs are left"
    echo "ok: ./demo --backend $engine"
}
