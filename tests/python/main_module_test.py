"""main_module_test.py - the main module of a program, as its children see it.

SPDX-License-Identifier: Apache-2.0
"""
import py_compile
import re
import sys

import pytest


def test_a_program_without_a_guard_starts_no_children_of_children(program):
    ran = program("""
        import fiber as mp
        print("imported")
        def f(x):
            return x + 1
        pool = mp.Pool(2)
        print(pool.map(f, [1, 2]))
    """)
    assert ran.code == 1 and "__name__ == '__main__'" in ran.err, ran
    assert 1 < ran.out.count("imported") <= 8 and "[2, 3]" not in ran.out, ran


@pytest.mark.parametrize("call", ["executor.submit(print, 1)", "mp.Pool(1).map_async(print, [1], callback=print)"])
def test_a_program_without_a_guard_makes_no_calls_in_children(program, call):
    ran = program("""
        import fiber as mp
        executor = mp.futures.Executor(1)
        try:
            %s
            print("called")
        except RuntimeError as error:
            print(" ".join(str(error).split())[:40])
        if __name__ == "__main__":
            print(executor.submit(abs, -2).result())
    """ % call)
    assert ran.out.count("called") == 1 and ran.out.count("An attempt has been made to start a new ") >= 1, ran


def test_a_program_that_is_compiled(program, python, tmp_path):
    text = """
        import fiber as mp

        def f(x):
            return x + 1

        if __name__ == "__main__":
            with mp.Pool(2) as pool:
                print(pool.map(f, [1, 2]), flush=True)
            p = mp.Process(target=print, args=(f(2),))
            p.start()
            p.join()
    """
    assert program(text).out == "[2, 3]\n3\n"
    py_compile.compile(tmp_path / "prog.py", tmp_path / "compiled.pyc")
    (tmp_path / "prog.py").unlink()
    ran = python("compiled.pyc")
    assert (ran.code, ran.out) == (0, "[2, 3]\n3\n"), ran


def test_locks_of_the_main_module(program):
    """Each child makes its own, as with spawn, and in the manager that the program has."""
    ran = program("""
        import fiber as mp
        print(__name__)
        locks = mp.Lock(), mp.RLock(), mp.Semaphore(2), mp.BoundedSemaphore(2), mp.Condition()
        event, barrier = mp.Event(), mp.Barrier(1)

        def use(*_):
            for lock in locks:
                with lock:
                    event.set()
            barrier.wait()
            return event.is_set(), hasattr(mp.synchronize._manager, "_process")

        def show(*_):
            print(*use())

        if __name__ == "__main__":
            with mp.Pool(1) as pool:
                print(*pool.apply(use))
            p = mp.Process(target=show)
            p.start()
            p.join()
            mp.Ring(1, show).run()
            print(*use())
    """)
    assert (ran.code, ran.out.split("\n")) == (0, [
        "__main__", "__mp_main__", "True False", "__mp_main__", "True False", "__mp_main__", "True False", "True True", ""]), ran


def test_an_executor_of_the_main_module(program):
    """As an executor of concurrent.futures, it has no workers in the children, unless they use it. A pool neither."""
    ran = program("""
        import fiber as mp
        print(__name__)
        executor = mp.futures.Executor(1)
        pool = mp.Pool(1)

        def use(x):
            return len(mp.active_children()), pool.apply(abs, (x,)), len(mp.active_children())

        if __name__ == "__main__":
            print(executor.submit(abs, -1).result(), use(-2), pool.apply(use, (-3,)))
            executor.shutdown()
            pool.terminate()
    """)
    assert ran.code == 0 and "\n1 (2, 2, 2) (0, 3, 1)\n" in ran.out and ran.out.count("__mp_main__") == 3, ran


def test_a_program_that_imports_multiprocessing(program):
    ran = program("""
        import multiprocessing  # as torch, joblib and others do; its first import renames modules
        import sys
        import fiber

        while_imported = vars(sys.modules[__name__]) is globals()

        class Point:
            pass

        def make(x):
            return Point(), while_imported

        if __name__ == "__main__":
            with fiber.Pool(2) as pool:
                point, well = pool.apply(make, (1,))
                print(type(point) is Point, well)
    """)
    assert (ran.code, ran.out) == (0, "True True\n"), ran


def test_threads_that_use_a_pool_of_the_main_module_first(program):
    ran = program("""
        import threading
        import fiber as mp
        pool = mp.Pool(1)

        def use(n):
            gate, results = threading.Barrier(n), []
            def call():
                gate.wait()
                results.append(pool.apply(abs, (-1,)))
            threads = [threading.Thread(target=call) for _ in range(n)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            return results, len(mp.active_children())

        if __name__ == "__main__":
            with pool:
                print(*pool.apply(use, (8,)))
    """)
    assert (ran.code, ran.out) == (0, "[1, 1, 1, 1, 1, 1, 1, 1] 1\n"), ran


def test_a_program_on_standard_input_sends_what_a_program_in_a_file_does(python):
    """Functions travel by cloudpickle there, which knows no sockets, and would copy memory that is to be shared."""
    pytest.importorskip("cloudpickle")
    ran = python("-", stdin="""
import multiprocessing, socket
import fiber as mp
ours, theirs = socket.socketpair()
def use(s):
    s.send(b"x")
with mp.Pool(1) as pool:
    pool.apply(use, (theirs,))
print(ours.recv(1))
class Odd:
    def __reduce__(self):
        raise TypeError
mp.reducer.ForkingPickler.register(Odd, lambda odd: (int, (5,)))
a, b = mp.Pipe()
a.send(Odd())
print(b.recv())
try:
    mp.Process(target=print, args=(multiprocessing.get_context("spawn").RawValue("i"),)).start()
except ValueError as error:
    print(str(error)[:29])
""")
    assert (ran.code, ran.out) == (0, "b'x'\n5\ncannot send a file descriptor\n"), ran


def test_a_program_on_standard_input(python):
    pytest.importorskip("cloudpickle")
    ran = python("-", stdin="""
import fiber as mp
def f(x):
    return x + 1
print(mp.Pool(2).map(f, [1, 2]), flush=True)
p = mp.Process(target=lambda: print("child"))
p.start()
p.join()
""")
    assert (ran.code, ran.out) == (0, "[2, 3]\nchild\n"), ran


@pytest.mark.parametrize("call", ["fiber.Pool(1).apply(f)", "p = fiber.Process(target=f); p.start(); p.join()"])
def test_a_function_without_a_file_and_without_cloudpickle(python, tmp_path, call):
    (tmp_path / "cloudpickle.py").write_text("raise ImportError")
    ran = python("-", stdin="import fiber\ndef f(): pass\n" + call)
    assert re.search(r"AttributeError: Can't get attribute 'f' .*\n *functions of .* cloudpickle", ran.err), ran


CLASSES = """
import fiber as mp
class Point:
    pass
class Failure(Exception):
    def __init__(self, reason, code):
        super().__init__(reason, code)
        self.code = code
def echo(x):
    return x
def fail(code):
    raise Failure("reason", code)
"""


@pytest.mark.parametrize("way", ["-c", "-"])
def test_classes_of_a_program_without_a_file(python, way):
    pytest.importorskip("cloudpickle")
    text = CLASSES + """
with mp.Pool(1) as pool:
    print(type(pool.apply(echo, (Point(),))) is Point, pool.apply(echo, (Point,)) is Point, flush=True)
    try:
        pool.apply(fail, (3,))
    except Failure as failure:
        print(failure.args, failure.code, type(failure.__cause__).__name__)
"""
    ran = python("-c", text) if way == "-c" else python("-", stdin=text)
    assert (ran.code, ran.out) == (0, "True True\n('reason', 3) 3 RemoteTraceback\n"), ran


def test_a_program_in_the_debugger(program):
    ran = program("""
        import fiber as mp

        def f(x):
            return x + 1

        if __name__ == "__main__":
            with mp.Pool(2) as pool:
                print(pool.map(f, [1, 2]))
            p = mp.Process(target=print, args=("child",))
            p.start()
            p.join()
    """, flags=["-m", "pdb", "-c", "continue"], stdin="quit\n")
    assert ran.code == 0 and ran.out.startswith("[2, 3]\nchild\n"), ran


def test_a_package_is_no_console_in_its_jobs(python, tmp_path):
    """Its main module is not imported again, so a job has none, like a job of a notebook."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/work.py").write_text("from fiber.util import is_in_interactive_console as ask\n")
    (tmp_path / "package/__main__.py").write_text("""
import fiber as mp
from . import work

with mp.Pool(1) as pool:
    print(work.ask(), pool.apply(work.ask))
""")
    ran = python("-m", "package")
    assert (ran.code, ran.out, ran.err) == (0, "False False\n", ""), ran


@pytest.mark.parametrize("workers", [2, 5])  # from four on, they are copies of a template
def test_a_frozen_program(python, tmp_path, workers):
    """A script is the program and its own interpreter, as the executables of PyInstaller are."""
    path = tmp_path / "frozen"
    path.write_text("""#!%s
import sys
sys.frozen, sys.executable = True, __file__
import fiber as mp

class Point:
    def __init__(self, x):
        self.x = x

def f(x):
    return Point(x)

if __name__ == "__main__":
    mp.freeze_support()
    print("main", sys.argv[1:], flush=True)
    with mp.Pool(%d) as pool:
        print([type(p) is Point and p.x for p in pool.map(f, [1, 2])], flush=True)
    p = mp.Process(target=print, args=("child",))
    p.start()
    p.join()
    print(p.exitcode)
""" % (sys.executable, workers))
    path.chmod(0o755)
    ran = python(str(path), "one", "-c")
    assert (ran.code, ran.out, ran.err) == (0, "main ['one', '-c']\n[1, 2]\nchild\n0\n", ""), ran


def test_a_worker_says_that_its_main_module_is_another(program):
    """It has one as an old image has it."""
    ran = program("""
        import fiber as mp

        def f(x):
            return x + 1

        if __name__ == "__main__":
            with mp.Pool(1, maxtasksperchild=1) as pool:
                print(pool.map(f, [1]), flush=True)
                with open(__file__) as file:
                    text = file.read()
                with open(__file__, "w") as file:
                    file.write(text.replace("x + 1", "x + 2"))
                print(pool.map(f, [1]))
    """)
    assert ran.out == "[2]\n[3]\n" and "prog.py is not the file that its parent has" in ran.err, ran
