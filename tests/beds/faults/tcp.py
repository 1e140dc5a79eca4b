#!/usr/bin/env python3
"""tcp.py - stands in the middle of all TCP connections of a network namespace, and does what networks do; see README.md.

SPDX-License-Identifier: Apache-2.0
"""
import random
import socket
import struct
import subprocess
import sys
import threading
import time

OURS = "127.0.0.3"  # connections from here are the proxy's own
SO_ORIGINAL_DST = 80
PIECE = 1 << 16
PASSING = {"pass", "delay", "split", "trickle"}  # these hold for later connections, too


class Pair:
    """A connection through the proxy: `up` is the caller's end, `down` leads to the one that is called."""

    def __init__(self, proxy, up, down):
        self.proxy, self.up, self.down = proxy, up, down
        self.kind, self.fault, self.over = None, None, False
        self.changed = threading.Condition()
        for s in up, down:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink, way in (up, down, "up"), (down, up, "down"):
            threading.Thread(target=self.carry, args=(source, sink, way), daemon=True).start()

    def order(self, fault):
        with self.changed:
            self.fault = fault
            self.changed.notify_all()
        if fault == "reset":
            for s in self.up, self.down:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if fault == "half":  # the caller's direction ends, the other one goes on
            end(self.down, socket.SHUT_WR)
        elif fault in ("cut", "reset"):
            for s in self.up, self.down:
                end(s, socket.SHUT_RD)  # wakes its thread, which closes it

    def now(self):
        return self.fault or self.proxy.passing.get(self.kind, "pass")

    def carry(self, source, sink, way):
        try:
            while True:
                data = source.recv(PIECE)
                if way == "up" and self.kind is None and data:
                    self.proxy.name(self, "data" if data[:1] == b"\0" else "control")
                if not self.send(sink, way, data):
                    return
        except OSError:
            pass
        finally:
            self.over = self.over or way == "up"
            if self.fault in ("cut", "reset"):
                source.close()
                sink.close()

    def send(self, sink, way, data):
        fault = self.now()
        while fault in ("stall", "stall-" + way):
            with self.changed:
                if self.fault == fault:
                    self.changed.wait()
            fault = self.now()
        if fault in ("cut", "reset"):
            return False
        if not data:
            end(sink, socket.SHUT_WR)
            return False
        if fault == "half" and way == "up":
            return True
        if fault == "corrupt":
            at = random.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1:]
        if fault == "delay":
            time.sleep(0.02)
        while data:
            n = random.randint(1, 200) if fault == "split" else random.randint(1, 40) if fault == "trickle" else len(data)
            if fault == "trickle":
                time.sleep(0.001)
            sink.sendall(data[:n])
            data = data[n:]
        return True


def end(sock, how):
    try:
        sock.shutdown(how)
    except OSError:
        pass


class Proxy:
    def __init__(self):
        self.lock = threading.Lock()
        self.pairs, self.passing = [], {}
        self.listener = socket.create_server((OURS, 0), backlog=1024)

    def name(self, pair, kind):
        with self.lock:
            pair.kind = kind
            self.pairs.append(pair)

    def serve(self):
        while True:
            up, _ = self.listener.accept()
            _, port, host = struct.unpack("!HH4s8x", up.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
            try:
                down = socket.create_connection((socket.inet_ntoa(host), port), source_address=(OURS, 0))
            except OSError:  # a caller of a port where nobody listens sees a reset
                up.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                up.close()
                continue
            Pair(self, up, down)

    def forget(self):
        """Connections are numbered anew from here, and nothing is done to any of them any more."""
        with self.lock:
            for p in self.pairs:
                p.order("cut")
            self.pairs, self.passing = [], {}
        return 0

    def order(self, kind, which, fault):
        with self.lock:
            if fault in PASSING and which == "all":
                self.passing[kind] = fault
            met = [p for p in self.pairs if p.kind == kind and not p.over]  # a caller may have given up, and called again
            met = met if which == "all" else met[int(which) - 1:int(which)]
        for p in met:
            p.order(fault)
        return len(met)


def main():
    proxy = Proxy()
    port = proxy.listener.getsockname()[1]
    subprocess.run(["iptables", "-w", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "!", "-s", OURS, "-d", "127.0.0.0/8",
                    "-j", "DNAT", "--to-destination", f"{OURS}:{port}"], check=True)
    threading.Thread(target=proxy.serve, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        print(proxy.forget() if words == ["forget"] else proxy.order(*words), flush=True)


if __name__ == "__main__":
    main()
