"""_command.py - the command `fiber` of an installed wheel: becomes the program in _lib/bin.

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", "bin", "fiber")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would the program
    try:
        os.execv(program, ["fiber", *sys.argv[1:]])
    except FileNotFoundError:
        sys.exit("fiber: %s does not exist: install fiber from a wheel, or use cli/fiber of a build folder" % program)
