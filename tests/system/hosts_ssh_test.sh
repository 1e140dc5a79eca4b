# hosts_ssh_test.sh - pools and rings by backends/templates/ssh.ini, over a real sshd.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/system/hosts.sh
. "$(dirname "$0")/hosts.sh"

for tool in sshd ssh ssh-keygen; do
    command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
done
"$bed" sshd

# The template as it is; only where the key lies is told by a command of the same name.
mkdir "$work/bin"
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$("$bed" ssh_config)" >"$work/bin/ssh"
chmod +x "$work/bin/ssh"
export PATH=$work/bin:$PATH
unset FIBER_COMMAND_START
export FIBER_COMMAND_FILE=$TEST_SOURCE_DIR/backends/templates/ssh.ini

holds "a pool by ssh" "$prog" pool 4 400 everywhere 2
holds "objects by ssh" "$prog" objects 2
holds "a ring by ssh" "$prog" ring 4 2 "$prog" who
says "rank 0 of 4 on h1" "rank 1 of 4 on h1" "rank 2 of 4 on h2" "rank 3 of 4 on h2"

# The default for a command of that name knows the same as the template.
FIBER_COMMAND_FILE='' FIBER_COMMAND_START="$work/bin/ssh {host}" holds "ssh without a template" "$prog" nested
says "leaf on h1" "leaf on h2"

if FIBER_COMMAND_HOSTS=$("$bed" address h99) "$prog" nested >"$work/out" 2>&1; then failed "a host that is not there"; fi
grep -q "ended with code 255 of 'ssh'" "$work/out" || failed "it does not say that ssh failed"
echo "ok: a host that is not there"

export FIBER_HEARTBEAT=2s
begins 4 "$prog" ring 4 2 "$prog" wait
"$bed" cut h2
ends
# Either end may be the first to notice, and ssh itself too.
grep -qE 'the agent on h2 is gone.*(gave no heartbeat|ended with code 255)' "$work/out" || failed "it does not say that h2 was cut off"
"$bed" empty h2 || failed "ranks on the host that was cut off live"
"$bed" heal
echo "ok: a host is cut off"

begins 4 "$prog" ring 4 2 "$prog" wait
kill -KILL "$launcher"
ends
for host in h1 h2; do
    "$bed" empty $host || failed "ranks on $host outlive the launcher"
done
echo "ok: the launcher dies"
unset FIBER_HEARTBEAT
nothing_left
