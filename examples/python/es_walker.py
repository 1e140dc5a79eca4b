"""es_walker.py - an evolution strategy learns to walk: BipedalWalkerHardcore, by an elastic pool.

Each generation tries pairs of policies, theta + noise and theta - noise, and steps towards the better ones (Salimans et
al., 2017). Three things keep it fast:

* fiber.shared() builds the table of noise once on each host; a task names a place in it, not the noise;
* fiber.put() sends theta to each process once in a generation, not with each task;
* the pool has between --min and --workers workers. It begins a new one where tasks wait, and ends it when it is idle.

Usage: es_walker.py [--generations N] [--pairs N] [--min N] [--workers N] [--steps N] [--easy] [--plot FILE.png]

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import time

import fiber
import gymnasium
import numpy as np

INPUTS, HIDDEN, OUTPUTS = 24, 40, 4
SHAPES = (INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, OUTPUTS), (OUTPUTS,)
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)
NOISE = 4_000_000  # numbers in the table
SIGMA, RATE = 0.1, 0.05


def build_noise():
    """Runs once on each host."""
    return np.random.default_rng(1).standard_normal(NOISE, dtype=np.float32)


def noise_at(place):
    """Returns the noise of one pair of policies."""
    return fiber.shared("noise", build_noise)[place:place + SIZE]


def act(theta, observation):
    """Returns the action of a policy: a network of one hidden layer."""
    parts, begin = [], 0
    for shape in SHAPES:
        end = begin + int(np.prod(shape))
        parts.append(theta[begin:end].reshape(shape))
        begin = end
    return np.tanh(np.tanh(observation @ parts[0] + parts[1]) @ parts[2] + parts[3])


def episode(theta, name, seed, steps):
    """Returns the reward of a policy in one episode."""
    env = gymnasium.make(name)
    observation, _ = env.reset(seed=seed)
    total = 0.0
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(act(theta, observation))
        total += float(reward)
        if terminated or truncated:
            break
    env.close()
    return total


def try_pair(task):
    """Runs in a worker: returns the rewards of theta + noise and of theta - noise."""
    theta, place, name, seed, steps = task
    theta, noise = theta.get(), SIGMA * noise_at(place)
    return episode(theta + noise, name, seed, steps), episode(theta - noise, name, seed, steps)


def ranks(rewards):
    """Returns for each reward its place among all, from -0.5 to 0.5: one lucky policy must not count too much."""
    order = np.empty(rewards.size)
    order[rewards.ravel().argsort(kind="stable")] = np.linspace(-0.5, 0.5, rewards.size)
    return order.reshape(rewards.shape)


def plot(path, history):
    """Draws the reward and the number of workers over time."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    seconds, best, mean, workers = zip(*history)
    figure, (above, below) = pyplot.subplots(2, sharex=True)
    above.plot(seconds, mean, label="mean")
    above.plot(seconds, best, label="best")
    above.set_ylabel("reward")
    above.legend()
    below.step(seconds, workers, where="post")
    below.set_ylabel("workers")
    below.set_xlabel("seconds")
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generations", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--min", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--easy", action="store_true", help="BipedalWalker, without stumps and pits")
    parser.add_argument("--plot")
    args = parser.parse_args()

    name = "BipedalWalker-v3" if args.easy else "BipedalWalkerHardcore-v3"
    rng = np.random.default_rng(0)
    theta = np.zeros(SIZE, dtype=np.float32)
    history, began = [], time.monotonic()
    with fiber.Pool(min=args.min, max=args.workers, idle=5) as pool:
        for generation in range(args.generations):
            places = rng.integers(NOISE - SIZE, size=args.pairs).tolist()
            ref = fiber.put(theta)
            tasks = [(ref, place, name, generation, args.steps) for place in places]
            rewards = np.array(pool.map(try_pair, tasks, chunksize=1))
            weights = ranks(rewards)
            step = sum((up - down) * noise_at(place) for (up, down), place in zip(weights, places))
            theta = theta + (RATE / (args.pairs * SIGMA)) * step
            workers = len(pool.workers())
            history.append((time.monotonic() - began, rewards.max(), rewards.mean(), workers))
            print(f"generation {generation + 1}: mean reward {rewards.mean():.1f}, best {rewards.max():.1f}, "
                  f"{workers} workers", flush=True)
    if args.plot:
        plot(args.plot, history)


if __name__ == "__main__":
    main()
