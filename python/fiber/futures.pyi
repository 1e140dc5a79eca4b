# futures.pyi - types of Executor.
import concurrent.futures
from collections.abc import Callable, Iterable
from concurrent.futures import process
from multiprocessing.context import ProcessError
from typing import Any

from . import _errors

class BrokenProcessPool(process.BrokenProcessPool, ProcessError): ...
class WorkerLost(process.BrokenProcessPool, _errors.WorkerLost): ...

class Executor(concurrent.futures.Executor):
    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        *,
        max_tasks_per_child: int | None = None,
        **options: Any,
    ) -> None: ...
