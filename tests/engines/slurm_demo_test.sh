# slurm_demo_test.sh - ./demo --backend slurm on Slurm: ranks and workers are jobs.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/demo.sh
engine=slurm
. "$(dirname "$0")/demo.sh"
demo 'n[1-3]'
