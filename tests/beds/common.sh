# common.sh - what the beds share; they source it. What a machine must have for a bed is tried out, in less than a second,
# before a bed begins: a test that cannot run here skips (77), and says why.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
set -euo pipefail

beds=$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)
# shellcheck disable=SC2034 # for those who source this
state=${TEST_BED_DIR:-${XDG_RUNTIME_DIR:-/run}/fiber-beds}
data=${TEST_BED_DATA:-/var/lib/fiber-beds}
# shellcheck disable=SC2034 # for those who source this
cache=${XDG_CACHE_HOME:-${HOME:-/var/cache}/.cache}/fiber/beds
export GOGC=400  # the engines are Go programs: a seventh of their processor time would collect garbage

die() { echo "bed: $*" >&2; exit 1; }
skip() { echo "skipped: the bed needs $*"; exit 77; }

is() {  # PID NAME: a number from a file may be somebody else's by now
    [[ $1 =~ ^[0-9]+$ && $(readlink "/proc/$1/exe") == */"$2"* ]]
}

end() {  # SIGNAL PID: kill -0 would wait for a zombie where process 1 reaps late
    [[ -e /proc/$2/exe ]] || return 0
    kill "-$1" "$2" 2>/dev/null || return 0
    while [[ -e /proc/$2/exe ]]; do sleep 0.02; done
}

until_true() {  # SECONDS COMMAND...
    local last=$((SECONDS + $1)); shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < last)) || return 1
        sleep 0.05
    done
}

none_of() { local out; out=$("$@") && [[ -z $out ]]; }  # COMMAND...: it succeeds, and says nothing

# hierarchies: where groups can be made; version 1 has several, version 2 one
hierarchies() {
    local dir
    if [[ -e /sys/fs/cgroup/cgroup.procs ]]; then echo /sys/fs/cgroup; return; fi
    for dir in /sys/fs/cgroup/*/; do
        [[ ! -e ${dir}cgroup.procs || -h ${dir%/} ]] || echo "${dir%/}"
    done
}

need_root() { [[ $EUID == 0 ]] || skip root; }

need_tools() {  # TOOL...
    local tool
    for tool; do command -v "$tool" >/dev/null || skip "$tool (packages.txt, group cluster)"; done
}

need_bridge() {
    ip link add "fbtry$$" type bridge 2>/dev/null || skip "a network bridge"
    ip link del "fbtry$$"
    iptables -w -S FORWARD >/dev/null 2>&1 || skip "iptables that work"
}

need_namespaces() { unshare --mount --pid --net --uts --ipc --fork true 2>/dev/null || skip namespaces; }

need_cgroups() {
    local dir
    [[ -n $(hierarchies) ]] || skip "control groups"
    for dir in $(hierarchies); do
        mkdir -p "$dir/fiber-bed-try-$$" 2>/dev/null || skip "to make control groups in $dir"
        rmdir "$dir/fiber-bed-try-$$" 2>/dev/null || :
    done
}

need_overlay() {
    local dir ok=
    mkdir -p "$data"
    dir=$(mktemp -d "$data/try.XXXXXX")
    mkdir "$dir"/{lower,upper,work,merged}
    if mount -t overlay overlay -o "lowerdir=$dir/lower,upperdir=$dir/upper,workdir=$dir/work" "$dir/merged" 2>/dev/null; then
        umount "$dir/merged"
        ok=1
    fi
    rm -rf "$dir"
    rmdir "$data" 2>/dev/null || :
    [[ $ok ]] || skip "overlayfs on $data"
}

need_containers() {  # runc starts one: mounts, namespaces, control groups and devices in one go
    local dir ok=
    dir=$(mktemp -d)
    mkdir "$dir/rootfs"
    "$beds/image" /bin/true | tar -C "$dir/rootfs" -x
    (cd "$dir" && runc spec &&
        sed -i 's/"terminal": true/"terminal": false/; s/"sh"/"true"/; s/"readonly": true/"readonly": false/' config.json)
    # The default of the specification lowers nothing and takes no limits; what is missing shows anyway.
    if runc --root "$dir/state" run --bundle "$dir" "fiber-bed-try-$$" </dev/null >"$dir/log" 2>&1; then ok=1; fi
    runc --root "$dir/state" delete --force "fiber-bed-try-$$" >/dev/null 2>&1 || :
    [[ $ok ]] || { tail -1 "$dir/log"; rm -rf "$dir"; skip "containers that start"; }
    rm -rf "$dir"
}
