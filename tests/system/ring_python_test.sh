# ring_python_test.sh - mpi4py in a ring, as it is: collectives, mpi4py.futures on ranks that are there and on ranks that
# it spawns, an exception in one rank. torch, Horovod and JAX have tests of their own: ring_torch, ring_horovod, ring_jax.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"
. "$here/ring_pythons.sh"

mapfile -t pythons < <(pythons_with mpi4py)
[ ${#pythons[@]} -gt 0 ] || skip 'no python3 has mpi4py (Debian: python3-mpi4py; or name one in TEST_PYTHON)'

test_mpi4py_reduces() {
    cat >"$work/sum.py" <<'END'
from mpi4py import MPI

comm = MPI.COMM_WORLD
total = comm.allreduce({"rank": comm.rank}["rank"])
assert comm.gather("r%d" % comm.rank) == (["r%d" % r for r in range(comm.size)] if comm.rank == 0 else None)
if comm.rank == 0:
    print("sum", total, "of", comm.size)
END
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 4 "$python" "$work/sum.py" || return
        says 'sum 6 of 4' || return
        fiber_run 0 --oversubscribe -n 2 --per-node 1 "$python" "$work/sum.py" || return
        says 'sum 1 of 2' || return
    done
}

cat >"$work/futures.py" <<'END'
import sys

from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor


def square(x):
    return x * x


if __name__ == "__main__":
    with MPIPoolExecutor(int(sys.argv[1]) if len(sys.argv) > 1 else None) as pool:
        assert list(pool.map(square, range(100))) == [x * x for x in range(100)]
        assert pool.submit(square, 7).result() == 49
        print("squares by", pool._max_workers, "workers, world", MPI.COMM_WORLD.size)
END

test_futures_use_the_ranks_that_are_there() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 3 "$python" -m mpi4py.futures "$work/futures.py" || return
        says 'squares by 2 workers, world 3' || return
        fiber_run 0 --oversubscribe -n 4 --per-node 2 "$python" -m mpi4py.futures "$work/futures.py" || return
        says 'squares by 3 workers, world 4' || return
    done
}

test_futures_spawn_workers() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 1 "$python" "$work/futures.py" 2 || return
        says 'squares by 2 workers, world 1' || return
    done
}

cat >"$work/raise.py" <<'END'
from mpi4py import MPI

if MPI.COMM_WORLD.rank == 1:
    raise RuntimeError("rank 1 goes no further")
MPI.COMM_WORLD.Barrier()
END

hint_is_printed() {
    grep -q 'rank 1 .* printed a traceback, .* Use .python3 -m mpi4py PROGRAM' "$work/err"
}

test_an_exception_gets_a_hint_or_ends_the_run() {
    local python=${pythons[0]}
    start --oversubscribe -n 2 "$python" "$work/raise.py"
    wait_for "$patience" hint_is_printed || fail 'no hint about the exception is printed' || return
    kill -TERM "$launcher"
    ends 143 || return
    fiber_run 1 --oversubscribe -n 2 "$python" -m mpi4py "$work/raise.py" || return
    says 'rank 1 goes no further'
}

run_tests test_mpi4py_reduces test_futures_use_the_ranks_that_are_there test_futures_spawn_workers \
    test_an_exception_gets_a_hint_or_ends_the_run
