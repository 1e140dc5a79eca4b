"""mpi4py_pi.py - pi by a sum over all ranks: `fiber run -n 4 python3 mpi4py_pi.py`.

Needs mpi4py (Debian: python3-mpi4py).

SPDX-License-Identifier: Apache-2.0
"""
from mpi4py import MPI

STEPS = 1_000_000

world = MPI.COMM_WORLD
part = 0.0
for i in range(world.rank, STEPS, world.size):
    part += 4 / (1 + ((i + 0.5) / STEPS) ** 2)
pi = world.allreduce(part) / STEPS
if world.rank == 0:
    print(f"pi is about {pi:.6f}, by {world.size} ranks")
