# docker_podman_test.sh - Podman's socket instead of Docker's, as root and as somebody else: who that is to it, pools, nested
# processes, signals, output. Containers are on this machine's network, and what Podman writes beside its data is in folders that
# only it sees, so nothing of the machine is changed.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2016 # `hide` is for another shell
set -euo pipefail

prog=${TEST_BINARY_DIR:?}/tests/engines/docker_prog
[[ -x $prog ]] || { echo "$prog is not built"; exit 77; }
for tool in podman conmon runc setpriv unshare curl; do command -v $tool >/dev/null || { echo "skipped: $tool is missing"; exit 77; }; done
((EUID == 0)) || { echo "skipped: needs root"; exit 77; }
init=$(command -v catatonit) || init=/usr/libexec/podman/catatonit
[[ -x $init ]] || { echo "skipped: catatonit is missing"; exit 77; }
unshare --mount true || { echo "skipped: no name spaces for mounts"; exit 77; }

work=$(mktemp -d)
chmod 755 "$work"
podman='' who=''
trap 'end; forget; rm -rf "$work" || :' EXIT
cat >"$work/containers.conf" <<END
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
init_path = "$init"
[containers]
default_ulimits = []
init_path = "$init"
END
echo '{"HostConfig":{"Ulimits":[{"Name":"nofile","Soft":1024,"Hard":4000000000}]}}' >"$work/limits"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/policy.json"

failed() {
    echo "FAILED: $1"
    tail -n 30 "$work/out" | cut -c 1-300 | sed 's/^/    /'
    tail -n 10 "$work/log" | cut -c 1-300 | sed 's/^/    /'
    exit 1
}
says() { grep -qE -- "$1" "$work/out" || failed "$who: it should say '$1'"; }
does() { timeout 300 "${as[@]}" "$prog" "$@" >"$work/out" 2>&1 || :; }
answers() { curl -fs --max-time 20 -o "$work/pong" --unix-socket "$work/$who/sock" http://podman/_ping; }

# Its locks, its state and its caches are there, whatever its configuration says.
hide='for place in /dev/shm /run /var/cache /var/lib /etc/cni; do
    [[ ! -d $place ]] || mount -t tmpfs -o mode=1777,size=64m none "$place" || exit
done
exec "$@"'
# The groups of version 1, which it leaves. What somebody else has in them cannot be removed, and what was there stays.
groups=(/sys/fs/cgroup/{,*/}libpod_parent)
forget() {
    local dir
    for dir in /sys/fs/cgroup/{,*/}libpod_parent; do
        [[ ! -d $dir || " ${groups[*]} " == *" $dir "* ]] || find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || :
    done
}

# begin WHO PREFIX...: a service of that one, with folders of its own; 1: it does not come up
begin() {
    local end=$((SECONDS + 60))
    who=$1
    shift
    as=("$@" env HOME="$work/$who" XDG_RUNTIME_DIR="$work/$who/run" CONTAINERS_CONF="$work/containers.conf"
        DOCKER_HOST="unix://$work/$who/sock" FIBER_BACKEND=docker FIBER_DOCKER_NETWORK=host FIBER_GRACE=500ms
        FIBER_START_TIMEOUT=300s)
    mkdir -p "$work/$who/.config/containers" "$work/$who/run"
    chmod 700 "$work/$who/run"
    cp "$work/policy.json" "$work/$who/.config/containers"
    [[ $who == root ]] || chown -R "$id:$id" "$work/$who"
    unshare --mount --propagation private bash -c "$hide" - "${as[@]}" podman --root "$work/$who/data" \
        --runroot "$work/$who/run/containers" --storage-driver vfs --storage-opt vfs.ignore_chown_errors=true \
        system service --time 0 "unix://$work/$who/sock" >"$work/log" 2>&1 &
    podman=$!
    until answers; do
        ((SECONDS < end)) && [[ -e /proc/$podman/exe ]] || return 1
        read -rt 0.1 <> <(:) || :
    done
}
# What ends its containers, and what keeps the name space of somebody else's, are processes of their own; and without root the
# service is one below what we have started, and may outlive it.
end() {
    local pause=$work/${who-}/run/libpod/tmp/pause.pid last=$((SECONDS + 60))
    [[ ! $podman ]] || { kill "$podman" && wait "$podman"; } 2>/dev/null || :
    podman=
    [[ ! -s $pause ]] || kill "$(<"$pause")" 2>/dev/null || :
    while ((SECONDS < last)) && grep -qsaF "$work/" /proc/[0-9]*/cmdline; do
        grep -lsaF "unix://$work/" /proc/[0-9]*/cmdline | cut -d/ -f3 | xargs -r kill 2>/dev/null || :
        read -rt 0.1 <> <(:) || :
    done
}
cases() {
    does process exit 7
    says '^code 7: '
    does process hello
    says '^hello from '
    does process signal 10
    says '^code -10: .*signal 10'
    does pool 2 100 5
    says '^right 100 of 100$'
    says '^deaths 0$'
    does nested
    (($(grep -c '^leaf beside its parent$' "$work/out") == 2)) || failed "$who: nested processes"
    echo "ok: Podman, $who"
}

id=4321 # of nobody
begin root || { tail -3 "$work/log"; echo "skipped: Podman does not run here"; exit 77; }
cases
FIBER_DOCKER_TEMPLATE=$work/limits does process hello # the reason is the end of a long message
says '^code 125: .*rlimit'
echo "ok: Podman's long messages"
end
nobody=(setpriv --reuid "$id" --regid "$id" --clear-groups)
if ! "${nobody[@]}" test -x "$prog"; then
    echo "not tested without root: others may not reach $prog"
elif ! "${nobody[@]}" unshare --user --map-root-user true 2>/dev/null; then
    echo "not tested without root: no name spaces for users"
elif ! begin rootless "${nobody[@]}"; then
    tail -3 "$work/log"
    echo "not tested without root: Podman does not run so here"
else
    cases
    end
fi
