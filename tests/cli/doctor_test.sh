# doctor_test.sh - `fiber doctor` tells what is there and what is not, whatever the environment; and JSON is JSON.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fiber=${TEST_BINARY_DIR:?}/cli/fiber
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir -m 700 "$work/run"
mkdir "$work/bin"
export XDG_RUNTIME_DIR=$work/run
cd "$work"
bad=0

doctor() { # doctor <pattern> <what> <argument>...: one line of the report matches; its code is 0 or 1
    local pattern=$1 what=$2 code=0
    shift 2
    "$@" >said 2>&1 </dev/null || code=$?
    if [ "$code" -gt 1 ] || ! grep -qE -- "$pattern" said; then
        echo "$what: code $code, no line is $pattern:"
        cat said
        bad=1
    fi
}

# gone <what> <argument>...: it tells that the backend cannot be used, with code 1
gone() {
    local what=$1 code=0
    shift
    "$@" >said 2>&1 </dev/null || code=$?
    if [ "$code" != 1 ] || ! grep -qE "^bad +backend " said; then
        echo "$what: code $code, said:"
        cat said
        bad=1
    fi
}

mkdir -m 700 run/fiber-999999999-abcdef
touch run/fiber-999999999-abcdef/lock # nobody holds it: its run is dead
doctor '^ok +list of runs ' 'as it is' "$fiber" doctor
"$fiber" gc -n --backend local | grep -q '^would remove .*/run/fiber-999999999-abcdef:' ||
    { echo "doctor has removed what a dead run left: $(ls run)"; bad=1; }
place=("$fiber" doctor --backend command) # quick: it asks no other program
doctor "^ok +run directory +$work/run\$" 'as it is' "${place[@]}"
doctor "^ok +run directory +$work\$" 'with a run_dir' env FIBER_RUN_DIR="$work" "${place[@]}"
doctor '^bad +run directory .*/nowhere: No such' 'without its run_dir' env FIBER_RUN_DIR="$work/nowhere" "${place[@]}"
doctor '^ok +processes +/.*/true was started$' 'as it is' "$fiber" doctor
doctor '^(ok|bad) +shared memory ' 'as it is' "$fiber" doctor --backend local
! grep -qE 'backend (docker|kubernetes|slurm)' said || { echo "--backend local speaks of others"; bad=1; }
doctor '^absent +Open MPI ' 'without PATH' env PATH="$work/bin" "$fiber" doctor
doctor '-> apt install openmpi-bin' 'without PATH' env PATH="$work/bin" "$fiber" doctor
printf '#!/bin/sh\nexec %s -f /dev/null\n' "$(command -v tail)" >bin/ompi_info
chmod +x bin/ompi_info
doctor '^bad +Open MPI +ompi_info does not answer' 'with one that hangs' env PATH="$work/bin" "$fiber" doctor
printf '#!/bin/sh\nprintf "Open MPI v9\\033[2J\\n"\n' >bin/ompi_info
doctor '^ok +Open MPI +Open MPI v9\?\[2J' 'with one that speaks to the terminal' env PATH="$work/bin" "$fiber" doctor
echo 'grase = 3s' >.fiberconfig
doctor '^bad +configuration .*grase' 'with a wrong configuration' "${place[@]}"
rm .fiberconfig
chmod 755 run/fiber
doctor '^bad +list of runs ' 'with an open list of runs' "${place[@]}"
chmod 700 run/fiber

gone 'without an engine' env DOCKER_HOST=unix://"$work/nowhere" "$fiber" doctor --backend docker
doctor 'no Docker engine at .*/nowhere' 'without an engine' env DOCKER_HOST=unix://"$work/nowhere" "$fiber" doctor
! grep -qE '^(ok|bad|absent) +docker ' said || { echo "an engine that is not there is looked at"; bad=1; }
gone 'without a cluster' env -u KUBECONFIG -u KUBERNETES_SERVICE_HOST HOME="$work" "$fiber" doctor --backend kubernetes
doctor '^absent +backend kubernetes ' 'without a cluster' env -u KUBECONFIG -u KUBERNETES_SERVICE_HOST HOME="$work" "$fiber" doctor
gone 'without a command' "$fiber" doctor --backend command
doctor '^absent +backend command ' 'without a command' "$fiber" doctor
doctor '^ok +backend command +can be used; its jobs reach this host at [0-9a-f:.]+$' 'with one' \
    env FIBER_COMMAND_START='ssh {host}' FIBER_COMMAND_HOSTS=127.0.0.1 "$fiber" doctor --backend command
doctor '^bad +backend command .*bind = 203.0.113.9: ' 'with a bind of another host' env FIBER_BIND=203.0.113.9 \
    FIBER_COMMAND_START='ssh {host}' FIBER_COMMAND_HOSTS=127.0.0.1 "$fiber" doctor --backend command

if command -v python3 >/dev/null; then
    for command in "doctor" "ps" "ps -a" "gc --dry-run" "config show" "version" "run --dry-run -n 3 ./x"; do
        option="$command --json"
        [[ $command != run* ]] || option="run --json ${command#run }"
        # shellcheck disable=SC2086
        { "$fiber" $option || :; } | python3 -c 'import json, sys; json.load(sys.stdin)' || { echo "$option is not JSON"; bad=1; }
    done
fi
exit $bad
