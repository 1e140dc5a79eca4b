# hosts_pool_test.sh - pools, objects and nested jobs on two hosts, by the command backend.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/hosts.sh
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

# data_ports SS...: those of the addresses that this command of ss prints which greet as nanomsg does.
data_ports() {
    local at greeting
    for at in $("$@" | awk '{print $4}'); do
        greeting=$(timeout 5 bash -c "exec 4<>/dev/tcp/${at%:*}/${at##*:} && head -c 3 <&4" | tr -d '\0')
        [[ $greeting != SP ]] || echo "${at##*:}"
    done
}

# cut_data: silently, between h2 and the launcher, both of whose control channels live
cut_data() {
    local port way
    for port in $(data_ports ours) $(data_ports "$bed" exec h2 ss -ltnH); do
        for way in "--dport $port" "--sport $port"; do
            # shellcheck disable=SC2086 # two words
            "$bed" exec h2 iptables -w -I OUTPUT -p tcp $way -j DROP
            # shellcheck disable=SC2086
            "$bed" exec h2 iptables -w -I INPUT -p tcp $way -j DROP
        done
    done
}
ours() { ss -ltnHp | grep "pid=$launcher,"; }

# Only the data of a host is cut off, silently: its heartbeats go on, and its tasks are done elsewhere, in time.
begins 1 "$prog" pool 4 400 until "$work/enough2"
cut_data
began=$SECONDS
touch "$work/enough2"
ends
took=$((SECONDS - began))
grep -q '^h1 ' "$work/out" || failed "h1 should have done it"
((took <= 30)) || failed "a data link that died silently held the pool up for $took s"
"$bed" heal
echo "ok: a pool survives a data link that dies silently"

# The same for those who wait for a method, a barrier and a message: they fail, in time.
FIBER_COMMAND_HOSTS=$h2 begins 1 "$prog" links
cut_data
began=$SECONDS
ends
took=$((SECONDS - began))
for what in manager store queue; do
    grep -q "^$what: failed" "$work/out" || failed "$what: its call should have failed"
done
((took <= 30)) || failed "data links that died silently held calls up for $took s"
"$bed" heal
echo "ok: calls fail when their data link dies silently"
unset FIBER_HEARTBEAT
nothing_left
