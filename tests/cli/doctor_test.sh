# doctor_test.sh - `fiber doctor` tells what is there and what is not, whatever the environment; and JSON is JSON.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fiber=${TEST_BINARY_DIR:?}/cli/fiber
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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

doctor '^ok +run directory ' 'as it is' "$fiber" doctor
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
doctor '^bad +configuration .*grase' 'with a wrong configuration' "$fiber" doctor
rm .fiberconfig
chmod 755 run/fiber
doctor '^bad +run directory ' 'with an open run directory' "$fiber" doctor
chmod 700 run/fiber

if command -v python3 >/dev/null; then
    for command in "doctor" "ps" "ps -a" "config show" "version" "run --dry-run -n 3 ./x"; do
        option="$command --json"
        [[ $command != run* ]] || option="run --json ${command#run }"
        # shellcheck disable=SC2086
        { "$fiber" $option || :; } | python3 -c 'import json, sys; json.load(sys.stdin)' || { echo "$option is no JSON"; bad=1; }
    done
fi
exit $bad
