# foreign_test.sh - what people type for mpirun, mpiexec, srun and torchrun does the same here, or is refused with the
# option to use instead.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/check_lib.sh
. "${TEST_SOURCE_DIR:?}/tests/cli/check_lib.sh"

# mpiexec of MPICH
check 0 'two ' '^$' run -n 1 -env FRUIT two printenv FRUIT
check 0 'two ' '^$' run -n 1 -env FRUIT=two printenv FRUIT
check 0 'two ' '^$' run -n 1 --env FRUIT=two printenv FRUIT
check 2 '' 'use -x FRUIT=two' run -n 1 -genv FRUIT=two x printenv FRUIT

# mpirun
check 2 '' 'use --on-failure shrink' run --enable-recovery true
check 2 '' 'fiber ps' run --report-pid - true
check 2 '' 'omit it' run --gpmixca a b true
check 2 '' 'only rank 0 can read standard input' run --stdin all true
check 2 '' 'only rank 0 can read standard input' run --stdin 1 true
check 0 '' '^$' run --stdin none -n 1 cat
HWLOC_SYNTHETIC='pack:1 core:2 pu:2' check 0 '.* core 0, thread 0, cpus 0 .*' '^' run --dry-run --use-hwthread-cpus -n 1 true
check 0 'fiber [0-9.]+ ' '^$' run --version
check 0 'fiber [0-9.]+ ' '^$' run -V

# srun
check 0 'a ' '^$' run --kill-on-bad-exit -n 1 echo a
check 0 'a ' '^$' run --kill-on-bad-exit=1 -n 1 echo a
check 0 'a ' '^$' run -K1 -n 1 echo a
check 2 '' 'use --on-failure shrink' run -K0 -n 1 echo a
check 0 'a ' '--time 10 is read as in srun: --timeout 600s' run -t 10 -n 1 echo a
check 0 'a ' '--timeout 93784s' run -t 1-02:03:04 -n 1 echo a
check 0 'a ' '--timeout 3723s' run --time=1:02:03 -n 1 echo a
check 124 '' 'the time limit of 1 s is over' run -t 0:01 -n 1 tail -f /dev/null
check 2 '' '"1x" is not a time as srun has it' run -t 1x true
check 2 '' 'use --output DIR' run -e err true
check 0 '/ ' '^$' run -q -u -J name -D / -i none -n 1 pwd

check 0 '(x ){2}' '^' run --tasks-per-node=2 echo x
check 2 '' 'use --bind-to core for nomultithread' run --hint=nomultithread true

# torchrun and torch.distributed.launch
check 0 '(x ){2}' '^' run --nproc_per_node=2 --use_env echo x
check 0 '(x ){2}' '^' run --use-env --nproc-per-node=2 echo x
check 0 '(x )+' '^' run --nproc_per_node cpu echo x
check 0 '(x )+' '^' run --nproc_per_node=auto echo x
check 2 '' 'is neither a number nor one of: auto cpu gpu' run --nproc_per_node frob echo x
check 0 '0 ' '^$' run -n 1 printenv TORCHELASTIC_MAX_RESTARTS
check 0 '2 ' '^$' run -n 1 --max-restarts 2 printenv TORCHELASTIC_MAX_RESTARTS

# several programs, without MPI
# shellcheck disable=SC2016
check 0 '(0/1,2 |1/1,2 ){3}' '^' run -q -n 1 sh -c 'echo $FIBER_APPNUM/$FIBER_APP_SIZES' : \
    -n 2 sh -c 'echo $FIBER_APPNUM/$FIBER_APP_SIZES'
[ "$(grep -c '^1/' out)" = 2 ] || { echo 'two ranks run the second program'; bad=1; }

for name in mpirun mpiexec srun torchrun; do
    check 0 '.* kill-on-bad-exit K .*' '^$' help "$name"
done
check 2 '' 'there is no subcommand frobnicate; .fiber help. lists all' help frobnicate
exit $bad
