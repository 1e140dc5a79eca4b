"""rollout_ring.py - an elastic pool of actors feeds a ring of learners: both shapes of a cluster in one program.

The pool plays episodes of CartPole with the current policy. The ring is two ranks of torch DistributedDataParallel, which
train on what was played; queues lead to each rank and back. Both may lose members: on the way this program kills an actor
and a rank with SIGKILL. The pool plays the actor's episodes again elsewhere, and the ring starts anew.

The learners keep no state: a batch has the policy that it is to make better. When the ring has started anew, rank 0 says
that it is ready, and gets the last batch once more. A batch that a rank has had twice is left out.

Usage: rollout_ring.py [--rounds N] [--episodes N] [--actors N] [--ranks N] [--no-kill]

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import functools
import signal
import warnings

import fiber
import gymnasium
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

warnings.filterwarnings("ignore")
DISCOUNT = 0.98
READY = "ready"


def make_net():
    """Returns the policy: four numbers in, one for each of two actions out."""
    return torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))


def weights_of(net):
    """Returns the parameters of a network as arrays, which travel well."""
    return [p.detach().numpy().copy() for p in net.parameters()]


def load_weights(net, weights):
    """Gives a network these parameters."""
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), weights):
            parameter.copy_(torch.from_numpy(value))


def play(task):
    """Runs in an actor: plays an episode; returns what was seen, what was done, and the rewards from there on."""
    (inner, bias, outer, outer_bias), seed = task
    rng, env = np.random.default_rng(seed), gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    seen, done, rewards, ended = [], [], [], False
    while not ended:
        logits = np.tanh(observation @ inner.T + bias) @ outer.T + outer_bias
        action = int(rng.random() < 1 / (1 + np.exp(logits[0] - logits[1])))
        seen.append(observation)
        done.append(action)
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        ended = terminated or truncated
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + DISCOUNT * total
        returns.append(total)
    return np.array(seen, np.float32), np.array(done), np.array(returns[::-1], np.float32)


def learn(batches, answers, rounds, rank, size):
    """Runs in each rank: makes the policy of each batch better, until the last one."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    net = make_net()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    if rank == 0:
        answers.put((READY, None))
    last = -1
    while last < rounds - 1:
        number, weights, (seen, done, returns) = batches[rank].get()
        if number <= last:
            continue
        load_weights(net, weights)
        chosen = torch.log_softmax(model(torch.from_numpy(seen)), 1).gather(1, torch.from_numpy(done)[:, None])[:, 0]
        loss = -(chosen * torch.from_numpy(returns)).mean()
        optimizer.zero_grad()
        loss.backward()  # DistributedDataParallel averages the gradients of all ranks
        optimizer.step()
        last = number
        if rank == 0:
            answers.put((number, weights_of(net)))
    dist.barrier()
    dist.destroy_process_group()


def deal(episodes, size):
    """Returns a part of the episodes for each rank, with returns that are comparable."""
    every = np.concatenate([returns for _, _, returns in episodes])
    mean, deviation = every.mean(), every.std() + 1e-6
    parts = []
    for rank in range(size):
        seen, done, returns = (np.concatenate(x) for x in zip(*episodes[rank::size]))
        parts.append((seen, done, (returns - mean) / deviation))
    return parts


def train_on(number, weights, parts, batches, answers):
    """Sends a batch to the ranks, as often as they start anew, and returns the better policy."""
    while True:
        for queue, part in zip(batches, parts):
            queue.put((number, weights, part))
        kind, better = answers.get()
        while kind != READY and kind != number:  # of a batch that was sent twice
            kind, better = answers.get()
        if kind == number:
            return better


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--no-kill", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(1)
    weights = weights_of(make_net())
    batches, answers = [fiber.Queue() for _ in range(args.ranks)], fiber.Queue()
    learner = functools.partial(learn, batches, answers, args.rounds)
    with fiber.Pool(min=1, max=args.actors, idle=5) as pool, \
            fiber.Ring(args.ranks, learner, on_failure="restart", max_restarts=3, grace=2) as ring:
        assert answers.get()[0] == READY
        for number in range(args.rounds):
            seeds = range(number * args.episodes, (number + 1) * args.episodes)
            playing = pool.map_async(play, [(weights, seed) for seed in seeds], chunksize=1)
            if number == args.rounds // 3 and not args.no_kill:
                pool.kill_worker(pool.workers()[0]["name"])
                print("an actor was killed", flush=True)
            episodes = playing.get()
            if number == args.rounds // 2 and not args.no_kill:
                ring.signal(signal.SIGKILL, args.ranks - 1)
                print("a rank was killed", flush=True)
            weights = train_on(number, weights, deal(episodes, args.ranks), batches, answers)
            if (number + 1) % 10 == 0:
                length = np.mean([len(done) for _, done, _ in episodes])
                print(f"round {number + 1}: episodes of {length:.0f} steps", flush=True)
        ring.join()
        print(f"restarts of ranks: {max(member.restarts for member in ring.members)}")


if __name__ == "__main__":
    main()
