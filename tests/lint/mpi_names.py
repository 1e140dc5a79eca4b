# mpi_names.py - variables of MPI libraries and their like are known to mpi_bridge/ alone: the rest of the product gives it
# facts of a host or a rank (mpi_bridge/host_env.h), and has no string that names one of them.
#
# SPDX-License-Identifier: Apache-2.0
import re

import lint

NAMES = re.compile(r"\b(OMPI|PMIX|PMI|UCX|UCC|HOROVOD|NCCL|GLOO|MPICH|HYDRA|I_MPI|JAX)_[A-Z]")

report = lint.Lint("mpi_names")
for file in lint.product():
    if file.startswith("mpi_bridge/"):
        continue
    for line, literal in lint.literals(lint.read(file)):
        if NAMES.search(literal):
            report.complain(file, f'names a variable of an MPI library: "{literal}"', line)
report.finish()
