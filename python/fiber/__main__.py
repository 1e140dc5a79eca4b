"""__main__.py - the command `fiber`, where the folder of programs is not in PATH: python3 -m fiber run -n 4 ./train.

SPDX-License-Identifier: Apache-2.0
"""
from ._command import main

if __name__ == "__main__":
    main()
