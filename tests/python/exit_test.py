"""exit_test.py - the end of interpreters: what is joined, what ends, what is said; fork, signals, other versions.

SPDX-License-Identifier: Apache-2.0
"""
import os
import select
import shutil
import signal
import subprocess
import sys

import pytest

import fiber as mp
from fiber import _child, _core

LONG = 60


def test_children_are_joined_and_daemons_end(program):
    ran = program("""
        import fiber as mp
        import atexit
        import signal

        def slow(gate):
            gate.recv()
            print("joined")

        if __name__ == "__main__":
            daemon = mp.Process(target=signal.pause, daemon=True)
            daemon.start()
            assert daemon.daemon
            gate, its = mp.Pipe()
            mp.Process(target=slow, args=(its,)).start()
            atexit.register(gate.send, "go on")  # the last one registered comes first
            atexit.register(print, "end of main", flush=True)
    """)
    assert (ran.code, ran.out, ran.err) == (0, "end of main\njoined\n", ""), ran


def test_a_child_ends_well(program):
    """Threads that are not daemons, atexit and finalizers run, and what is left in buffers is written."""
    ran = program("""
        import fiber as mp
        import atexit
        import sys
        import threading
        from multiprocessing import util

        def work(event):
            event.wait()
            sys.stdout.write("thread\\n")

        def main():
            event = threading.Event()
            threading.Thread(target=work, args=(event,)).start()
            util.Finalize(None, sys.stdout.write, args=("finalizer\\n",), exitpriority=2)
            atexit.register(sys.stdout.write, "atexit\\n")
            sys.stdout.write("no newline, ")
            event.set()

        if __name__ == "__main__":
            p = mp.Process(target=main)
            p.start()
            p.join()
            print(p.exitcode)
    """)
    assert ran.code == 0 and ran.err == "", ran
    first, rest = ran.out[:12], ran.out[12:].splitlines()  # versions of CPython have orders of their own
    assert first == "no newline, " and sorted(rest[:3]) == ["atexit", "finalizer", "thread"] and rest[3:] == ["0"], ran


def test_lines_come_while_a_child_runs(tmp_path):
    (tmp_path / "prog.py").write_text("""if 1:
        import fiber as mp, signal
        def main():
            print("begun")
            signal.pause()
        if __name__ == "__main__":
            p = mp.Process(target=main)
            p.start()
            p.join()
    """)
    with subprocess.Popen([sys.executable, "prog.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "begun\n"
        p.kill()


def test_ctrl_c_ends_a_join(tmp_path):
    (tmp_path / "prog.py").write_text("""if 1:
        import fiber as mp, signal
        def main(gate):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            gate.recv()
            print("begun")
            signal.pause()
        if __name__ == "__main__":
            gate, its = mp.Pipe()
            p = mp.Process(target=main, args=(its,), daemon=True)
            p.start()
            try:
                gate.send("it may come")
                p.join()
            except KeyboardInterrupt:
                print("interrupted", p.is_alive())
    """)
    with subprocess.Popen([sys.executable, "prog.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "begun\n"
        p.send_signal(signal.SIGINT)
        assert p.stdout.readline() == "interrupted True\n"
        assert p.wait(LONG) == 0


@pytest.fixture
def terminal(tmp_path):
    """Starts a program on a terminal of its own: the process, and the descriptor with which one types."""
    ours, theirs = os.openpty()
    started = []

    def start(text):
        (tmp_path / "prog.py").write_text(text)
        started.append(subprocess.Popen(["setsid", "--ctty", sys.executable, "prog.py"], cwd=tmp_path, stdin=theirs,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[0], ours

    yield start
    for p in started:
        with p:
            p.kill()
    os.close(ours)
    os.close(theirs)


LOOPS = """if 1:
    import fiber as mp, signal, sys
    def main(up):
        try:
            up.put(1)
            signal.pause()
        finally:
            print("cleans up")
    if __name__ == "__main__":
        up = mp.Queue()
        children = [mp.Process(target=main, args=(up,)) for _ in range(2)]
        for child in children:
            child.start()
        up.get(), up.get()
        try:
            print("begun", flush=True)
            children[0].join()
        except KeyboardInterrupt:
            END
"""


@pytest.mark.parametrize("end, code", [
    ("sys.exit(9)", 9), ("[c.join() for c in children]; print([c.exitcode for c in children])", 0),
    ("raise", -signal.SIGINT)])
def test_ctrl_c_of_a_terminal_reaches_children(terminal, end, code):
    p, keys = terminal(LOOPS.replace("END", end))
    assert p.stdout.readline() == "begun\n"
    os.write(keys, b"\x03")
    out, _ = p.communicate(timeout=LONG)
    assert p.returncode == code, out
    assert out.count("cleans up\n") == 2 and out.count("Process Process-") == 2, out
    assert "print" not in end or out.endswith("[1, 1]\n"), out


@pytest.mark.parametrize("look", ["children[0].join(0.2)", "children[0].is_alive()", "ends[0].poll(0.2)"])
def test_ctrl_c_reaches_children_by_a_handler_that_was_set_after_their_start(terminal, look):
    p, keys = terminal("""if 1:
        import fiber as mp, signal, sys
        def main(up):
            up.put(1)
            signal.pause()
        def note(number, frame):
            print("noted")
        if __name__ == "__main__":
            up, ends = mp.Queue(), mp.Pipe()
            children = [mp.Process(target=main, args=(up,)) for _ in range(2)]
            for child in children:
                child.start()
            up.get(), up.get()
            signal.signal(signal.SIGINT, note)
            LOOK
            print("begun", flush=True)
            for child in children:
                child.join()
            print([child.exitcode for child in children])
    """.replace("LOOK", look))
    assert p.stdout.readline() == "begun\n"
    os.write(keys, b"\x03")
    out, _ = p.communicate(timeout=LONG)
    assert "noted\n" in out and out.endswith("[1, 1]\n") and p.returncode == 0, out


def test_ctrl_c_does_not_wait_for_a_daemon_that_ignores_it(terminal):
    p, keys = terminal("""if 1:
        import fiber as mp, fiber._core, signal
        def main(up):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            up.put(1)
            while True:
                signal.pause()
        if __name__ == "__main__":
            fiber._core.INTERRUPT_S = 3600
            up = mp.Queue()
            mp.Process(target=main, args=(up,), daemon=True).start()
            up.get()
            print("begun", flush=True)
            signal.pause()
    """)
    assert p.stdout.readline() == "begun\n"
    os.write(keys, b"\x03")
    out, _ = p.communicate(timeout=LONG)
    assert p.returncode == -signal.SIGINT, out


def test_an_interrupt_of_the_parent_alone_does_not_reach_children(terminal):
    p, _ = terminal(LOOPS.replace("END", "print([c.is_alive() for c in children]); [c.kill() for c in children]"))
    assert p.stdout.readline() == "begun\n"
    p.send_signal(signal.SIGINT)
    assert p.communicate(timeout=LONG)[0] == "[True, True]\n"


def test_children_end_with_a_killed_parent(tmp_path):
    (tmp_path / "prog.py").write_text("""if 1:
        import fiber as mp, signal, os
        def main():
            print(os.getpid())
            signal.pause()
        if __name__ == "__main__":
            p = mp.Process(target=main)
            p.start()
            p.join()
    """)
    with subprocess.Popen([sys.executable, "prog.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as p:
        pid = int(p.stdout.readline())
        fd = os.pidfd_open(pid)
        p.kill()
    assert select.select([fd], [], [], LONG)[0], "the child outlived its parent"
    os.close(fd)


def test_the_end_of_a_thread_that_waits(program):
    ran = program("""
        import fiber as mp
        import signal
        import threading

        if __name__ == "__main__":
            p = mp.Process(target=signal.pause, daemon=True)
            p.start()
            threading.Thread(target=p.join, daemon=True).start()
            print("end")
    """)
    assert (ran.code, ran.out, ran.err) == (0, "end\n", ""), ran


@pytest.mark.parametrize("made, waits", [
    ("mp.Queue()", "it.get()"), ("mp.SimpleQueue()", "it.get()"), ("mp.Pipe()", "it[0].recv()"),
    ("mp.Event()", "it.wait()"), ("mp.Barrier(2)", "it.wait()"), ("mp.JoinableQueue()", "(it.put(1), it.join())"),
    ("mp.Pool(2)", "it.map(pause, range(4))"), ("mp.Pool(2)", "list(it.imap(pause, range(4)))"),
])
def test_a_daemon_thread_waits_until_the_end_without_a_word(program, made, waits):
    """As in multiprocessing. A traceback that it printed while the interpreter ends could abort the process."""
    ran = program("""
        import fiber as mp
        import signal
        import threading

        def pause(_):
            signal.pause()

        def wait(it, begun):
            begun.set()
            %s

        if __name__ == "__main__":
            it, begun = %s, threading.Event()
            threading.Thread(target=wait, args=(it, begun), daemon=True).start()
            begun.wait()
            begun.clear()
            begun.wait(0.2)  # it has begun to wait, most times
    """ % (waits, made))
    assert (ran.code, ran.out, ran.err) == (0, "", ""), ran


def test_a_daemon_thread_uses_a_lock_while_the_program_ends(program):
    """As in multiprocessing. Its references to objects of managers have ended by then."""
    ran = program("""
        import fiber as mp
        import threading
        from multiprocessing import util

        def late(it, go, done):
            go.wait()
            try:
                with it:
                    print("taken")
            finally:
                done.set()

        if __name__ == "__main__":
            it, go, done = mp.Lock(), threading.Event(), threading.Event()
            util.Finalize(None, lambda: (go.set(), done.wait()), exitpriority=0)
            threading.Thread(target=late, args=(it, go, done), daemon=True).start()
    """)
    assert (ran.code, ran.out, ran.err) == (0, "taken\n", ""), ran


@pytest.mark.parametrize("before", ["", "import multiprocessing.util"])
def test_the_end_of_a_program_uses_its_queues(program, before):
    """Loggers stop so: by a message to a thread that takes them from a queue."""
    ran = program("""
        %s
        import fiber as mp
        import atexit
        import threading

        made = []

        @atexit.register
        def end():
            for queue, thread in made:
                queue.put("end")
                thread.join()

        def take(queue):
            for message in iter(queue.get, "end"):
                print(message)
            print("taken")

        def child(queue):
            queue.put("child")

        if __name__ == "__main__":
            queue = mp.SimpleQueue()
            thread = threading.Thread(target=take, args=(queue,), daemon=True)
            thread.start()
            made.append((queue, thread))
            p = mp.Process(target=child, args=(queue,))
            p.start()
            p.join()
    """ % before)
    assert (ran.code, ran.out, ran.err) == (0, "child\ntaken\n", ""), ran


@pytest.mark.parametrize("last", ["", "raise SystemExit(3)", "e.shutdown(wait=False)", "del e",
                                  "os.fork() and os.wait()"])
def test_submitted_calls_run_before_the_end(program, tmp_path, last):
    ran = program("""
        import os
        from fiber.futures import Executor

        def note(i):
            open("had.%%d" %% i, "x").close()

        if __name__ == "__main__":
            e = Executor(2)
            for i in range(200):
                e.submit(note, i)
            %s
    """ % last, flags=("-W", "ignore"))
    assert (ran.code, ran.out, ran.err) == (3 if "3" in last else 0, "", ""), ran
    assert len(list(tmp_path.glob("had.*"))) == 200


def test_a_child_that_leaves_an_executor_open_ends_at_once(program):
    ran = program("""
        import fiber as mp
        import time
        from fiber.futures import Executor

        def main():
            e = Executor(1)
            for i in range(200):
                e.submit(time.sleep, 600)

        if __name__ == "__main__":
            p = mp.Process(target=main)
            p.start()
            p.join()
            print(p.exitcode)
    """, flags=("-W", "ignore"))
    assert (ran.code, ran.out, ran.err) == (0, "0\n", ""), ran


@pytest.mark.parametrize("caught", [False, True])
def test_control_c_that_ends_a_program_ends_its_children(program, caught):
    ran = program("""
        import fiber as mp
        import os
        import signal
        import sys

        def child(up, gate):
            up.send("up")
            gate.recv()
            print("joined")

        if __name__ == "__main__":
            gate, its = mp.Pipe()
            up, there = mp.Pipe()
            mp.Process(target=child, args=(there, its)).start()
            up.recv()
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if "caught" not in sys.argv:
                    raise
                gate.send("go on")
    """, *(["caught"] if caught else []))
    assert (ran.code, ran.out) == ((0, "joined\n") if caught else (-signal.SIGINT, "")), ran


def test_control_c_ends_children_of_a_program_whose_setting_is_wrong(program):
    ran = program("""
        import fiber as mp
        import time

        if __name__ == "__main__":
            try:
                mp.Queue()
            except mp.ProcessError as error:
                print(error)
            mp.Process(target=time.sleep, args=(600,)).start()
            raise KeyboardInterrupt
    """, env={"FIBER_DEFAULT_BACKEND": "bogus"})
    assert ran.code == -signal.SIGINT and ran.out.startswith("Invalid backend: bogus"), ran


def test_fork_is_refused_with_a_sentence(program):
    ran = program("""
        import fiber as mp
        import fiber.futures
        import os
        import sys

        def try_it(what, *args):
            try:
                what(*args)
                return "nothing raised"
            except OSError as error:
                return "OSError" if "fork" in str(error) else str(error)

        if __name__ == "__main__":
            p = mp.Process(target=print, args=("child",))
            p.start()
            p.join()
            executor = fiber.futures.Executor(1)
            pid = os.fork()
            if pid == 0:
                q = mp.Process(target=print)
                print(try_it(q.start), try_it(lambda: p._popen._handle.exitcode()), try_it(mp.init),
                      try_it(executor.submit, print), flush=True)
                del p, q
                sys.exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """)
    assert (ran.code, ran.out) == (0, "child\nOSError OSError OSError OSError\n3\n"), ran


def test_a_child_of_fork_ends_without_the_children_of_its_parent(program):
    ran = program("""
        import fiber as mp
        import os
        import sys
        import time

        if __name__ == "__main__":
            manager, pool = mp.Manager(), mp.Pool(1)
            d = manager.dict([pool.apply(divmod, (7, 5))])
            daemon = mp.Process(target=time.sleep, args=(60,), daemon=True)
            daemon.start()
            pid = os.fork()
            if pid == 0:
                print(mp.active_children(), flush=True)
                sys.exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), d, daemon.is_alive(), len(mp.active_children()))
    """)
    assert (ran.code, ran.out) == (0, "[]\n3 {1: 2} True 3\n"), ran
    assert "Exception ignored" not in ran.err, ran  # newer interpreters warn of a fork beside threads


@pytest.mark.parametrize("workers", [1, 4])
def test_a_child_that_a_task_has_forked_ends_as_an_interpreter_does(program, workers):
    ran = program("""
        import fiber as mp
        import os
        import sys

        def returns():
            return "to nobody"

        def raises():
            raise ValueError("in the fork")

        def task(child, *args):
            pid = os.fork()
            if pid == 0:
                return child(*args)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        if __name__ == "__main__":
            with mp.Pool(%d) as pool:
                print([pool.apply(task, args) for args in ((sys.exit, 4), (sys.exit,), (raises,), (returns,))])
    """ % workers)
    assert (ran.code, ran.out) == (0, "[4, 0, 1, 0]\n"), ran
    assert ran.err.splitlines()[-1] == "ValueError: in the fork", ran


def test_a_pool_whose_results_another_thread_takes_is_refused_after_fork(program):
    ran = program("""
        import fiber as mp
        import os
        import signal
        import time

        if __name__ == "__main__":
            pool = mp.Pool(1)
            pool.map_async(time.sleep, [60], callback=print)  # for callbacks a thread takes results
            while not pool._taken:
                os.sched_yield()
            waits = pool.map_async(time.sleep, [60])
            for call in lambda: pool.map(time.sleep, [60]), lambda: waits.get(), lambda: pool.imap(abs, [1]):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(20)
                    try:
                        call()
                    except PermissionError as error:
                        os._exit("fork" in str(error))
                    os._exit(2)
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            pool.terminate()
    """)
    assert (ran.code, ran.out) == (0, "1\n1\n1\n"), ran


def test_a_pool_that_another_thread_ends_is_refused_after_fork(program):
    ran = program("""
        import fiber as mp
        import os
        import signal

        if __name__ == "__main__":
            pool = mp.Pool(1)
            pool.close()
            pool._ending.acquire()  # as the thread has that ends the workers
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                try:
                    pool.join()
                except PermissionError as error:
                    os._exit("fork" in str(error))
                os._exit(2)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            pool._ending.release()
            pool.join()
    """)
    assert (ran.code, ran.out) == (0, "1\n"), ran


def test_other_versions_are_refused(capfd):
    assert _child.run(b"3.1 0.0.1\nprocess\npayload") == 1
    said = capfd.readouterr().err
    assert "3.1 0.0.1" in said and _core.versions() in said and "must be the same" in said


def other_pythons():
    import glob
    own = "python3.%d" % sys.version_info[1]
    return [p for n in range(11, 15) for p in glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3.%d" % n))
            if not p.endswith(own)]


@pytest.mark.skipif(not other_pythons(), reason="no other version of Python is here")
def test_an_interpreter_of_another_version_is_refused(program):
    ran = program("""
        import fiber as mp
        if __name__ == "__main__":
            p = mp.Process(target=print)
            p.start()
            p.join()
            print(p.exitcode)
    """, env={"FIBER_PYTHON": other_pythons()[0]})
    assert ran.out == "1\n" and "must be the same" in ran.err, ran


def test_an_interpreter_that_is_not_there(program):
    ran = program("""
        import fiber as mp
        if __name__ == "__main__":
            p = mp.Process(target=print)
            p.start()
            p.join()
            print(p.exitcode, p.pid)
    """, env={"FIBER_PYTHON": "/nowhere/python3"})
    assert ran.out == "125 None\n" and "/nowhere/python3" in ran.err and "set FIBER_PYTHON" in ran.err, ran


def test_a_pool_without_an_interpreter_says_so_soon(program):
    ran = program("""
        import fiber as mp
        if __name__ == "__main__":
            with mp.Pool(3) as pool:
                try:
                    pool.map(abs, range(3))
                except mp.ProcessError as error:
                    print(error)
    """, env={"FIBER_PYTHON": "/nowhere/python3"})
    assert ran.code == 0 and ran.out.startswith("4 workers in a row could not be started"), ran
    assert "/nowhere/python3" in ran.out and "set FIBER_PYTHON" in ran.out, ran


@pytest.mark.parametrize("call", ["pool.map(abs, [1])", "list(pool.imap(abs, [1]))", "[pool.apply(abs, (1,))]",
                                  "list(pool.imap_unordered(abs, (i for i in [1])))"])
def test_a_pool_whose_workers_did_not_start_tries_again(program, tmp_path, call):
    ran = program("""
        import fiber as mp
        import os
        import sys
        if __name__ == "__main__":
            with mp.Pool(1) as pool:
                for i in range(5):
                    if i == 4:
                        os.symlink(sys.executable, os.environ["FIBER_PYTHON"])
                    try:
                        print(%s)
                    except mp.ProcessError as error:
                        print(str(error)[:1])
    """ % call, env={"FIBER_PYTHON": str(tmp_path / "late_python")})
    assert (ran.code, ran.out) == (0, "4\n4\n4\n4\n[1]\n"), ran
    assert ran.err.count("a worker did not start: ") == 1, ran
    assert "8 workers in a row did not start" in ran.err, ran


def test_a_virtual_environment(tmp_path):
    import venv
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=True, with_pip=False)
    (tmp_path / "prog.py").write_text("""if 1:
        import fiber as mp, sys
        def main():
            print(sys.prefix)
        if __name__ == "__main__":
            p = mp.Process(target=main)
            p.start()
            p.join()
    """)
    done = subprocess.run([folder / "bin" / "python", "prog.py"], cwd=tmp_path, capture_output=True, text=True, timeout=LONG)
    assert done.stdout == "%s\n" % folder, done


def test_an_interpreter_whose_path_is_not_utf8(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xe4")
    folder.mkdir()
    os.symlink(sys.executable, folder / "python3")
    (folder / "prog.py").write_text("""if 1:
        import fiber as mp
        if __name__ == "__main__":
            with mp.Pool(4) as pool:
                print(pool.map(abs, [-1, -2]))
            mp.config.log_dir = __file__ + ".d"
            print(mp.config.log_dir == __file__ + ".d")
    """)
    done = subprocess.run([folder / "python3", folder / "prog.py"], cwd=tmp_path, capture_output=True, timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"[1, 2]\nTrue\n", b""), done


def test_a_folder_that_the_job_lacks(program):
    ran = program("""
        import fiber as mp, os
        if __name__ == "__main__":
            p = mp.Process(target=print, args=("ran",))
            os.getcwd = lambda: "/a/folder/of/this/host"
            p.start()
            p.join()
            print(p.exitcode)
    """)
    assert ran.out == "ran\n0\n", ran


def test_the_pid_is_known(tmp_path):
    p = mp.Process(target=signal.pause)
    assert p.pid is None and p.ident is None
    p.start()
    assert p.pid == p.ident and os.readlink("/proc/%d/exe" % p.pid) == os.path.realpath(sys.executable)
    assert "pid=%d" % p.pid in repr(p) and "started" in repr(p)
    p.kill()
    p.join()
    assert "exitcode=-SIGKILL" in repr(p)


def test_the_pid_is_known_where_the_backend_does_not_know_it(program):
    ran = program("""
        import fiber as mp, os

        def child():
            print(os.getpid())

        if __name__ == "__main__":
            p = mp.Process(target=child)
            p.start()
            pid = p.pid
            p.join()
            print(pid, p.pid)
    """, env={"FIBER_BACKEND": "command", "FIBER_COMMAND_START": "{command}", "FIBER_COMMAND_HOSTS": "here",
              "FIBER_BIND": "lo"})
    pid = ran.out.split()[0]
    assert ran.out == "%s\n%s %s\n" % (pid, pid, pid), ran


def leave(code):
    sys.exit(code)


def test_the_command_of_a_wheel_ends_without_a_word_when_its_reader_has_gone(tmp_path):
    """Python starts it, which ignores SIGPIPE."""
    shutil.copytree(os.path.dirname(mp.__file__), tmp_path / "fiber", ignore=shutil.ignore_patterns("__pycache__"))
    programs = tmp_path / "fiber" / "_lib" / "bin"
    programs.mkdir(parents=True)
    os.symlink(os.path.join(os.environ["TEST_BINARY_DIR"], "cli", "fiber"), programs / "fiber")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "fiber", "version"], env={**os.environ, "PYTHONPATH": str(tmp_path)},
                          stdout=writer, stderr=subprocess.PIPE, text=True, timeout=LONG)
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, ""), done


def test_many_at_once():
    ps = [mp.Process(target=leave, args=(i,)) for i in range(12)]
    for p in ps:
        p.start()
    for p in ps:
        p.join(LONG)
    assert [p.exitcode for p in ps] == list(range(12))


def test_a_worker_imports_little(python):
    """Every module that `import fiber` loads is paid by each worker."""
    ran = python("-c", """if 1:
        import sys
        before = set(sys.modules)
        import fiber, fiber._child, fiber._core
        print(sorted(m for m in set(sys.modules) - before))""")
    assert ran.code == 0, ran
    loaded = set(eval(ran.out))
    assert not loaded & {"multiprocessing", "pickle", "runpy", "re", "subprocess", "threading", "importlib.util"}, loaded


def test_a_child_imports_little_until_it_has_joined(python):
    ran = python("-c", """if 1:
        import sys
        before = set(sys.modules)
        from fiber import _child
        try:
            _child.main()
        except SystemExit as end:
            assert "was not started" in str(end)
        print(sorted(m for m in set(sys.modules) - before))""")
    assert ran.code == 0, ran
    loaded = set(eval(ran.out))
    assert not loaded & {"multiprocessing", "pickle", "runpy", "re", "subprocess", "threading"}, loaded


def test_another_interpreter_may_be_set(program):
    ran = program("""
        import fiber as mp
        import os
        import sys

        if __name__ == "__main__":
            mp.init()
            os.symlink(sys.executable, "another-python")
            mp.set_executable(os.path.abspath("another-python"))
            p = mp.Process(target=eval, args=("print(__import__('sys').orig_argv[0])",))
            p.start()
            p.join()
            try:
                mp.set_executable(sys.executable)
            except OSError as error:
                print("already" in str(error))
    """)
    assert ran.code == 0 and ran.out.splitlines()[0].endswith("/another-python") and ran.out.endswith("True\n"), ran


def test_nothing_is_drawn_from_the_global_random():
    import random
    random.seed(3)
    state = random.getstate()
    test_many_at_once()
    assert random.getstate() == state
