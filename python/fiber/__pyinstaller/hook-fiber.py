"""hook-fiber.py - puts into a frozen program the parts of fiber that no import statement names: modules that are imported
when they are needed, and the files of fiber/_lib, which the library loads or starts.

SPDX-License-Identifier: Apache-2.0
"""
import os
import pkgutil

import fiber

_package = os.path.dirname(fiber.__file__)

hiddenimports = [name for _, name, _ in pkgutil.walk_packages(fiber.__path__, "fiber.") if "__" not in name]
binaries = [(os.path.join(folder, name), os.path.relpath(folder, os.path.dirname(_package)))
            for folder, _, names in os.walk(os.path.join(_package, "_lib")) for name in names]
