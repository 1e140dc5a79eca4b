"""jupyter_test.py - a notebook's kernel: its functions travel, prints of workers reach the cell, an interrupt ends the work
and not the kernel.

The kernel is that of the first Python here that has ipykernel, jupyter_client and cloudpickle: $TEST_PYTHON, the one
that `./demo --python` has made, this one.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import subprocess
import sys

import pytest

LONG = 120
MODULES = "ipykernel, jupyter_client, cloudpickle"

# Runs cells of standard input in a kernel, and prints for each what became of it. A cell that has printed its word
# "interrupt me" is interrupted.
DRIVER = """
import json, sys
from jupyter_client.manager import start_new_kernel

LONG = 100
manager, client = start_new_kernel(kernel_name="python3", startup_timeout=LONG)

def run(cell):
    said, error = "", None
    message = client.execute(cell)
    while True:
        got = client.get_iopub_msg(timeout=LONG)
        kind, content = got["msg_type"], got["content"]
        if kind != "stream" and got["parent_header"].get("msg_id") != message:
            continue  # what others print is told of any cell
        if kind == "stream":
            said += content["text"]
            if "interrupt me" in content["text"]:
                manager.interrupt_kernel()
        elif kind == "error":
            error = content["ename"]
        elif kind == "status" and content["execution_state"] == "idle":
            return said, error

said = json.dumps([run(cell) for cell in json.load(sys.stdin)] + [manager.is_alive()])
client.stop_channels()
manager.shutdown_kernel()
print(said)
"""

CELLS = [
    "import fiber, os, time\nfactor = 2\n"
    "def times(x):\n    print('worker', x)\n    return x * factor\n"
    "pool = fiber.Pool(2)",
    "print(pool.map(times, [1]), pool.map(lambda x: x + factor, [1, 2]))",
    "factor = 3\nprint(pool.map(times, [5]))",
    "def forever(x):\n"
    "    try:\n        print('interrupt me')\n        time.sleep(600)\n"
    "    except KeyboardInterrupt:\n        print('the task has ended')\n        raise\n"
    "pool.map(forever, [1])",
    "print(pool.map(times, [7]), pool.stats()['deaths'])",
    "p = fiber.Process(target=times, args=(9,))\np.start()\np.join()\nprint(p.exitcode)",
    "q = fiber.Queue()\nprint('interrupt me')\nq.get()",
    "pool.close()\npool.join()\nprint('the kernel lives')",
]


def find_python():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    have = "import sys, %s; sys.exit(sys.version_info < (3, 11))" % MODULES
    for python in (os.environ.get("TEST_PYTHON"), os.path.join(cache, "fiber", "python", "bin", "python3"), sys.executable):
        if not python or not os.path.exists(python):
            continue
        if subprocess.run([python, "-c", have], capture_output=True).returncode == 0:
            return python
    pytest.skip("no Python here has all of: " + MODULES)


@pytest.fixture(scope="module")
def ran():
    env = {**os.environ, "JUPYTER_PLATFORM_DIRS": "1"}
    env.pop("PYTEST_CURRENT_TEST", None)  # with it a kernel does not watch its descriptors
    done = subprocess.run([find_python(), "-W", "ignore", "-c", DRIVER], input=json.dumps(CELLS), capture_output=True,
                          text=True, timeout=LONG, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # the kernel prints what workers print there too


def test_functions_and_what_they_use_travel(ran):
    assert ran[0] == ["", None]
    assert "[2] [3, 4]" in ran[1][0] and ran[1][1] is None
    assert "[15]" in ran[2][0], "the cell was changed, and the function with it"


def test_prints_of_workers_reach_the_cell(ran):
    assert "worker 1\n" in ran[1][0] and "worker 5\n" in ran[2][0]
    assert ran[5] == ["worker 9\n0\n", None]


def test_an_interrupt_ends_the_work_and_not_the_kernel(ran):
    assert ran[3][1] == "KeyboardInterrupt"
    assert "[21] 0" in ran[4][0] and "the task has ended" in ran[3][0] + ran[4][0]
    assert ran[6][1] == "KeyboardInterrupt"
    assert ran[7] == ["the kernel lives\n", None] and ran[8] is True
