# slurm_memory_test.sh - a Slurm that enforces memory by control groups: a job and a step that need more than they asked for
# say so, with their limit. The bed is one of its own, because that of the other tests enforces nothing.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

beds=${TEST_SOURCE_DIR:?}/tests/beds
bed=$beds/slurm/bed
cases=${TEST_BINARY_DIR:?}/tests/backends/conformance_test
prog=$TEST_BINARY_DIR/tests/engines/docker_prog
[[ -x $cases && -x $prog ]] || { echo "$cases or $prog is not built"; exit 77; }

work=$(mktemp -d)
export TEST_BED_DIR=$work/bed TEST_BED_SLURM_CGROUP=1
trap '"$bed" down; rm -rf "$work" || :' EXIT
"$bed" try 3 # or says what is missing: control groups that can be made, most of all
TEST_CASES="slurm: more memory than asked for" "$beds/run" slurm "$cases" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
grep -q 'Running 1 test' "$work/out" || { echo "FAILED: there was no such case"; exit 1; }
echo "ok: a job by sbatch"

eval "$("$bed" env)"
mkdir "$work/run"
export FIBER_BACKEND=slurm FIBER_RUN_DIR=$work/run FIBER_GRACE=500ms FIBER_START_TIMEOUT=300s
timeout 300 salloc --quiet --nodes=1 --mem=1000 "$prog" process -m 64 eat 200 >"$work/out" 2>&1 || :
if ! grep -q '^code -9: .*more memory than Slurm gave its step: its limit is 64 MiB' "$work/out"; then
    echo "FAILED: a step should be killed, and say why:"
    cat "$work/out"
    exit 1
fi
echo "ok: a step"
