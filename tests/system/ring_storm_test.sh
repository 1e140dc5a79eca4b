# ring_storm_test.sh - many short runs, one after the other: none hangs, nothing of them is left. RING_STORM says how many;
# without it a slow machine ends with as many as it does in 5 minutes.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

times=${RING_STORM:-100}
began=$(now_ms)
worst=0

for ((i = 1; i <= times; i++)); do
    one=$(now_ms)
    [ -n "${RING_STORM:-}" ] || [ $((one - began)) -lt 300000 ] || break
    code=0
    timeout -k 5 "$patience" "$fiber" run --oversubscribe -n 32 /bin/true >"$work/out" 2>"$work/err" </dev/null || code=$?
    one=$(($(now_ms) - one))
    [ "$one" -le "$worst" ] || worst=$one
    sed -i '/^fiber: waiting for /d' "$work/err" # a busy machine
    if [ "$code" != 0 ] || [ -s "$work/out" ] || [ -s "$work/err" ]; then
        fail "run $i of $times: exit code $code after $one ms" || break
    fi
done
took=$(($(now_ms) - began))
leaves_nothing || :
echo "$((i - 1)) runs of 32 ranks: $((took / times)) ms each, the longest $worst ms"
exit "$failed"
