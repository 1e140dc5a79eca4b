# open_mpi.sh - a race of Open MPI with itself, for tests that run its programs.
#
# Open MPI 4.1 sends itself an event at the end of MPI_Init, and MPI_Finalize unloads the function that takes it. On a
# busy machine a program of a few milliseconds may be that far before its thread for events has run once. Open MPI prints
# the frames of any other crash, but none of a function that is gone.
#
# SPDX-License-Identifier: Apache-2.0
open_mpi_raced() { # open_mpi_raced <file>: whether standard error in it tells of such a crash
    grep -q 'Failing at address' "$1" && ! grep -q '\] \[ 0\]' "$1" && grep -q 'killed by signal 11' "$1"
}
