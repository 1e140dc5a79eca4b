# __init__.pyi - types of fiber.experimental.
# SPDX-License-Identifier: Apache-2.0
from . import ring as ring
from ..ring import Ring as Ring
