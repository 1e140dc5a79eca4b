"""tree.py - children of children, and what a child knows of itself and its parent.

SPDX-License-Identifier: Apache-2.0
"""
import os
import sys

import multiprocessing as mp

mp = mp.get_context("spawn")
TOP = os.getpid()


def leaf(depth):
    print("leaf", depth, mp.current_process().name, mp.parent_process().name, mp.parent_process().pid == os.getppid())


def node(depth):
    print("node", depth, mp.current_process().name, [p.name for p in mp.active_children()])
    p = mp.Process(target=node if depth else leaf, args=(depth - 1,))
    p.start()
    p.join()
    sys.exit(p.exitcode + 1)


def no_children_of_a_daemon():
    try:
        mp.Process(target=leaf, args=(0,)).start()
    except AssertionError as error:
        print("AssertionError", error)


def about():
    print(__name__, sys.argv[1:], os.path.basename(sys.argv[0]), os.getcwd() == os.environ["PWD_OF_TEST"])
    print(TOP == os.getpid(), mp.current_process().authkey == KEY, sys.stdin.read() == "")


KEY = b"of the program"
mp.current_process().authkey = KEY

if __name__ == "__main__":
    os.environ["PWD_OF_TEST"] = os.getcwd()
    sys.argv.append("an argument")
    p = mp.Process(target=node, args=(2,))
    p.start()
    p.join()
    print(p.exitcode)
    p = mp.Process(target=no_children_of_a_daemon, daemon=True)
    p.start()
    p.join()
    print(p.exitcode)
    p = mp.Process(target=about)
    p.start()
    p.join()
    print(p.exitcode)
