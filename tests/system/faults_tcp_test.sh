#!/usr/bin/env bash
# faults_tcp_test.sh - connections that are cut, reset, stalled, delayed, corrupted or split by a proxy in their middle: what
# uses them goes on, or fails with a sentence, within the time of detection and five seconds.
#
# Control connections and data links are disturbed beside each other, in a network namespace each, so nobody else is.
# FAULTS_TCP_KINDS=data chooses one of the two, the arguments are one case and one fault, SHOW=1 prints how long each took.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

program=${TEST_BINARY_DIR:?}/tests/system/faults_tcp_prog
proxy=${TEST_SOURCE_DIR:?}/tests/beds/faults/tcp.py
skip() { echo "skipped: $1"; exit 77; }

[[ -x $program ]] || skip "$program is not built"
command -v python3 >/dev/null || skip "python3 is missing"
command -v iptables >/dev/null || skip "iptables is missing"
kind=${FAULTS_TCP_PRIVATE:-}
if [[ -z $kind ]]; then
    unshare -n bash -c 'ip link set lo up && iptables -w -t nat -L OUTPUT' >/dev/null 2>&1 ||
        skip "no network namespace with iptables; it needs root"
    runs=() code=0
    for kind in ${FAULTS_TCP_KINDS:-control data}; do
        FAULTS_TCP_PRIVATE=$kind unshare -n bash "$0" "$@" &
        runs+=($!)
    done
    for run in "${runs[@]}"; do
        wait "$run" || code=1
    done
    exit $code
fi
ip link set lo up

work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
export TMPDIR=$work FIBER_RUN_DIR=$work FIBER_TRANSPORT=tcp FIBER_BACKEND=local
export FIBER_HEARTBEAT=500ms FIBER_HEARTBEAT_MISSES=3 FIBER_LINGER=1s FIBER_GRACE=1s FIBER_LOG_LEVEL=error

mkfifo "$work/orders" "$work/answers"
exec 3<>"$work/orders" 4<>"$work/answers"
python3 -B "$proxy" <&3 >&4 3>&- 4>&- &
trap 'kill %1; rm -rf "$work" || :' EXIT
read -rt 60 line <&4 || line=nothing
[[ $line == ready ]] || { echo "FAILED: the proxy does not begin: $line"; exit 1; }
"$program" "$kind" "$@"
