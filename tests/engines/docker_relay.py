# docker_relay.py - a port of this machine that leads to an engine's socket, without TLS or with it and client certificates.
#
#     docker_relay.py SOCKET [CA CERT KEY]     prints its port, and serves until it is killed
#
# SPDX-License-Identifier: Apache-2.0
import select
import socket
import ssl
import sys
import threading


def copy(source, sink):
    data = source.recv(65536)
    sink.sendall(data)
    return data


def serve(conn, path, context):
    """Both ways in one thread, because one connection of TLS is not for two. The end of either is that of both."""
    engine = socket.socket(socket.AF_UNIX)
    try:
        if context:
            conn = context.wrap_socket(conn, server_side=True, do_handshake_on_connect=False)
            conn.do_handshake()
        engine.connect(path)
        going = True
        while going:
            ready = [conn] if context and conn.pending() else select.select([conn, engine], [], [])[0]
            going = all(copy(one, engine if one is conn else conn) for one in ready)
    except OSError:  # ssl.SSLError is one: a caller who is not let in
        pass
    finally:
        engine.close()
        conn.close()


def main():
    path, context = sys.argv[1], None
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(sys.argv[2])
        context.load_cert_chain(sys.argv[3], sys.argv[4])
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        conn = listener.accept()[0]
        threading.Thread(target=serve, args=(conn, path, context), daemon=True).start()


main()
