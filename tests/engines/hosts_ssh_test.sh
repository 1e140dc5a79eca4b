# hosts_ssh_test.sh - pools and rings by backends/command/templates/ssh.ini, and `fiber run -H`, over a real sshd.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/hosts.sh
. "$(dirname "$0")/hosts.sh"

for tool in ssh ssh-keygen; do
    command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
done
"$bed" sshd

# The template as it is; only where the key lies is told by a command of the same name.
mkdir "$work/bin"
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$("$bed" ssh_config)" >"$work/bin/ssh"
chmod +x "$work/bin/ssh"
export PATH=$work/bin:$PATH
unset FIBER_COMMAND_START
export FIBER_COMMAND_FILE=$TEST_SOURCE_DIR/backends/command/templates/ssh.ini

holds "a pool by ssh" "$prog" pool 4 400 everywhere 2
holds "objects by ssh" "$prog" objects 2
holds "a ring by ssh" "$prog" ring 4 2 "$prog" who
says "rank 0 of 4 on h1" "rank 1 of 4 on h1" "rank 2 of 4 on h2" "rank 3 of 4 on h2"

# The default for a command of that name knows the same as the template.
FIBER_COMMAND_FILE='' FIBER_COMMAND_START="$work/bin/ssh {host}" holds "ssh without a template" "$prog" nested
says "leaf on h1" "leaf on h2"

# As mpirun is told of hosts: by -H and hostfiles alone.
h3=$("$bed" address h3)
fiber=$TEST_BINARY_DIR/cli/fiber
run=(env -u FIBER_BACKEND -u FIBER_COMMAND_FILE -u FIBER_COMMAND_START -u FIBER_COMMAND_HOSTS "$fiber" run)
holds "fiber run -H" "${run[@]}" -H "$h1:2,root@$h2,$h3:3" "$prog" who
says "rank 0 of 6 on h1" "rank 1 of 6 on h1" "rank 2 of 6 on h2" "rank 3 of 6 on h3" "rank 4 of 6 on h3" "rank 5 of 6 on h3"
printf '# ours\n%s slots=1\n%s:3\n%s slots=2\n' "$h3" "$h1" "$h2" >"$work/hosts"
holds "fiber run --hostfile" "${run[@]}" --hostfile "$work/hosts" -np 5 "$prog" who
says "rank 0 of 5 on h3" "rank 1 of 5 on h1" "rank 2 of 5 on h1" "rank 3 of 5 on h1" "rank 4 of 5 on h2"
holds "fiber run --oversubscribe -H" "${run[@]}" --oversubscribe -H "$h1,$h2" -n 4 "$prog" who
says "rank 0 of 4 on h1" "rank 1 of 4 on h1" "rank 2 of 4 on h2" "rank 3 of 4 on h2"
# The first host is this one, which has no sshd: what leads to it leads to no other.
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$1" = localhost ] && exec sh -c "$2"\nexec ssh "$@"\n' >"$work/either"
chmod +x "$work/either"
# shellcheck disable=SC2016
FIBER_COMMAND_START="$work/either {host} {shell_command}" holds "this host is one of them" \
    "$fiber" run -H "localhost,$h2:2" -q sh -c 'echo "$FIBER_RANK of $FIBER_SIZE on node $FIBER_NODE"'
says "0 of 3 on node 0" "1 of 3 on node 1" "2 of 3 on node 1"
# Allocations of other managers: their hosts, by ssh or their own command.
printf '%s\n' "$h1" "$h1" "$h2" "$h3" >"$work/nodes"
holds "an allocation of PBS" env PBS_NODEFILE="$work/nodes" "${run[@]}" "$prog" who
says "rank 0 of 4 on h1" "rank 1 of 4 on h1" "rank 2 of 4 on h2" "rank 3 of 4 on h3"
holds "hosts that are not used are named" env PBS_NODEFILE="$work/nodes" "${run[@]}" -n 2 "$prog" who
grep -qx "fiber: 2 of 3 nodes of the allocation are not used: $h2 and $h3" "$work/out" || failed "it should name two hosts"
printf '#!/bin/sh\nexec %s "$@"\n' "$TEST_SOURCE_DIR/tests/beds/hosts/rsh" >"$work/bin/blaunch"
# shellcheck disable=SC2016 # it is the script's shell that expands them
printf '#!/bin/sh\n[ "$1" = -inherit ] && shift && exec %s "$@"\n' "$TEST_SOURCE_DIR/tests/beds/hosts/rsh" >"$work/bin/qrsh"
printf '#!/bin/sh\necho "2 3 %s,%s"\n' "$h1" "$h2" >"$work/bin/flux"
printf '#!/bin/sh\necho "ssh was not to be used" >&2; exit 1\n' >"$work/no-ssh"
chmod +x "$work"/bin/* "$work/no-ssh"
mv "$work/bin/ssh" "$work/ssh"
cp "$work/no-ssh" "$work/bin/ssh"
holds "an allocation of LSF" env LSB_MCPU_HOSTS="$h1 1 $h2 2" "${run[@]}" "$prog" who
says "rank 0 of 3 on h1" "rank 1 of 3 on h2" "rank 2 of 3 on h2"
printf '%s 2 all.q@x UNDEFINED\n%s 1 all.q@x <NULL>\n' "$h1" "$h2" >"$work/pe"
holds "an allocation of SGE" env PE_HOSTFILE="$work/pe" "${run[@]}" "$prog" who
says "rank 0 of 3 on h1" "rank 1 of 3 on h1" "rank 2 of 3 on h2"
mv "$work/ssh" "$work/bin/ssh"
holds "an instance of Flux" env FLUX_URI=local:///x "${run[@]}" "$prog" who
says "rank 0 of 3 on h1" "rank 1 of 3 on h1" "rank 2 of 3 on h2"
# The agent of h2 is lost, and its host is not the next in turn.
# shellcheck disable=SC2016
holds "a host keeps its ranks when all start again" "${run[@]}" -H "$h1,$h2:2,$h3:3" --on-failure restart -q sh -c '
    [ "$FIBER_EPOCH" != 0 ] || [ "$FIBER_RANK" != 1 ] || kill -KILL $PPID
    [ "$FIBER_EPOCH" != 0 ] || exec tail -f /dev/null
    echo "$FIBER_RANK $(uname -n)"'
says "0 h1" "1 h2" "2 h2" "3 h3" "4 h3" "5 h3"
if command -v mpicc.openmpi >/dev/null && [[ -e $TEST_BINARY_DIR/fiber/pmix.so ]]; then
    mpicc.openmpi -o "$work/ranks" "$TEST_SOURCE_DIR/tests/mpi_bridge/ranks_mpi.c"
    holds "Open MPI by -H" "${run[@]}" -H "$h1,$h2:3" "$work/ranks" hello
    says "rank 0: sum is right" "rank 1: sum is right" "rank 2: sum is right" "rank 3: sum is right"
fi

if FIBER_COMMAND_HOSTS=$("$bed" address h99) "$prog" nested >"$work/out" 2>&1; then failed "a host that is not there"; fi
grep -q "ended with code 255 of 'ssh'" "$work/out" || failed "it does not say that ssh failed"
echo "ok: a host that is not there"

export FIBER_HEARTBEAT=2s
begins 4 "$prog" ring 4 2 "$prog" wait
"$bed" cut h2
ends
# Either end may be the first to notice, and ssh itself too.
grep -qE 'the agent on h2 is gone.*(sent no (answer to a )?heartbeat|ended with code 255)' "$work/out" || failed "it does not say that h2 was cut off"
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
