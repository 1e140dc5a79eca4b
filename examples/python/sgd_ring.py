"""sgd_ring.py - trains a network on MNIST with torch.distributed, in a ring of ranks that this program starts.

    fiber.Ring(4, train).run()

starts four jobs, each of which runs train(rank, size). torch finds the others by itself: RANK, WORLD_SIZE, MASTER_ADDR
and MASTER_PORT are in the environment of each rank, and the store that they name is served by this program.

Usage: sgd_ring.py [--ranks N] [--epochs N] [--data FILE]

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import functools
import gzip
import os

import fiber
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "mnist_5k.csv.gz")


def load_images(path):
    """Returns the images for training, their digits, those held out (every fifth of a digit), and their digits."""
    rows, held_out, seen = [], [], [0] * 10
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = [int(value) for value in line.split(",")]
            seen[row[-1]] += 1
            (held_out if seen[row[-1]] % 5 == 0 else rows).append(row)
    train, test = torch.tensor(rows), torch.tensor(held_out)
    return train[:, :-1] / 255.0, train[:, -1], test[:, :-1] / 255.0, test[:, -1]


def train(epochs, path, rank, size):
    """Runs in each rank: trains on its part of each batch. Rank 0 prints the accuracy on the images held out."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    images, digits, test_images, test_digits = load_images(path)
    net = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(128):
            mine = batch[rank::size]
            loss = torch.nn.functional.cross_entropy(model(images[mine]), digits[mine])
            optimizer.zero_grad()
            loss.backward()  # DistributedDataParallel averages the gradients of all ranks
            optimizer.step()
        if rank == 0:
            right = (net(test_images).argmax(1) == test_digits).sum().item()
            print(f"epoch {epoch + 1}: held-out accuracy {100 * right / len(test_digits):.1f} %, by {size} ranks")
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--data", default=DATA)
    args = parser.parse_args()

    fiber.Ring(args.ranks, functools.partial(train, args.epochs, os.path.abspath(args.data))).run()
    print("the ring has ended")


if __name__ == "__main__":
    main()
