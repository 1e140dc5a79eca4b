# reduction.pyi - types of multiprocessing.reduction, and of the calls that know Fiber's connections.
# SPDX-License-Identifier: Apache-2.0
import multiprocessing.connection as _mp
from multiprocessing.reduction import DupFd as DupFd
from multiprocessing.reduction import ForkingPickler as ForkingPickler
from multiprocessing.reduction import dump as dump
from multiprocessing.reduction import recvfds as recvfds
from multiprocessing.reduction import register as register
from multiprocessing.reduction import sendfds as sendfds

from .connection import Connection

def send_handle(conn: Connection | _mp.Connection, handle: int, destination_pid: int | None) -> None: ...
def recv_handle(conn: Connection | _mp.Connection) -> int: ...
