# spawn.pyi - types of multiprocessing.spawn, and of the calls that are Fiber's own.
# SPDX-License-Identifier: Apache-2.0
from multiprocessing.spawn import get_executable as get_executable
from multiprocessing.spawn import get_preparation_data as get_preparation_data
from multiprocessing.spawn import is_forking as is_forking

def freeze_support() -> None: ...
def set_executable(executable: str) -> None: ...
