#!/usr/bin/env python3
# queue_peers.py - multiprocessing's queues: `queue_peers.py Queue|SimpleQueue MESSAGES BYTES`.
#
# This process consumes, a forked one produces. The first message carries the time at which its producer began, as in
# queue_bench.c. One JSON object.
#
# SPDX-License-Identifier: Apache-2.0
import json
import multiprocessing
import struct
import sys
import time


def produce(queue, messages, size):
    start = struct.pack('d', time.perf_counter())  # CLOCK_MONOTONIC, the same in all processes
    message = start + bytes(size - len(start))
    for _ in range(messages):
        queue.put(message)


def main(kind, messages, size):
    context = multiprocessing.get_context('fork')
    queue = {'Queue': context.Queue, 'SimpleQueue': context.SimpleQueue}[kind]()
    process = context.Process(target=produce, args=(queue, messages, size))
    process.start()
    start, = struct.unpack_from('d', queue.get())
    for _ in range(messages - 1):
        queue.get()
    seconds = time.perf_counter() - start
    process.join()
    print(json.dumps({'peer': kind, 'bench': 'queue', 'messages': messages, 'bytes': size, 'seconds': seconds,
                      'messages_per_s': messages / seconds}))


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
