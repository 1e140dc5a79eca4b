"""template_test.py - processes that are copies of a template: they are like others in all that a program sees.

A copy is known by its modules: a template loads more than a pool's worker does.

SPDX-License-Identifier: Apache-2.0
"""
import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

MANY = 8  # the first three processes of a program are not copies
LONG = 60

STATE = """
    import fiber as mp
    import os
    import random
    import sys

    COUNT = [0]

    def count(gate):
        COUNT[0] += 1
        gate.put((COUNT[0], os.getcwd(), sys.argv, os.environ.get("TEMPLATE_TEST"), __name__, sys.flags.optimize,
                  mp.parent_process().pid == os.getppid(), mp.current_process().name, os.getpgrp() == os.getpid(),
                  sys.orig_argv[-1], random.random()))

    def main():
        queue = mp.SimpleQueue()
        COUNT[0] = 10
        many = [mp.Process(target=count, args=(queue,), name="p%d" % i) for i in range({many})]
        for p in many:
            p.start()
        told = sorted((queue.get() for _ in many), key=lambda t: t[7])
        for p in many:
            p.join()
            assert p.exitcode == 0
        print(len({{t[-1] for t in told}}))
        for t in told:
            print(t[:-1])

    if __name__ == "__main__":
        main()
""".format(many=MANY)


def both(run):
    """What a program prints with a template, and without one."""
    ran = [run({"FIBER_TEMPLATE": template, "TEMPLATE_TEST": "yes"}) for template in ("true", "false")]
    for r in ran:
        assert (r.code, r.err) == (0, ""), r
    return [r.out for r in ran]


@pytest.mark.parametrize("flags", [(), ("-O", "-X", "utf8")])
def test_a_script(program, flags):
    with_it, without = both(lambda env: program(STATE, "an", "argument", flags=flags, env=env))
    assert with_it == without
    assert with_it.startswith("%d\n(1, " % MANY)


def test_a_module(python, tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "prog.py").write_text(textwrap.dedent(STATE))
    with_it, without = both(lambda env: python("-m", "pack.prog", env=env, folder=tmp_path))
    assert with_it == without and len(with_it.splitlines()) == MANY + 1


@pytest.mark.parametrize("way", ["-c", "-"])
def test_a_program_without_a_file(python, way):
    """Its processes run functions that can be imported."""
    text = textwrap.dedent("""
        import fiber as mp
        import os
        import time
        many = [mp.Process(target=os._exit, args=(i,)) for i in range(%d)]
        for p in many:
            p.start()
        for p in many:
            p.join()
        print([p.exitcode for p in many])
        with mp.Pool(%d) as pool:
            print(pool.map(abs, range(-100, 0), chunksize=1) == list(range(100, 0, -1)))
    """ % (MANY, MANY))
    arguments, stdin = (("-c", text), "") if way == "-c" else (("-",), text)
    with_it, without = both(lambda env: python(*arguments, env=env, stdin=stdin))
    assert with_it == without == "%s\nTrue\n" % list(range(MANY))


def test_each_has_the_environment_and_folder_of_its_start(program):
    ran = program("""
        import fiber as mp
        import os

        def tell(queue):
            queue.put((os.environ["COUNT"], os.getcwd()))

        if __name__ == "__main__":
            queue = mp.SimpleQueue()
            wanted = []
            for i in range(10):
                if i > 5:
                    os.environ["COUNT"] = str(i)
                else:
                    os.environ["COUNT"] = "first"
                os.makedirs(str(i))
                os.chdir(str(i))
                p = mp.Process(target=tell, args=(queue,))
                p.start()
                wanted.append((os.environ["COUNT"], os.getcwd()))
                os.chdir("..")
                p.join()
            print([queue.get() for _ in wanted] == wanted)
    """)
    assert (ran.code, ran.out, ran.err) == (0, "True\n", ""), ran


def test_each_has_the_priority_the_processors_and_the_ignored_signals_of_its_start(program):
    """The program changes them when the thread that starts its children runs already."""
    ran = program("""
        import fiber as mp
        import os
        import signal

        def state():
            return (os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)),
                    signal.getsignal(signal.SIGINT) is signal.SIG_IGN)

        def tell(queue):
            queue.put(state())

        def test():
            for _ in range(5):
                p = mp.Process(target=tell, args=(queue,))
                p.start()
                assert queue.get() == state(), state()
                p.join()
            with mp.Pool(4) as pool:
                assert pool.apply(state) == state(), state()

        if __name__ == "__main__":
            queue = mp.SimpleQueue()
            test()
            os.nice(3)
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            test()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            test()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            test()
    """)
    assert (ran.code, ran.out, ran.err) == (0, "", ""), ran


def test_each_has_the_umask_the_limits_and_the_ignored_signals_of_its_start_alone(program):
    """The program changes them for the children, and takes that back as soon as they are started."""
    ran = program("""
        import fiber as mp
        import os
        import resource
        import signal

        def state():
            umask = os.umask(0)
            os.umask(umask)
            return umask, resource.getrlimit(resource.RLIMIT_FSIZE)[0], signal.getsignal(signal.SIGUSR2)

        def state_of(_):
            return state()

        def tell(queue):
            queue.put(state())

        def start_with(limits, start):
            before = os.umask(0o77), resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
            expected = state()
            started = start()
            os.umask(before[0])
            resource.setrlimit(resource.RLIMIT_FSIZE, before[1])
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)
            return started, expected

        if __name__ == "__main__":
            queue = mp.SimpleQueue()
            limits = 1 << 40, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            for i in range(12):
                p = mp.Process(target=tell, args=(queue,))
                _, expected = start_with(limits, p.start) if i % 6 == 5 else (p.start(), state())
                told = queue.get()
                assert told == expected, (i, told, expected)
                p.join()
            for workers in 1, 4:
                pool, expected = start_with(limits, lambda: mp.Pool(workers))
                told = pool.map(state_of, range(8), chunksize=1)
                assert set(told) == {expected}, (told, expected)
                pool.terminate()
    """)
    assert (ran.code, ran.out, ran.err) == (0, "", ""), ran


COPIES = """
    import fiber as mp
    import os
    import signal
    import sys

    def is_copy():
        return "fiber._worker" in sys.modules  # which no process loads

    def tell(queue):
        queue.put(is_copy())

    def wait(queue):
        queue.put(os.getpid())
        signal.pause()

    def tell_all(n):
        queue = mp.SimpleQueue()
        many = [mp.Process(target=tell, args=(queue,)) for _ in range(n)]
        for p in many:
            p.start()
        told = [queue.get() for _ in many]
        for p in many:
            p.join()
            assert p.exitcode == 0
        return told

    def template():
        '''The only child that is not a process of ours.'''
        with open("/proc/self/task/%d/children" % os.getpid()) as f:
            pids = [int(p) for p in f.read().split()]
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % task) as f:
                pids += [int(p) for p in f.read().split()]
        for pid in pids:
            with open("/proc/%d/cmdline" % pid) as f:
                if "import template" in f.read() and os.readlink("/proc/%d/fd/1" % pid) == "/dev/null":
                    return pid
"""


def test_copies_from_the_fourth_process_on(program):
    ran = program(COPIES + """
    if __name__ == "__main__":
        print(sum(tell_all(3)), sum(tell_all(5)))
    """)
    assert (ran.code, ran.out, ran.err) == (0, "0 5\n", ""), ran


def test_the_name_of_the_current_test_of_pytest_may_change(program):
    ran = program(COPIES + """
    def tell_name(queue):
        queue.put((is_copy(), os.environ["PYTEST_CURRENT_TEST"]))

    if __name__ == "__main__":
        queue = mp.SimpleQueue()
        for i in range(6):
            os.environ["PYTEST_CURRENT_TEST"] = "test_%d (call)" % i
            p = mp.Process(target=tell_name, args=(queue,))
            p.start()
            print(*queue.get())
            p.join()
    """)
    wanted = ["%s test_%d (call)\n" % (i >= 3, i) for i in range(6)]
    assert (ran.code, ran.out, ran.err) == (0, "".join(wanted), ""), ran


def test_pools_of_four_are_copies_from_the_first_worker_on(program):
    ran = program(COPIES + """
    def begin(queue):
        with open("/proc/self/cmdline") as f:  # a copy has the template's
            queue.put("import template" in f.read())

    if __name__ == "__main__":
        queue = mp.SimpleQueue()
        for n in 3, 4:
            with mp.Pool(n, begin, (queue,)):
                print(sum(queue.get() for _ in range(n)))
            tell_all(1)  # a job that is not like the pool's
    """)
    assert (ran.code, ran.out, ran.err) == (0, "0\n4\n", ""), ran


def test_a_template_is_killed(program):  # one that is frozen: tests/backends/template_test.c
    ran = program(COPIES + """
    if __name__ == "__main__":
        queue = mp.SimpleQueue()
        tell_all(6)
        lives = mp.Process(target=wait, args=(queue,))
        lives.start()
        assert queue.get() == lives.pid
        os.kill(template(), signal.SIGKILL)
        print(len(tell_all(12)), lives.is_alive(), sum(tell_all(7)) > 0)
        lives.terminate()
        lives.join()
        print(lives.exitcode)
    """)
    assert (ran.code, ran.out, ran.err) == (0, "12 True True\n-15\n", ""), ran


def test_signals_reach_a_copy(program):
    ran = program(COPIES + """
    if __name__ == "__main__":
        queue = mp.SimpleQueue()
        tell_all(4)
        for sig in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
            p = mp.Process(target=wait, args=(queue,))
            p.start()
            pid = queue.get()
            assert pid == p.pid and os.getpgid(pid) == pid
            os.kill(pid, sig)
            p.join()
            print(p.exitcode)
    """)
    assert (ran.code, ran.out) == (0, "1\n-15\n-9\n"), ran
    assert "KeyboardInterrupt" in ran.err


PRELOADED = """
    import os
    with open({path!r}, "a") as f:
        f.write("%d\\n" % os.getpid())
"""


@pytest.mark.parametrize("threads", [False, True])
def test_modules_that_are_preloaded(program, tmp_path, threads):
    """They are imported once, by the template; with one that starts threads, there is none."""
    path = str(tmp_path / "imported")
    text = PRELOADED.format(path=path)
    if threads:
        text += "    import threading\n    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "costly.py").write_text(textwrap.dedent(text))
    ran = program("""
        import fiber as mp
        import os

        def use(queue):
            import costly
            queue.put(os.getpid())

        if __name__ == "__main__":
            mp.set_forkserver_preload(["costly", "there_is_no_such_module"])
            queue = mp.SimpleQueue()
            many = [mp.Process(target=use, args=(queue,)) for _ in range(10)]
            for p in many:
                p.start()
            print(len({queue.get() for p in many}))
            for p in many:
                p.join()
    """, env={"PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))})
    assert (ran.code, ran.out, ran.err) == (0, "10\n", ""), ran
    with open(path) as f:
        times = len(f.read().splitlines())
    assert times >= 10 if threads else times == 4  # three that are not copies, and the template


def test_no_process_outlives_a_killed_master(program, tmp_path):
    path = tmp_path / "prog.py"
    path.write_text(textwrap.dedent(COPIES + """
    if __name__ == "__main__":
        queue = mp.SimpleQueue()
        tell_all(4)
        many = [mp.Process(target=wait, args=(queue,)) for _ in range(6)]
        for p in many:
            p.start()
        print(template(), *(queue.get() for _ in many), flush=True)
        signal.pause()
    """))
    master = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)
    pids = [int(p) for p in master.stdout.readline().split()]
    assert len(pids) == 7
    fds = [os.pidfd_open(pid) for pid in pids]
    master.send_signal(signal.SIGKILL)
    master.wait()
    for fd in fds:
        assert select.select([fd], [], [], LONG)[0]
        os.close(fd)
