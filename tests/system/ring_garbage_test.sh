# ring_garbage_test.sh - whatever a ring listens on is reached from this host only, and garbage there harms no run.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154,SC2016
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

command -v ss >/dev/null || skip 'there is no ss (iproute2)'
command -v python3 >/dev/null || skip 'there is no python3'

mpi=
for m in openmpi mpich; do
    ! command -v "mpicc.$m" >/dev/null || ! compile "mpicc.$m" "$work/check.$m" || mpi="$mpi $m"
done

listeners() { # of the launcher and its agents: address:port
    local pid
    for pid in "$launcher" $(agents); do
        ss -Hltnp | sed -n "s/^LISTEN *[0-9]* *[0-9]* *\([^ ]*\) .*pid=$pid,.*/\1/p"
    done | sort -u
}

throw() { # throw <address:port>...: as hostile as it gets; connections stay half open until the end
    python3 - "$@" <<'END'
import random, socket, struct, sys

random.seed(20260101)
noise = [
    b"", b"\0" * 4096, b"\xff" * 4096, random.randbytes(65536), b"\n" * 5000, b"GET / HTTP/1.1\r\n",
    b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", b"PUT /x/y HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\nab",
    b"PUT /x/y HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"cmd=initack pmiid=4294967295\n", b"cmd=initack pmiid=-1\n",
    b"cmd=init pmi_version=1 pmi_subversion=1\n" + b"cmd=" * 4000 + b"\n", b"mcmd=spawn\n" * 500,
    struct.pack("<IQ", 0, 2**63), struct.pack(">IQ", 0xFFFFFFFF, 2**64 - 1),
    b"\0" + struct.pack("<Q", 2**62) + b"key", b"\x03" + struct.pack("<QI", 5, 1) + b"hello" * 3,
    b"\x01" + struct.pack("<i", 0x3C85F7CE) + b"\x02" * 999,
]
held = []
for where in sys.argv[1:]:
    host, port = where.rsplit(":", 1)
    for piece in noise + [random.randbytes(random.randrange(1, 3000)) for _ in range(30)]:
        try:
            s = socket.create_connection((host.strip("[]"), int(port)), 5)
            s.settimeout(5)
            s.sendall(piece)
            if random.random() < 0.3:
                held.append(s)
            elif random.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.close()
            else:
                s.shutdown(socket.SHUT_WR)
                held.append(s)
        except OSError:
            pass
print(len(held), "held")
END
}

# Two ranks that meet before and after: they wait for a file in between.
survives() { # survives <name> <argument>...
    local name=$1 where
    shift
    rm -f "$work/go"
    start -n 2 -x "GO=$work/go" "$@"
    await ready || return
    where=$(listeners)
    [ -n "$where" ] || fail "$name: nothing listens" || return
    if grep -qvE '^(127\.|\[::1\])' <<<"$where"; then
        fail "$name: $where is not of the loopback" || return
    fi
    # shellcheck disable=SC2086
    throw $where || fail "$name: the thrower fails" || return
    : >"$work/go"
    ends 0 || return
    leaves_nothing
}

# The first half of the work is done once the server has been met; the second comes after the garbage.
waiting='exec 7<> <(:); echo ready; while [ ! -e "$GO" ]; do read -rt 0.05 -u 7; done; exec 7<&-; exec "$@"'

test_mpi_programs_survive_garbage() {
    local m
    for m in $mpi; do
        [ "$m" != openmpi ] || [ -e "$TEST_BINARY_DIR/fiber/pmix.so" ] || continue
        survives "$m" bash -c "$waiting" waiting "$work/check.$m" window || return
        says 'window: 2 ranks agree' || return
    done
}

test_mpich_by_port_survives_garbage() {
    [[ $mpi == *mpich* ]] || return 0
    survives port -x FIBER_PMI=port bash -c "$waiting" waiting "$work/check.mpich" window || return
    says 'window: 2 ranks agree'
}

test_the_store_survives_garbage() { # what torch 1.13 dials, in its own words: set, wait, get
    cat >"$work/store.py" <<'END'
import os, select, socket, struct, sys

s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
rank = os.environ["RANK"]

def word(text):
    return struct.pack("<Q", len(text)) + text.encode()

def exchange(tag):
    s.sendall(b"\x00" + word(tag + rank) + word("value of " + rank))
    other = tag + str(1 - int(rank))
    s.sendall(b"\x05" + struct.pack("<Q", 1) + word(other))
    assert s.recv(1) == b"\x00", "no stop of the wait"
    s.sendall(b"\x02" + word(other))
    n = struct.unpack("<Q", s.recv(8, socket.MSG_WAITALL))[0]
    assert s.recv(n, socket.MSG_WAITALL).decode() == "value of " + str(1 - int(rank))

exchange("before")
print("ready", flush=True)
while not os.path.exists(os.environ["GO"]):
    select.select([], [], [], 0.05)
exchange("after")
END
    survives store python3 "$work/store.py"
}

# What guards the port of PMIx is in a module, which has a log of its own.
test_a_stranger_at_the_port_of_pmix_is_refused_and_logged_by_the_level() {
    local call='setpriv --reuid 65534 --clear-groups bash -c "exec 3<>/dev/tcp/127.0.0.1/${PMIX_SERVER_URI41##*:}; echo hello >&3
        read -rt 60 <&3; ((\$? == 1)) && echo hung up"'
    [[ $(id -u) == 0 && -e $TEST_BINARY_DIR/fiber/pmix.so ]] || return 0
    FIBER_LOG_LEVEL=warn fiber_run 0 -n 1 bash -c "$call" || return
    grep -q 'hung up' "$work/out" || fail 'the stranger is not refused' || return
    grep -q 'refused a connection to 127.0.0.1:.* from user 65534' "$work/err" || fail 'the stranger is not logged' || return
    FIBER_LOG_LEVEL=error fiber_run 0 -n 1 bash -c "$call" || return
    ! grep 'refused a connection' "$work/err" || fail 'the stranger is logged'
}

run_tests test_mpi_programs_survive_garbage test_mpich_by_port_survives_garbage test_the_store_survives_garbage \
    test_a_stranger_at_the_port_of_pmix_is_refused_and_logged_by_the_level
