"""managers.py - managers and their proxies. Needs: managers

SPDX-License-Identifier: Apache-2.0
"""
import multiprocessing as mp

mp = mp.get_context("spawn")


def work(d, lst, ns, lock, i):
    with lock:
        d[i] = i * i
        lst.append(i)
        ns.total += i


def raises(fn, *args):
    try:
        print(fn(*args))
    except Exception as error:
        print(type(error).__name__, error)


if __name__ == "__main__":
    with mp.Manager() as m:
        d, lst, ns, lock = m.dict(), m.list(), m.Namespace(total=0), m.Lock()
        ps = [mp.Process(target=work, args=(d, lst, ns, lock, i)) for i in range(4)]
        for p in ps:
            p.start()
        for p in ps:
            p.join()
        print(sorted(d.items()), sorted(lst), ns.total, len(d), 2 in d)
        raises(d.__getitem__, "nothing")
        raises(lst.pop, 99)
        nested = m.list([m.dict(a=1), m.list([2])])
        nested[0]["b"] = 3
        print(nested[0].copy(), list(nested[1]), str(lst) == str(list(lst)))
        v, a, q, e = m.Value("i", 3), m.Array("i", [1, 2]), m.Queue(), m.Event()
        v.value += 1
        a[0] = 9
        q.put("x")
        e.set()
        print(v.value, list(a), q.get(), e.is_set(), e.wait(1))
