# config_test.sh - `fiber config`: what is set is written into the user's file and read from there; mistakes change nothing.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

PATH=${TEST_BINARY_DIR:?}/cli:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/config
file=$work/config/fiber/fiber.conf
bad=0

complain() { # complain <text>...
    echo "$*"
    bad=1
}

refuses() { # refuses <pattern> <argument of config>...
    local code=0
    fiber config "${@:2}" >out 2>&1 || code=$?
    { [ $code = 2 ] && grep -q "$1" out; } || complain "config ${*:2}: code $code, $(cat out)"
}

fiber config set heartbeat 2s >out
[ "$(cat out)" = "heartbeat = 2s, in $file" ] || complain "set: $(cat out)"
[ "$(fiber config show heartbeat | head -1)" = 'heartbeat = 2s' ] || complain "show: $(fiber config show heartbeat)"
fiber config show heartbeat | grep -q "from $file:1;" || complain "origin: $(fiber config show heartbeat)"
fiber config set docker_mounts '/data:/data:ro /scratch:/scratch' >out
[ "$(cat "$file")" = $'heartbeat = 2s\ndocker_mounts = /data:/data:ro /scratch:/scratch' ] || complain "file: $(cat "$file")"
[ "$(stat -c %a "$file")" = 600 ] || complain "mode: $(stat -c %a "$file")"

fiber config set log_level warning >out 2>err || complain "another way to write a value: $(cat out)"
[ -s err ] && complain "another way to write a value: $(cat err)"
mv "$file" elsewhere && ln -s "$PWD/elsewhere" "$file"
fiber config set log_level info >out
[ "$(cat out)" = "log_level = info, in $file" ] || complain "through a link: $(cat out)"
{ [ -L "$file" ] && grep -qx 'log_level = info' elsewhere; } || complain 'a link is replaced, and not what it leads to'
mv elsewhere "$file"

FIBER_HEARTBEAT=3s fiber config set heartbeat 4s >out 2>err
grep -q 'the value here is still 3s, from FIBER_HEARTBEAT' err || complain "what wins: $(cat err)"

cp "$file" before
refuses 'heartbeat' set heartbeat soon
refuses 'did you mean heartbeat' set hartbeat 2s
refuses 'did you mean grace' set FIBER_GRACE 2s
refuses 'cannot hold' set image 'a ;b'
refuses 'a KEY and a VALUE' set heartbeat
refuses 'none of: show set' get heartbeat
full=$(ulimit -f 0; fiber config set heartbeat 5s 2>&1) && complain "a file that cannot grow: $full"
[ "$full" = "fiber: cannot write $file: File too large" ] || complain "a file that cannot grow: $full"
cmp "$file" before || complain 'a mistake changed the file'
exit $bad
