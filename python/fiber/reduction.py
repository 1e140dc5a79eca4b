"""reduction.py - multiprocessing.reduction: how objects are pickled, which programs add to.

Its calls that send a descriptor accept the connections of Fiber, too.

SPDX-License-Identifier: Apache-2.0
"""
import multiprocessing.reduction as _mp
from multiprocessing.reduction import *

from .connection import Connection

__all__ = _mp.__all__


def __getattr__(name):
    """Gives the other names of multiprocessing.reduction."""
    return getattr(_mp, name)


def send_handle(conn, handle, destination_pid):
    """Sends a file descriptor to the process at the other end, which is on this host and calls recv_handle().

    `handle` stays the caller's. Over a connection of Fiber `destination_pid` is not used.
    """
    if isinstance(conn, Connection):
        conn.send(_mp.DupFd(handle))
    else:
        _mp.send_handle(conn, handle, destination_pid)


def recv_handle(conn):
    """Receives a file descriptor that send_handle() sent. The caller closes it."""
    if isinstance(conn, Connection):
        return conn.recv().detach()
    return _mp.recv_handle(conn)
