"""cli.py - the command `fiber`, by the name of its module in Fiber 0.2: python3 -m fiber.cli.

SPDX-License-Identifier: Apache-2.0
"""
from ._command import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
