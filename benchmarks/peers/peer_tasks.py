# peer_tasks.py - the tasks of pool_peers.py, in a module of their own that every peer's workers can import.
#
# SPDX-License-Identifier: Apache-2.0
import os
import time


def sleep(seconds):
    time.sleep(seconds)
    return os.getpid()


def echo(data):
    return data
