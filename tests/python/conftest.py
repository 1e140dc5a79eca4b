"""conftest.py - what the tests of the Python package share.

    def test_x(program):
        ran = program("import fiber as mp ...")        # a script in a folder of its own, run by a new interpreter
        assert ran.code == 0 and ran.out == "..."

SPDX-License-Identifier: Apache-2.0
"""
import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import fiber

LONG = 120  # seconds; what takes longer hangs


fiber.set_forkserver_preload(["pytest"])  # each test file imports it, and so does each process that a test starts


class Ran:
    """What a program did: its exit code, and what it wrote."""

    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def __repr__(self):
        return "exit code %d\n--- out\n%s--- err\n%s" % (self.code, self.out, self.err)


def run(argv, folder, env=None, stdin=""):
    """Runs a command and waits for its end. A program that prints is read by us, so its output is not a terminal's.

    It is buffered as users have it, whatever PYTHONUNBUFFERED says here.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(argv, cwd=folder, env={**inherited, **(env or {})}, input=stdin, capture_output=True, text=True,
                          timeout=LONG)
    return Ran(done)


@pytest.fixture
def program(tmp_path):
    """Returns a function that runs a script: program(text, *arguments, flags=(), env={}, name="prog.py")."""
    def start(text, *arguments, flags=(), env=None, name="prog.py", stdin=""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return run([sys.executable, *flags, str(path), *arguments], tmp_path, env, stdin)
    return start


@pytest.fixture
def python(tmp_path):
    """Returns a function that runs the interpreter with these arguments in an empty folder."""
    def start(*arguments, env=None, folder=tmp_path, stdin=""):
        return run([sys.executable, *arguments], folder, env, stdin)
    return start


@pytest.fixture
def start():
    """Returns a function that starts a process; what still lives at the end of the test is killed."""
    started = []

    def run_it(target, *args):
        process = fiber.Process(target=target, args=args)
        process.start()
        started.append(process)
        return process
    yield run_it
    for process in started:
        process.kill()
        process.join(LONG)
        assert process.exitcode is not None


def well(process):
    """Whether a process ends well."""
    process.join(LONG)
    print(process)  # pytest shows it of a test that fails
    return process.exitcode == 0


@functools.cache
def python_with(module):
    """Returns the path of an interpreter that can import the module: this one, or the system's. None: neither can."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            if subprocess.run([python, "-c", "import " + module], capture_output=True, check=False).returncode == 0:
                return python
        except OSError:
            pass
    return None


class Told(Exception):
    """What a handler of a signal raises."""


@pytest.fixture
def interrupt():
    """Returns a function that calls wait(); while that waits, a signal comes whose handler raises, and act() is called at
    once, so that wait() need not wait any longer."""
    def run(wait, act, error=Told):
        waits = threading.Event()

        def tell(*_):
            if waits.is_set():
                raise error
            waits.set()

        def signal_and_act():
            waits.wait(LONG)
            signal.pthread_kill(threading.get_ident(), signal.SIGALRM)
            act()

        signal.signal(signal.SIGALRM, tell)
        thread = threading.Thread(target=signal_and_act)
        thread.start()
        with pytest.raises(error):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            wait()
        thread.join(LONG)

    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    yield run
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
