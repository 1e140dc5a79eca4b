"""config.py - settings.

SPDX-License-Identifier: Apache-2.0
"""
import contextlib


@contextlib.contextmanager
def without_foreign_variables():
    """Around the start of the library, which refuses variables that look like its own settings and are not."""
    yield


def apply():
    """Hands what the program has set so far to the library."""
