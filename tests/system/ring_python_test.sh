# ring_python_test.sh - Python programs in a ring: mpi4py and torch.distributed, as they are, also started again.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

find_python() { # find_python <module>: the first that has it
    local p
    for p in /usr/bin/python3 python3; do
        if command -v "$p" >/dev/null && "$p" -c "import $1" 2>/dev/null; then
            echo "$p"
            return
        fi
    done
}

mpi_python=$(find_python mpi4py)
torch_python=$(find_python torch)
[ -n "$mpi_python$torch_python" ] || skip 'no python3 has mpi4py or torch'
[ -n "$mpi_python" ] || echo 'no mpi4py: its test is left out'
[ -n "$torch_python" ] || echo 'no torch: its tests are left out'

test_mpi4py_reduces() {
    [ -n "$mpi_python" ] || return 0
    cat >"$work/sum.py" <<'END'
from mpi4py import MPI

comm = MPI.COMM_WORLD
total = comm.allreduce({"rank": comm.rank}["rank"])
assert comm.gather("r%d" % comm.rank) == (["r%d" % r for r in range(comm.size)] if comm.rank == 0 else None)
if comm.rank == 0:
    print("sum", total, "of", comm.size)
END
    fiber_run 0 --oversubscribe -n 4 "$mpi_python" "$work/sum.py" || return
    says 'sum 6 of 4' || return
    fiber_run 0 --oversubscribe -n 2 --per-node 1 "$mpi_python" "$work/sum.py" || return
    says 'sum 1 of 2'
}

test_torch_reduces() {
    [ -n "$torch_python" ] || return 0
    cat >"$work/gloo.py" <<'END'
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(x)
n = dist.get_world_size()
assert x.eq(n * (n + 1) / 2).all()
dist.barrier()
if os.environ.get("FAIL") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os._exit(9)
dist.barrier()
print("rank %s local %s of %d, restart %s" % (os.environ["RANK"], os.environ["LOCAL_RANK"], n,
                                              os.environ["TORCHELASTIC_RESTART_COUNT"]), flush=True)
END
    fiber_run 0 --oversubscribe -n 4 "$torch_python" "$work/gloo.py" || return
    says 'rank 3 local 3 of 4, restart 0' || return
    fiber_run 0 -n 2 --per-node 1 "$torch_python" "$work/gloo.py" || return
    says 'rank 1 local 0 of 2, restart 0'
}

test_torch_starts_again_with_a_fresh_store() {
    [ -n "$torch_python" ] || return 0
    fiber_run 0 -n 2 -x FAIL=1 --on-failure restart "$torch_python" "$work/gloo.py" || return
    says 'rank 1 local 1 of 2, restart 1' || return
    says 'rank 0 local 0 of 2, restart 1'
}

run_tests test_mpi4py_reduces test_torch_reduces test_torch_starts_again_with_a_fresh_store
