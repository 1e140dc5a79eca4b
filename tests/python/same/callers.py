"""callers.py - listeners and those who call them: before, without and after accept(). Needs: connection

SPDX-License-Identifier: Apache-2.0
"""
import importlib
import os
import sys

import multiprocessing as mp

connection = importlib.import_module(mp.__name__ + ".connection")


def listen(conn):
    with connection.Listener(backlog=4) as listener:
        conn.send(listener.address)
        conn.recv()
        os._exit(0)


def call(address, key, what):
    with connection.Client(address, authkey=key) as conn:
        conn.send(what)


def show(what, fn, *args, **kwargs):
    try:
        print(what, fn(*args, **kwargs))
    except Exception as error:
        print(what, type(error).__name__, error)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    mine, its = mp.Pipe()
    p = mp.Process(target=listen, args=(its,))
    p.start()
    address = mine.recv()
    callers = [connection.Client(address) for _ in range(3)]
    print([(c.closed, c.poll()) for c in callers])
    callers[0].send("nobody takes this")
    mine.send("end")
    p.join()
    print(p.exitcode, callers[0].poll(60), connection.wait(callers[:1], 60) == callers[:1])
    buffer = bytearray(9)
    for c, fn, args in zip(callers, ("recv", "recv_bytes", "recv_bytes_into"), ((), (), (buffer,))):
        for _ in range(2):
            try:
                getattr(c, fn)(*args)
            except (EOFError, ConnectionResetError):  # at first a socket of multiprocessing's says that it was reset
                print("the end")
        show("send", c.send, 1)
    try:
        connection.Client(address)
    except ConnectionRefusedError as error:
        print(error.errno)

    listener = connection.Listener()
    mine = connection.Client(listener.address)  # before accept(), in the same thread
    mine.send([1, 2])
    print(mine.poll(0.01))
    accepted = listener.accept()
    print(accepted.recv(), accepted.send("three"), mine.recv())
    accepted.close()
    show("at the end", mine.recv)
    mine = connection.Client(listener.address)
    mine.send("closed")
    mine.close()
    accepted = listener.accept()
    show("recv", accepted.recv)
    show("recv", accepted.recv)
    p = mp.Process(target=call, args=(listener.address, None, "of one that has ended"))
    p.start()
    p.join()
    accepted = listener.accept()
    show("recv", accepted.recv)
    show("recv", accepted.recv)
    for key in (None, b"key") if sys.version_info < (3, 13) else (None, b"", b"key"):
        with connection.Listener(authkey=key) as listener:
            ps = [mp.Process(target=call, args=(listener.address, key, i)) for i in range(3)]
            for p in ps:
                p.start()
            got = []
            for _ in ps:
                with listener.accept() as conn:
                    got.append(conn.recv())
            for p in ps:
                p.join()
            print(sorted(got), [p.exitcode for p in ps])
    print(connection.families[-2:], len(connection.CHALLENGE) if hasattr(connection, "CHALLENGE") else None)
    show("accept", listener.accept)
    show("key", connection.Listener, authkey="text")
