"""remote_envs.py - reinforcement learning environments on other hosts, behind an AsyncManager.

Each manager is a job that holds one environment; the learner has a proxy of it. A call on a proxy returns a handle at
once, so that all environments take their step at the same time, and handle.get() waits for the answer:

    handles = [env.step(action) for env, action in zip(envs, actions)]
    results = [handle.get() for handle in handles]

Usage: remote_envs.py [--envs N] [--steps N] [--env NAME]

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import time

import gymnasium
import numpy as np
from fiber.managers import AsyncManager


class Environment:
    """An environment of Gymnasium that begins a new episode when one has ended."""

    def __init__(self, name, seed):
        self.env = gymnasium.make(name)
        self.seed = seed

    def reset(self):
        """Returns the first observation."""
        return self.env.reset(seed=self.seed)[0]

    def step(self, action):
        """Returns the next observation, the reward, and whether the episode has ended."""
        observation, reward, terminated, truncated, _ = self.env.step(action)
        if terminated or truncated:
            observation, _ = self.env.reset()
        return observation, float(reward), terminated or truncated

    def actions(self):
        """Returns how many actions there are."""
        return int(self.env.action_space.n)


class EnvManager(AsyncManager):
    """A manager of environments."""


EnvManager.register("Environment", Environment)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--env", default="CartPole-v1")
    args = parser.parse_args()

    managers = [EnvManager() for _ in range(args.envs)]
    for manager in managers:
        manager.start()
    envs = [manager.Environment(args.env, seed) for seed, manager in enumerate(managers)]
    observations = [handle.get() for handle in [env.reset() for env in envs]]
    choices = envs[0].actions().get()

    rng = np.random.default_rng(0)
    episodes, reward, began = 0, 0.0, time.monotonic()
    for _ in range(args.steps):
        actions = rng.integers(choices, size=len(observations)).tolist()  # a policy would look at the observations
        handles = [env.step(action) for env, action in zip(envs, actions)]
        results = [handle.get() for handle in handles]
        observations = [result[0] for result in results]
        reward += sum(result[1] for result in results)
        episodes += sum(result[2] for result in results)
    seconds = time.monotonic() - began
    for manager in managers:
        manager.shutdown()

    print(f"{args.envs} environments: {args.envs * args.steps / seconds:,.0f} steps/s")
    print(f"{episodes} episodes, mean reward {reward / max(1, episodes):.1f}")


if __name__ == "__main__":
    main()
