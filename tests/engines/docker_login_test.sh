# docker_login_test.sh - images of a registry that asks for a password, pulled by the docker command. The engine is the
# bed's (tests/beds/docker), the registry Debian's docker-registry.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2016
set -euo pipefail

bed=${TEST_BED:-${TEST_SOURCE_DIR:?}/tests/beds/docker/bed}
fiber=${TEST_BINARY_DIR:?}/cli/fiber
[[ -x $fiber ]] || { echo "$fiber is not built"; exit 77; }
command -v docker-registry >/dev/null || { echo "skipped: docker-registry is missing (packages.txt, group cluster)"; exit 77; }
command -v docker >/dev/null || { echo "skipped: docker is missing (packages.txt, group cluster)"; exit 77; }
"$bed" try
eval "$("$bed" env)"
work=$(mktemp -d)
image='' registry='' drain=''

clean() {
    [[ -z $image ]] || "$bed" api DELETE "/images/$image?force=1" >/dev/null 2>&1 || :
    [[ -z $registry ]] || { kill "$registry" && kill -CONT "$registry"; } 2>/dev/null || :
    [[ -z $drain ]] || wait "$drain" || :
    rm -rf "$work"
}
failed() {
    echo "FAILED: $1"
    tail -n 30 "$work/out" | cut -c 1-600 | sed 's/^/    /'
    exit 1
}
ok() { echo "ok: $1"; }

# --- a registry of user `reader`, whose password is $secret
secret=open-sesame-4711
printf 'reader:%s\n' '$2y$05$5ZiM9gzfuAW.WJz0yC/ecO6UEdqyHifXGHM8XxGFlCNa/XEekgEM.' >"$work/htpasswd"
cat >"$work/registry.yml" <<END
version: 0.1
log: {level: info, formatter: text}
storage: {filesystem: {rootdirectory: $work/store}}
http: {addr: "127.0.0.1:0"}
auth: {htpasswd: {realm: test, path: $work/htpasswd}}
END
exec 3< <(echo "$BASHPID"; exec docker-registry serve "$work/registry.yml" 2>&1)
trap clean EXIT
read -r registry <&3
port=
while [[ -z $port ]] && IFS= read -r -t 120 line <&3; do
    [[ ! $line =~ listening\ on\ 127\.0\.0\.1:([0-9]+) ]] || port=${BASH_REMATCH[1]}
done
[[ $port ]] || { echo "FAILED: the registry does not begin: ${line:-}"; exit 1; }
cat <&3 >/dev/null & # it goes on speaking, until its end
drain=$!
exec 3<&-
host=127.0.0.1:$port

# --- an image that only the registry has
auth=$(printf 'reader:%s' "$secret" | base64 -w0)
printf 'X-Registry-Auth: %s\n' \
    "$(printf '{"username":"reader","password":"%s","serveraddress":"%s"}' "$secret" "$host" | base64 -w0 | tr +/ -_)" >"$work/header"
"$bed" has login:1 || "$bed" image login:1 /bin/sh /usr/bin/env /bin/cat >/dev/null
image=$host/team/bare:1
"$bed" api POST "/images/login:1/tag?repo=$host/team/bare&tag=1"
"$bed" api POST "/images/$host/team/bare/push?tag=1" -H "@$work/header" >"$work/out"
! grep -q '"error"' "$work/out" || failed "the image cannot be put into the registry"
forget_image() { "$bed" api DELETE "/images/$image?force=1" >/dev/null; }
forget_image

export FIBER_BACKEND=docker FIBER_GRACE=500ms FIBER_START_TIMEOUT=300s
export DOCKER_CONFIG=$work/docker XDG_RUNTIME_DIR=$work/run HOME=$work/home
unset REGISTRY_AUTH_FILE FIBER_IMAGE
timeout=$(command -v timeout)
mkdir -p "$DOCKER_CONFIG" "$XDG_RUNTIME_DIR" "$HOME"

# runs: a rank in that image says what it sees; $code
runs() {
    code=0
    env PATH="${path:-$PATH}" "$timeout" 300 "$fiber" run -vvv --image "$image" -n 1 /bin/sh -c 'echo "rank $FIBER_RANK is there"; env; cat /proc/1/cmdline' \
        >"$work/out" 2>&1 || code=$?
    for word in "$secret" "$auth" X-Registry-Auth; do
        ! grep -qaF -- "$word" "$work/out" || failed "it shows what is secret: $word"
    done
}
says() { grep -qaE -- "$1" "$work/out" || failed "it should say '$1'"; }
pulls() {  # TITLE
    runs
    [[ $code == 0 ]] || failed "exit code $code: $1"
    says '^rank 0 is there$'
    "$bed" has "$image" || failed "the image was not pulled"
    forget_image
    ok "$1"
}

runs
[[ $code == 125 ]] || failed "exit code $code, not 125"
says "image $image is not on the engine, and cannot be pulled: .docker pull., with your logins, ended with code 1: .*no basic"
says "; log in to the registry with .docker login."
ok "without a login: the docker command's words"

path=$work/empty runs
[[ $code == 125 ]] || failed "exit code $code, not 125"
says "image $image is not on the engine, and cannot be pulled: .* - neither docker nor podman, which may have a login, is in PATH"
ok "without the docker command"

echo "{\"auths\": {\"$host\": {\"auth\": \"$(printf 'reader:wrong-1' | base64)\"}}}" >"$DOCKER_CONFIG/config.json"
runs
[[ $code == 125 ]] || failed "exit code $code, not 125"
says "image $image is not on the engine, and cannot be pulled: .*ended with code 1: .*unauthorized"
ok "with a wrong one"

echo "{\"auths\": {\"$host\": {\"auth\": \"$auth\"}}}" >"$DOCKER_CONFIG/config.json"
pulls "a login"
DOCKER_TLS_VERIFY=1 pulls "a login, while the environment has TLS for another engine"

mkdir "$work/bin"
cat >"$work/bin/docker-credential-test" <<END
#!/bin/sh
[ "\$* \$(cat)" = "get $host" ] && echo '{"ServerURL": "$host", "Username": "reader", "Secret": "$secret"}'
exit "\$(cat "$work/rc")"
END
chmod +x "$work/bin/docker-credential-test"
echo 0 >"$work/rc"
echo "{\"auths\": {\"$host\": {}}, \"credHelpers\": {\"$host\": \"test\"}}" >"$DOCKER_CONFIG/config.json"
PATH=$work/bin:$PATH pulls "a login of a helper"

echo 1 >"$work/rc"
PATH=$work/bin:$PATH runs
[[ $code == 125 ]] || failed "exit code $code, not 125"
says '.docker pull., with your logins, ended with code 1'
ok "a helper that prints a login and fails is not quoted"

# --- a registry that takes its time: it goes on when it was said what is waited for
rm "$DOCKER_CONFIG/config.json"
echo "{\"auths\": {\"$host\": {\"auth\": \"$auth\"}}}" >"$DOCKER_CONFIG/config.json"
kill -STOP "$registry"
exec {lines}< <(code=0; timeout 300 "$fiber" run --image "$image" -n 1 /bin/sh -c 'echo "rank $FIBER_RANK is there"' 2>&1 || code=$?
    echo "code $code")
: >"$work/out"
while IFS= read -r -t 300 line <&"$lines"; do
    echo "$line" >>"$work/out"
    [[ $line != *"waiting for "*": 1 of 1 job pending: image $image is not on the engine, and is pulled"* ]] || kill -CONT "$registry"
    [[ $line != "code "* ]] || break
done
kill -CONT "$registry"
says '1 of 1 job pending: image '
says '^rank 0 is there$'
says '^code 0$'
forget_image
ok "a registry that takes its time: what is waited for"
image=''
"$bed" empty all || { echo "FAILED: containers are left"; exit 1; }
