"""_command.py - the command `fiber` of an installed wheel: becomes the program in _lib/bin.

SPDX-License-Identifier: Apache-2.0
"""
import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", "bin", "fiber")
    try:
        os.execv(program, ["fiber", *sys.argv[1:]])
    except FileNotFoundError:
        sys.exit("fiber: %s does not exist: install fiber from a wheel, or use cli/fiber of a build folder" % program)
