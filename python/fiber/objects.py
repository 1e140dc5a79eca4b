"""objects.py - put(): an object that many tasks use travels to each process once.

    table = fiber.put(numpy.arange(10 ** 6))
    pool.map(work, [(table, i) for i in range(1000)])

    def work(args):
        table, i = args
        return table.get()[i]

The objects lie in a store, a process of the run, which the first put() starts. A reference is small and can be pickled
for any process of the run.

SPDX-License-Identifier: Apache-2.0
"""
import errno
import itertools
import os

import _thread

from . import _core, _pickling

__all__ = ["Ref", "put"]

KEPT = 64  # objects of others that a process keeps, the last used ones
KEPT_BYTES = 64 << 20  # of their pickles: beyond it, each new object drops those whose owners have dropped them
GONE = "the reference that fiber.put() returned is gone, and its object with it: keep it until the tasks are done"

_lock = _thread.RLock()
_numbers = itertools.count(1)
_own = None  # our store
_stores = {}  # address -> store
# (address, key) -> object and the size of its pickle, the last used one at the end. A reference that ends takes its own
# out at any time, without the lock, so a loop reads a copy.
_kept = {}


class Ref:
    """A reference to an object that put() was given."""

    __class_getitem__ = classmethod(type(list[int]))

    def __init__(self, address, key, size, owner=None):
        self._address, self._key, self._size, self._owner = address, key, size, owner

    def get(self):
        """Returns this process's copy of the object: the same one each time. OSError: the reference that put() has
        returned is gone, and the object with it."""
        name = self._address, self._key
        with _lock:
            kept = _kept.pop(name, None)
            if kept is not None:
                _kept[name] = kept
                return kept[0]
            if sum(size for _, size in _kept.copy().values()) + self._size > KEPT_BYTES:
                _drop_dead()
            try:
                value = _store(self._address).get(self._key)
            except FileNotFoundError:
                raise FileNotFoundError(errno.ENOENT, GONE) from None
            _kept[name] = value, self._size
            for oldest in list(_kept.copy())[:-KEPT]:
                _kept.pop(oldest, None)
            return value

    def __reduce__(self):
        return Ref, (self._address, self._key, self._size)

    def __repr__(self):
        return "<fiber.Ref %s>" % self._key

    def __del__(self):
        if self._owner == os.getpid() and _own is not None:
            try:
                _kept.pop((self._address, self._key), None)
                _own.delete(self._key)
            except Exception:  # the run has ended
                pass


def _store(address):
    store = _stores.get(address)
    if store is None:
        store = _stores[address] = _core.start().Objects(address)
    return store


def _drop_dead():
    """Drops objects whose owners have dropped them, or are gone."""
    kept = list(_kept.copy())
    alive = {address: _keys(address) for address in {address for address, _ in kept}}
    for address, key in kept:
        if key not in alive[address]:
            _kept.pop((address, key), None)


def _keys(address):
    try:
        return _store(address).keys()
    except OSError:
        return set()


def put(obj):
    """Keeps a copy of an object for other processes, each of which gets it once, and returns a reference to it.

    The object is kept as long as this reference lives; copies of it in other processes do not count.
    """
    global _own
    data = _pickling.dumps(obj)
    with _lock:
        if _own is None:
            _own = _core.start().Objects()
            _stores[_own.address()] = _own
        key = "object-%d" % next(_numbers)
        _own.set(key, data)
        return Ref(_own.address(), key, len(data), os.getpid())
