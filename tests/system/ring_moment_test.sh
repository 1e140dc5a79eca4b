# ring_moment_test.sh - a launcher, an agent or a rank that is killed at any moment of a run, its beginning and its end too:
# nothing hangs, nothing is left. RING_MOMENTS says how often, RING_SEED which moments.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154,SC2016
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

export FIBER_HEARTBEAT=5s # an agent whose libpmix hangs is ended by that alone
times=${RING_MOMENTS:-10}
swept=0
RANDOM=${RING_SEED:-$((RANDOM))}
echo "RING_SEED=$RANDOM"

mpi=
for m in openmpi mpich; do
    [ -z "$mpi" ] || continue
    [ "$m" != openmpi ] || [ -e "$TEST_BINARY_DIR/fiber/pmix.so" ] || continue
    ! command -v "mpicc.$m" >/dev/null || ! compile "mpicc.$m" "$work/check" || mpi=$m
done
program=("$work/check" names)
[ -n "$mpi" ] || program=(sh -c 'echo up; head -c 100000 /dev/urandom | od | tail -n 1')

pause() { # pause <ms>
    read -rt "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))" -u 9 || :
}

victims() { # victims <launcher|agent|rank>
    case $1 in
        launcher) echo "$launcher" ;;
        agent) agents ;;
        rank) for a in $(agents); do pgrep -P "$a"; done ;;
    esac
}

strike() { # strike <who> <policy>: once
    local pid list
    start --oversubscribe -n 4 --per-node 2 --grace 1s --on-failure "$2" "${program[@]}"
    pause $((RANDOM % (250 * (1 + 3 * asan))))
    mapfile -t list < <(victims "$1")
    if [ ${#list[@]} -gt 0 ]; then
        pid=${list[RANDOM % ${#list[@]}]}
        kill -KILL "$pid" 2>/dev/null || :
    fi
    if ! wait_for "$patience" gone "$launcher"; then
        fail "it hangs after SIGKILL of the $1 $pid" || return
    fi
    wait "$launcher" 2>/dev/null || :
    if [ "$1" = launcher ] && ! wait_for 2 is_clean; then # before it had an agent that could tidy: the next run does
        swept=$((swept + 1))
        timeout "$patience" "$fiber" run true || fail "exit code $?" || return
    fi
    leaves_nothing || return
}

killed_at_any_moment() { # killed_at_any_moment <who> <policy>
    local i
    for ((i = 0; i < times; i++)); do
        strike "$1" "$2" || return
    done
}

test_launcher() {
    killed_at_any_moment launcher abort || return
    echo "$swept of $times left their directory to the next run"
}
test_agent() { killed_at_any_moment agent abort; }
test_agent_with_restart() { killed_at_any_moment agent restart; }
test_rank() { killed_at_any_moment rank abort; }
test_rank_with_restart() { killed_at_any_moment rank restart; }

run_tests test_launcher test_agent test_agent_with_restart test_rank test_rank_with_restart
