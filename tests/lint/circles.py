# circles.py - files of the product that include each other in a circle, by way of their headers.
#
# A unit is a .c file with its header, and with its _priv.h: pool/send.c includes pool/pool.h, so `pool/send` knows
# `pool/pool`. Units that know each other, directly or by others, are a circle: none of them can be read, tested or used
# without the rest. One object in several files is not a circle: all of its files include one _priv.h. The circles that are
# known stand in tests/lint/exceptions, by all of their units; when one grows or shrinks, its line there changes.
#
# SPDX-License-Identifier: Apache-2.0
import os
import re
import sys

import lint

FOLDERS = ("runtime/", "share/", "pool/", "ring/", "mpi_bridge/", "backends/", "cli/")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def unit(name):
    base = os.path.splitext(name)[0]
    return base[:-len("_priv")] if base.endswith("_priv") else base


def graph():
    """unit -> units that it includes, and unit -> the _priv.h that it includes."""
    names = [name for name in lint.files() if name.startswith(FOLDERS) and name.endswith((".c", ".h"))]
    knows, private = {unit(name): set() for name in names}, {unit(name): set() for name in names}
    for name in names:
        if name.endswith("_priv.h"):
            private[unit(name)].add(name)
        for header in INCLUDE.findall(lint.read(name)):
            if header.endswith("_priv.h"):
                private[unit(name)].add(header)
            if unit(header) in knows and unit(header) != unit(name):
                knows[unit(name)].add(unit(header))
    return knows, private


def circles(knows):
    """The strongly connected components of more than one unit (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(one):
        number[one] = low[one] = len(number)
        stack.append(one)
        for other in sorted(knows[one]):
            if other not in number:
                visit(other)
            if other in stack:
                low[one] = min(low[one], low[other])
        if low[one] == number[one]:
            at = stack.index(one)
            found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for one in sorted(knows):
        if one not in number:
            visit(one)
    return [circle for circle in found if len(circle) > 1]


report = lint.Lint("circles")
uses, priv = graph()
for units in sorted(circles(uses)):
    if not set.intersection(*(priv[one] for one in units)):
        report.complain(",".join(units), "include each other, and no _priv.h says that they are one object")
report.finish()
