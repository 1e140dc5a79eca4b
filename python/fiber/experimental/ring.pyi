# ring.pyi - types of fiber.experimental.ring.
# SPDX-License-Identifier: Apache-2.0
from ..ring import Ring as Ring
from ..ring import RingNode as RingNode
