# hosts_faults_test.sh - a ring of two hosts of which one is cut off or dies, and a launcher that dies.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/hosts.sh
. "$(dirname "$0")/hosts.sh"
export FIBER_HEARTBEAT=2s # shorter, and a busy machine looks like a dead one

begins 4 "$prog" ring 4 2 "$prog" wait
"$bed" cut h2
ends
# Each side notices it; here the launcher also sees the end of the command, which is sooner when the agent is the first.
grep -q 'the agent on h2 is gone' "$work/out" || failed "it does not say that h2 is gone"
grep -qE 'sent no (answer to a )?heartbeat' "$work/out" || failed "it does not say that h2 was cut off"
"$bed" empty h1 || failed "the ranks on h1 live"
"$bed" heal
echo "ok: a host is cut off"

begins 4 "$prog" ring 4 2 "$prog" wait
"$bed" crash h2
ends
grep -q 'the agent on h2 is gone' "$work/out" || failed "it does not say that h2 died"
"$bed" empty h1 || failed "the ranks on h1 live"
"$bed" heal
echo "ok: a host dies"

begins 4 "$prog" ring 4 2 "$prog" wait
kill -KILL "$launcher"
ends
for host in h1 h2; do
    "$bed" empty $host || failed "ranks on $host outlive the launcher"
done
echo "ok: the launcher dies"

# Two hosts of the ring cannot see each other, but the launcher sees both: nobody is dead.
begins 4 "$prog" ring 4 2 "$prog" wait
"$bed" cut h1 h2
kill -TERM "$launcher"
ends
"$bed" heal
echo "ok: hosts that do not see each other"

unset FIBER_HEARTBEAT
nothing_left
