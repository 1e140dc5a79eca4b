#!/usr/bin/env python3
"""proxy.py - stands between Fiber and a real engine, and does what networks and busy servers do; see README.md.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import base64
import collections
import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading

HEAD_MAX = 1 << 20
PIECE = 1 << 16
GONE = (b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",'
        b'"message":"too old resource version","reason":"Expired","code":410}}\n')
COUNTED = ("requests", "sent", "received", "faults", "ended")
ACTIONS = {"status", "close", "lost", "delay", "truncate", "garbage", "noise", "stall", "end", "gone",
           "reset", "head"}


class Ended(Exception):
    """The other side is gone, or we do not want to go on with it."""


class Stream:
    """A connection with a buffer to read from."""

    def __init__(self, sock):
        self.sock, self.rest = sock, b""

    def more(self):
        try:
            data = self.sock.recv(PIECE)
        except OSError as e:
            raise Ended from e
        self.rest += data
        return bool(data)

    def head(self):
        """Everything up to the empty line, or None when it ended before a byte."""
        while b"\r\n\r\n" not in self.rest:
            if len(self.rest) > HEAD_MAX:
                raise Ended
            if not self.more():
                if self.rest:
                    raise Ended
                return None
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        return head

    def line(self):
        while b"\n" not in self.rest:
            if not self.more():
                raise Ended
        line, _, self.rest = self.rest.partition(b"\n")
        return line + b"\n"

    def some(self, limit=PIECE):
        if not self.rest and not self.more():
            return b""
        data, self.rest = self.rest[:limit], self.rest[limit:]
        return data

    def exactly(self, n):
        while n:
            data = self.some(min(n, PIECE))
            if not data:
                raise Ended
            n -= len(data)
            yield data

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError as e:
            raise Ended from e

    def reset(self):
        """Over TCP the other side loses what it has not read yet."""
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.sock.close()
        except OSError:
            pass

    def close(self):
        for end in (lambda: self.sock.shutdown(socket.SHUT_RDWR), self.sock.close):
            try:
                end()
            except OSError:
                pass


class Message:
    """A request or the head of an answer."""

    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.first = lines[0]
        self.fields = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if ":" in line]

    def get(self, name, default=""):
        return next((value for key, value in self.fields if key.lower() == name), default)

    def chunked(self):
        return "chunked" in self.get("transfer-encoding").lower()

    def bytes(self, without=(), more=()):
        fields = [f for f in self.fields if f[0].lower() not in without] + list(more)
        return "\r\n".join([self.first] + [f"{k}: {v}" for k, v in fields]).encode("latin-1") + b"\r\n\r\n"


def chunks(stream):
    """The chunks of a body, as data without frames."""
    while True:
        try:
            size = int(stream.line().split(b";")[0], 16)
        except ValueError as e:
            raise Ended from e
        data = b"".join(stream.exactly(size))
        while stream.line() not in (b"\r\n", b"\n"):  # the end of the chunk, or trailers
            pass
        if not size:
            return
        yield data


def framed(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Table:
    """The rules of a file that is read again whenever it has changed; then they count from one."""

    def __init__(self, path):
        self.path, self.stamp, self.lock = path, None, threading.Lock()
        self.rules, self.hits, self.patterns, self.cut = [], [], [], None

    def read(self):
        """Under the lock. Answers the expression of the streams to cut, once for each change."""
        try:
            stat = os.stat(self.path)
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp == self.stamp:
                return None
            self.stamp = stamp
            with open(self.path, encoding="utf-8") as f:
                told = json.load(f)
            for rule in told.get("rules", []):
                if rule["action"] not in ACTIONS:
                    raise ValueError(f"no action '{rule['action']}'")
                re.compile(rule.get("path", ""))
        except (OSError, ValueError, KeyError, re.error) as e:
            print(f"proxy: {self.path}: {e}", file=sys.stderr, flush=True)  # the old rules stay
            return None
        self.rules, self.patterns = told.get("rules", []), told.get("count", [])
        self.hits = [0] * len(self.rules)
        return told.get("cut")

    def find(self, method, path):
        with self.lock:
            for i, rule in enumerate(self.rules):
                if rule.get("method", method) != method or not re.search(rule.get("path", ""), path):
                    continue
                self.hits[i] += 1
                first = rule.get("from", 1)
                if first <= self.hits[i] < first + rule.get("times", sys.maxsize):
                    return rule
        return {}

    def names(self, method, path):
        with self.lock:
            found = [p["name"] for p in self.patterns
                     if p.get("method", method) == method and re.search(p.get("path", ""), path)]
        return found or [method + " " + re.sub(r"/[0-9a-f]{12,}\b", "/ID", path.split("?")[0])]


class Proxy:
    def __init__(self, options):
        self.options, self.table, self.over = options, Table(options.rules), threading.Event()
        self.counts = collections.defaultdict(lambda: dict.fromkeys(COUNTED, 0))
        self.lock, self.streams = threading.Lock(), {}
        self.connect, self.host, self.authorization = upstream(options)

    def look(self):
        """Reads the table when it has changed, and cuts what it says."""
        with self.table.lock:
            cut = self.table.read()
        if cut is None:
            return
        with self.lock:
            hit = [pair for path, pairs in self.streams.items() if re.search(cut, path) for pair in pairs]
        for pair in hit:
            for stream in pair:
                stream.close()

    def count(self, names, **more):
        with self.lock:
            for name in names:
                for key, n in more.items():
                    self.counts[name][key] += n

    def write_counts(self):
        if self.options.counts:
            with self.lock:
                text = json.dumps(self.counts, indent=1, sort_keys=True)
            with open(self.options.counts + ".new", "w", encoding="utf-8") as f:
                f.write(text + "\n")
            os.replace(self.options.counts + ".new", self.options.counts)

    # ---- one client ----

    def serve(self, sock):
        client, server = Stream(sock), None
        try:
            if self.options.tls:
                client = Stream(self.options.tls.wrap_socket(sock, server_side=True))
            while not self.over.is_set():
                head = client.head()
                if head is None:
                    break
                server = self.exchange(client, server, Message(head))
        except (Ended, OSError):
            pass
        finally:
            client.close()
            if server:
                server.close()

    def exchange(self, client, server, request):
        """One request and its answer; answers the connection to the engine for the next."""
        self.look()
        method, path, _ = request.first.split(" ", 2)
        rule, names = self.table.find(method, path), self.table.names(method, path)
        action = rule.get("action", "")
        self.count(names, requests=1, faults=1 if rule else 0)
        if action == "close":
            raise Ended
        if action == "stall" and "bytes" not in rule:
            self.over.wait()
            raise Ended
        if action == "delay":
            self.over.wait(rule.get("ms", 1000) / 1000)
        if action in ("status", "garbage", "noise"):
            self.swallow(client, request)
            client.send(made_up(rule))
            if action == "noise":
                raise Ended
            return server
        server = server or Stream(self.connect())
        self.forward(client, server, request, names)
        head = server.head()
        if head is None:
            raise Ended
        answer = Message(head)
        if int(answer.first.split(" ")[1]) == 101 or "raw-stream" in answer.get("content-type"):
            client.send(head + b"\r\n\r\n")
            self.join(path, client, server)
        if self.answer(path, (client, server), (method, answer), rule, names):
            return server
        server.close()
        return None

    def swallow(self, client, request):
        """Its body, when nobody else reads it."""
        for _ in body_of(client, request):
            pass

    def forward(self, client, server, request, names):
        without, more = ["host", "expect"], [("Host", self.host)]
        if self.authorization:
            without.append("authorization")
            more.append(("Authorization", self.authorization))
        if request.get("expect"):
            client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        server.send(request.bytes(without, more))
        for data in body_of(client, request):
            self.count(names, sent=len(data))
            server.send(framed(data) if request.chunked() else data)
        if request.chunked():
            server.send(b"0\r\n\r\n")

    def answer(self, path, ends, told, rule, names):
        """Hands the answer on, as the rule says; false when the engine's connection is of no more use."""
        (client, server), (method, answer) = ends, told
        action, left = rule.get("action"), rule.get("bytes", 0)
        events = rule.get("events", 0)
        until_close = not answer.chunked() and answer.get("content-length") == ""
        none = method == "HEAD" or answer.first.split(" ")[1] in ("204", "304")
        if action == "lost":
            for _ in () if none else body_of(server, answer, True):
                pass
            raise Ended
        if action == "head":
            client.send(answer.bytes()[:left])
            raise Ended
        client.send(answer.bytes())
        if none:
            return True
        with self.lock:
            self.streams.setdefault(path, []).append(ends)
        try:
            if action in ("end", "gone") and events == 0:
                return self.finish(client, action, answer)
            for data in self.counted(names, body_of(server, answer, True)):
                if action in ("truncate", "stall", "reset") and len(data) >= left:
                    client.send(framed(data)[:-2 - len(data) + left] if answer.chunked() else data[:left])
                    if action == "stall":
                        self.over.wait()
                    elif action == "reset":
                        client.reset()
                    raise Ended
                left -= len(data)
                client.send(framed(data) if answer.chunked() else data)
                events -= data.count(b"\n") or 1
                if action in ("end", "gone") and events <= 0:
                    return self.finish(client, action, answer)
            if until_close:
                raise Ended
            if answer.chunked():
                client.send(b"0\r\n\r\n")
            return True
        finally:
            with self.lock:
                self.streams[path].remove(ends)
                if not self.streams[path]:
                    del self.streams[path]

    def counted(self, names, pieces):
        """What the engine answers; and that it was the engine that ended it, not the client."""
        try:
            for data in pieces:
                self.count(names, received=len(data))
                yield data
        except Ended:
            self.count(names, ended=1)
            raise
        self.count(names, ended=1)

    def finish(self, client, action, answer):
        if action == "gone":
            client.send(framed(GONE) if answer.chunked() else GONE)
        if not answer.chunked():
            raise Ended
        client.send(b"0\r\n\r\n")
        return False

    def join(self, path, client, server):
        """What comes from one goes to the other, until both have ended."""

        def pump(a, b):
            try:
                while True:
                    data = a.some()
                    if not data:
                        break
                    b.send(data)
                b.sock.shutdown(socket.SHUT_WR)
            except (Ended, OSError):
                a.close()
                b.close()

        with self.lock:
            self.streams.setdefault(path, []).append((client, server))
        back = threading.Thread(target=pump, args=(client, server), daemon=True)
        back.start()
        pump(server, client)
        back.join()
        with self.lock:
            self.streams[path].remove((client, server))
        raise Ended


def body_of(stream, message, answer=False):
    if message.chunked():
        yield from chunks(stream)
    elif message.get("content-length"):
        yield from stream.exactly(int(message.get("content-length")))
    elif answer:
        while data := stream.some():
            yield data


def made_up(rule):
    """An answer that the engine knows nothing of."""
    if rule["action"] == "noise":
        return bytes(range(256))
    status = rule.get("status", 503 if rule["action"] == "status" else 200)
    body = rule.get("body", json.dumps({"kind": "Status", "code": status, "message": "a fault that was ordered"}))
    if rule["action"] == "garbage":
        body = '{"kind": "Pod", "items": [{"metadata": \x01\x7f'
    fields = {"Content-Type": "application/json", **rule.get("headers", {})}
    if status == 429:
        fields.setdefault("Retry-After", "1")
    lines = [f"HTTP/1.1 {status} Ordered"] + [f"{k}: {v}" for k, v in fields.items()]
    data = body.encode()
    return "\r\n".join(lines + [f"Content-Length: {len(data)}"]).encode() + b"\r\n\r\n" + data


# ---- the engine ----

def upstream(options):
    """How to connect, the host's name, and who we are for it."""
    if options.unix:
        def connect():
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(options.unix)
            return sock
        return connect, "engine", None

    with open(options.kubeconfig, encoding="utf-8") as f:
        text = f.read()

    def value(name):
        found = re.search(rf'\b{name}: *"?([^\s",}}]+)', text)
        return found.group(1) if found else ""

    host, port = re.match(r"https://\[?([^\]/]+?)\]?:(\d+)", value("server")).groups()
    context = ssl.create_default_context(cadata=base64.b64decode(value("certificate-authority-data")).decode())
    if value("client-certificate-data"):
        with tempfile.NamedTemporaryFile() as f:  # ssl knows files only
            f.write(base64.b64decode(value("client-certificate-data")) + base64.b64decode(value("client-key-data")))
            f.flush()
            context.load_cert_chain(f.name)

    def connect_tls():
        return context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host)
    return connect_tls, f"{host}:{port}", f"Bearer {value('token')}" if value("token") else None


# ---- who asks us ----

def listen(options):
    if not options.listen.startswith("127.") and "/" in options.listen:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(options.listen)
    else:
        host, port = options.listen.rsplit(":", 1)
        sock = socket.create_server((host, int(port)))
        make_certificate(options, host, sock.getsockname()[1])
    sock.listen(128)
    return sock


def make_certificate(options, host, port):
    """A certificate for this hour, and the kubeconfig that trusts it; who uses it needs no credentials."""
    with tempfile.TemporaryDirectory() as folder:
        key, crt = os.path.join(folder, "key"), os.path.join(folder, "crt")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=faults", "-addext", f"subjectAltName=IP:{host}",
                        "-keyout", key, "-out", crt], check=True, capture_output=True)
        options.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        options.tls.load_cert_chain(crt, key)
        with open(crt, "rb") as f:
            ca = base64.b64encode(f.read()).decode()
    with open(options.kubeconfig, encoding="utf-8") as f:
        space = re.search(r"\bnamespace: *([\w-]+)", f.read())
    with open(options.client, "w", encoding="utf-8") as f:
        f.write(f'''apiVersion: v1
kind: Config
clusters:
- name: faults
  cluster: {{server: "https://{host}:{port}", certificate-authority-data: {ca}}}
users:
- name: faults
  user: {{token: none}}
contexts:
- name: faults
  context: {{cluster: faults, user: faults, namespace: {space.group(1) if space else "default"}}}
current-context: faults
''')


def main():
    parser = argparse.ArgumentParser(description="forwards to an engine, with faults")
    parser.add_argument("--listen", required=True, help="path of a unix socket, or 127.0.0.1:PORT (0: any) with TLS")
    parser.add_argument("--unix", help="the engine's socket")
    parser.add_argument("--kubeconfig", help="of the real API server: its first cluster and user")
    parser.add_argument("--client", help="with TLS: where to write a kubeconfig for clients of this proxy")
    parser.add_argument("--rules", required=True, help="JSON file; read again when it changes")
    parser.add_argument("--counts", help="where to write the counts, on SIGTERM and SIGUSR1")
    options = parser.parse_args()
    options.tls = None
    if bool(options.unix) == bool(options.kubeconfig):
        parser.error("one of --unix and --kubeconfig")
    proxy, server = Proxy(options), listen(options)

    def end(*_):
        proxy.over.set()
        proxy.write_counts()
        if server.family == socket.AF_UNIX:
            os.unlink(options.listen)
        os._exit(0)  # threads may be reading

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGUSR1, lambda *_: proxy.write_counts())
    proxy.look()
    watch = threading.Thread(target=lambda: [proxy.look() for _ in iter(lambda: proxy.over.wait(0.1), True)], daemon=True)
    watch.start()
    print("ready", flush=True)
    while True:
        sock, _ = server.accept()
        threading.Thread(target=proxy.serve, args=(sock,), daemon=True).start()


if __name__ == "__main__":
    main()
