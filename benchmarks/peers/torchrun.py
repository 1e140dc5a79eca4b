# torchrun.py - torchrun, also where its version and Python's do not fit.
#
# torch 1.13 looks for the flag 0 among the members of an IntFlag, where Python 3.11 no longer lists it (Debian 12 has
# the two together), and ends with a traceback. Nothing else is changed.
#
# SPDX-License-Identifier: Apache-2.0
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import api

if api.Std.from_str('0') is None:
    run.Std.from_str = classmethod(lambda cls, text: cls(int(text)))

run.main()
