#!/usr/bin/env python3
"""connect_proxy.py - an HTTP proxy that knows CONNECT and one address, whatever name it is asked for.

    connect_proxy.py HOST:PORT LOG

says the port that it listens at on 127.0.0.1, and appends each name that it is asked for to LOG. SIGUSR1 resets all
connections through it.

SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import signal
import socket
import sys
import threading

libc = ctypes.CDLL(None)
host, port = sys.argv[1].rsplit(":", 1)
lock, tunnels = threading.Lock(), set()


def pump(a, b):
    try:
        while data := a.recv(1 << 16):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(client):
    head = b""
    while b"\r\n\r\n" not in head:
        data = client.recv(4096)
        if not data:
            return
        head += data
    method, name, _ = head.split(b"\r\n")[0].decode("latin-1").split(" ")
    with open(sys.argv[2], "a", encoding="utf-8") as log:
        log.write(f"{method} {name}\n")
    if method != "CONNECT":
        client.sendall(b"HTTP/1.1 405 Only CONNECT\r\nContent-Length: 0\r\n\r\n")
        return
    server = socket.create_connection((host, int(port)))
    with lock:
        tunnels.update((client, server))
    client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
    back = threading.Thread(target=pump, args=(server, client), daemon=True)
    back.start()
    pump(client, server)
    back.join()
    with lock:
        tunnels.difference_update((client, server))
    server.close()


def run(client):
    with client:
        try:
            serve(client)
        except (OSError, ValueError):
            pass


def reset():
    while True:
        signal.sigwait({signal.SIGUSR1})
        with lock:
            for sock in tunnels:  # to be connected to no address ends a connection at once, with RST
                libc.connect(sock.fileno(), bytes(16), 16)


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
threading.Thread(target=reset, daemon=True).start()
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()
