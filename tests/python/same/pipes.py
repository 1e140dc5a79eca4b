"""pipes.py - pipes and connections. Needs: connection

SPDX-License-Identifier: Apache-2.0
"""
import importlib
import os
import select
import socket

import multiprocessing as mp

reduction = importlib.import_module(mp.__name__ + ".reduction")
mp = mp.get_context("spawn")


def echo(end):
    try:
        while True:
            end.send(end.recv())
    except EOFError:
        print("end of file")


def write_to_what_comes(end):
    fd = reduction.recv_handle(end)
    print(os.get_inheritable(fd), os.write(fd, b"by the child"))
    os.close(fd)
    with end.recv() as received:
        received.sendall(b", twice")


def raises(fn, *args):
    try:
        print(fn(*args))
    except Exception as error:
        print(type(error).__name__)


if __name__ == "__main__":
    ours, theirs = mp.Pipe()
    p = mp.Process(target=echo, args=(theirs,))
    p.start()
    theirs.close()
    for thing in (1, "two", [3], {"four": b"4" * 100000}, None):
        ours.send(thing)
        print(ours.poll(60), ours.recv() == thing)
    print(ours.poll(), ours.poll(0.01), ours.closed, ours.readable, ours.writable)
    ours.close()
    p.join()
    print(p.exitcode, ours.closed)
    raises(ours.send, 1)
    raises(ours.recv)

    receiver, sender = mp.Pipe(duplex=False)
    print(receiver.readable, receiver.writable, sender.readable, sender.writable)
    raises(receiver.send, 1)
    raises(sender.recv)
    sender.send_bytes(b"0123456789", 2, 5)
    print(receiver.recv_bytes())
    raises(sender.send_bytes, "text")
    raises(sender.send_bytes, b"0123", 5)
    sender.send_bytes(b"more than that")
    buffer = bytearray(5)
    raises(receiver.recv_bytes_into, buffer)
    sender.send_bytes(b"abc")
    print(receiver.recv_bytes_into(buffer, 1), bytes(buffer))
    sender.close()
    print(receiver.poll(60))
    raises(receiver.recv)
    with receiver:
        pass
    print(receiver.closed, os.getpid() == mp.current_process().pid)

    for duplex in (True, False):
        receiver, sender = mp.Pipe(duplex)
        poll = select.poll()
        poll.register(receiver.fileno(), select.POLLIN)

        def look(wait):
            print(len(poll.poll(wait)), receiver.poll())  # an end is POLLIN or POLLHUP

        look(10)
        sender.send(1)
        sender.send_bytes(b"x" * 50000)
        for call in (receiver.recv, receiver.recv_bytes):
            look(5000)
            print(len(str(call())))
        look(10)
        sender.close()
        look(5000)
        raises(receiver.recv)

    ours, theirs = mp.Pipe()
    p = mp.Process(target=write_to_what_comes, args=(theirs,))
    p.start()
    left, right = socket.socketpair()
    reduction.send_handle(ours, right.fileno(), p.pid)
    ours.send(right)
    p.join()
    right.close()
    print(p.exitcode, left.recv(100, socket.MSG_WAITALL), reduction.ForkingPickler.__module__)
