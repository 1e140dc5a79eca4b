# ring_io_test.sh - what ranks read and write when somebody is slow, gone or was never there: nothing is lost, nothing piles
# up.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154,SC2016,SC2317
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

command -v python3 >/dev/null || skip 'there is no python3'

peak_mib() { # peak_mib <pid>: resident, at most
    sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status" | awk '{ print int($1 / 1024) }'
}

pipe_is_full() { # pipe_is_full <pid>...: all of them wait in a write
    local pid
    for pid; do
        [[ $(cat "/proc/$pid/wchan" 2>/dev/null) == *pipe_write* ]] || return 1
    done
}

pile_up='import os, sys
line = b"%s " % os.environ["FIBER_RANK"].encode() + b"x" * 97 + b"\n"
for i in range(4000):
    os.write(1, line * 100)'

test_slow_reader_holds_up_the_ranks() { # 4 x 40 MB, of which nobody reads at first
    local code=0 pid bytes peak
    mkfifo "$work/slow"
    "$fiber" run --oversubscribe -n 4 python3 -c "$pile_up" >"$work/slow" 2>"$work/err" </dev/null &
    launcher=$!
    exec 8<"$work/slow"
    all_wait() {
        local ranks
        mapfile -t ranks < <(for pid in $(agents); do pgrep -P "$pid"; done)
        [ ${#ranks[@]} = 4 ] && pipe_is_full "${ranks[@]}"
    }
    wait_for "$patience" all_wait || fail 'the ranks do not wait' || return
    peak=$(peak_mib "$launcher")
    [ "$peak" -lt $((64 + 2000 * asan)) ] || fail "the launcher has $peak MiB" || return
    for pid in $(agents); do
        peak=$(peak_mib "$pid")
        [ "$peak" -lt $((64 + 2000 * asan)) ] || fail "an agent has $peak MiB" || return
    done
    bytes=$(grep -ac '^[0-3] x\{97\}$' <&8)
    exec 8<&-
    wait "$launcher" || code=$?
    [ "$code" = 0 ] || fail "exit code $code" || return
    [ "$bytes" = 1600000 ] || fail "$bytes whole lines, not 1600000" || return
    leaves_nothing
}

# Ranks that start while nobody reads wait as well; what the ranks before them, or an agent before theirs, had sent is not
# held against them. Each rank writes its pid to a file before it prints.
stuck_or_over() { # stuck_or_over <file>
    if [ -s "$1" ] && pipe_is_full "$(cat "$1")"; then
        return 0
    fi
    gone "$launcher"
}

test_slow_reader_holds_up_ranks_that_start_again() {
    local code=0 lines
    mkfifo "$work/slow_again"
    rm -f "$work"/printing.*
    "$fiber" run --oversubscribe -n 2 -x "DIR=$work" --on-failure restart bash -c '
        if [ "$FIBER_RANK" = 0 ]; then
            echo $$ >"$DIR/printing.new.$FIBER_EPOCH"; mv "$DIR/printing.new.$FIBER_EPOCH" "$DIR/printing.$FIBER_EPOCH"
            [ "$FIBER_EPOCH" = 0 ] && exec yes "$(printf %99s first)"
            exec python3 -c "import os; [os.write(1, (b\"%98s\n\" % b\"again\") * 640) for i in range(1000)]"
        fi
        [ "$FIBER_EPOCH" = 0 ] || exit 0
        exec 7<> <(:); while [ ! -e "$DIR/go" ]; do read -rt 0.05 -u 7; done; exit 3' \
        >"$work/slow_again" 2>"$work/err" </dev/null &
    launcher=$!
    exec 8<"$work/slow_again"
    wait_for "$patience" stuck_or_over "$work/printing.0" || fail 'the first ranks do not wait' || return
    : >"$work/go"
    wait_for "$patience" stuck_or_over "$work/printing.1" || fail 'the ranks do not wait when they start again' || return
    lines=$(grep -ac '^ *again$' <&8)
    exec 8<&-
    wait "$launcher" || code=$?
    [ "$code" = 0 ] || fail "exit code $code" || return
    [ "$lines" = 640000 ] || fail "$lines whole lines, not 640000" || return
    leaves_nothing
}

test_slow_reader_outlives_agents() { # five of them, each of which has sent all that it may
    local code=0 i
    mkfifo "$work/slow_agents"
    rm -f "$work"/printing.*
    "$fiber" run -n 1 -x "DIR=$work" --on-failure restart --max-restarts 5 bash -c '
        [ "$FIBER_EPOCH" = 5 ] && exec echo last
        echo $$ >"$DIR/printing.new.$FIBER_EPOCH"; mv "$DIR/printing.new.$FIBER_EPOCH" "$DIR/printing.$FIBER_EPOCH"
        exec yes "$(printf %99s first)"' >"$work/slow_agents" 2>"$work/err" </dev/null &
    launcher=$!
    exec 8<"$work/slow_agents"
    for i in 0 1 2 3 4; do
        wait_for "$patience" stuck_or_over "$work/printing.$i" || fail "rank 0 does not wait in epoch $i" || return
        kill -KILL "$(agents)" || fail "there is no agent in epoch $i" || return
    done
    [ "$(grep -ac '^last$' <&8)" = 1 ] || fail 'the last try did not print' || return
    exec 8<&-
    wait "$launcher" || code=$?
    [ "$code" = 0 ] || fail "exit code $code" || return
    leaves_nothing
}

test_slow_rank_holds_up_the_input() { # 50 MB for a rank that does not read at first
    local code=0 peak
    start_slow() {
        head -c 50000000 /dev/zero | tr '\0' 'i' | "$fiber" run --stdin 0 -n 2 -x "GO=$work/go" bash -c '
            [ "$FIBER_RANK" = 0 ] || exit 0
            exec 7<> <(:); echo waits; while [ ! -e "$GO" ]; do read -rt 0.05 -u 7; done; md5sum' >"$work/out" 2>"$work/err" &
        launcher=$!
    }
    rm -f "$work/go"
    start_slow
    await waits || return
    peak=$(peak_mib "$launcher")
    : >"$work/go"
    wait "$launcher" || code=$?
    [ "$code" = 0 ] || fail "exit code $code" || return
    [ "$peak" -lt $((64 + 2000 * asan)) ] || fail "the launcher has $peak MiB" || return
    says "$(head -c 50000000 /dev/zero | tr '\0' 'i' | md5sum)" || return
    leaves_nothing
}

test_rank_that_ends_before_its_input_does_no_harm() {
    local code=0
    timeout "$patience" "$fiber" run --stdin 0 -n 2 head -n 1 >"$work/out" 2>"$work/err" < <(yes) || code=$?
    [ "$code" = 0 ] || fail "exit code $code" || return
    says y || return
    leaves_nothing
}

test_input_that_has_ended_ends_for_the_next_try() {
    fiber_run 0 -n 1 --on-failure restart sh -c 'cat; [ "$FIBER_EPOCH" = 0 ] && exit 3; echo "read to the end"' || return
    says 'read to the end'
}

stays_full() { # stays_full <pid>
    local _
    for _ in {1..25}; do
        pipe_is_full "$1" || return
        tick
    done
}

# Input that waits for a rank is lost with the rank or with its agent, but the next try gets what comes later.
input_after_a_loss() { # input_after_a_loss rank|agent
    local feeder
    rm -f "$work/feed" "$work/waiting"
    mkfifo "$work/feed"
    "$fiber" run -n 1 -x "DIR=$work" --on-failure restart bash -c '
        [ "$FIBER_EPOCH" = 1 ] && { head -c 3000000 | wc -c; exit 0; }
        echo $$ >"$DIR/waiting.new"; mv "$DIR/waiting.new" "$DIR/waiting"
        exec tail -f /dev/null' <"$work/feed" >"$work/out" 2>"$work/err" &
    launcher=$!
    yes >"$work/feed" 2>/dev/null &
    feeder=$!
    wait_for "$patience" test -s "$work/waiting" || fail 'no rank runs' || return
    wait_for "$patience" stays_full "$feeder" || fail "$1: the input does not wait" || return
    if [ "$1" = agent ]; then
        kill -KILL "$(agents)"
    else
        kill -KILL "$(cat "$work/waiting")"
    fi
    ends 0 || return
    wait "$feeder" || :
    says 3000000 || return
    leaves_nothing
}

test_input_goes_on_after_a_restart() {
    input_after_a_loss rank && input_after_a_loss agent
}

# The new process in the place of a lost one gets no input, so nothing that comes meanwhile may wait for it.
test_input_does_not_wait_for_a_replaced_rank() {
    rm -f "$work/waiting"
    mkfifo "$work/replaced"
    "$fiber" run -n 1 -x "DIR=$work" --on-failure replace bash -c '
        if [ "$FIBER_RANK_RESTARTS" ]; then
            exec 7<> <(:); while [ ! -e "$DIR/all_taken" ]; do read -rt 0.05 -u 7; done; exit 0
        fi
        echo $$ >"$DIR/waiting"
        exec tail -f /dev/null' <"$work/replaced" >"$work/out" 2>"$work/err" &
    launcher=$!
    exec 8>"$work/replaced"
    wait_for "$patience" test -s "$work/waiting" || fail 'no rank runs' || return
    kill -KILL "$(agents)"
    head -c 5000000 /dev/zero >&8 && : >"$work/all_taken" &
    exec 8>&-
    ends 0 || return
    leaves_nothing
}

# What was to be written when the rank closed its input counts as taken. The second piece is short: if only that one
# counted, the others would fill the window.
test_input_does_not_wait_for_a_rank_that_has_closed_it() {
    local feeder
    rm -f "$work/waiting" "$work/all_taken"
    mkfifo "$work/closed"
    "$fiber" run -n 1 -x "DIR=$work" bash -c '
        exec 7<> <(:)
        echo $$ >"$DIR/waiting"
        while [ ! -e "$DIR/close" ]; do read -rt 0.05 -u 7; done
        exec <&-
        while [ ! -e "$DIR/all_taken" ]; do read -rt 0.05 -u 7; done; exit 0' <"$work/closed" >"$work/out" 2>"$work/err" &
    launcher=$!
    python3 -c 'import array, fcntl, os, sys, termios
for n in (65536, 10):
    os.write(1, b"x" * n)
    left = array.array("i", [n])
    while left[0]:
        fcntl.ioctl(1, termios.FIONREAD, left)
for i in range(40):
    os.write(1, b"x" * 65536)
open(sys.argv[1], "w")' "$work/all_taken" >"$work/closed" &
    feeder=$!
    wait_for "$patience" test -s "$work/waiting" || fail 'no rank runs' || return
    wait_for "$patience" stays_full "$feeder" || fail 'the input does not wait' || return
    : >"$work/close"
    ends 0 || return
    leaves_nothing
}

test_closed_descriptors() {
    local code=0 files=$work/files
    timeout "$patience" "$fiber" run -n 2 -o "$files" sh -c 'echo "rank $FIBER_RANK"; cat' <&- >&- 2>&- || code=$?
    [ "$code" = 0 ] || fail "all closed: exit code $code" || return
    [ "$(cat "$files/latest/1.out")" = 'rank 1' ] || fail "$(ls "$files"): its file is not whole" || return
    code=0
    timeout "$patience" "$fiber" run -n 2 sh -c 'echo "rank $FIBER_RANK"; cat' <&- >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 0 ] || fail "closed input: exit code $code" || return
    says 'rank 1' || return
    leaves_nothing
}

test_reader_that_goes_away_ends_the_run() {
    local codes
    set +o pipefail
    timeout "$patience" "$fiber" run -n 2 yes 2>"$work/err" </dev/null | head -n 3 >"$work/out"
    codes=${PIPESTATUS[*]}
    set -o pipefail
    [ "$codes" = '141 0' ] || fail "exit codes $codes" || return
    [ "$(wc -l <"$work/out")" = 3 ] || fail 'not three lines' || return
    says 'the reader of standard output is gone' || return
    leaves_nothing
}

# When the ranks have ended, 675 kB wait for a reader, as a pager is.
start_for_a_pager() { # start_for_a_pager [<file of its standard error>]
    rm -f "$work/pages" "$work"/wrote.*
    : >"$work/out"
    mkfifo "$work/pages"
    exec 8<>"$work/pages"
    setsid env --default-signal "$fiber" run --oversubscribe -n 4 -x "DIR=$work" sh -c 'seq 1 30000; : >"$DIR/wrote.$FIBER_RANK"' \
        >"$work/pages" 2>"${1:-$work/err}" </dev/null 8<&- &
    launcher=$!
    is_over() { [ -e "$work/wrote.0" ] && [ -e "$work/wrote.1" ] && [ -e "$work/wrote.2" ] && [ -e "$work/wrote.3" ] && [ -z "$(agents)" ]; }
    wait_for "$patience" is_over || fail 'the ranks do not end'
}

test_reader_that_takes_its_time_gets_all() {
    local code=0 lines
    start_for_a_pager || return
    ! wait_for 8 gone "$launcher" || fail 'it did not wait for its reader' || return
    exec 7<"$work/pages" 8<&-
    lines=$(wc -l <&7)
    exec 7<&-
    wait "$launcher" || code=$?
    [ "$code" = 0 ] || fail "exit code $code" || return
    [ "$lines" = 120000 ] || fail "$lines lines, not 120000" || return
    leaves_nothing
}

test_signal_ends_the_wait_for_the_reader() {
    local lost='some output of the ranks is lost: its reader did not take it'
    start_for_a_pager || return
    kill -TERM "$launcher"
    ends 143 || return
    says "$lost" || return
    start_for_a_pager "$work/pages" || return
    kill -INT "$launcher"
    ends 130 || return
    exec 8<&-
    leaves_nothing
}

test_full_disk_fails_the_run() {
    local code=0
    timeout "$patience" "$fiber" run -n 2 echo hello >/dev/full 2>"$work/err" </dev/null || code=$?
    [ "$code" = 1 ] || fail "exit code $code though nothing could be written" || return
    says 'standard output: No space left on device' || return
    leaves_nothing
}

test_lost_file_fails_the_run() {
    local code=0
    mkdir -p "$work/taken/0.out"
    timeout "$patience" "$fiber" run -n 2 -o "$work/taken/%t.out" echo hello >"$work/out" 2>"$work/err" </dev/null || code=$?
    [ "$code" = 1 ] || fail "exit code $code though a file is lost" || return
    says "some output of the ranks is lost: $work/taken/%t.out: Is a directory" || return
    [ "$(cat "$work/taken/1.out")" = hello ] || fail 'the other file is not whole' || return
    leaves_nothing
}

test_files_of_many_restarts_are_whole() {
    local code=0
    (
        ulimit -n 100
        timeout "$patience" "$fiber" run -n 2 -o "$work/again" --on-failure restart --max-restarts 40 \
            sh -c 'echo out; echo err >&2; [ "$FIBER_RANK" = 1 ] && exec tail -f /dev/null; exit 3' >"$work/out" 2>"$work/err" </dev/null
    ) || code=$?
    [ "$code" = 3 ] || fail "exit code $code" || return
    [ "$(grep -c '^out$' "$work/again/latest/0.out")" = 41 ] || fail "$(wc -l "$work/again/latest/0.out"), not 41 lines" || return
    [ "$(grep -c '^err$' "$work/again/latest/0.err")" = 41 ] || fail "$(wc -l "$work/again/latest/0.err"), not 41 lines" || return
    [ "$(grep -c '^--- restart [0-9]*, [0-9:]* ---$' "$work/again/latest/0.out")" = 40 ] || fail 'not 40 marks' || return
    leaves_nothing
}

# A second run leaves the files of the first one alone; a pattern's are written anew, and a link in their place stays.
test_files_by_run_and_by_pattern() {
    fiber_run 0 -n 2 -o "$work/runs" sh -c 'echo first' || return
    fiber_run 0 -n 2 -o "$work/runs" --timestamp sh -c 'echo second; printf half' || return
    [ "$(cat "$work"/runs/????????/1.out | grep -c first)" = 1 ] || fail "$(find "$work/runs"): the first run is gone" || return
    grep -qE '^[0-9:]{8}\.[0-9]{3} second$' "$work/runs/latest/1.out" || fail "no time: $(cat "$work/runs/latest/1.out")" || return
    fiber_run 0 -n 2 -o "$work/by/%h/%t-100%%.log" sh -c 'echo out; echo err >&2' || return
    fiber_run 0 -n 2 -o "$work/by/%h/%t-100%%.log" sh -c 'echo out; echo err >&2' || return
    [ "$(sort "$work/by/$(hostname)/1-100%.log" | tr '\n' ' ')" = 'err out ' ] || fail "$(find "$work/by"): not as asked for" || return
    ln -sf "$work/elsewhere" "$work/link.0"
    fiber_run 1 -n 1 -o "$work/link.%t" echo out || return
    [ ! -e "$work/elsewhere" ] || fail 'a link was followed' || return
    fiber_run 2 -n 2 -o "$work/one-%j" echo out || return
    says 'names one file for 2 ranks' || return
    leaves_nothing
}

# In the background of a terminal it does not read, as SIGTTIN would have it, and takes no end of input for granted.
test_terminal_is_read_in_the_foreground() {
    timeout "$patience" python3 "$here/ring_terminal.py" "$fiber" >"$work/out" 2>"$work/err" || fail 'see above' || return
    leaves_nothing
}

# Just when a read has failed in the background, and before the reader asks who has the terminal.
test_terminal_comes_to_the_foreground_after_a_failed_read() {
    "${CC:-cc}" -shared -fPIC -o "$work/late.so" -x c - <<'C' || return
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t read(int fd, void *data, size_t len)
{
    static int failed;
    char thread[16];

    prctl(PR_GET_NAME, thread);
    if (fd != 0 || failed || strcmp(thread, "fbr-input") != 0)
        return syscall(SYS_read, fd, data, len);
    failed = 1;
    while (tcgetpgrp(0) != getpgrp())
        sched_yield();
    errno = EIO;
    return -1;
}
C
    LD_PRELOAD=$work/late.so ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 timeout "$patience" \
        python3 "$here/ring_terminal.py" "$fiber" >"$work/out" 2>"$work/err" || fail 'see above' || return
    leaves_nothing
}

test_lines_of_32_ranks_are_whole() {
    fiber_run 0 --oversubscribe -n 32 python3 -c 'import os
for i in range(200): os.write(1, b"<%s>" % (b"z" * (i * 37 % 5000))); os.write(1, b"\n")' || return
    [ "$(grep -c '^<z*>$' "$work/out")" = 6400 ] || fail "$(grep -c '^<z*>$' "$work/out") whole lines, not 6400"
}

# What a person sees: a prompt, a bar that moves, nothing that steers the terminal.
test_unfinished_lines_on_a_terminal() {
    timeout "$patience" python3 "$here/ring_pieces.py" "$fiber" >"$work/out" 2>"$work/err" || fail 'see above' || return
    leaves_nothing
}

# A shell on a rank, as if it were here.
test_pseudo_terminal() {
    local code=0
    timeout "$patience" python3 "$here/ring_pty.py" "$fiber" >"$work/out" 2>"$work/err" || fail 'see above' || return
    fiber_run 2 -n 2 --pty sh || return
    says 'choose it with --pty=RANK' || return
    fiber_run 2 -n 2 --pty=2 sh || return
    says 'there is no such rank; the 2 ranks start at 0' || return
    timeout "$patience" "$fiber" run -n 2 --pty=1 sh -c 'echo "$FIBER_RANK: $(tty)"; cat' <<<typed >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 0 ] || fail "rank 1: exit code $code" || return
    says '0: not a tty' && says '1: /dev/pts/' && says 'typed' || return
    leaves_nothing
}

# The prompt is read before anything is answered, through pipes.
test_unfinished_line_in_a_pipe() {
    local prompt=
    mkfifo "$work/answers" "$work/questions"
    timeout "$patience" "$fiber" run -n 2 --stdin 0 sh -c '[ "$FIBER_RANK" = 1 ] || { printf "name? "; read -r n; echo "hello $n"; }' \
        <"$work/answers" >"$work/questions" 2>"$work/err" &
    launcher=$!
    exec 7>"$work/answers" 8<"$work/questions"
    IFS= read -r -t "$patience" -N 6 prompt <&8
    [ "$prompt" = 'name? ' ] || fail "no prompt: $prompt" || return
    echo you >&7
    IFS= read -r -t "$patience" prompt <&8
    [ "$prompt" = 'hello you' ] || fail "no answer: $prompt" || return
    exec 7>&- 8<&-
    wait "$launcher" || fail "exit code $?" || return
    leaves_nothing
}

test_bytes_are_not_changed() {
    head -c 3000000 /dev/urandom >"$work/bytes"
    "$fiber" run -n 2 sh -c '[ "$FIBER_RANK" = 1 ] || cat "$0"' "$work/bytes" 2>"$work/err" </dev/null | cmp - "$work/bytes" ||
        fail 'two ranks: not the same bytes' || return
    "$fiber" run -n 1 cat "$work/bytes" 2>"$work/err" </dev/null | cmp - "$work/bytes" || fail 'not the same bytes' || return
    leaves_nothing
}

test_bar_is_one_line_of_a_file_and_of_a_report() {
    local code=0
    "$fiber" run --tag -n 2 python3 -c 'import os, sys
for i in range(101):
    sys.stdout.write("\r%3d%%|#" % i); sys.stdout.flush()
sys.exit(3 * (os.environ["FIBER_RANK"] == "0"))' >"$work/out" 2>"$work/err" </dev/null || code=$?
    [ "$code" = 3 ] || fail "exit code $code" || return
    [[ $(cat "$work/out") == *'[0] 100%|#'* ]] && ! grep -q $'\r' "$work/out" || fail "the file: $(cat "$work/out")" || return
    grep -qx 'fiber:     100%|#' "$work/err" || fail "the report: $(cat "$work/err")" || return
    leaves_nothing
}

# 8 lines of 20 MB. The launcher holds 1 MiB of each, 8 MiB that came and 4 MiB that go, and 16 MiB for `fiber logs`.
with_peak='import os, subprocess, sys
_, status, usage = os.wait4(subprocess.Popen(sys.argv[2:]).pid, 0)
open(sys.argv[1], "w").write("%d\n" % usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))'

test_lines_without_an_end_take_no_memory() {
    local code=0 peak
    python3 -c "$with_peak" "$work/peak" "$fiber" run --oversubscribe -n 8 head -c 20000000 /dev/zero >"$work/zeros" 2>"$work/err" </dev/null ||
        code=$?
    [ "$code" = 0 ] || fail "exit code $code" || return
    peak=$(cat "$work/peak")
    [ "$peak" -lt $((65536 + 2000000 * asan)) ] || fail "the launcher has $peak KiB" || return
    leaves_nothing
}

test_killed_python_has_printed_its_lines() {
    local code=0 print='import os
print("the last line")
os.kill(os.getpid(), 9)'
    env -u PYTHONUNBUFFERED "$fiber" run -n 2 python3 -c "$print" >"$work/out" 2>"$work/err" </dev/null || code=$?
    [ "$code" = 137 ] || fail "exit code $code" || return
    grep -qx 'the last line' "$work/out" || fail "the output: $(cat "$work/out")" || return
    grep -qx 'fiber:     the last line' "$work/err" || fail "the report: $(cat "$work/err")" || return
    "$fiber" run -n 2 -x PYTHONUNBUFFERED= python3 -c "$print" >"$work/out" 2>"$work/err" </dev/null || :
    [ ! -s "$work/out" ] || fail "not the user's choice: $(cat "$work/out")" || return
    leaves_nothing
}

run_tests test_slow_reader_holds_up_the_ranks test_slow_reader_holds_up_ranks_that_start_again \
    test_slow_reader_outlives_agents test_slow_rank_holds_up_the_input \
    test_rank_that_ends_before_its_input_does_no_harm test_input_that_has_ended_ends_for_the_next_try \
    test_input_goes_on_after_a_restart test_input_does_not_wait_for_a_replaced_rank \
    test_input_does_not_wait_for_a_rank_that_has_closed_it test_closed_descriptors \
    test_reader_that_goes_away_ends_the_run \
    test_reader_that_takes_its_time_gets_all test_signal_ends_the_wait_for_the_reader test_full_disk_fails_the_run \
    test_lost_file_fails_the_run test_files_of_many_restarts_are_whole test_files_by_run_and_by_pattern \
    test_unfinished_lines_on_a_terminal test_pseudo_terminal test_unfinished_line_in_a_pipe test_bytes_are_not_changed \
    test_killed_python_has_printed_its_lines test_bar_is_one_line_of_a_file_and_of_a_report \
    test_lines_without_an_end_take_no_memory test_terminal_is_read_in_the_foreground \
    test_terminal_comes_to_the_foreground_after_a_failed_read test_lines_of_32_ranks_are_whole
