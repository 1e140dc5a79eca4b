# image_test.sh - `fiber image`: what is in an image, where it goes, mistakes, and an engine that answers, refuses or
# goes away.
#
# The engine is a small server on a unix socket. What a real one does with an image is seen in tests/engines.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fiber=${TEST_BINARY_DIR:?}/cli/fiber
[ -e "$TEST_BINARY_DIR/fiber/cluster.so" ] || { echo "this build has no images: a library is missing"; exit 77; }
work=$(mktemp -d)
engine=
finish() {
    [ -z "$engine" ] || kill "$engine" 2>/dev/null || :
    wait
    rm -rf "$work"
}
trap finish EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run
unset DOCKER_HOST
cd "$work"
bad=0

complain() {
    echo "$*"
    bad=1
}

check() { # check <exit code> <pattern of standard output> <pattern of standard error> <argument>...
    local code=$1 out=$2 err=$3 got=0 said told
    shift 3
    timeout 60 "$fiber" image "$@" >out 2>err </dev/null || got=$?
    said=$(tr '\n' ' ' <out | tr -d '\0')
    told=$(tr '\n' ' ' <err)
    if [ "$got" != "$code" ] || ! [[ $said =~ ^$out$ ]] || ! [[ $told =~ $err ]]; then
        complain "fiber image $*: code $got ($code), said:"
        head -c 2000 out
        cat err
    fi
}

ls=$(readlink -f "$(command -v ls)")
check 0 'x:1: [0-9.]+ MiB, [0-9]+ files, [0-9.]+ s, in x.tar ' '^$' export x:1 ls -o x.tar
tar -tf x.tar >members
for member in oci-layout index.json manifest.json; do
    grep -qx "$member" members || complain "$member is not in the archive"
done
tar -xOf x.tar manifest.json | grep -q '"RepoTags":\["x:1"\]' || complain "the archive has another name"
tar -xf x.tar
mapfile -t layers < <(sed 's/.*"Layers"//' manifest.json | grep -o 'blobs/sha256/[0-9a-f]*')
for layer in "${layers[@]}"; do
    [ "$(sha256sum <"$layer" | cut -d' ' -f1)" = "${layer##*/}" ] || complain "a layer is not what its name says"
    tar -tf "$layer"
done >inside
for file in "${ls#/}" "${fiber#/}" "${TEST_BINARY_DIR#/}/fiber/crypto.so" etc/passwd tmp/; do
    grep -qx "$file" inside || complain "$file is not in the image"
done
! grep -q cluster.so inside || complain "the image has what only masters need"
! ls x.tar.* 2>/dev/null || complain "an unfinished file was left"

# what is in it runs; a sanitizer would miss /proc
if [ "$(id -u)" = 0 ] && [ -z "${TEST_SANITIZER_OPTIONS:-}" ] && mkdir root; then
    for layer in "${layers[@]}"; do tar -xf "$layer" -C root; done
    chroot root "$fiber" version >out || complain "fiber does not run in the image"
    chroot root "$ls" /tmp >out || complain "ls does not run in the image"
fi

"$fiber" image export y ls -o - --bare >stdout.tar 2>err || complain "-o -: code $?"
grep -q '^y:latest: .* in standard output$' err || complain "-o - says: $(cat err)"
check 0 '' '^$' export y ls -o y.tar --bare --quiet
check 0 '.*' '^$' export y ls -n --bare
grep -q " $ls\$" out || complain "--dry-run does not name the program"
check 0 '\{"name":"y:latest","id":"[0-9a-f]{16}","digest":"sha256:[0-9a-f]{64}","where":"z.tar",.*\} ' '^$' \
    export y ls -o z.tar --bare --json
for tar in stdout.tar z.tar; do
    cmp y.tar $tar || complain "$tar: the same files gave another image"
done
mkdir -p data
echo data >data/file
ln -s data/file link
check 0 '.*data/file .*link -> data/file .*' '^$' export y ls -a data -a link -n --bare
check 0 '.*/made/here/ .*' '^$' export y ls --workdir /made/here -n --bare
check 0 '.*' '^$' export y ls -n --bare --mpi # people type it

check 2 '' 'is none of: build export' make x ls
check 2 '' 'an argument is missing' build
check 2 '' 'the program is missing' export x -o x.tar
check 2 '' '"X" is not a name for an image' export X ls -o x.tar
check 2 '' 'the output is missing' export x ls
check 2 '' '--output is for fiber image export' build x ls -o x.tar
check 1 '' 'there is no program no-such-program in PATH' export x no-such-program -o x.tar
check 1 '' 'no-such-program: No such file' export x ./no-such-program -o x.tar
check 1 '' '/ is a directory, not a program; add it with --add' export x / -o x.tar
chmod 640 y.tar
check 0 '' '^$' export y ls -o y.tar --bare --quiet
[ "$(stat -c %a y.tar)" = 640 ] || complain "a file that is replaced gets the mode $(stat -c %a y.tar)"
echo 'print(1)' >plain.py
check 1 '' 'plain.py is not executable: .*; to add a file that is not a program, use --add' export x ./plain.py -o x.tar
check 0 '.*' '' export x ./plain.py -o x.tar --bare --entrypoint python3
check 2 '' 'unpack takes one folder, and has no --dry-run' -n unpack "$work/unpacked"
[ ! -e "$work/unpacked" ] || complain "unpack --dry-run made it"
check 1 '' 'cannot write .*nowhere/x.tar' export x ls -o "$work/nowhere/x.tar"
check 1 '' '"=1" has no name' export x ls -o x.tar -e =1
check 1 '' 'there is no such variable here; use -e NOBODY=VALUE' export x ls -o x.tar -e NOBODY
check 0 '' '' export x ls -o /dev/null -q
[ -c /dev/null ]
if [ -w /dev/full ]; then
    check 1 '' 'No space left' export x ls -o /dev/full
fi
check 1 '' 'there is no Docker engine at .*docker_host or DOCKER_HOST' build x ls -H "unix://$work/none.sock"
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$work/dead.sock" # of an engine that died
check 1 '' 'there is no Docker engine at .*/dead.sock \(Connection refused\): start it' build x ls -H "unix://$work/dead.sock"

# ---- Contexts of the docker command ----
context() {  # NAME ADDRESS
    mkdir -p "docker/contexts/meta/id-$1"
    echo "{\"Name\":\"$1\",\"Endpoints\":{\"docker\":{\"Host\":\"$2\"}}}" >"docker/contexts/meta/id-$1/meta.json"
}
context far "unix://$work/far.sock"
context near "unix://$work/near.sock"
context keys tcp://127.0.0.1:1
context shell ssh://h1
mkdir -p docker/contexts/tls/id-keys/docker
echo '{"currentContext":"near"}' >docker/config.json
export DOCKER_CONFIG=$work/docker
check 1 '' 'there is no Docker engine at .*/near.sock' build x ls
check 1 '' 'there is no Docker engine at .*/none.sock' build x ls -H "unix://$work/none.sock"
DOCKER_CONTEXT=keys check 1 '' 'context has keys.*cannot read .*/contexts/tls/id-keys/docker/ca.pem' build x ls
DOCKER_CONTEXT=far check 1 '' 'there is no Docker engine at .*/far.sock' build x ls
DOCKER_CONTEXT=shell check 1 '' "engine of docker's context, ssh://h1 is invalid.*for ssh:// forward" build x ls
DOCKER_CONTEXT=gone check 1 '' 'context gone .* is not in .*/docker/contexts.*docker context ls' build x ls
DOCKER_HOST="unix://$work/far.sock" check 1 '' 'there is no Docker engine at .*/far.sock' build x ls
unset DOCKER_CONFIG

# ---- An engine ----
if ! command -v python3 >/dev/null || ! python3 -c 'import http.server'; then
    exit $bad
fi
cat >engine.py <<'END'
import http.server, os, socketserver, sys

class Engine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, text):
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(200, '{"Version":"1","ApiVersion":"1.41","MinAPIVersion":"1.12"}')

    def do_POST(self):
        mode = open("mode").read().strip()
        if mode == "away":
            self.rfile.read(100000)
            self.close_connection = True
            return
        with open("loaded.tar", "wb") as out:
            while size := int(self.rfile.readline(), 16):
                out.write(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        if mode == "good":
            self.answer(200, '{"stream":"Loaded image: x:1\\n"}\r\n')
        elif mode == "full":
            self.answer(200, '{"errorDetail":{"message":"no space left"},"error":"no space left"}\r\n')
        else:
            self.answer(500, '{"message":"it is broken"}')

    def address_string(self):
        return "unix"

    def log_message(self, *args):
        pass

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

server = Server("engine.sock", Engine)
os.write(1, b"up\n")
server.serve_forever()
END
mkfifo up
python3 engine.py >up &
engine=$!
read -r _ <up
export DOCKER_HOST=unix://$work/engine.sock
echo good >mode
check 0 'x:1: .* in the Docker engine at unix:.*' '^$' build x:1 ls
check 0 '\{"name":"x:1",.*\} ' '^$' build x:1 ls --json
check 0 '' '^$' export x:1 ls -o same.tar -q
cmp loaded.tar same.tar || complain "the engine got something else"
echo full >mode
check 1 '' 'did not take the image: no space left' build x:1 ls
echo broken >mode
check 1 '' 'did not take the image: it is broken' build x:1 ls
echo away >mode
check 1 '' 'did not take the image|did not take the whole image' build x:1 ls
exit $bad
