"""poet.py - open-ended search: problems and their solvers evolve together, as in POET (Wang et al., 2019), small.

A niche is a problem and the agent that works on it. Here a problem is a hill in a landscape of --size numbers, and an
agent is a point that climbs it. In each round every niche improves its agent, agents move to niches where they do better
than the one that is there, and niches that have been solved have children, which are harder. One elastic pool serves all
niches at the same time: the round of a niche is a map of its own, and all maps are under way together.

Usage: poet.py [--rounds N] [--niches N] [--workers N] [--size N]

SPDX-License-Identifier: Apache-2.0
"""
import argparse

import fiber
import numpy as np

CHILDREN = 16  # variants of an agent that are tried in a round
SOLVED = -0.5


def score(agent, hill):
    """Returns how well an agent does on a hill: 0 at its top."""
    place, ruggedness = hill
    distance = np.asarray(agent) - place
    return float(-(distance ** 2).mean() - ruggedness * (1 - np.cos(3 * distance)).mean())


def try_variant(task):
    """Runs in a worker: returns a variant of an agent with its score. The first one is the agent itself."""
    agent, hill, seed = task
    if seed is not None:
        rng = np.random.default_rng(seed)
        agent = agent + rng.normal(scale=10.0 ** rng.uniform(-2, 0), size=agent.shape)
    return score(agent, hill), agent


def best_of(results):
    """Returns the best of (score, agent) pairs."""
    return max(results, key=lambda result: result[0])


class Search:
    """The niches, oldest first, and the pool that serves them."""

    def __init__(self, pool, size, most):
        self.pool, self.most = pool, most
        self.rng = np.random.default_rng(0)
        self.niches = [[(np.zeros(size), 0.0), np.ones(size)]]  # hill, agent
        self.transfers = 0

    def improve(self):
        """Starts a map for each niche, then waits for them; returns the scores."""
        maps = []
        for hill, agent in self.niches:
            seeds = [None, *self.rng.integers(1 << 30, size=CHILDREN).tolist()]
            maps.append(self.pool.map_async(try_variant, [(agent, hill, seed) for seed in seeds]))
        scores = []
        for niche, result in zip(self.niches, maps):
            best, niche[1] = best_of(result.get())
            scores.append(best)
        return scores

    def transfer(self, scores):
        """Tries every agent in every other niche; the best one stays."""
        agents = [agent for _, agent in self.niches]
        maps = [self.pool.map_async(try_variant, [(agent, hill, None) for agent in agents]) for hill, _ in self.niches]
        for i, result in enumerate(maps):
            best, agent = best_of(result.get())
            if best > scores[i]:
                self.niches[i][1], scores[i] = agent, best
                self.transfers += 1

    def reproduce(self, scores):
        """Gives a harder child to each niche that is solved; the oldest niches make place for them."""
        for (hill, agent), reached in list(zip(self.niches, scores)):
            if reached > SOLVED:
                place, ruggedness = hill
                moved = place + self.rng.normal(scale=0.5, size=place.shape)
                self.niches.append([(moved, ruggedness + 0.05), agent])
        self.niches = self.niches[-self.most:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--niches", type=int, default=8)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--size", type=int, default=10)
    args = parser.parse_args()

    with fiber.Pool(min=1, max=args.workers, idle=5) as pool:
        search = Search(pool, args.size, args.niches)
        for number in range(args.rounds):
            scores = search.improve()
            search.transfer(scores)
            search.reproduce(scores)
            if (number + 1) % 10 == 0:
                hardest = max(hill[1] for hill, _ in search.niches)
                print(f"round {number + 1}: {len(search.niches)} niches, the hardest {hardest:.2f}, "
                      f"{search.transfers} transfers", flush=True)


if __name__ == "__main__":
    main()
