# docker_user_test.sh - who a container is, how many processes it may have, and whose the files are that it writes to a folder
# of ours. Callers other than root reach the bed's engine by a port.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/engines.sh disable=SC2015,SC2016
clean() { [[ ! $relay ]] || kill "$relay" 2>/dev/null || :; }
relay=
engine=docker
command -v python3 >/dev/null && command -v setpriv >/dev/null || { echo "skipped: python3 or setpriv is missing"; exit 77; }
. "$(dirname "$0")/engines.sh"
export FIBER_BACKEND=docker FIBER_GRACE=500ms FIBER_START_TIMEOUT=300s
export FIBER_IMAGE_ADD="/bin/sh /usr/bin/id /bin/cat"
unset FIBER_IMAGE FIBER_DOCKER_USER
uid=4711 gid=4712 other=4713
limit='cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null'

# --- root stays root; a limit of processes
gives 0 "$fiber" run -n 1 -- /bin/sh -c "id -u; $limit; :"
says '^0$'
says '^32768$'
FIBER_DOCKER_PIDS=77 gives 0 "$fiber" run -n 1 -- /bin/sh -c "$limit; :"
says '^77$'
ok "root, and the limit of processes"
FIBER_DOCKER_PIDS=0 gives 0 "$fiber" run -n 1 -- /bin/sh -c "$limit; :"
says '^max$'
ok "no limit"

# --- somebody else
mkfifo "$work/port"
python3 -B "$TEST_SOURCE_DIR/tests/engines/docker_relay.py" "${DOCKER_HOST#unix://}" >"$work/port" 2>"$work/relay" &
relay=$!
read -r port <"$work/port" || failed "the relay does not begin: $(<"$work/relay")"
mkdir "$work/mine"
chmod 711 "$work"
chown $uid:$gid "$work/mine"
cd "$work/mine"
as_caller=(setpriv --reuid "$uid" --regid "$gid" --groups "$gid,$other" --inh-caps=-all env -u XDG_RUNTIME_DIR HOME="$work/mine"
    DOCKER_HOST="tcp://127.0.0.1:$port")
"${as_caller[@]}" test -x "$fiber" -a -x "$prog" -a -r "$TEST_BINARY_DIR/fiber/cluster.so" ||
    { echo "skipped, the rest: what is built is for its owner only"; exit 77; }

FIBER_DOCKER_MOUNTS="$work/mine:/mine" gives 0 "${as_caller[@]}" "$fiber" run -n 2 -N 1 -- /bin/sh -c \
    'echo "I am $(id -u):$(id -g) of $(id -G)"; echo x >/mine/$FIBER_RANK; echo y >/dev/shm/y && cat /dev/shm/y; echo z >here && cat here'
for text in "^I am $uid:$gid of ($gid $other|$other $gid)$" '^y$' '^z$'; do
    (($(grep -cE "$text" "$work/out") == 2)) || failed "both should say '$text'"
done
[[ $(stat -c %u:%g "$work/mine/0" "$work/mine/1" | sort -u) == "$uid:$gid" ]] || failed "the files should be the caller's"
ok "the caller's user, groups and files"
# a pool: tickets are read, what is shared is mapped, workers that die are replaced
enough=$work/mine/enough
begins 1 begun "${as_caller[@]}" "$prog" pool 2 200 20 "$enough" 1
await_jobs 1
"$bed" api POST "/containers/$job/kill" >/dev/null
touch "$enough"
ends
says '^right 200 of 200$'
does 300 "${as_caller[@]}" "$prog" nested
(($(grep -c '^leaf beside its parent$' "$work/out") == 2)) || failed "they should be in its container"
ok "a pool and nested processes of the caller"

FIBER_DOCKER_USER=65534:65534 gives 0 "${as_caller[@]}" "$fiber" run -n 1 -- /bin/sh -c 'echo "I am $(id -u):$(id -g)"'
says '^I am 65534:65534$'
ok "docker_user"
# an image that was not made of the program says who it is
"$bed" has ids:1 || "$bed" image ids:1 /bin/sh /usr/bin/id >/dev/null
gives 0 "${as_caller[@]}" "$fiber" run --image ids:1 -n 1 -- /bin/sh -c 'echo "I am $(id -u)"'
says '^I am 0$'
ok "an image that is named"
