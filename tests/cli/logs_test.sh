# logs_test.sh - `fiber logs`: what is kept of a run while it goes on and after its end, and what of it is shown.
#
# The ranks tell by a FIFO how far they are, and are told by two others to go on and to end: one that had been told to go
# on could take what the other was to be told.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

PATH=${TEST_BINARY_DIR:?}/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run XDG_STATE_HOME=$work/state GATE=$work/gate GO=$work/go END=$work/end
mkfifo "$GATE" "$GO" "$END"
exec 9<>"$GATE" 8<>"$GO" 7<>"$END"
cd "$work"
bad=0

complain() { # complain <text>...
    echo "$*"
    bad=1
}

hear() { # hear <line>: waits until a rank says that
    local line
    while read -r -t 60 line <&9; do
        [ "$line" != "$1" ] || return 0
    done
    complain "no rank said $1"
    exit 1
}

is() { # is <expected> <what> <command>...: its standard output, lines ended by |
    local got
    got=$(timeout 60 "${@:3}" 2>err | tr '\n' '|') || :
    [ "$got" = "$1" ] || complain "$2: $got, not $1; it said: $(cat err)"
}

until_logs() { # until_logs <pattern> <run>: the spool's thread may not have written it yet
    until fiber logs "$2" 2>&1 | grep -q "$1"; do kill -0 "$pid" || { complain "no $1"; exit 1; }; done
}

# shellcheck disable=SC2016
fiber run -n 2 --name long bash -c 'echo "first $FIBER_RANK"; echo "bad $FIBER_RANK" >&2; printf "\r10%%\r20%%\n"
    echo up >$GATE; read -r x <$GO; echo "last $FIBER_RANK"; echo said >$GATE; [ $FIBER_RANK = 0 ] || { read -r x <$END; exit 3; }' \
    >out 2>&1 7<&- 8<&- 9<&- &
pid=$!
hear up
hear up
until_logs 20% long/0
until_logs 20% long/1
until_logs 'bad 0' long/0
is 'first 0|20%|' 'rank 0 so far' fiber logs --tail 9 long/0
[ "$(cat err)" = 'bad 0' ] || complain "rank 0, standard error: $(cat err)"
is '[0] first 0|[1] first 1|' 'two ranks' bash -c 'fiber logs long --grep first | sort'
is 'first 0|20%|' 'without a name, the only run' bash -c 'fiber logs --grep "" | sed -n "s/^\[0\] //p"'
fiber logs -f long >followed 2>&1 &
follower=$!
echo go >&8
echo go >&8
hear said
hear said
until_logs 'last 0' long/0
echo end >&7
code=0
wait "$pid" || code=$?
[ "$code" = 3 ] || complain "exit code $code"
wait "$follower" || complain "logs -f: exit code $?"
for line in '[0] first 0' '[1] first 1' '[0] last 0' '[1] last 1' '[1] 20%'; do
    grep -qxF "$line" followed || complain "logs -f has no line $line: $(cat followed)"
done
grep -q 'has ended with code 3' followed || complain "logs -f: $(cat followed)"
is '[0] last 0|[1] last 1|' 'the last lines' bash -c 'fiber logs long --tail 2 | sort'
is '[0] last 0|[1] last 1|' 'without a name, the run that ended last' bash -c 'fiber logs --tail 2 | sort'
is 'last 1|' 'of a rank' fiber logs long 1 --tail 1
is '' 'none' fiber logs long --tail 0
is 'last 0|' 'by its words' fiber logs long/0 --grep '^l[a]st'
is '' 'since later' fiber logs long --since 2100-01-01
is '2' 'since an hour' bash -c 'fiber logs long --since 1h --grep last | wc -l | tr -d "\n"'
fiber logs long/0 --grep last -t | grep -qE '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3} last 0$' || complain 'no time'
fiber logs long 7 2>err && complain 'logs of rank 7'
grep -q 'there is no rank 7' err || complain "rank 7: $(cat err)"
fiber logs long --since bla 2>err && complain '--since bla'
grep -q 'use a duration' err || complain "--since bla: $(cat err)"
fiber logs long --grep '(' 2>err && complain '--grep ('

# The registry may forget it; what was kept is found even so.
rm -rf run/fiber
is 'last 0|' 'without the registry' fiber logs long/0 --grep '^last'
cat >prog <<'END'
#!/bin/sh
echo unnamed
END
chmod 755 prog
fiber run -n 1 -- ./prog >out
rm -rf run/fiber
is 'unnamed|' 'by its program, without the registry' fiber logs prog
is 'unnamed|' 'without a name and the registry' fiber logs
mkdir 'a folder'
mv prog 'a folder/the program'
fiber run -n 1 -- './a folder/the program' argument >out
is 'unnamed|' 'by a name with a blank' fiber logs 'the program'
echo 'echo a script' >train.sh
fiber run -n 1 -- sh -u ./train.sh >out
is 'a script|' 'by the name of the script that an interpreter runs' fiber logs train

# One rank byte for byte, also when its pieces are large.
head -c 3000000 /dev/urandom >bytes
fiber run -n 1 --name bytes cat bytes >out
fiber logs bytes/0 | cmp - bytes || complain 'not the same bytes'
FIBER_LOG_KEEP=256Ki fiber run -n 1 --name bytes cat bytes >out
fiber logs bytes/0 >got
{ [ "$(stat -c %s got)" -le 262144 ] && [ "$(stat -c %s got)" -ge 65536 ]; } || complain "kept $(stat -c %s got) bytes"
tail -c "$(stat -c %s got)" bytes | cmp - got || complain 'not the last bytes'

# Each start of a rank has a mark of its own.
fiber run -n 1 --name again --on-failure restart --max-restarts 1 sh -c 'echo try; exit 3' >out 2>&1 || :
is 'try|--- restart 1, HH:MM:SS ---|try|' 'a restart' \
    bash -c 'fiber logs again --tail 9 | sed "s/[0-9][0-9]:[0-9][0-9]:[0-9][0-9]/HH:MM:SS/"'

# More ranks than descriptors.
fiber run -n 1 --name many echo said >out
home=$(grep -lr --include=about many state/fiber/logs)
for rank in {1..99}; do cp "${home%/about}/0.0" "${home%/about}/0.$rank"; done
code=0
(ulimit -n 40; fiber logs many) >out 2>err || code=$?
[ "$code" = 1 ] || complain "more ranks than descriptors: exit code $code"
grep -q '^fiber: .*: too many open files' err || complain "more ranks than descriptors: $(cat err)"

FIBER_LOG_KEEP=0 fiber run -n 1 --name none echo nothing >out
fiber logs none 2>err && complain 'what is not kept is shown'
grep -q 'is not kept, because it was started with log_keep=0' err || complain "nothing kept: $(cat err)"
FIBER_LOG_DIR=/proc/none fiber run -n 1 echo said >out 2>err || complain 'no place for logs: the run fails'
{ [ "$(cat out)" = said ] && ! grep -v '^fiber: waiting for .* joined$' err; } || complain "no place for logs: $(cat out err)"
mkdir -m 755 shared
FIBER_LOG_DIR=$PWD/shared fiber run -n 1 --name astray echo said >out
FIBER_LOG_DIR=$PWD/shared fiber logs astray 2>err && complain 'what is not kept is shown'
grep -q 'shared is not a directory that only you can enter; set log_dir' err || complain "no place for logs: $(cat err)"

for option in --tail=1 --follow; do
    code=0
    fiber logs bytes "$option" >/dev/full 2>err || code=$?
    [ "$code" = 1 ] || complain "a full disk, $option: exit code $code"
    grep -q '^fiber: cannot write standard output: No space left on device' err || complain "a full disk: $(cat err)"
done
for rank in many bytes/0; do
    (trap '' PIPE; fiber logs "$rank" 2>err) | true || :
    [ ! -s err ] || complain "a reader that has gone, $rank: $(cat err)"
done

# gc removes what is too old.
find state/fiber/logs -mindepth 1 -maxdepth 1 -exec touch -d '20 days ago' {} +
fiber gc >out
grep -q 'removed.* logs .*days' out || complain "gc: $(cat out)"
[ -z "$(find state/fiber/logs -mindepth 1)" ] || complain "gc leaves $(find state/fiber/logs -mindepth 1)"
exit $bad
