"""former_test.py - programs of the kind that the documentation of Fiber 0.2.1 shows run unchanged.

SPDX-License-Identifier: Apache-2.0
"""
import pytest

PROGRAMS = {
    "hello": ("""
        import fiber

        if __name__ == '__main__':
            fiber.Process(target=print, args=('Hello!',)).start()
        """, "Hello!\n"),
    "queue": ("""
        from fiber import Process, SimpleQueue
        import fiber.queues

        def put_sum(q, a, b):
            q.put(a + b)

        def echo(end):
            end.send(end.recv())

        if __name__ == '__main__':
            q = SimpleQueue()
            p = Process(target=put_sum, args=(q, 40, 2))
            p.start()
            print(q.get(), q.reader.poll())
            p.join()
            fiber.config.use_push_queue = True
            q = fiber.SimpleQueue()
            q.put(1)
            print(q.get())
            a, b = fiber.queues.Pipe()
            p = Process(target=echo, args=(b,))
            p.start()
            a.send("there and back")
            print(a.recv(), isinstance(a, fiber.queues.ZConnection))
            p.join()
        """, "42 False\n1\nthere and back True\n"),
    "pool": ("""
        import functools
        import fiber
        from fiber.pool import ResilientZPool, ZPool

        def scale(factor, x):
            return factor * x

        @fiber.meta(cpu=1, memory=100)
        def is_even(x):
            return x % 2 == 0

        def main():
            pool = fiber.Pool(processes=2)
            print(sum(pool.map(is_even, range(1000))))
            for kind in (ZPool, ResilientZPool, functools.partial(fiber.Pool, error_handling=True)):
                with kind(2) as pool:
                    pool.start_workers()
                    pool.wait_until_workers_up()
                    print(pool.map(functools.partial(scale, 2), [1, 2, 3]))

        if __name__ == '__main__':
            main()
        """, "500\n" + 3 * "[2, 4, 6]\n"),
    "managers": ("""
        import fiber
        from fiber.managers import AsyncManager, AsyncProxyResult, BaseManager, SyncManager

        class Counter:
            def __init__(self, n=0):
                self.n = n

            def add(self, x):
                self.n += x
                return self.n

        class Mine(BaseManager):
            pass

        class Later(AsyncManager):
            pass

        Later.register("Counter", Counter)

        def change(ns, items):
            ns.x += 1
            items[0] += 1
            items[1][0] += 1
            items[2][0] += 1

        def main():
            manager = fiber.Manager()
            ns = manager.Namespace()
            ns.x = 1
            items = manager.list([1, [1], manager.list([1])])
            p = fiber.Process(target=change, args=(ns, items))
            p.start()
            p.join()
            print(ns.x, items[0], items[1], items[2][:])
            Mine.register("Counter", Counter)
            with Mine() as mine:
                print(mine.Counter(3).add(4))
            manager = SyncManager()
            manager.start()
            d = manager.dict()
            d["name"] = "managed"
            print(d)
            managers = [Later() for _ in range(2)]
            for later in managers:
                later.start()
            handles = [later.Counter(i).add(10) for i, later in enumerate(managers)]
            print([h.get() for h in handles], isinstance(handles[0], AsyncProxyResult))

        if __name__ == '__main__':
            main()
        """, "2 2 [1] [2]\n7\n{'name': 'managed'}\n[10, 11] True\n"),
    "ring": ("""
        import os
        import fiber
        from fiber.backend import get_backend
        from fiber.experimental import Ring
        from fiber.experimental.ring import RingNode

        def begin(ring):
            first = ring.members[0]
            _, _, interface = get_backend().get_listen_addr()
            assert first.connected and isinstance(first, RingNode)
            os.environ["GLOO_SOCKET_IFNAME"] = interface
            os.environ["MASTER_PORT"] = str(first.port)
            print(ring.size, first.ip)

        @fiber.meta(gpu=1)
        def work(rank, size):
            assert rank < size

        if __name__ == '__main__':
            Ring(2, work, begin).run()
        """, "2 127.0.0.1\n2 127.0.0.1\n"),
    "settings": ("""
        import fiber
        import fiber.config as fiber_config

        def main():
            fiber_config.log_level = "debug"
            fiber_config.log_level = "critical"
            fiber_config.log_file = "stdout"
            fiber_config.backend = "local"
            print(fiber_config.get_object().backend, fiber_config.get_dict()["log_file"])
            fiber.init(backend="local", cpu_per_job=2)
            print(fiber.config.cpu_per_job)
            fiber.reset()
            print(fiber.config.cpu_per_job, fiber.active_children(), fiber.current_process().name)
            print(fiber.get_context("spawn").cpu_count() == fiber.cpu_count())

        if __name__ == '__main__':
            main()
        """, "local stdout\n2\n1 [] MainProcess\nTrue\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_fiber_0_2(program, name):
    text, out = PROGRAMS[name]
    ran = program(text)
    assert (ran.code, ran.out) == (0, out), ran


def test_a_process_is_started_once_and_has_a_pid(program):
    ran = program("""
        import fiber
        import time

        if __name__ == "__main__":
            p = fiber.Process(target=time.sleep, args=(100,), name="demo")
            print(p.pid, p.is_alive(), p.exitcode, p.name)
            p.start()
            print(p.pid > 0, fiber.active_children() == [p], p.join(0))
            p.terminate()
            p.join()
            print(p.exitcode, p.is_alive())
        """)
    assert (ran.code, ran.out) == (0, "None False None demo\nTrue True None\n-15 False\n"), ran
