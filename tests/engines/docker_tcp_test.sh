# docker_tcp_test.sh - an engine that is reached by a port of this machine, without TLS and with it: its containers call back as
# those of a socket do, and a certificate that is wrong is told with the file that it is in.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/engines.sh disable=SC2015
clean() { ((${#relays[@]} == 0)) || kill "${relays[@]}" 2>/dev/null || :; }
relays=()
engine=docker
command -v python3 >/dev/null && command -v openssl >/dev/null || { echo "skipped: python3 or openssl is missing"; exit 77; }
. "$(dirname "$0")/engines.sh"
export FIBER_BACKEND=docker FIBER_GRACE=500ms FIBER_START_TIMEOUT=300s
unset FIBER_IMAGE
socket=${DOCKER_HOST#unix://}

# relay NAME [CA CERT KEY]: its port is in $port
relay() {
    local pid
    mkfifo "$work/port"
    python3 -B "$TEST_SOURCE_DIR/tests/engines/docker_relay.py" "$socket" "$@" >"$work/port" 2>"$work/relay" &
    pid=$!
    relays+=("$pid")
    read -r port <"$work/port" || failed "the relay does not begin: $(<"$work/relay")"
    rm "$work/port"
}
doctor() { does 60 "$fiber" doctor --backend docker; }

# --- without TLS
relay
for host in 127.0.0.1 localhost; do
    export DOCKER_HOST=tcp://$host:$port
    doctor
    says "^ok +backend docker +can be used; its jobs reach this host at ${TEST_BED_GATEWAY//./\\.}$"
    says "^ok +docker network .*gateway ${TEST_BED_GATEWAY//./\\.}"
    does 300 "$prog" process hello
    says '^hello from [0-9a-f]{12}$'
done
ok "containers call back to an engine's port on this machine"
plain=$port

# --- with TLS
certify() { # NAME AUTHORITY EXTENSION
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" 2>/dev/null
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days 2 -extfile <(echo "$3") -out "$1.pem" \
        2>/dev/null
}
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -days 2 -keyout "$1.key" \
        -out "$1.pem" 2>/dev/null
}
cd "$work"
authority ours
authority theirs
certify engine ours 'subjectAltName=IP:127.0.0.1'
certify caller ours 'extendedKeyUsage=clientAuth'
certify stranger theirs 'extendedKeyUsage=clientAuth'
# Valid until the moment at which it was signed.
openssl x509 -req -in caller.csr -CA ours.pem -CAkey ours.key -days 0 -out expired.pem 2>/dev/null
cp caller.key expired.key
folder() { # NAME CA CERT: as the docker command wants it
    mkdir "$1"
    cp "$2.pem" "$1/ca.pem"
    cp "$3.pem" "$1/cert.pem"
    cp "$3.key" "$1/key.pem"
}
folder right ours caller
folder other_ca theirs caller
folder other_cert ours stranger
folder expired ours expired
folder no_ca ours caller
folder no_cert ours caller
folder other_key ours caller
echo nothing | tee no_ca/ca.pem >no_cert/cert.pem
cp stranger.key other_key/key.pem
mkdir empty
relay "$work/ours.pem" "$work/engine.pem" "$work/engine.key"
export DOCKER_HOST=tcp://127.0.0.1:$port DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=$work/right
doctor
says "^ok +backend docker +can be used; its jobs reach this host at ${TEST_BED_GATEWAY//./\\.}$"
does 300 "$prog" process hello
says '^hello from [0-9a-f]{12}$'
ok "an engine with TLS"

refused() { # TEXT: the doctor says it, and the line that mends it is about certificates
    doctor
    ((code != 0)) || failed "it is not well"
    says "^bad +backend docker .*$1"
    says "put that engine's ca.pem, .* export DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=DIR"
    ! grep -q systemctl "$work/out" || failed "the engine need not be started"
}
DOCKER_CERT_PATH=$work/other_ca refused "not signed by ca\.pem \(in $work/other_ca\)"
DOCKER_HOST=tcp://localhost:$port refused "for another name"
DOCKER_CERT_PATH=$work/other_cert refused "when it sees cert\.pem: .* \(in $work/other_cert\)"
DOCKER_CERT_PATH=$work/expired refused "signed cert\.pem, or it has expired \(in $work/expired\)"
DOCKER_CERT_PATH=$work/no_ca refused "ca\.pem has no certificate"
DOCKER_CERT_PATH=$work/no_cert refused "cert\.pem has no certificate"
DOCKER_CERT_PATH=$work/other_key refused "key\.pem is not the key of cert\.pem"
DOCKER_CERT_PATH=$work/empty refused "cannot read $work/empty/ca\.pem"
DOCKER_HOST=tcp://127.0.0.1:$plain refused "not use TLS on that port"
ok "a certificate that is wrong"
