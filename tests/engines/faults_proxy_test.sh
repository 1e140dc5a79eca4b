# faults_proxy_test.sh - the proxy of tests/beds/faults does to the Docker engine's answers what its table says, and
# nothing else.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

beds=${TEST_SOURCE_DIR:?}/tests/beds
bed=$beds/docker/bed
for tool in curl python3; do command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }; done
"$bed" try

work=$(mktemp -d)
eval "$("$bed" env)"
exec 3< <(echo $BASHPID; exec python3 -B "$beds/faults/proxy.py" --listen "$work/sock" --unix "${DOCKER_HOST#unix://}" \
    --rules "$work/rules" --counts "$work/counts" 2>&1)
read -r proxy <&3
trap 'kill "$proxy" 2>/dev/null || :; cat <&3 >/dev/null; "$bed" vanish faults &>/dev/null || :; rm -rf "$work" || :' EXIT
echo '{}' >"$work/rules"
read -r line <&3
[[ $line == ready ]] || { echo "FAILED: it does not begin: $line"; exit 1; }

failed() { echo "FAILED: $1"; exit 1; }
rules() { echo "$1" >"$work/new" && mv "$work/new" "$work/rules"; }
# ask CODE METHOD PATH [CURL_OPTION...]: curl ends so; what came is in $work/out
ask() {
    local wanted=$1 method=$2 path=$3 code=0; shift 3
    curl -s --max-time 300 --unix-socket "$work/sock" -X "$method" -H 'Content-Type: application/json' -o "$work/out" \
        "$@" "http://engine/v1.41$path" >"$work/told" || code=$?
    [[ $code == "$wanted" ]] || failed "$method $path: curl ends with $code, not $wanted"
}
says() { grep -qF -- "$1" "$work/${2:-out}" || failed "\"$1\" is not in: $(head -c 300 "$work/${2:-out}")"; }
ok() { echo "ok: $1"; }

ask 0 GET /version
says '"ApiVersion"'
"$beds/image" /bin/sh /bin/sleep >"$work/tar"
ask 0 POST '/images/create?fromSrc=-&repo=faults&tag=1' -H 'Content-Type: application/x-tar' -T "$work/tar"
says sha256
job='{"Image":"faults:1","Cmd":["/bin/sh","-c","echo one; echo two; exit 3"]}'
ask 0 POST '/containers/create?name=faults' -d "$job"
ask 0 POST '/containers/faults/start'
ask 0 POST '/containers/faults/wait'
says '"StatusCode":3'
ask 0 GET '/containers/faults/logs?stdout=1'
says two
ok "it hands on"

rules '{"rules": [{"method": "GET", "path": "/_ping", "from": 2, "times": 1, "action": "status", "status": 429}]}'
for status in 200 429 200; do
    ask 0 GET /_ping -w '%{http_code}\n%header{retry-after}'
    says $status told
    [[ $status != 429 ]] || says 1 told
done
ok "a status, once, and the second time"

rules '{"rules": [{"path": "/_ping", "action": "close"}]}'
ask 52 GET /_ping
rules '{"rules": [{"path": "create", "action": "lost"}]}'
ask 0 DELETE '/containers/faults'
ask 52 POST '/containers/create?name=faults' -d "$job"
rules '{}'
ask 0 GET '/containers/faults/json'
says '"created"'
ok "closed before, and an answer that was lost"

rules '{"rules": [{"path": "/version", "action": "truncate", "bytes": 10}]}'
ask 18 GET /version
[[ $(wc -c <"$work/out") == 10 ]] || failed "not 10 bytes"
rules '{"rules": [{"path": "/version", "action": "garbage"}]}'
ask 0 GET /version
! python3 -m json.tool "$work/out" >/dev/null 2>&1 || failed "that is JSON"
rules '{"rules": [{"path": "/version", "action": "noise"}]}'
ask 1 GET /version
rules '{"rules": [{"path": "/version", "action": "stall"}]}'
ask 28 GET /version --max-time 1
rules '{"rules": [{"path": "/version", "action": "delay", "ms": 50}]}'
ask 0 GET /version
ok "cut short, garbage, noise, silence, delay"

rules '{"rules": [{"path": "/events", "action": "end", "events": 1}]}'
ask 0 GET '/events?since=1'
[[ $(wc -l <"$work/out") == 1 ]] || failed "not one event"
rules '{"rules": [{"path": "/events", "action": "gone", "events": 2}]}'
ask 0 GET '/events?since=1'
[[ $(wc -l <"$work/out") == 3 ]] || failed "not two events and the error"
says '"code":410'
rules '{}'
exec 4< <(curl -sN --unix-socket "$work/sock" 'http://engine/v1.41/events?since=1' || echo "ends with $?")
read -r line <&4
rules '{"cut": "^/v1.41/events"}'
line=$(tail -1 <&4)
[[ $line == "ends with 18" ]] || failed "the stream goes on: $line"
ok "streams end, or are cut"

rules '{"count": [{"name": "ask for the version", "method": "GET", "path": "/version$"}]}'
for _ in 1 2 3; do ask 0 GET /version; done
kill "$proxy"
cat <&3 >"$work/last"
[[ ! -s $work/last ]] || failed "it said: $(cat "$work/last")"
python3 - "$work/counts" <<'END'
import json, sys
counts = json.load(open(sys.argv[1]))
assert counts["ask for the version"]["requests"] == 3, counts
assert counts["ask for the version"]["received"] > 300, counts
assert counts["ask for the version"]["ended"] == 3, counts
assert counts["GET /v1.41/_ping"]["requests"] == 4, counts
assert counts["POST /v1.41/images/create"]["sent"] > 1000000, counts
END
[[ ! -e $work/sock ]] || failed "the socket is left"
ok "it counts"
