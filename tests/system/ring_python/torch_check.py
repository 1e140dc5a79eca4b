# torch_check.py - what ranks of torch.distributed check under `fiber run`; they say what agreed, or exit with a sentence.
#
#   torch_check.py ring DATA OUT  collectives of two groups; with FAIL=1 the last rank then dies, once. Then
#                                 DistributedDataParallel on real data; rank 0 leaves weights and losses in OUT
#   torch_check.py alone DATA OUT...  the same training in this process alone, compared with what the ranks saved
#   torch_check.py store NUMBER   the launcher's store answers as the one that this torch brings itself, to the client of
#                                 that number, of those that this torch has: with libuv or without; one rank
#   torch_check.py own            a group that meets at an address which the program has chosen; one rank
#   torch_check.py again          groups of all ranks, one after the other
#
# SPDX-License-Identifier: Apache-2.0
import datetime
import gzip
import os
import socket
import sys
import threading
import warnings

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
GENERATION = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
PATIENCE = datetime.timedelta(seconds=1000)


def check(holds, what):
    if not holds:
        sys.exit(f"torch {torch.__version__}: {what}")


def kinds():
    """The ways in which this torch can be a client: with libuv and without where it knows the difference."""
    try:
        dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False, use_libuv=True)
        return [{"use_libuv": True}, {"use_libuv": False}]
    except TypeError:
        return [{}]  # before 2.1
    except RuntimeError:
        return [{"use_libuv": False}]  # Debian's has none


def init():
    """init_process_group() with what is in the environment."""
    if kinds()[0].get("use_libuv") is not False:
        dist.init_process_group("gloo")
        return
    # env:// has no way to say that there is no libuv, so init_process_group() alone fails there, under torchrun too
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, PATIENCE,
                          use_libuv=False)
    store = dist.PrefixStore(f"/worker/attempt_{GENERATION}", store)
    dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


def group():
    rank, size = dist.get_rank(), dist.get_world_size()
    check((rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])), "the rank is another one")
    every = torch.full((1000,), float(rank + 1))
    dist.all_reduce(every)
    check(every.eq(size * (size + 1) / 2).all(), "the sum over all ranks is wrong")
    objects = [None] * size
    dist.all_gather_object(objects, (rank, os.environ["LOCAL_RANK"], os.environ["GROUP_RANK"]))
    check([o[0] for o in objects] == list(range(size)), "the ranks are not gathered in order")
    pair = dist.new_group([0, size - 1]) if size > 1 else None
    if pair and rank in (0, size - 1):
        ends = torch.tensor([float(rank)])
        dist.all_reduce(ends, group=pair)
        check(ends.item() == size - 1, "the sum over two ranks is wrong")
    store = dist.distributed_c10d._get_default_store()
    check(store.add(f"come{rank}", 1) == 1, "the store knows this rank already")
    dist.barrier()
    if os.environ.get("FAIL") and GENERATION == 0 and rank == size - 1:
        os._exit(9)
    dist.barrier()
    print(f"group: rank {rank} of {size}, restart {GENERATION}", flush=True)


def load(path):
    with gzip.open(path, "rt") as lines:
        rows = torch.tensor([[float(v) for v in line.split(",")] for line in lines], dtype=torch.float64)
    return rows[:, :-1] / rows[:, :-1].max(), rows[:, -1].long()


def train(data, share, wrap):
    """Weights and losses after 40 batches of which this process computes those rows that share(batch) has."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    images, digits = load(data)
    net = torch.nn.Sequential(torch.nn.Linear(images.shape[1], 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)).double()
    model = wrap(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(3))
    losses = []
    for batch in order[:40 * 36].split(36):  # 36 rows go up in 1, 2, 3 and 4 equal parts
        mine = share(batch)
        loss = torch.nn.functional.cross_entropy(model(images[mine]), digits[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.cat([p.detach().flatten() for p in net.parameters()]), torch.stack(losses)


def ddp(data, out):
    rank, size = dist.get_rank(), dist.get_world_size()
    weights, losses = train(data, lambda batch: batch[rank::size], torch.nn.parallel.DistributedDataParallel)
    dist.all_reduce(losses)
    all_weights = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(all_weights, weights)
    check(all(torch.equal(w, weights) for w in all_weights), "the ranks have not the same weights")
    if rank == 0:
        torch.save({"weights": weights, "losses": losses / size}, out)
        print(f"ddp: {size} ranks have the same weights", flush=True)


def ring(data, out):
    init()
    group()
    ddp(data, out)
    dist.barrier()
    dist.destroy_process_group()


def alone(data, *saved):
    weights, losses = train(data, lambda batch: batch, lambda net: net)
    check(losses[-1] < losses[0] / 2, f"nothing was learned: the loss went from {losses[0]} to {losses[-1]}")
    for path in saved:
        ring = torch.load(path)
        for name, mine in (("weights", weights), ("losses", losses)):
            worst = (ring[name] - mine).abs().max().item()
            check(worst < 1e-9, f"{path}: {name} are {worst} off those of one process")
    print(f"alone: {len(saved)} rings trained as one process does")


def script(store):
    """What a store answers to a fixed list of requests."""
    ms = lambda n: datetime.timedelta(milliseconds=n)
    answers = []

    def ask(name, *arguments):
        if not hasattr(store, name):
            return
        try:
            answer = getattr(store, name)(*arguments)
        except Exception as e:
            answer = type(e).__name__
        answers.append((name, [str(a)[:40] for a in arguments], answer))

    for request in (
        ("num_keys",), ("set", "a", "1"), ("get", "a"), ("set", "a", "2"), ("get", "a"), ("set", "empty", ""),
        ("get", "empty"), ("check", ["empty"]), ("check", ["a", "empty"]), ("check", ["a", "none"]), ("check", []),
        ("add", "n", 5), ("add", "n", -7), ("get", "n"), ("add", "n", 2 ** 62), ("add", "n", 0),
        ("compare_set", "c", "", "x"), ("compare_set", "c", "x", "y"), ("compare_set", "c", "x", "z"), ("get", "c"),
        ("compare_set", "absent", "q", "r"), ("check", ["absent"]), ("delete_key", "c"), ("delete_key", "c"),
        ("check", ["c"]), ("num_keys",), ("append", "text", "ab"), ("append", "text", "cd"), ("check", ["text"]),
        ("append", "a", "x"), ("get", "a"), ("multi_set", ["m1", "m2", "m3"], ["one", "", "three"]),
        ("multi_get", ["m3", "m1", "m2"]), ("num_keys",), ("wait", ["a", "n"]), ("wait", ["a"], PATIENCE),
        ("set", "big", "y" * 5000000), ("get", "big"), ("set", "bytes", "\u00e9\0z"), ("get", "bytes"), ("set", "", "no name"),
        ("get", ""), ("queue_push", "q", "1"), ("queue_push", "q", "2"), ("queue_len", "q"), ("queue_pop", "q"),
        ("queue_pop", "q"), ("queue_len", "q"), ("queue_pop", "q", False), ("check", ["q"]), ("queue_push", "r", "1"),
        ("check", ["r"]), ("num_keys",), ("delete_key", "r"), ("queue_len", "r"), ("wait", ["never"], ms(100)),
        ("get", "a"), ("wait", ["a", "never"], ms(100)), ("get", "m1" if hasattr(store, "multi_set") else "a"),
    ):
        ask(*request)
    if hasattr(store, "list_keys"):
        answers.append(("list_keys", sorted(store.list_keys())))
    if hasattr(store, "clone"):
        other = store.clone()
        later = threading.Timer(0.05, other.set, ("late", "now"))
        later.start()
        ask("get", "late")
        later.join()
        other.delete_key("late")
        ask("check", ["late"])
    if hasattr(store, "check"):  # 1.x does not get over a wait that timed out
        ask("set", "never", "at last")
        ask("get", "never")
        ask("wait", ["never"], PATIENCE)
    return answers


def store(number):
    kind = kinds()[int(number)]
    ours = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 1, False, PATIENCE,
                         wait_for_workers=False, **kind)
    theirs = dist.TCPStore("127.0.0.1", 0, 1, True, PATIENCE, wait_for_workers=False, **kind)
    mine, right = script(ours), script(theirs)
    for one, two in zip(mine, right):
        check(one == two, f"{kind}: the store answers {one}, torch's own {two}")
    check(len(mine) == len(right), "the store has other calls")
    print(f"store: {len(mine)} answers are those of torch's own, client {int(number) + 1} of {len(kinds())}, {kind}",
          flush=True)


def own():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    more = "?use_libuv=0" if kinds()[0].get("use_libuv") is False else ""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}{more}", rank=0, world_size=1,
                            timeout=datetime.timedelta(seconds=5))
    dist.barrier()
    dist.destroy_process_group()
    print("own: met", flush=True)


def again():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, PATIENCE, **kinds()[0])
    for n in range(3):
        dist.init_process_group("gloo", store=dist.PrefixStore(f"group {n}", store), rank=rank, world_size=size)
        every = torch.ones(1)
        dist.all_reduce(every)
        check(every.item() == size, "the sum over all ranks is wrong")
        dist.destroy_process_group()
    print(f"again: rank {rank} of {size}", flush=True)


{"ring": ring, "alone": alone, "store": store, "own": own, "again": again}[sys.argv[1]](*sys.argv[2:])
