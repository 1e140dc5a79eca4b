# process.pyi - types of Process.
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.process import BaseProcess as BaseProcess
from multiprocessing.process import current_process as current_process
from multiprocessing.process import parent_process as parent_process
from typing import Any

class AuthenticationString(bytes): ...

class Process(BaseProcess):
    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        daemon: bool | None = None,
    ) -> None: ...
    def interrupt(self) -> None: ...

def active_children() -> list[BaseProcess]: ...
def job_name(name: str) -> str | None: ...
