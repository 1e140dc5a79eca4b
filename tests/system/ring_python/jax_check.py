# jax_check.py - what ranks of JAX check under `fiber run`; they say what agreed, or exit with a sentence.
#
#   jax_check.py given    initialize() is told what the environment says
#   jax_check.py found    initialize() finds it out, as under mpirun
#
# SPDX-License-Identifier: Apache-2.0
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
import jax

RANK, SIZE = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
if sys.argv[1] == "given":
    jax.distributed.initialize(num_processes=SIZE, process_id=RANK)  # the address is read by JAX itself
else:
    jax.distributed.initialize()
import jax.numpy as jnp
from jax.experimental import multihost_utils

if (jax.process_index(), jax.process_count()) != (RANK, SIZE):
    sys.exit(f"JAX {jax.__version__}: process {jax.process_index()} of {jax.process_count()}, not {RANK} of {SIZE}")
ranks = multihost_utils.process_allgather(jnp.array([float(RANK)]))
if sorted(float(r) for r in ranks.ravel()) != [float(r) for r in range(SIZE)]:
    sys.exit(f"JAX {jax.__version__}: the ranks are not gathered, but {ranks}")
print(f"jax: process {RANK} of {SIZE}, {jax.device_count()} devices", flush=True)
jax.distributed.shutdown()
