# objects.pyi - types of put().
from typing import Generic, TypeVar

T = TypeVar("T")

class Ref(Generic[T]):
    def get(self) -> T: ...

def put(obj: T) -> Ref[T]: ...
