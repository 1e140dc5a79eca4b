"""meta.py - what a function, or a class of processes or managers, needs of the host that its job runs on.

    @fiber.meta(cpu=4, memory=1000, gpu=1)
    def simulate(seed): ...

    fiber.Process(target=simulate, args=(1,)).start()       # asks the backend for 4 processors, 1,000 MiB and a GPU

The module is the decorator: `fiber.meta` may be either.

SPDX-License-Identifier: Apache-2.0
"""
import sys
from types import ModuleType

KEYS = ("cpu", "memory", "gpu")
MIB = 1 << 20


def meta(**needs):
    """Decorates a function, or a class of processes or managers, with what it needs: cpu (processors), memory (MiB), gpu."""
    for key, value in needs.items():
        if key not in KEYS:
            raise TypeError("fiber.meta() has no %r, only %s" % (key, ", ".join(KEYS)))
        if value is not None and value < 0:
            raise ValueError("fiber.meta(): %s cannot be negative" % key)

    def decorate(function):
        function.__fiber_meta__ = dict(needs)
        return function
    return decorate


def job_of(function):
    """Returns what the function needs as arguments for _fiber.Process."""
    owner = getattr(function, "__self__", None)  # of a method: a class, or an object of one
    needs = getattr(function, "__fiber_meta__", None) or getattr(owner, "__fiber_meta__", {})
    job = {"cpus": float(needs.get("cpu") or 0), "gpus": needs.get("gpu") or 0,
           "memory": int((needs.get("memory") or needs.get("mem") or 0) * MIB)}
    return {key: value for key, value in job.items() if value}


class _Decorator(ModuleType):
    def __call__(self, **needs):
        return meta(**needs)


sys.modules[__name__].__class__ = _Decorator
