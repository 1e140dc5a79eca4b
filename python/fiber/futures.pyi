# futures.pyi - types of Executor.
import concurrent.futures
from collections.abc import Callable, Iterable
from typing import Any

class Executor(concurrent.futures.Executor):
    def __init__(
        self,
        max_workers: int | None = None,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        **options: Any,
    ) -> None: ...
