"""ring.py - fiber.experimental.ring, where Fiber 0.2.1 had rings.

SPDX-License-Identifier: Apache-2.0
"""
from ..ring import Ring, RingNode

__all__ = ["Ring", "RingNode"]
