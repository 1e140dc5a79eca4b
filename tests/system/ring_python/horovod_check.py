# horovod_check.py - what ranks of Horovod check under `fiber run`; they say what agreed, or exit with a sentence.
#
#   horovod_check.py ops       operations of all ranks and of some, and the same again after shutdown()
#   horovod_check.py mpi       operations of all ranks, over MPI
#   horovod_check.py elastic   a function under hvd.elastic.run, whose last rank dies, once
#
# SPDX-License-Identifier: Apache-2.0
import os
import sys

import torch
import horovod
import horovod.torch as hvd


def check(holds, what):
    if not holds:
        sys.exit(f"Horovod {horovod.__version__}: {what}")


def once(turn):
    rank, size = hvd.rank(), hvd.size()
    check((rank, size) == (int(os.environ["FIBER_RANK"]), int(os.environ["FIBER_SIZE"])), "the rank is another one")
    check(hvd.local_rank() == int(os.environ["FIBER_LOCAL_RANK"]), "the local rank is another one")
    controller = hvd.gloo_enabled if sys.argv[1] != "mpi" else hvd.mpi_enabled
    check(controller(), "it runs on another controller")
    total = hvd.allreduce(torch.full((1000,), float(rank)), op=hvd.Sum, name=f"sum{turn}")
    check(total.eq(size * (size - 1) / 2).all(), "the sum over all ranks is wrong")
    net = torch.nn.Linear(4, 2)
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(float(rank + 1))
    hvd.broadcast_parameters(net.state_dict(), root_rank=size - 1)
    check(all(p.eq(size).all() for p in net.parameters()), "the parameters are not those of the last rank")
    check(hvd.allgather(torch.tensor([rank]), name=f"all{turn}").tolist() == list(range(size)), "allgather is wrong")
    check(hvd.broadcast_object({"of": rank}, root_rank=0) == {"of": 0}, "broadcast_object is wrong")


def ops():
    for turn in range(2):  # in the same processes
        hvd.init()
        once(turn)
        hvd.shutdown()
    size = int(os.environ["HOROVOD_SIZE"])
    even = hvd.ProcessSet(range(0, size, 2))
    hvd.init(process_sets=[even] if size > 1 else [])  # a set of all is refused
    if size > 1 and even.included():
        one = hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum, name="even", process_set=even)
        check(one.item() == (size + 1) // 2, "the sum over every second rank is wrong")
    hvd.join()
    print(f"ops: rank {hvd.rank()} of {hvd.size()}, node rank {hvd.cross_rank()} of {hvd.cross_size()}", flush=True)
    hvd.shutdown()


def mpi():
    hvd.init()
    once(0)
    print(f"mpi: rank {hvd.rank()} of {hvd.size()}, node rank {hvd.cross_rank()} of {hvd.cross_size()}", flush=True)
    hvd.shutdown()


def elastic():
    hvd.init()
    net = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.01),
                                         named_parameters=net.named_parameters())

    @hvd.elastic.run
    def train(state):
        while state.batch < 10:
            if state.batch == 5 and os.environ["FIBER_EPOCH"] == "0" and hvd.rank() == hvd.size() - 1:
                os._exit(9)
            optimizer.zero_grad()
            net(torch.ones(2, 4) * (hvd.rank() + 1)).pow(2).mean().backward()
            optimizer.step()
            state.batch += 1
            state.commit()

    state = hvd.elastic.TorchState(net, optimizer, batch=0)
    train(state)
    same = hvd.allgather(net.weight.detach(), name="weights")
    check(all(torch.equal(row, same[0]) for row in same), "the ranks have not the same weights")
    print(f"elastic: rank {hvd.rank()} of {hvd.size()}, restart {os.environ['FIBER_EPOCH']}", flush=True)


{"ops": ops, "mpi": mpi, "elastic": elastic}[sys.argv[1]]()
