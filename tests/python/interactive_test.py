"""interactive_test.py - IPython: functions of a cell travel, workers print to the cell, Ctrl-C leaves the shell alive.

SPDX-License-Identifier: Apache-2.0
"""
import subprocess
import sys

import pytest

CELLS = """
import fiber, os, signal, threading
pool = fiber.Pool(2)
def square(x): print("worker", x); return x * x

print(pool.map(square, [3]), pool.map(lambda x: x + 1, [1, 2]))
def wait(parent): os.kill(parent, signal.SIGINT); threading.Event().wait()

pool.map(wait, [os.getpid()])
pool.terminate()
print("the shell", "lives")
"""


def test_cells():
    pytest.importorskip("IPython")
    pytest.importorskip("cloudpickle")
    done = subprocess.run([sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", "--colors=NoColor"],
                          input=CELLS, capture_output=True, text=True, timeout=120)
    assert "worker 3" in done.stdout
    assert "[9] [2, 3]" in done.stdout
    assert "KeyboardInterrupt" in done.stdout + done.stderr
    assert "the shell lives" in done.stdout
