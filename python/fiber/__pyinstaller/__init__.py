"""__init__.py - the folder of the hook by which PyInstaller knows this package (entry point pyinstaller40).

SPDX-License-Identifier: Apache-2.0
"""
import os


def get_hook_dirs():
    return [os.path.dirname(__file__)]
