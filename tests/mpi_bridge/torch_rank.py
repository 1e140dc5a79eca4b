# torch_rank.py - a rank of torch.distributed for tests: what users write, then every operation of this torch's TCPStore.
# One program does both, because a rank takes seconds to import torch.
#
# SPDX-License-Identifier: Apache-2.0
import datetime
import os
import sys

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def make_store(**more):
    try:
        return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, False,
                             timeout=datetime.timedelta(seconds=500), **more)
    except RuntimeError as e:
        if "libuv" not in str(e) or more:
            raise
        return make_store(use_libuv=False)


def group():
    try:
        dist.init_process_group("gloo")
    except RuntimeError as e:
        # Debian 13's torch is built without libuv, and env:// with an agent's store has no way to say so.
        if "libuv" not in str(e):
            raise
        dist.init_process_group("gloo", store=make_store(), rank=RANK, world_size=SIZE)
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    pair = dist.new_group([0, SIZE - 1])
    dist.barrier()
    if RANK in (0, SIZE - 1):
        dist.barrier(pair)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, sum {int(total.item())}")
    dist.destroy_process_group()


def refused(what, *args):
    try:
        what(*args)
    except Exception:
        return True
    return False


def check(holds, what):
    if not holds:
        sys.exit(f"torch {torch.__version__}: {what} is wrong")


def newer(s):
    if hasattr(s, "append"):
        s.append("log", "ab")
        s.append("log", "c")
        check(s.get("log") == b"abc", "append")
    if hasattr(s, "multi_set"):
        s.multi_set(["m1", "m2"], ["one", "two"])
        check(s.multi_get(["m2", "m1"]) == [b"two", b"one"], "multi_get")
    if hasattr(s, "check"):
        check(s.check(["one"]) and not s.check(["one", "none"]), "check")
    if hasattr(s, "queue_push") and getattr(s, "libuvBackend", False):
        s.queue_push("q", "x")
        check(s.queue_len("q") == 1 and s.queue_pop("q") == b"x", "queue")


def store():
    s = make_store()
    s.set(f"from{RANK}", f"value{RANK}")
    s.wait([f"from{i}" for i in range(SIZE)])
    check(s.get(f"from{SIZE - 1}") == f"value{SIZE - 1}".encode(), "get")
    s.add("come", 1)
    if RANK == 0:
        s.set("one", "1")
        check(s.add("counter", 5) == 5 and s.add("counter", -7) == -2, "add")
        check(s.compare_set("cas", "", "a") == b"a" and s.compare_set("cas", "a", "b") == b"b", "compare_set")
        check(s.compare_set("cas", "x", "c") == b"b" and s.compare_set("nocas", "x", "c") == b"x", "compare_set")
        check(s.delete_key("cas") and not s.delete_key("cas"), "delete_key")
        check(s.num_keys() >= SIZE + 3, "num_keys")
        s.set("big", "x" * 3000000)
        check(len(s.get("big")) == 3000000, "big")
        newer(s)
        check(refused(s.wait, ["never"], datetime.timedelta(milliseconds=200)), "wait with a timeout")
        s.set("done", "1")
    s.get("done")
    print(f"rank {RANK} done")


group()
store()
