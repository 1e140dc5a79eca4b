# copying_test.sh - fiber cp to a rank and to a worker, and back; what it says when it cannot.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/gate_lib.sh
. "${TEST_SOURCE_DIR:?}/tests/cli/gate_lib.sh"

same() { # same <file> <file>: also their permissions
    if ! cmp "$1" "$2" || [ "$(stat -c %a "$1")" != "$(stat -c %a "$2")" ]; then
        echo "$2 is not as $1"
        bad=1
    fi
}

head -c 3000000 /dev/urandom >large # more than may be under way at once
chmod 640 large
: >empty

# a ring: the files of a rank are those of its agent
(cd there && exec fiber run -n 2 --oversubscribe --name demo sh -c "echo up >$work/gate; exec tail -f /dev/null" 9<&-) &
pid=$!
for _ in 1 2; do read -r -t 60 _ <&9 || { echo "no rank came up"; exit 1; }; done
expect 0 '' 'to rank 1' fiber cp large demo/1:copied
same large there/copied
expect 0 '' 'into a directory' fiber cp large demo:
same large there/large
expect 0 '' 'an empty one, over another' fiber cp empty demo:copied
same empty there/copied
mkdir back
expect 0 '' 'from rank 0' fiber cp demo/0:large back
same large back/large
expect 0 '' 'by its whole path' fiber cp "demo:$work/there/large" ./a:b
same large a:b
expect 0 '' 'the working directory of rank 0' fiber cp demo: all
same large all/large
expect 1 '^fiber: in the job: none: No such file' 'what is not there' fiber cp demo:none back
expect 1 '^fiber: in the job: /dev/null exists, and is not a regular file' 'a device' fiber cp large demo:/dev/null
expect 1 '^fiber: none: No such file' 'what is not here' fiber cp none demo:
expect 1 '^fiber: : No such file' 'no name, as of a variable that is not set' fiber cp '' demo:
expect 1 '^fiber: there is no rank 2: the run has 2' 'no such rank' fiber cp large demo/2:
expect 1 'is not a rank' 'no rank at all' fiber cp large demo/x:
expect 1 'no run of yours on this host has the name other' 'no such run' fiber cp large other:
expect 2 'one of SRC and DST must be RUN:PATH' 'two files here' fiber cp large empty
expect 2 'one of SRC and DST must be a file of this host' 'two files there' fiber cp demo:large demo:x
[ "$(find there back -type f | sort | tr '\n' ' ')" = "back/large there/copied there/large " ] ||
    { echo "left: $(find there back)"; bad=1; }

# an older agent sends, at the end of a file, the error of its first try: that the file is no directory
cat >older.py <<'END'
import os
import socket
import sys
import threading

door = sys.argv[1]
done = b"\x09" + bytes(8)
error = b"e: Not a directory"


def carry(a, b):
    while data := a.recv(1 << 16):
        if data.endswith(b"\x09\0\0\0" + done):
            data = data[:-13] + bytes([9 + len(error), 0, 0, 0]) + done[:5] + bytes([len(error), 0, 0, 0]) + error
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)


os.rename(door, door + ".its")
listener = socket.socket(socket.AF_UNIX)
listener.bind(door)
listener.listen()
print(flush=True)
while True:
    here = listener.accept()[0]
    there = socket.socket(socket.AF_UNIX)
    there.connect(door + ".its")
    for pair in (here, there), (there, here):
        threading.Thread(target=carry, args=pair, daemon=True).start()
END
door=$(echo run/fiber/*/control)
python3 older.py "$door" >&9 &
older=$!
read -r -t 60 _ <&9
expect 0 '' 'from an older agent' fiber cp demo:copied back
same empty back/copied
kill $older
wait $older || :
mv "$door.its" "$door"

# directories: whole, as they are, and only where nothing is
mkdir -p tree/sub/none
cp large empty tree/sub/
ln -s sub/large tree/inside
ln -s /etc/passwd tree/outside
mkfifo tree/fifo
chmod 750 tree/sub
chmod 500 tree/sub/none
like() { # like <directory>: as tree, without what is left out
    if ! diff -r --no-dereference -x outside -x fifo tree "$1" || [ -e "$1/fifo" ] || [ -L "$1/outside" ] ||
        [ "$(stat -c %a "$1/sub" "$1/sub/none" "$1/sub/large" | tr '\n' ' ')" != '750 500 640 ' ]; then
        echo "$1 is not as tree: $(ls -lR "$1")"
        bad=1
    fi
}
expect 0 '^fiber: left out: 1 link that leads out of it$' 'a directory to rank 1' fiber cp tree demo/1:
grep -q '^fiber: left out: 1 that is neither file, directory nor link$' said || { echo "no fifo: $(cat said)"; bad=1; }
like there/tree
expect 0 '' 'one from rank 0' fiber cp demo/0:tree/ back
like back/tree
expect 0 'left out' 'under another name' fiber cp tree/sub/.. demo:other/
like there/other
expect 1 '^fiber: in the job: ./tree exists, and a directory does not replace it' 'over another' fiber cp tree demo:
expect 1 '^fiber: back/tree exists' 'over another here' fiber cp demo:tree back
expect 1 '^fiber: in the job: large exists' 'over a file' fiber cp tree demo:large
expect 1 '^fiber: in the job: none/x: No such file' 'to where nothing is' fiber cp tree demo:none/x
expect 0 '' 'into itself' fiber cp demo:tree there/tree/sub
[ "$(ls -A there/tree/sub/tree/sub)" = "$(ls -A tree/sub)" ] || { echo "into itself: $(ls -AR there/tree)"; bad=1; }

# the process that copies is killed: the whole is there, or nothing
for i in 1 2 3; do
    fiber cp tree "demo:killed$i" >/dev/null 2>&1 &
    kill -KILL $! || : # it may have ended
    wait $! || :
done
while [ -n "$(find there -name '.fiber-cp-*')" ]; do :; done
for i in 1 2 3; do
    [ ! -e "there/killed$i" ] || like "there/killed$i"
done
expect 0 'left out' 'after that' fiber cp tree demo:last
like there/last
chmod -R u+rwx tree there back
kill "$pid"
wait "$pid" || :
expect 1 'has ended, so it has no jobs' 'of a run that has ended' fiber cp large demo:

# a pool: a worker serves it while it works
"$program" "$work/gate" 9<&- &
pid=$!
until fiber ps >listed && grep -qE ' pool_prog .* 2/2 ' listed; do
    kill -0 "$pid" || { echo "the pool has ended: $(cat listed)"; exit 1; }
done
fiber top pool_prog -c 1 >listed
worker=$(awk '$2 == "running" {print $1; exit}' listed)
expect 1 'it has 2 workers: name one' 'any worker' fiber cp large "pool_prog:$work/there/w"
expect 1 'no worker 77' 'no such worker' fiber cp large pool_prog/77:x
expect 0 '' 'to a worker' fiber cp large "pool_prog/$worker:$work/there/w"
same large there/w
expect 0 '' 'from it, by its name' fiber cp "pool_prog/worker-$worker:$work/there/w" back
same large back/w
kill "$pid"
wait "$pid" || :
exit $bad
