"""process_test.py - Process: start, join, exit codes, signals, names, output; by scripts, modules and command lines.

SPDX-License-Identifier: Apache-2.0
"""
import os
import select
import signal
import socket
import sys
from multiprocessing.connection import wait

import pytest

import fiber as mp

LONG = 60


def leave(code):
    sys.exit(code)


def leave_at_once(code):
    os._exit(code)


def be_killed(sig):
    os.kill(os.getpid(), sig)
    signal.pause()


def wait_for_ever():
    signal.pause()


def check(what, *args, **kwargs):
    sys.exit(0 if eval(what, globals(), {"args": args, "kwargs": kwargs}) else 1)


def start_another(depth):
    if depth:
        p = mp.Process(target=start_another, args=(depth - 1,))
        p.start()
        p.join()
        sys.exit(p.exitcode + 1)


class Sub(mp.Process):
    def __init__(self, code):
        super().__init__(name="sub of mine")
        self.code = code

    def run(self):
        sys.exit(self.code)


def finish(p):
    p.start()
    p.join(LONG)
    assert not p.is_alive()
    return p.exitcode


def code_of(target, *args, **kwargs):
    return finish(mp.Process(target=target, args=args, kwargs=kwargs))


@pytest.mark.parametrize("code, seen", [(0, 0), (3, 3), (255, 255), (None, 0), ("a text", 1), (256, 0)])
def test_exit_codes(code, seen):
    assert code_of(leave, code) == seen


def test_exit_at_once():
    assert code_of(leave_at_once, 9) == 9


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_death_by_a_signal(sig):
    assert code_of(be_killed, sig) == -sig


def test_arguments_and_keywords():
    assert code_of(check, "args == (1, 'two') and kwargs == {'three': 3.0}", 1, "two", three=3.0) == 0


def test_a_subclass():
    assert finish(Sub(17)) == 17


def test_children_of_children():
    assert code_of(start_another, 3) == 3


def test_life_of_a_process():
    p = mp.Process(target=wait_for_ever, name="a name: ü / 1")
    assert (p.pid, p.exitcode, p.is_alive(), p.daemon) == (None, None, False, False)
    with pytest.raises(ValueError):
        p.sentinel
    p.start()
    assert p.is_alive() and p.exitcode is None and p.name == "a name: ü / 1"
    assert p in mp.active_children()
    assert p.join(0) is None and p.join(0.01) is None and p.is_alive()
    with pytest.raises(ValueError):
        p.close()
    p.terminate()
    p.join()
    assert p.exitcode == -signal.SIGTERM and not p.is_alive() and p not in mp.active_children()
    assert wait([p.sentinel], 0) == [p.sentinel]
    p.close()
    with pytest.raises(ValueError):
        p.is_alive()
    p.close()


def test_kill():
    p = mp.Process(target=wait_for_ever)
    p.start()
    p.kill()
    p.join()
    assert p.exitcode == -signal.SIGKILL
    p.kill()
    p.terminate()


def wait_until_interrupted(running):
    try:
        running.send(True)
        while True:
            select.select([], [], [], 0.1)
    except KeyboardInterrupt:
        sys.exit(7)


def test_interrupt():
    reader, writer = mp.Pipe(False)
    p = mp.Process(target=wait_until_interrupted, args=(writer,))
    with pytest.raises(AttributeError):
        p.interrupt()
    p.start()
    assert reader.recv()
    p.interrupt()
    p.join()
    assert p.exitcode == 7
    p.interrupt()
    p.close()
    with pytest.raises(ValueError):
        p.interrupt()


def test_what_a_child_is_told():
    p = mp.Process(target=check, name="its name", args=(
        "mp.parent_process().pid == os.getppid() and mp.parent_process().is_alive() and "
        "mp.current_process().name == 'its name' and mp.current_process().pid == os.getpid()",))
    assert finish(p) == 0


def test_a_process_starts_once():
    p = mp.Process(target=leave, args=(0,))
    p.start()
    with pytest.raises(AssertionError):
        p.start()
    p.join()


def test_what_cannot_be_pickled_is_an_error_here():
    import threading
    p = mp.Process(target=leave, args=(threading.Lock(),))
    with pytest.raises(TypeError):
        p.start()


def test_memory_of_multiprocessing_is_refused():
    """It would be copied without a word: a child that changes it changes nothing."""
    import multiprocessing
    p = mp.Process(target=print, args=(multiprocessing.RawValue("i"),))
    with pytest.raises(ValueError, match="descriptor"):
        p.start()


def serve(listener):
    with listener.accept()[0] as caller:
        caller.sendall(b"%d" % os.getpid())


def test_processes_serve_a_socket_of_their_parent():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        servers = [mp.Process(target=serve, args=(listener,)) for _ in range(2)]
        for p in servers:
            p.start()
        address = listener.getsockname()
    answers = set()
    for _ in servers:
        with socket.create_connection(address, LONG) as s:
            answers.add(int(s.makefile().read()))
    for p in servers:
        p.join(LONG)
    assert [p.exitcode for p in servers] == [0, 0]
    assert answers == {p.pid for p in servers}


SCRIPT = """
    import sys
    import fiber as mp

    def f(x):
        print("child", x, __name__)
        sys.exit(x)

    if __name__ == "__main__":
        p = mp.Process(target=f, args=(4,))
        p.start()
        p.join()
        print("parent", p.exitcode)
"""
SAID = "child 4 __mp_main__\nparent 4\n"


def test_a_script(program):
    ran = program(SCRIPT)
    assert (ran.code, ran.out, ran.err) == (0, SAID, ""), ran


def test_a_module(program, python, tmp_path):
    program("", name="package/__init__.py")
    program("import sys\n", name="package/tool.py")
    (tmp_path / "package" / "tool.py").write_text("\n".join(line[4:] for line in SCRIPT.split("\n")))
    ran = python("-m", "package.tool")
    assert (ran.code, ran.out, ran.err) == (0, SAID, ""), ran


def test_a_package_is_not_run_again(program, python, tmp_path):
    program("", name="package/__init__.py")
    (tmp_path / "package" / "__main__.py").write_text(
        "import fiber as mp\nprint('main')\np = mp.Process(target=print, args=('child',))\np.start()\np.join()\n")
    ran = python("-m", "package")
    assert (ran.code, ran.out, ran.err) == (0, "main\nchild\n", ""), ran


def test_a_command_line(python):
    ran = python("-c", "import fiber as mp; p = mp.Process(target=print, args=(1,)); p.start(); p.join()")
    assert (ran.code, ran.out, ran.err) == (0, "1\n", ""), ran


def test_functions_of_a_command_line(python):
    """No other process can import them, so they travel by value."""
    pytest.importorskip("cloudpickle")
    ran = python("-c", """if 1:
        import fiber as mp
        def f(x):
            print(g(x))
        def g(x):
            return x + 1
        p = mp.Process(target=f, args=(1,))
        p.start()
        p.join()
        p = mp.Process(target=lambda: print("lambda"))
        p.start()
        p.join()
        """)
    assert (ran.code, ran.out, ran.err) == (0, "2\nlambda\n", ""), ran


def test_flags_of_the_interpreter_are_passed_on(python):
    ran = python("-W", "error::UserWarning", "-X", "utf8", "-c", """if 1:
        import fiber as mp
        p = mp.Process(target=eval, args=("print(__import__('sys').warnoptions, __import__('sys').flags.utf8_mode)",))
        p.start()
        p.join()""")
    assert (ran.code, ran.out, ran.err) == (0, "['error::UserWarning'] 1\n", ""), ran


def test_a_main_module_without_a_guard_is_told_so(program):
    ran = program("""
        import fiber as mp
        p = mp.Process(target=print)
        p.start()
        p.join()
        print(p.exitcode)
    """)
    assert ran.out == "1\n" and "freeze_support()" in ran.err, ran


def test_an_exception_is_shown(program):
    ran = program("""
        import fiber as mp

        def f():
            raise ValueError("what went wrong")

        if __name__ == "__main__":
            p = mp.Process(target=f)
            p.start()
            p.join()
            print(p.exitcode)
    """)
    assert ran.code == 0 and ran.out == "1\n", ran
    assert "Process Process-1:" in ran.err and "ValueError: what went wrong" in ran.err and "prog.py" in ran.err, ran


def test_a_second_interpreter_of_the_process_leaves_the_first_one_alone(program):
    ran = program("""
        import fiber as mp

        CODE = "\\n".join(["try:", "    import fiber._fiber", "except ImportError as e:", "    print(e, flush=True)"])

        def other_interpreter(code):
            try:
                import _interpreters as them
                made = them.create("legacy")
                them.exec(made, code)
            except ImportError:  # before 3.13
                import _xxsubinterpreters as them
                made = them.create(isolated=False)
                them.run_string(made, code)
            them.destroy(made)

        if __name__ == "__main__":
            with mp.Pool(1) as pool:
                other_interpreter(CODE)
                print(pool.map(abs, [-1]))
    """)
    assert (ran.code, ran.err) == (0, ""), ran
    assert ran.out == ("another interpreter of this process uses fiber, which works in one interpreter only\n"
                       "[1]\n")
