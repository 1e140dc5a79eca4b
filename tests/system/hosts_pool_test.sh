# hosts_pool_test.sh - pools, objects and nested jobs on two hosts, by the command backend.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/system/hosts.sh
. "$(dirname "$0")/hosts.sh"

holds "a pool maps on both hosts" "$prog" pool 4 400 everywhere 2

holds "queues, a store and segments between hosts" "$prog" objects 4
says "h1 got word, knows value, segment 7" "h1 got word, knows value, segment 7, built" \
    "h2 got word, knows value, segment 7" "h2 got word, knows value, segment 7, built"

holds "a job on another host starts jobs" "$prog" nested
says "leaf on h1" "leaf on h2"

export FIBER_BIND=h0-no-such FIBER_LOG_LEVEL=error
if "$prog" nested >"$work/out" 2>&1; then failed "it took a wrong address"; fi
grep -q 'bind = h0-no-such' "$work/out" || failed "it does not say what is wrong with bind"
unset FIBER_BIND FIBER_LOG_LEVEL
echo "ok: a wrong bind is told"

FIBER_COMMAND_HOSTS=h1 "$prog" nested >"$work/out" 2>&1 && failed "a name that is not known here"
grep -q 'set bind' "$work/out" || failed "it does not say that bind can be set"
FIBER_COMMAND_HOSTS=h1:1,h2 FIBER_BIND=$("$bed" address h0) holds "names that only the command knows, and slots" "$prog" objects 2
says "h2 got word, knows value, segment 7" "h2 got word, knows value, segment 7, built" # the store is on h1

# A host that is cut off in the middle: its tasks are done elsewhere.
export FIBER_HEARTBEAT=2s
begins 1 "$prog" pool 4 400 until "$work/enough"
"$bed" cut h2
touch "$work/enough"
ends
grep -q '^h1 ' "$work/out" || failed "the others should have done it"
"$bed" heal
echo "ok: a pool survives a host"
unset FIBER_HEARTBEAT
nothing_left
