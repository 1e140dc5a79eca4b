# context.pyi - types of the context.
from collections.abc import Callable, Iterable
from multiprocessing.context import AuthenticationError as AuthenticationError
from multiprocessing.context import BaseContext as BaseContext
from multiprocessing.context import BufferTooShort as BufferTooShort
from multiprocessing.context import ProcessError as ProcessError
from multiprocessing.context import TimeoutError as TimeoutError
from multiprocessing.context import assert_spawning as assert_spawning
from multiprocessing.context import get_spawning_popen as get_spawning_popen
from multiprocessing.context import set_spawning_popen as set_spawning_popen
from typing import Any, Literal, overload

from . import managers, pool, queues, synchronize
from .connection import Connection
from .process import Process as Process

class FiberContext(BaseContext):
    Process: type[Process]
    def Manager(self) -> managers.SyncManager: ...
    def Pipe(self, duplex: bool = True) -> tuple[Connection, Connection]: ...  # type: ignore[override]
    def Pool(  # type: ignore[override]
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        **options: Any,
    ) -> pool.Pool: ...
    def Queue(self, maxsize: int = 0) -> queues.Queue[Any]: ...  # type: ignore[override]
    def JoinableQueue(self, maxsize: int = 0) -> queues.JoinableQueue[Any]: ...  # type: ignore[override]
    def SimpleQueue(self) -> queues.SimpleQueue[Any]: ...  # type: ignore[override]
    def Lock(self) -> synchronize.Lock: ...  # type: ignore[override]
    def RLock(self) -> synchronize.RLock: ...  # type: ignore[override]
    def Condition(self, lock: Any = None) -> synchronize.Condition: ...  # type: ignore[override]
    def Semaphore(self, value: int = 1) -> synchronize.Semaphore: ...  # type: ignore[override]
    def BoundedSemaphore(self, value: int = 1) -> synchronize.BoundedSemaphore: ...  # type: ignore[override]
    def Event(self) -> synchronize.Event: ...  # type: ignore[override]
    def Barrier(  # type: ignore[override]
        self, parties: int, action: Callable[[], object] | None = None, timeout: float | None = None
    ) -> synchronize.Barrier: ...
    def get_context(self, method: str | None = None) -> FiberContext: ...  # type: ignore[override]
    @overload
    def get_start_method(self, allow_none: Literal[False] = False) -> str: ...
    @overload
    def get_start_method(self, allow_none: bool) -> str | None: ...
    def set_start_method(self, method: str | None, force: bool = False) -> None: ...
    def get_all_start_methods(self) -> list[str]: ...

SpawnProcess = Process
SpawnContext = FiberContext

class DefaultContext(FiberContext): ...

default: DefaultContext
