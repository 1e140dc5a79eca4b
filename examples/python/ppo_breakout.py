"""ppo_breakout.py - PPO of Stable-Baselines3 learns Breakout, with environments that are jobs: one line is changed.

SubprocVecEnv of Stable-Baselines3 runs each environment in a process of multiprocessing. The line

    subproc_vec_env.mp = fiber

makes each a job: a process here, a container, a pod. The program trains for a while with multiprocessing and for as
long with Fiber, and prints the frames that each has learned from in a second.

Needs stable-baselines3, gymnasium, ale-py and opencv-python-headless; `./demo --python` installs them for itself.

Usage: ppo_breakout.py [--envs N] [--frames N] [--only fiber|multiprocessing]

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import multiprocessing
import sys
import time
import warnings

import ale_py
import fiber
import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecFrameStack, subproc_vec_env

warnings.filterwarnings("ignore")
SKIP = 4  # frames of the game for each step of the learner


def make_env():
    """Runs in each job."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    if hasattr(gymnasium, "register_envs"):
        gymnasium.register_envs(ale_py)
    return AtariWrapper(gymnasium.make("BreakoutNoFrameskip-v4"), frame_skip=SKIP)


class Progress(BaseCallback):
    """Tells on standard error how far the learner is, where that is a terminal."""

    def __init__(self, name, total):
        super().__init__()
        self.name, self.total, self.told = name, total, time.monotonic()

    def _on_step(self):
        if sys.stderr.isatty() and time.monotonic() > self.told + 0.5:
            self.told = time.monotonic()
            print(f"\r{self.name}: {self.num_timesteps * SKIP:,} of {self.total:,} frames ", end="", file=sys.stderr)
        return True

    def _on_training_end(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)


def train(name, module, args):
    """Returns how many frames were played and learned from in a second."""
    subproc_vec_env.mp = module  # the one changed line
    envs = VecFrameStack(subproc_vec_env.SubprocVecEnv([make_env] * args.envs, "spawn"), 4)
    steps = 64
    model = PPO("CnnPolicy", envs, n_steps=steps, batch_size=min(256, steps * args.envs), n_epochs=2, seed=1, device="cpu")
    model.set_logger(Logger(None, []))  # the usual one leaves an empty folder in /tmp each time
    model.learn(steps * args.envs)  # until all is loaded and warm
    began, before = time.monotonic(), model.num_timesteps
    model.learn(args.frames // SKIP, Progress(name, args.frames), reset_num_timesteps=False)
    seconds, done = time.monotonic() - began, model.num_timesteps - before
    envs.close()
    return done * SKIP / seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--only", choices=("fiber", "multiprocessing"))
    args = parser.parse_args()

    rates = {}
    for name, module in (("multiprocessing", multiprocessing), ("fiber", fiber)):
        if args.only in (None, name):
            rates[name] = train(name, module, args)
            print(f"{args.envs} Breakout environments by {name}: {rates[name]:,.0f} frames/s", flush=True)
    if not args.only:
        print(f"fiber / multiprocessing: {rates['fiber'] / rates['multiprocessing']:.2f}")


if __name__ == "__main__":
    main()
