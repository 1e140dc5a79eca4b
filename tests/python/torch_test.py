"""torch_test.py - programs with torch: tensors in arguments, queues and initializers, and torch.distributed in a Ring.

SPDX-License-Identifier: Apache-2.0
"""
import sys

import conftest
import pytest


@pytest.fixture
def program_with_torch(program, monkeypatch):
    """Returns program(), which runs scripts by an interpreter that has torch."""
    python = conftest.python_with("torch.distributed") or pytest.skip("no interpreter here has torch")
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(conftest, "LONG", 400)  # each process imports it, which takes seconds, or many
    return program


def test_tensors_and_models_are_copied_to_processes_and_workers(program_with_torch):
    ran = program_with_torch("""
        import torch
        import fiber as mp

        def use(model, q, none):
            q.put(model(torch.ones(1, 3)).tolist())

        def initialize(tensor):
            global table
            table = tensor

        def look(i):
            return float(table[i])

        if __name__ == "__main__":
            q, model, sparse = mp.Queue(), torch.nn.Linear(3, 2), torch.eye(2).to_sparse()
            p = mp.Process(target=use, args=(model, q), kwargs={"none": sparse})
            p.start()
            print(q.get() == model(torch.ones(1, 3)).tolist())
            p.join()
            with mp.Pool(1, initialize, (torch.tensor([1.5, 2.5]),)) as pool:
                print(pool.map(look, [0, 1]))
            q.put(model.share_memory().weight)
            with torch.no_grad():
                model.weight.zero_()
            print(bool(q.get().any()))
    """)
    assert (ran.code, ran.out.splitlines()) == (0, ["True", "[1.5, 2.5]", "True"]), ran


def test_processes_and_workers_of_this_host_share_memory_of_tensors(program_with_torch):
    ran = program_with_torch("""
        import os
        import torch
        import fiber as mp
        from fiber import _pickling

        def train(model, rate, lock, children):
            if children:
                child = mp.Process(target=train, args=(model, rate + 1, lock, children - 1))
                child.start()
            for _ in range(100):
                with lock, torch.no_grad():
                    model.weight[:] += rate
                    model.bias += 1
            if children:
                child.join()

        def initialize(none, tensor):
            global table
            table = tensor

        def add(i):
            table[i] += i + 1
            return os.getpid()

        if __name__ == "__main__":
            for strategy, children in ("file_descriptor", 1), ("file_system", 0):
                torch.multiprocessing.set_sharing_strategy(strategy)
                model, lock = torch.nn.Linear(2, 2), mp.Lock()
                with torch.no_grad():
                    model.weight.zero_()
                    model.bias.zero_()
                rates = torch.arange(4.).share_memory_()
                bias = model.share_memory().bias.detach().numpy()  # a view of the memory, which must not move
                p = mp.Process(target=train, args=(model, rates[2], lock, children))
                p.start()
                p.join()
                print(p.exitcode, model.weight.tolist(), bias.tolist(), model.weight.requires_grad)
            torch.multiprocessing.set_sharing_strategy("file_descriptor")
            table = torch.zeros(2).share_memory_()
            with mp.Pool(1, initialize, (torch.zeros(0).share_memory_(), table), maxtasksperchild=1) as pool:
                memory = torch.from_numpy(table.numpy())
                del table
                print(len(set(pool.map(add, range(2), 1))), memory.tolist())
            try:
                _pickling._open_storage(torch.UntypedStorage, "/proc/self/fd/0", (0, 0), 8)
            except OSError as error:
                print(error)
    """)
    assert (ran.code, ran.err) == (0, ""), ran
    assert ran.out.splitlines() == [
        "0 [[500.0, 500.0], [500.0, 500.0]] [200.0, 200.0] True",
        "0 [[200.0, 200.0], [200.0, 200.0]] [100.0, 100.0] True", "2 [1.0, 2.0]",
        "a tensor that share_memory_() has shared is memory of one host, and this process runs on another host or in a "
        "container; send tensor.clone() to have it copied"], ran


def test_torch_finds_its_ranks_without_arguments(program_with_torch):
    ran = program_with_torch("""
        import fiber
        import torch
        import torch.distributed as dist

        def average(rank, size):
            dist.init_process_group("gloo")
            x = torch.tensor([float(rank)])
            dist.all_reduce(x)
            assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
            print("sum", int(x.item()))
            dist.destroy_process_group()

        if __name__ == "__main__":
            fiber.Ring(2, average).run()
    """)
    assert ran.code == 0, ran
    assert ran.out.split("\n").count("sum 1") == 2, ran
