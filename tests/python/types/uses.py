"""uses.py - a program that uses the whole package, for `mypy --strict`; it is not run.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import asyncio
import queue
from array import array
from typing import Any

import fiber as mp
import fiber.config as config
import fiber.futures
from fiber import managers, pool, queues, ring, shared_memory, sharedctypes, synchronize
from fiber.connection import Client, Connection, Listener, wait
from fiber.context import FiberContext


def square(x: int) -> int:
    return x * x


def add(x: int, y: int = 0) -> int:
    return x + y


def train(rank: int, size: int) -> None:
    mp.ring.barrier(1.0)


def begin(this: ring.Ring, word: str) -> None:
    n: int = this.allreduce(3, "max")
    b: bytes = this.broadcast(None, root=0)
    a: array[float] = this.allreduce(array("d", [1.0]))
    this.barrier(timeout=2)
    print(n, b, a, word, this.rank, this.size)


class Mine(mp.Process):
    def run(self) -> None:
        print(self.name)


class Env:
    def step(self, a: int) -> int:
        return a


class Envs(managers.AsyncManager):
    pass


Envs.register("Env", Env)


async def later(p: pool.Pool) -> None:
    n: int = await p.apply_async(square, (3,))
    async for x in p.imap(square, [1, 2]):
        n += x


def use() -> None:
    p = mp.Process(target=square, args=(1,), kwargs={}, name="x", daemon=True)
    p.start()
    p.join(1)
    code: int | None = p.exitcode
    pid: int | None = p.pid
    s: int = p.sentinel
    p.terminate()
    p.kill()
    p.close()
    with mp.Pool(2, initializer=print, initargs=("x",), error_handling=True, workers_per_job=2, min=1, max=3) as workers:
        r: list[int] = workers.map(square, range(3))
        a: pool.AsyncResult[int] = workers.apply_async(add, (1,), {"y": 2}, callback=print, error_callback=print)
        i: int = a.get(timeout=3)
        for x in workers.imap_unordered(square, [1, 2], chunksize=2):
            i += x
        sums: list[int] = workers.starmap(add, [(1, 2)])
        m: pool.MapResult[int] = workers.map_async(square, [1])
        ls: list[int] = m.get()
        ok: bool = workers.wait_until_workers_up(3.0)
        workers.resize(3, max=5)
        done, total = workers.progress()
        stats: dict[str, int] = workers.stats()
    one, two = mp.Pipe(duplex=False)
    two.send([1])
    two.send_bytes(b"x", 0, 1)
    obj: Any = one.recv()
    if one.poll(0.1):
        data: bytes = one.recv_bytes(10)
    ready = wait([one, two, s], timeout=1.0)
    with Listener(authkey=b"k") as listener:
        with Client(listener.address, authkey=b"k") as c:
            c.send(1)
        accepted: Connection = listener.accept()
    q: queues.Queue[int] = mp.Queue(3)
    try:
        q.put(1, timeout=1.0)
        n: int = q.get_nowait()
    except (queue.Empty, queue.Full):
        pass
    j = mp.JoinableQueue()
    j.task_done()
    j.join()
    sq: queues.SimpleQueue[str] = mp.SimpleQueue()
    sq.put("x")
    t: str = sq.get()
    lock: synchronize.Lock = mp.Lock()
    with lock, mp.RLock(), mp.Semaphore(2), mp.BoundedSemaphore(1):
        pass
    cond = mp.Condition(lock)
    with cond:
        cond.wait(0.1)
        cond.wait_for(lambda: True)
        cond.notify(2)
        cond.notify_all()
    e = mp.Event()
    e.set()
    b: bool = e.wait(1)
    bar = mp.Barrier(2, action=lambda: None, timeout=3)
    k: int = bar.wait()
    bar.abort()
    with mp.Manager() as manager:
        d = manager.dict()
        d["x"] = 1
        lst = manager.list([1])
        lst.append(2)
        ns = manager.Namespace()
        ns.x = 1
        v = manager.Value("i", 1)
        v.value = 3
        mq = manager.Queue()
        mq.put(1)
    envs = Envs()
    envs.start()
    envs.shutdown()
    with managers.SharedMemoryManager() as smm:
        block: shared_memory.SharedMemory = smm.SharedMemory(10)
        sl = smm.ShareableList([1, 2])
    value = mp.Value("i", 3)
    value.value += 1
    arr = mp.Array("d", [1.0])
    arr[0] = 2
    raw = mp.RawArray("i", 3)
    shm = shared_memory.SharedMemory(create=True, size=3)
    shm.buf[0] = 1
    shm.close()
    shm.unlink()
    print(mp.cpu_count(), mp.active_children(), mp.current_process().name, mp.parent_process())
    ctx: FiberContext = mp.get_context("spawn")
    ctx.Process(target=square).start()
    mp.set_start_method("spawn", force=True)
    method: str = mp.get_start_method()
    config.backend = "docker"
    changed: list[str] = mp.init(backend="local")
    mp.reset()
    with fiber.futures.Executor(2) as ex:
        f = ex.submit(square, 3)
        n2: int = f.result()
    ref = mp.put([1])
    lst2 = ref.get()
    table = mp.shared("x", lambda: b"x")
    rg = mp.Ring(2, train, begin, ("w",), on_failure="restart", timeout=3)
    rg.run()
    with mp.Ring(2, train) as rg2:
        rg2.join(3)
    try:
        pass
    except (mp.WorkerLost, mp.RingError, mp.ProcessError, mp.TimeoutError):
        pass

    @mp.meta(cpu=1, memory=10)
    def needs(x: int) -> int:
        return x

    z: int = needs(3)
    asyncio.run(later(workers))
    log = mp.log_to_stderr("INFO")
    log.info("x")
    print(code, pid, r, sums, ls, ok, done, total, stats, obj, ready, accepted, t, b, k, block, sl, raw, method)
    print(changed, n2, lst2, table, z)


if __name__ == "__main__":
    use()
