"""same_test.py - programs of same/ say the same with `import multiprocessing as mp` and with `import fiber as mp`.

That line is all that is changed. Two things differ and are made equal here: a context of multiprocessing has classes of
its own names (SpawnProcess), and lines of several jobs come whole, in any order among jobs that run at once. A program whose first lines say "Needs: pool" is skipped where fiber.pool is missing.

SPDX-License-Identifier: Apache-2.0
"""
import importlib.util
import pathlib
import re

import pytest

PROGRAMS = sorted((pathlib.Path(__file__).parent / "same").glob("*.py"))
LINE = "import multiprocessing as mp\n"


def errors(text):
    """The last lines of tracebacks: what is above them names the files of each package."""
    return [line for line in text.splitlines() if re.match(r"\w+(\.\w+)*(Error|Exception)\b", line)]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_same(program, path):
    text = path.read_text()
    needs = re.search(r"Needs: (\w+)", text)
    if needs and not importlib.util.find_spec("fiber." + needs[1]):
        pytest.skip("fiber.%s is missing" % needs[1])
    assert text.count(LINE) == 1
    theirs = program(text)
    theirs.out = theirs.out.replace("SpawnProcess", "Process")
    ours = program(text.replace(LINE, "import fiber as mp\n"))
    assert ours.out == theirs.out, ours
    assert (ours.code, errors(ours.err)) == (theirs.code, errors(theirs.err)), ours
    assert theirs.code == 0 and theirs.out, theirs
