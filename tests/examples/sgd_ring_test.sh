# sgd_ring_test.sh - the ring of the mixed example resumes, refuses what is damaged, and leaves nothing behind.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fiber=$TEST_BINARY_DIR/cli/fiber
program=$TEST_BINARY_DIR/examples/mpi/sgd_ring
mixed=$TEST_BINARY_DIR/examples/mixed
for needed in "$fiber" "$program" "$mixed"; do
    if [ ! -x "$needed" ]; then
        echo "skipped: $needed is not built; it needs mpicc and zlib"
        exit 77
    fi
done
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 $pid 2>/dev/null || :; rm -rf "$work" || :' EXIT

fail() { # fail <what>
    echo "FAILED: $1" >&2
    cat "$work/out" "$work/err" >&2
    exit 1
}

expect() { # expect <exit code> <text of either stream> <command>...
    local code=$1 text=$2 got=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
    [ "$got" = "$code" ] || fail "exit code $got, not $code: $*"
    grep -qF -- "$text" "$work/out" "$work/err" || fail "it does not say \"$text\": $*"
}

ring() { # ring <argument>...: two ranks of it
    "$fiber" run -n 2 "$program" "$@"
}

test_resumes_from_its_checkpoint() {
    expect 0 'epoch 2/2' ring --epochs 2 --checkpoint "$work/checkpoint"
    expect 0 'resumed after epoch 2 of 3' ring --epochs 3 --checkpoint "$work/checkpoint"
    ! grep -q '^epoch [12]/' "$work/out" || fail "it did epochs again that were done"
    grep -q '^epoch 3/3' "$work/out" || fail "it did not go on"
}

test_leaves_a_damaged_checkpoint_alone() {
    echo 'no network at all' >"$work/damaged"
    expect 1 'it is not a checkpoint of this program; move it away' ring --checkpoint "$work/damaged"
    [ "$(cat "$work/damaged")" = 'no network at all' ] || fail "the checkpoint was changed"
}

test_refuses_a_damaged_sheet() {
    mkdir "$work/feed"
    echo 'half a sheet' >"$work/feed/sheet.0"
    expect 1 'sheet.0: it is not a sheet of images' ring --feed "$work/feed"
}

test_says_what_is_wrong_with_its_data() {
    expect 1 "cannot read $work/none: No such file" ring --data "$work/none"
    echo '1,2,3' >"$work/short"
    expect 1 "cannot read $work/short: it is not 5,000 lines" ring --data "$work/short"
}

test_refuses_wrong_options() {
    expect 2 '--epochs wants a number' ring --epochs many
    expect 2 '--bogus' ring --bogus
    expect 2 '--workers wants MIN,MAX' "$mixed" --workers 3,1
    expect 2 '--ranks wants a number' "$mixed" --ranks 0
    expect 1 'cannot run' "$mixed" --ring "$work/none"
    expect 0 'Usage: mixed' "$mixed" --help
}

test_names_the_ranks_of_a_ring_alone() {
    expect 0 '  rank 1   pid ' "$mixed" --alone --quick --ranks 2
}

test_ended_mix_leaves_nothing() {
    local line='' code=0
    mkdir "$work/tmp"
    mkfifo "$work/fifo"
    TMPDIR=$work/tmp "$mixed" --epochs 1000 >"$work/fifo" 2>"$work/err" </dev/null &
    pid=$!
    exec 3<"$work/fifo"
    while read -r -u 3 line && [[ $line != ring:* ]]; do :; done
    kill -TERM $pid
    cat <&3 >"$work/out"
    wait $pid || code=$?
    pid=
    exec 3<&-
    [[ $line == ring:* ]] || fail "it ended before its first epoch"
    [ $code = 143 ] || fail "exit code $code, not 143"
    [ -z "$(ls -A "$work/tmp")" ] || fail "it left $(ls -A "$work/tmp")"
}

test_resumes_from_its_checkpoint
test_leaves_a_damaged_checkpoint_alone
test_refuses_a_damaged_sheet
test_says_what_is_wrong_with_its_data
test_refuses_wrong_options
test_names_the_ranks_of_a_ring_alone
test_ended_mix_leaves_nothing
