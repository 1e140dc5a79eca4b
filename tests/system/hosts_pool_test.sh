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

# data_port PID: the one of its ports that greets as nanomsg does.
data_port() {
    local at greeting
    for at in $(ss -ltnHp | awk -v pid="pid=$1," 'index($0, pid) {print $4}'); do
        greeting=$(timeout 5 bash -c "exec 4<>/dev/tcp/${at%:*}/${at##*:} && head -c 3 <&4" | tr -d '\0')
        if [[ $greeting == SP ]]; then
            echo "${at##*:}"
            return
        fi
    done
    failed "no data port found"
}

# Only the data of a host is cut off, silently: its heartbeats go on, and its tasks are done elsewhere, in time.
begins 1 "$prog" pool 4 400 until "$work/enough2"
port=$(data_port "$launcher")
"$bed" exec h2 iptables -w -I OUTPUT -p tcp --dport "$port" -j DROP
"$bed" exec h2 iptables -w -I INPUT -p tcp --sport "$port" -j DROP
began=$SECONDS
touch "$work/enough2"
ends
took=$((SECONDS - began))
grep -q '^h1 ' "$work/out" || failed "h1 should have done it"
((took <= 30)) || failed "a data link that died silently held the pool up for $took s"
"$bed" heal
echo "ok: a pool survives a data link that dies silently"
unset FIBER_HEARTBEAT
nothing_left
