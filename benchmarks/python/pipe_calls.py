# pipe_calls.py - `pipe_calls.py LIB BYTES ROUNDS`: rounds of an object through a Pipe, as a JSON line {"p50_us", "p99_us"}.
# LIB: fiber, or a start method of multiprocessing. BYTES: of a bytes object; 0: the number 1.
#
# SPDX-License-Identifier: Apache-2.0
import json
import sys
import time

WARM_UP = 20


def echo(connection):
    thing = connection.recv()
    while thing is not None:  # the end of file does not come to a fork, which has both ends
        connection.send(thing)
        thing = connection.recv()


def load(lib):
    if lib == 'fiber':
        import fiber
        return fiber
    import multiprocessing
    return multiprocessing.get_context(lib)


def main():
    mp, size, rounds = load(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    thing = bytes(size) if size else 1
    mine, its = mp.Pipe()
    process = mp.Process(target=echo, args=(its,))
    process.start()
    its.close()
    took = []
    for _ in range(rounds + WARM_UP):
        began = time.perf_counter()
        mine.send(thing)
        mine.recv()
        took.append((time.perf_counter() - began) * 1e6)
    mine.send(None)
    process.join()
    took = sorted(took[WARM_UP:])
    print(json.dumps({'p50_us': took[len(took) // 2], 'p99_us': took[len(took) * 99 // 100]}))


if __name__ == '__main__':
    main()
