# torch_init.py - a rank that joins torch.distributed by env://, sums a one, and says how many there are.
#
# SPDX-License-Identifier: Apache-2.0
import json

import torch
import torch.distributed as dist

dist.init_process_group('gloo', init_method='env://')
one = torch.ones(1)
dist.all_reduce(one)
if dist.get_rank() == 0:
    print(json.dumps({'ranks': int(one.item())}), flush=True)
dist.barrier()
dist.destroy_process_group()
