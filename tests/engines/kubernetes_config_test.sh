# kubernetes_config_test.sh - what a kubeconfig may say, on a real API server: a proxy, the server's name, files with tokens,
# programs that give tokens and certificates. Then these change, and the connections are reset, while a pool maps.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/kubernetes.sh disable=SC2016,SC2154
space="fiber-config"
proxy=
clean() {
    [[ ! $proxy ]] || kill "$proxy" 2>/dev/null || :
    "$bed" kubectl -n fiber delete secret fiber-config-token --ignore-not-found >/dev/null 2>&1 || :
    "$bed" kubectl delete namespace $space --ignore-not-found --wait=false >/dev/null 2>&1 || :
}
. "$(dirname "$0")/kubernetes.sh"
export FIBER_KUBERNETES_NAMESPACE=$space
"$bed" kubectl delete namespace $space --ignore-not-found >/dev/null # of a run before, which may be going yet
"$bed" kubectl create namespace $space >/dev/null
manifest $space | "$bed" kubectl apply -f - >/dev/null
wait_for "its Role should hold" may_begin

of() { "$bed" kubectl config view --raw -o "jsonpath={.$1}"; }
server=$(of 'clusters[0].cluster.server')
server=${server#https://}
exec {said}< <(echo "$BASHPID"; exec python3 -B "$TEST_SOURCE_DIR/tests/engines/connect_proxy.py" "$server" "$work/asked" 2>&1)
read -r proxy <&"$said"
read -r port <&"$said"
[[ $port =~ ^[0-9]+$ ]] || { echo "FAILED: the proxy does not begin: $port"; exit 1; }

# config CLUSTER USER: the kubeconfig from now on
config() {
    cat >"$work/kubeconfig" <<END
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {certificate-authority-data: $(of 'clusters[0].cluster.certificate-authority-data'), $1}}]
users: [{name: test, user: {$2}}]
END
}
export KUBECONFIG=$work/kubeconfig
direct="server: 'https://$server'"
nowhere="server: 'https://nowhere.invalid:6443', proxy-url: 'http://127.0.0.1:$port'" # a name that only the proxy knows
named="$nowhere, tls-server-name: kubernetes.default"
# token: a new one, as long as that Secret is there
token() { "$bed" kubectl -n fiber create token fiber --bound-object-kind Secret --bound-object-name fiber-config-token; }
"$bed" kubectl -n fiber create secret generic fiber-config-token --dry-run=client -o yaml |
    "$bed" kubectl apply -f - >/dev/null 2>&1
token >"$work/token"

# --- a proxy, and the name that the server's certificate has
config "$nowhere" "token: $(cat "$work/token")"
does 300 "$prog" process hello
says 'certificate'
[[ $(sort -u "$work/asked") == "CONNECT nowhere.invalid:6443" ]] || failed "the proxy should be asked"
config "$named" "token: $(cat "$work/token")"
does 300 "$prog" process exit 7
says '^code 7: '
gives 0 "$fiber" run -n 2 -N 1 sh -c 'echo "rank $FIBER_RANK"'
says '^rank 1$'
nothing_left
ok "proxy-url and tls-server-name"

# --- no credentials: who may do that is not the question
config "$direct" ""
gives 1 "$fiber" doctor --backend kubernetes
says 'the user in the kubeconfig has no token or certificate'
! grep -q 'in a Role' "$work/out" || failed "it should not advise a Role for everybody"
ok "a user without credentials"

# --- a program that gives a client certificate, and is told of the cluster
cat >"$work/plugin" <<'END'
#!/bin/sh
cksum <"$WORK/credential" >>"$WORK/plugin.log"
printf '%s' "$KUBERNETES_EXEC_INFO" >"$WORK/info"
cat "$WORK/credential"
END
chmod 755 "$work/plugin"
plugin="exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never, provideClusterInfo: true,
    env: [{name: WORK, value: '$work'}]}"
# credential STATUS: what it gives from now on
credential() {
    jq -n --argjson status "$1" '{apiVersion: "client.authentication.k8s.io/v1", kind: "ExecCredential", status: $status}' \
        >"$work/credential.new"
    mv "$work/credential.new" "$work/credential"
}
certificate() {
    credential "$(jq -n --arg cert "$(of 'users[0].user.client-certificate-data' | base64 -d)" \
        --arg key "$(of 'users[0].user.client-key-data' | base64 -d)" '{clientCertificateData: $cert, clientKeyData: $key}')"
}
certificate
config "$direct" "$plugin"
does 300 "$prog" process exit 7
says '^code 7: '
[[ $(jq -r .spec.cluster.server "$work/info") == "https://$server" ]] || failed "it should be told of the cluster"
nothing_left
ok "a program that gives a client certificate"

# --- one whose tokens end: it is asked again a minute before
: >"$work/plugin.log"
credential "$(jq -n --arg token "$(cat "$work/token")" '{token: $token, expirationTimestamp: (now + 63 | todate)}')"
FIBER_GRACE=30s begins 1 'waits in' "$prog" process wait # time for its end on a busy node
asked() { (($(wc -l <"$work/plugin.log") >= $1)); }
wait_for "it should be asked again" asked 2
in_space delete pod --wait=false -l fiber.io/run >/dev/null
ends
says '^code -15: '
nothing_left
ok "a program whose tokens end is asked again"

# --- tokens that are taken back, and connections that are reset, while a pool maps
credential "$(jq -n --arg token "$(cat "$work/token")" '{token: $token}')"
config "$direct" "tokenFile: token"
cp "$work/kubeconfig" "$work/kubeconfig-file"
does 300 "$prog" process exit 7
says '^code 7: '
nothing_left
config "$named" "$plugin"
begins 1 begun "$prog" pool 2 200 20 "$work/enough" 0
: >"$work/plugin.log"
"$bed" kubectl -n fiber delete secret fiber-config-token >/dev/null
refused() { ! "$bed" kubectl --kubeconfig "$work/kubeconfig-file" -n $space get pods >/dev/null 2>&1; }
wait_for "the token should be refused" refused
"$bed" kubectl -n fiber create secret generic fiber-config-token >/dev/null
token >"$work/token.new"
mv "$work/token.new" "$work/token"
credential "$(jq -n --arg token "$(cat "$work/token")" '{token: $token}')"
kill -USR1 "$proxy"
given() { grep -qxF "$(cksum <"$work/credential")" "$work/plugin.log"; }
wait_for "the program should give the new token" given # a pod that is deleted before may have an unknown end
pod=$(in_space get pods -l fiber.io/run -o name | sed -n 1p)
in_space delete --wait=false "$pod" >/dev/null
replaced() { (($(in_space get pods -l fiber.io/run --field-selector status.phase=Running -o name | grep -cvxF "$pod") >= 2)); }
wait_for "another worker should come" replaced
touch "$work/enough"
ends
says '^right 200 of 200$'
says '^deaths 0$'
nothing_left
ok "tokens that are taken back, and connections that are reset"

# --- a certificate that comes during a run, when the token is no longer taken
config "$direct" "$plugin"
begins 1 begun "$prog" pool 2 200 20 "$work/enough-again" 0
"$bed" kubectl -n fiber delete secret fiber-config-token >/dev/null
wait_for "the token should be refused" refused
certificate
pod=$(in_space get pods -l fiber.io/run -o name | sed -n 1p)
in_space delete --wait=false "$pod" >/dev/null
wait_for "another worker should come" replaced
touch "$work/enough-again"
ends
says '^right 200 of 200$'
says '^deaths 0$'
nothing_left
ok "a certificate that comes during a run"
