#!/usr/bin/env python3
# pool_peers.py - what a user would pick instead of Fiber's pool: `pool_peers.py PEER WORKERS OPERATION...`.
#
#     tasks:N:MS     one map of N tasks that sleep MS milliseconds, one task per message: seconds
#     empty:N        one map of N tasks that answer their 16 bytes, one task per message: tasks per second
#     apply:N        N round trips of one such task, one after the other: p50, p99 in microseconds
#     barrier:N:MS   N batches of WORKERS sleeping tasks, waiting for each batch: seconds
#     payload:N:B    N tasks that answer their B bytes: MiB per second, in and out added
#
# One JSON object per operation, as the programs beside it print them. The workers have answered tasks before the
# first clock starts. `pool_peers.py list` prints the version of each peer, null for those that are not installed.
#
# Each peer is used as its documentation shows it, with chunks of one task as in the paper (arXiv 2003.11164):
# the tasks of `empty` and `tasks` are then equally fine everywhere.
#
# SPDX-License-Identifier: Apache-2.0
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import peer_tasks  # noqa: E402

PR_SET_TIMERSLACK = 29  # linux/prctl.h


class Pool:
    """map(fn, items) -> results, apply(fn, item) -> result, close()."""

    def __init__(self, map_, apply, close):
        self.map, self.apply, self.close = map_, apply, close


def open_multiprocessing(n):
    import multiprocessing
    pool = multiprocessing.get_context('fork').Pool(n)
    return Pool(lambda fn, items: pool.map(fn, items, chunksize=1), lambda fn, item: pool.apply(fn, (item,)),
                pool.terminate)


def executor_pool(executor):
    return Pool(lambda fn, items: list(executor.map(fn, items)), lambda fn, item: executor.submit(fn, item).result(),
                executor.shutdown)


def open_futures(n):
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    return executor_pool(ProcessPoolExecutor(n, mp_context=multiprocessing.get_context('fork')))


def open_mpi4py(n):
    """Starts itself again under mpiexec, which spawns the workers."""
    if shutil.which('mpiexec') and 'POOL_PEERS_MPI' not in os.environ:
        os.environ.update(POOL_PEERS_MPI='1', OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1',
                          OMPI_MCA_rmaps_base_oversubscribe='1',
                          PRTE_MCA_rmaps_default_mapping_policy=':oversubscribe')
        os.execvp('mpiexec', ['mpiexec', '-n', '1', sys.executable, *sys.argv])
    from mpi4py.futures import MPIPoolExecutor
    return executor_pool(MPIPoolExecutor(n, path=[HERE]))


def open_dask(n):
    import logging
    from dask.distributed import Client, LocalCluster
    cluster = LocalCluster(n_workers=n, threads_per_worker=1, processes=True, dashboard_address=None,
                           host='127.0.0.1', silence_logs=logging.CRITICAL, memory_limit=0)
    client = Client(cluster)
    client.wait_for_workers(n, timeout=60)

    def close():
        client.close()
        cluster.close()
    return Pool(lambda fn, items: client.gather(client.map(fn, items, pure=False)),
                lambda fn, item: client.submit(fn, item, pure=False).result(), close)


def open_joblib(n):
    from joblib import Parallel, delayed
    parallel = Parallel(n_jobs=n, backend='loky', batch_size=1)
    parallel.__enter__()
    return Pool(lambda fn, items: parallel(delayed(fn)(item) for item in items),
                lambda fn, item: parallel([delayed(fn)(item)])[0], lambda: parallel.__exit__(None, None, None))


def open_ray(n):
    import logging
    import ray
    ray.init(num_cpus=n, object_store_memory=512 << 20, include_dashboard=False, logging_level=logging.ERROR,
             log_to_driver=False, runtime_env={'env_vars': {'PYTHONPATH': HERE}})
    remote = {fn: ray.remote(num_cpus=1)(fn) for fn in (peer_tasks.sleep, peer_tasks.echo)}
    return Pool(lambda fn, items: ray.get([remote[fn].remote(item) for item in items]),
                lambda fn, item: ray.get(remote[fn].remote(item)), ray.shutdown)


def open_ipyparallel(n):
    import logging
    import ipyparallel
    cluster = ipyparallel.Cluster(n=n, controller_ip='127.0.0.1', log_level=logging.ERROR)
    cluster.start_cluster_sync()
    client = cluster.connect_client_sync()
    client.wait_for_engines(n, timeout=60, interactive=False)
    view = client.load_balanced_view()

    def close():
        client.close()
        cluster.stop_cluster_sync()
    return Pool(view.map_sync, view.apply_sync, close)


def open_pyspark(n):
    from pyspark import SparkConf, SparkContext
    conf = SparkConf().setMaster('local[%d]' % n).set('spark.ui.enabled', 'false')
    conf.set('spark.driver.host', '127.0.0.1').set('spark.driver.bindAddress', '127.0.0.1')
    conf.set('spark.ui.showConsoleProgress', 'false')
    context = SparkContext(conf=conf)
    context.setLogLevel('OFF')
    return Pool(lambda fn, items: context.parallelize(items, len(items)).map(fn).collect(),
                lambda fn, item: context.parallelize([item], 1).map(fn).collect()[0], context.stop)


def open_upstream(n):
    """Uber's Fiber, whose interface this project has; its distribution is `fiber`."""
    os.environ['PYTHONPATH'] = HERE  # of its workers
    import fiber
    pool = fiber.Pool(n)
    return Pool(lambda fn, items: pool.map(fn, items, chunksize=1), lambda fn, item: pool.apply(fn, (item,)),
                pool.terminate)


# name: (how it is opened, the module that must be there, its distribution; None: Python's own)
PEERS = {
    'multiprocessing': (open_multiprocessing, 'multiprocessing', None),
    'concurrent.futures': (open_futures, 'concurrent.futures', None),
    'mpi4py.futures': (open_mpi4py, 'mpi4py', 'mpi4py'),
    'joblib': (open_joblib, 'joblib', 'joblib'),
    'dask': (open_dask, 'distributed', 'distributed'),
    'ray': (open_ray, 'ray', 'ray'),
    'ipyparallel': (open_ipyparallel, 'ipyparallel', 'ipyparallel'),
    'pyspark': (open_pyspark, 'pyspark', 'pyspark'),
    'fiber of Uber': (open_upstream, 'fiber', 'fiber'),
}


def peer_version(name):
    _, module, distribution = PEERS[name]
    if distribution is None:
        return 'Python ' + platform.python_version()
    try:
        return importlib.metadata.version(distribution) if importlib.util.find_spec(module) else None
    except importlib.metadata.PackageNotFoundError:
        return None


def timed(fn, *args):
    start = time.perf_counter()
    result = fn(*args)
    return time.perf_counter() - start, result


def op_tasks(pool, workers, n, ms):
    seconds, results = timed(pool.map, peer_tasks.sleep, [ms / 1e3] * int(n))
    assert len(results) == n
    return {'seconds': seconds}


def op_empty(pool, workers, n):
    items = [i.to_bytes(16, 'little') for i in range(int(n))]
    pool.map(peer_tasks.echo, items[:int(n) // 10])
    seconds, results = timed(pool.map, peer_tasks.echo, items)
    assert results == items
    return {'seconds': seconds, 'tasks_per_s': n / seconds}


def op_apply(pool, workers, n):
    item, n = bytes(16), int(n)
    us = [timed(pool.apply, peer_tasks.echo, item)[0] * 1e6 for _ in range(n + n // 10)][n // 10:]
    us.sort()
    return {'p50_us': us[n // 2], 'p99_us': us[int(n * 0.99)], 'max_us': us[-1]}


def op_barrier(pool, workers, n, ms):
    batch = [ms / 1e3] * workers

    def all_batches():
        for _ in range(int(n)):
            pool.map(peer_tasks.sleep, batch)
    return {'seconds': timed(all_batches)[0]}


def op_payload(pool, workers, n, size):
    items = [bytes([i % 256]) * int(size) for i in range(int(n))]
    pool.map(peer_tasks.echo, items)
    seconds, results = timed(pool.map, peer_tasks.echo, items)
    assert results == items
    return {'seconds': seconds, 'mib_s': 2 * n * size / seconds / 1048576}


OPERATIONS = {'tasks': op_tasks, 'empty': op_empty, 'apply': op_apply, 'barrier': op_barrier, 'payload': op_payload}


def warm(pool, workers):
    seen, end = set(), time.time() + 60
    while len(seen) < workers and time.time() < end:
        seen |= set(pool.map(peer_tasks.sleep, [0.002] * (4 * workers)))
    if len(seen) < workers:
        sys.exit('only %d of %d workers answered' % (len(seen), workers))


def main(args):
    if args == ['list']:
        print(json.dumps({name: peer_version(name) for name in PEERS}))
        return
    if len(args) < 3 or args[0] not in PEERS:
        sys.exit('usage: pool_peers.py PEER WORKERS OPERATION... or: pool_peers.py list\npeers: ' + ' '.join(PEERS))
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # as the C programs; the workers inherit it
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [HERE, os.environ.get('PYTHONPATH')]))
    workers = int(args[1])
    pool = PEERS[args[0]][0](workers)
    warm(pool, workers)
    for operation in args[2:]:
        name, *numbers = operation.split(':')
        answer = OPERATIONS[name](pool, workers, *map(float, numbers))
        print(json.dumps({'peer': args[0], 'bench': operation, **answer}), flush=True)
    pool.close()


if __name__ == '__main__':
    main(sys.argv[1:])
