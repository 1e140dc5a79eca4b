"""objects_test.py - put(): objects that travel to each process once.

SPDX-License-Identifier: Apache-2.0
"""
import functools
import gc
import os
import pickle
import weakref

import pytest

import fiber as mp
from fiber import objects


class Heavy:
    """Tells where it was unpickled, and that it was."""

    loads = 0

    def __init__(self, n):
        self.n = n

    def __reduce__(self):
        return load_heavy, (self.n,)


def load_heavy(n):
    Heavy.loads += 1
    return Heavy(n)


def look(ref):
    return os.getpid(), id(ref.get()), ref.get().n, Heavy.loads


def get(ref):
    return ref.get()


def test_an_object_is_unpickled_once_in_a_worker():
    ref = mp.put(Heavy(7))
    with mp.Pool(2) as pool:
        seen = pool.map(look, [ref] * 50, chunksize=1)
    assert {n for _, _, n, _ in seen} == {7} and {loads for *_, loads in seen} == {1}
    assert len({(pid, at) for pid, at, *_ in seen}) == len({pid for pid, *_ in seen})
    assert ref.get() is ref.get()


def test_many_objects_and_long_ones():
    refs = [mp.put([i] * 10) for i in range(100)]
    long = mp.put(bytes(5 << 20))
    with mp.Pool(2) as pool:
        assert pool.map(get, refs) == [[i] * 10 for i in range(100)]
        assert pool.apply(len, (pool.apply(get, (long,)),)) == 5 << 20


def count_kept(ref):
    ref.get()
    return len(objects._kept)


def test_objects_that_are_gone_are_not_kept():
    with mp.Pool(1) as pool:
        kept = []
        for _ in range(20):
            ref = mp.put(bytes(10 << 20))
            kept.append(pool.apply(count_kept, (ref,)))
    assert max(kept) <= 7, kept


def test_objects_that_live_are_kept_however_long_they_are():
    refs = [mp.put((Heavy(i), bytes(10 << 20))) for i in range(10)]
    with mp.Pool(1) as pool:
        for _ in range(2):
            loads = [pool.apply(look_long, (ref,)) for ref in refs]
    assert loads == [10] * 10


def look_long(ref):
    ref.get()
    return Heavy.loads


class Weights:
    """Is long, and known where it lives."""

    living = weakref.WeakSet()

    def __init__(self):
        self.data = bytes(20 << 20)
        self.living.add(self)

    def __reduce__(self):
        return load_weights, (self.data,)


def load_weights(data):
    weights = Weights.__new__(Weights)
    weights.data = data
    Weights.living.add(weights)
    return weights


def count_weights(weights, x):
    return len(Weights.living)


def test_functions_with_much_data_are_not_kept():
    with mp.Pool(1) as pool:
        living = [pool.map(functools.partial(count_weights, Weights()), [0])[0] for _ in range(8)]
        assert len(pool._streams) <= 4
    assert max(living) <= 4, living


def test_an_object_goes_with_its_reference():
    ref = mp.put("text")
    copy = pickle.loads(pickle.dumps(ref))
    assert "object-" in repr(ref) and copy.get() == "text"
    del ref
    gc.collect()
    with pytest.raises(FileNotFoundError, match="the reference that fiber.put.. returned is gone.*keep it"):
        copy.get()


def test_what_cannot_be_pickled(monkeypatch):
    monkeypatch.setattr("fiber._pickling.cloudpickle", lambda: None)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        mp.put(lambda: 0)


def test_a_reference_may_end_while_another_is_read(monkeypatch):
    refs = [mp.put(i) for i in range(3)]
    assert [ref.get() for ref in refs] == [0, 1, 2]

    class Size(int):
        def __radd__(self, other):  # get() adds the sizes up; another thread may run meanwhile
            refs.clear()
            return other + int(self)

    monkeypatch.setattr(objects, "_kept", {("address", "key"): (None, Size(1)), **objects._kept})
    assert mp.put("new").get() == "new"
    assert not refs


def test_a_storage_of_torch_prints_no_warning(program):
    ran = program("""
        import warnings
        from multiprocessing.reduction import ForkingPickler
        import fiber as mp

        class Untyped:
            is_cuda = False

            def is_shared(self):
                return False

        class TypedStorage:
            is_cuda = False

            def __init__(self):
                self._untyped_storage = Untyped()

            def is_shared(self):
                warnings.warn("TypedStorage is deprecated")

        def share(storage):
            pass

        share.__module__ = "torch.multiprocessing.reductions"
        ForkingPickler.register(TypedStorage, share)

        def show(storage):
            print(type(storage).__name__)

        if __name__ == "__main__":
            child = mp.Process(target=show, args=(TypedStorage(),))
            child.start()
            child.join()
    """)
    assert (ran.code, ran.out, ran.err) == (0, "TypedStorage\n", ""), ran
