"""__init__.py - fiber.experimental, where Fiber 0.2.1 had rings.

SPDX-License-Identifier: Apache-2.0
"""
from ..ring import Ring

__all__ = ["Ring"]
