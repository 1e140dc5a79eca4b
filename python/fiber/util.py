"""util.py - small things that programs may replace.

SPDX-License-Identifier: Apache-2.0
"""
import sys


def is_in_interactive_console():
    """Tells whether the main module has neither a file nor a name, as in a console, a notebook or `python -c`.

    Its functions cannot be imported by other processes: they travel by value, by cloudpickle.
    """
    main = sys.modules.get("__main__")
    return main is not None and not hasattr(main, "__file__") and getattr(main, "__spec__", None) is None
