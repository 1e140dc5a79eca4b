"""pi.py - estimates pi with a pool: the smallest program that uses a cluster.

    python3 pi.py                               # workers are processes of this machine
    FIBER_BACKEND=kubernetes python3 pi.py      # workers are pods

With `import multiprocessing as mp` it is an ordinary program for one machine.

Usage: pi.py [--workers N] [--samples N]

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import random

import fiber as mp

BATCH = 10_000


def count_inside(seed):
    """Returns how many of BATCH random points of the unit square lie in the circle."""
    rng = random.Random(seed)
    return sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(BATCH))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--samples", type=int, default=4_000_000)
    args = parser.parse_args()

    batches = max(1, args.samples // BATCH)
    with mp.Pool(args.workers) as pool:
        inside = sum(pool.imap_unordered(count_inside, range(batches)))
    print(f"pi is about {4 * inside / (batches * BATCH):.4f}")


if __name__ == "__main__":
    main()
