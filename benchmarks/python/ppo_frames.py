# ppo_frames.py - `ppo_frames.py LIB FRAMES`: PPO of Stable-Baselines3 on 8 Breakout environments, as examples/python has
# it, as a JSON line {"frames_per_s"}. LIB: fiber, or multiprocessing. `ppo_frames.py list` tells the version.
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import importlib
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'examples', 'python'))


def main():
    if sys.argv[1] == 'list':
        import ale_py  # noqa: F401
        import stable_baselines3
        print(json.dumps({'stable-baselines3': stable_baselines3.__version__}))
        return
    import ppo_breakout
    args = argparse.Namespace(envs=8, frames=int(sys.argv[2]))
    rate = ppo_breakout.train(sys.argv[1], importlib.import_module(sys.argv[1]), args)
    print(json.dumps({'frames_per_s': rate}))


if __name__ == '__main__':
    main()
