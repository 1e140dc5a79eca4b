"""util.py - small things that programs may replace, and those of multiprocessing.util.

SPDX-License-Identifier: Apache-2.0
"""
import sys


def is_in_interactive_console():
    """Tells whether the program is typed at a console or a notebook, or given by `python -c` or on standard input.

    Its functions cannot be imported by other processes: they travel by value, by cloudpickle.
    """
    main = sys.modules.get("__main__")
    return "ps1" in vars(sys) or (  # asked for each object that is sent
        main is not None and vars(main).get("__file__", "<stdin>") == "<stdin>" and
        getattr(main, "__spec__", None) is None)


def __getattr__(name):
    from multiprocessing import util
    return getattr(util, name)
