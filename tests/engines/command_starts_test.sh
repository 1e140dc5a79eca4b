# command_starts_test.sh - how many commands that have not yet reached their host there are at once, and what becomes of jobs
# that wait for that.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

prog=${TEST_BINARY_DIR:?}/tests/engines/docker_prog
[[ -x $prog ]] || { echo "$prog is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir "$work/run"
export FIBER_BACKEND=command FIBER_BIND=lo FIBER_RUN_DIR=$work/run FIBER_COMMAND_HOSTS=h1 FIBER_GRACE=500ms FIBER_START_TIMEOUT=300s

failed() {
    echo "FAILED: $1"
    tail -n 30 "$work/out" | cut -c 1-300 | sed 's/^/    /'
    exit 1
}
# As ssh: it takes a while to log in, and reads its input then. Each of its two lines is written at once, and in order.
cat >"$work/ssh" <<END
#!/bin/bash
shift
echo begin >>"$work/log"
read -rt 0.05 <> <(:) || : # stands for logging in; nothing depends on how long it takes
echo end >>"$work/log"
exec sh -c "\$*"
END
chmod +x "$work/ssh"

# most: how many were at it at once
most() { awk '{ n += $1 == "begin" ? 1 : -1; if (n > most) most = n } END { print most + 0 }' "$work/log"; }
# starts CAP TEMPLATE: 40 jobs by it
starts() {
    : >"$work/log"
    timeout 300 env FIBER_COMMAND_FILE="$2" "$prog" many 40 >"$work/out" 2>&1 || failed "forty jobs"
    grep -q '^40 ended well$' "$work/out" || failed "all should end well"
    (($(grep -c begin "$work/log") == 40)) || failed "forty commands should have been run"
    (($(most) <= $1)) || failed "$(most) were at it at once, not $1"
    echo "ok: $1 at once, at most"
}
echo "start = $work/ssh {host}" >"$work/ssh.ini"
starts 10 "$work/ssh.ini" # known by the name of the command
printf 'start = %s {host}\nstarts = 3\n' "$work/ssh" >"$work/three.ini"
starts 3 "$work/three.ini"

echo 'starts = many' >"$work/bad.ini"
if FIBER_COMMAND_FILE=$work/bad.ini "$prog" many 1 >"$work/out" 2>&1 && grep -q '^1 ended well$' "$work/out"; then failed "no number"; fi
grep -q "'many' is not a number of starts" "$work/out" || failed "it does not say what is wrong"

# As sbatch: it prints an id and leaves.
mkdir "$work/queue" "$work/tickets"
export QUEUE=$work/queue
queue=${TEST_SOURCE_DIR:?}/tests/beds/queue
cat >"$work/submit" <<END
#!/bin/bash
echo begin >>"$work/log"
code=0
"$queue" submit "\$@" || code=\$?
echo end >>"$work/log"
exit \$code
END
chmod +x "$work/submit"
detached() { # START [LINE]: a template, on standard output
    printf '%s\n' "kind = detached" "start = $1" "status = '$queue' status {ids}" "cancel = '$queue' cancel {id}" \
        "id = submitted job ([A-Za-z0-9]+)" "poll_ms = 50" "ticket_dir = $work/tickets" "running = R" "done = CD" \
        "failed = F" "killed = CA" "${@:2}"
}
detached "$work/submit" "starts = 3" >"$work/detached.ini"
starts 3 "$work/detached.ini"
[[ -z $(ls -A "$work/tickets") ]] || failed "tickets are left"

# One that hangs while it logs in: those behind it are ended while they wait, and nothing is left.
printf '#!/bin/bash\necho begin >>%q\nexec tail -f /dev/null\n' "$work/log" >"$work/hangs"
chmod +x "$work/hangs"
printf 'start = %s {host}\nstarts = 1\n' "$work/hangs" >"$work/hangs.ini"
: >"$work/log"
code=0
timeout 300 env FIBER_START_TIMEOUT=1s FIBER_COMMAND_FILE="$work/hangs.ini" "$prog" many 4 >"$work/out" 2>&1 || code=$?
((code != 124)) || failed "it hangs"
! grep -q '^4 ended well$' "$work/out" || failed "none of them can have ended well"
echo "ok: jobs end that wait behind one that hangs"
detached "$work/hangs" "starts = 1" >"$work/hangs.ini"
: >"$work/log"
code=0
timeout 300 env FIBER_START_TIMEOUT=1s FIBER_COMMAND_FILE="$work/hangs.ini" "$prog" many 4 >"$work/out" 2>&1 || code=$?
((code != 124)) || failed "it hangs"
! grep -q '^4 ended well$' "$work/out" || failed "none of them can have ended well"
(($(grep -c begin "$work/log") == 1)) || failed "the others should have waited"
[[ -z $(ls -A "$work/tickets") ]] || failed "tickets are left"
echo "ok: and behind a submission that hangs"

# Values of -x, which may be secrets, go over the connection: no line of a command and no environment has them.
printf '#!/bin/bash\nprintf "%%s\\n" "$*" >>%q\nenv >>%q\nshift\nexec "$@"\n' "$work/seen" "$work/seen" >"$work/sees"
chmod +x "$work/sees"
echo "start = $work/sees {host}" >"$work/sees.ini"
# shellcheck disable=SC2016
FIBER_COMMAND_FILE=$work/sees.ini timeout 300 "$TEST_BINARY_DIR/cli/fiber" run -n 1 -x TOKEN=not-for-ps \
    sh -c 'echo "$TOKEN"; tr "\0" "\n" </proc/$PPID/cmdline' >"$work/out" || failed "a ring with -x"
[[ $(head -1 "$work/out") == not-for-ps ]] || failed "the rank does not have it"
[[ $(<"$work/seen") == *"/cli/fiber"* ]] || failed "the command was not run"
! grep -q not-for-ps <(cat "$work/seen"; tail -n +2 "$work/out") || failed "it is in a line or an environment: $(grep not-for-ps "$work/seen")"
echo "ok: values of -x are in no command line"
