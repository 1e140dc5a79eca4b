"""torch_ring.py - torch DistributedDataParallel on MNIST: `fiber run -n 4 python3 torch_ring.py`.

What init_process_group() reads (MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE) is in the environment of each rank, as
under torchrun; the store is held by the launcher, so that no rank has to live longest. Needs torch (Debian:
python3-torch). With a checkpoint a ring that is started again (--on-failure restart) goes on where it was.

Usage: torch_ring.py [--epochs N] [--data FILE] [--checkpoint FILE]

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gzip
import os
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))


def load_images(path):
    """(training images, their digits, held-out images, their digits): every fifth image of a digit is held out."""
    rows, held_out, seen = [], [], [0] * 10
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = [int(value) for value in line.split(",")]
            seen[row[-1]] += 1
            (held_out if seen[row[-1]] % 5 == 0 else rows).append(row)
    train, test = torch.tensor(rows), torch.tensor(held_out)
    return train[:, :-1] / 255.0, train[:, -1], test[:, :-1] / 255.0, test[:, -1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--data", default=os.path.join(HERE, "..", "data", "mnist_5k.csv.gz"))
    parser.add_argument("--checkpoint")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    images, digits, test_images, test_digits = load_images(args.data)
    net = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    begin = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint)
        net.load_state_dict(saved["net"])
        begin = saved["epoch"]
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(begin, args.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(128):
            mine = batch[rank::size]
            loss = torch.nn.functional.cross_entropy(model(images[mine]), digits[mine])
            optimizer.zero_grad()
            loss.backward()  # DistributedDataParallel averages the gradients of all ranks
            optimizer.step()
        if rank == 0 and args.checkpoint:
            torch.save({"net": net.state_dict(), "epoch": epoch + 1}, args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)

    right = (net(test_images).argmax(1) == test_digits).sum().item()
    if rank == 0:
        print(f"held-out accuracy {100 * right / len(test_digits):.1f} %, by {size} ranks")
    dist.destroy_process_group()
    return 0 if right >= 0.92 * len(test_digits) else 1


if __name__ == "__main__":
    raise SystemExit(main())
