# meta.pyi - types of the decorator.
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

def meta(*, cpu: float | None = None, memory: float | None = None, gpu: int | None = None) -> Callable[[_F], _F]: ...
def job_of(function: Callable[..., object]) -> dict[str, Any]: ...
