"""A stranger on another host: rogue.py WHAT ARGUMENTS, run in a network namespace of its own by test_attack_hosts.py.

    hello HOST PORT           calls twice in plain: what it hears
    join HOST PORT RUN ID     JOIN in plain, with this incarnation, also if it is a known one
    tls HOST PORT VERSION     a handshake without a key: TLSv1.2 or TLSv1.3
    silent HOST PORT COUNT    connections that say nothing, until its input ends
    begun HOST PORT COUNT     the same with a call, but nothing after the greeting
    half HOST PORT COUNT      the same with the first bytes of a handshake
    psk HOST PORT ID PSK      a handshake by OpenSSL's s_client with this key (all in hex): what it prints
    lead PORT                 a leader without a key, in plain, which says that none is needed
    offer PORT ID CREDENTIAL  a leader that says that it has the key ID, which munge's credential carries
    certified PORT ID CERT    a leader that says that it has the key ID, and has a certificate
    relay PORT HOST PORT      passes connections on; prints what the first caller has sent, when that ends
    strip PORT HOST PORT      the same, and says in the greeting that no key is needed
    replay HOST PORT HEX      sends what another has sent

Prints one line of JSON for each thing that it hears, "up" when it listens, and "end" when it was disconnected."""
import contextlib
import json
import os
import select
import socket
import ssl
import subprocess
import sys
import threading

from attacker import CALL, exactly, frame, message

HALF = b"\x16\x03\x01\x02\x00\x01"


def say(what):
    print(json.dumps(what), flush=True)


def connect(host, port):
    return socket.create_connection((host, int(port)), 30)


def hear(s):
    """Everything until the other side ends the connection."""
    try:
        while True:
            say(message(s))
    except (ConnectionError, ValueError):
        say("end")


def greeted(host, port):
    s = connect(host, port)
    s.sendall(CALL)
    say(message(s))
    return s


def hello(host, port):
    s = greeted(host, port)
    s.sendall(CALL)
    s.settimeout(5)
    try:
        hear(s)
    except TimeoutError:
        pass


def node(run_id, incarnation):
    return frame(kind="JOIN", version=10, run_id=run_id, min_nodes=1, max_nodes=9,
                 node={"incarnation": incarnation, "host": "evil", "role": "default", "listener_port": 1, "nproc": 1,
                       "node_rank": -1, "pid": 5, "topology": "", "netif": "", "net_addrs": "", "fast_netif": "", "fast_addrs": ""},
                 program={"shown": "", "name": "0" * 16, "args": "0" * 16, "max_restarts": 3},
                 report={"state": "joined", "generation": "0.0", "epoch": 0, "leaving": False, "finished": False,
                         "at_safe_point": False, "ways": 0, "excluded": False, "excluded_why": "", "leaving_why": "", "unusable": "", "domain": "", "fabric": "", "sick": "", "xid": 0, "gpu": -1,
                         "restarts_used": 0, "losses": 0})


def join(host, port, run_id, incarnation):
    s = greeted(host, port)
    s.sendall(node(run_id, incarnation))
    s.settimeout(3)
    try:
        hear(s)
    except TimeoutError:
        pass


def tls(host, port, version):
    s = greeted(host, port)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version.replace(".", "_"))
    try:
        with context.wrap_socket(s) as inside:
            inside.sendall(CALL)
            hear(inside)
    except (ssl.SSLError, OSError):
        say("end")


def psk(host, port, key, secret):
    server, up = socket.create_server(("127.0.0.1", 0)), greeted(host, port)
    client = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{server.getsockname()[1]}", "-tls1_3", "-psk_identity",
                               bytes.fromhex(key), "-psk", secret], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    s, _ = server.accept()
    for ends in (s, up), (up, s):
        threading.Thread(target=pump, args=ends, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):  # it has been refused already
        os.write(client.stdin.fileno(), CALL)
    said = b""
    while b"HELLO" not in said and (piece := client.stdout.read1()):
        said += piece
    say({"said": said.decode(errors="replace")})
    client.kill()
    client.wait()


def flood(host, port, count, first):
    held, n = {}, 0
    poll = select.poll()
    poll.register(0, select.POLLIN)
    for _ in range(int(count)):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((host, int(port)))
        held[s.fileno()] = s
        poll.register(s, select.POLLOUT)
    while True:
        for fd, event in poll.poll():
            if fd == 0:
                return
            if event != select.POLLOUT:  # it was closed
                poll.unregister(fd)
                held.pop(fd).close()
                continue
            if first:
                held[fd].send(first)
            poll.modify(fd, 0)
            n += 1
            if n == int(count) * 8 // 10:
                say("up")


def listen(port):
    server = socket.create_server(("0.0.0.0", int(port)))
    say("up")
    return server


def lead(port):
    server = listen(port)
    while True:
        s, _ = server.accept()
        try:
            say(message(s))
            s.sendall(frame(kind="GREETING", version=10, open=True, keys=[], munge=""))
            hear(s)
        except ConnectionError:
            say("end")
        s.close()


def offer(port, key, credential):
    """Says the first byte that comes, too: 22 begins TLS."""
    server = listen(port)
    while True:
        s, _ = server.accept()
        try:
            say(message(s))
            s.sendall(frame(kind="GREETING", version=10, open=False, keys=[{"id": key, "source": "munge"}], munge=credential))
            say(exactly(s, 1)[0])
        except ConnectionError:
            say("end")
        s.close()


def certified(port, key, cert):
    server = listen(port)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(cert)
    while True:
        s, _ = server.accept()
        try:
            say(message(s))
            s.sendall(frame(kind="GREETING", version=10, open=False, keys=[{"id": key, "source": "file"}], munge=""))
            with context.wrap_socket(s, server_side=True) as inside:
                hear(inside)
        except (ssl.SSLError, OSError):
            say("end")


def pump(source, target, keep=None):
    try:
        while piece := source.recv(65536):
            if keep is not None:
                keep.append(piece)
            target.sendall(piece)
    except OSError:
        pass
    for s in (source, target):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def relay(port, host, to, strip=False):
    server = listen(port)
    while True:
        s, _ = server.accept()
        up, sent = connect(host, to), []
        back = threading.Thread(target=pump, args=(s, up, sent))
        back.start()
        if strip:
            message(up)
            s.sendall(frame(kind="GREETING", version=10, open=True, keys=[], munge=""))
        pump(up, s)
        back.join()
        say({"sent": b"".join(sent).hex()})


def replay(host, port, sent):
    s = greeted(host, port)
    s.sendall(bytes.fromhex(sent)[len(CALL):])
    try:
        exactly(s, 1 << 20)
    except ConnectionError:
        say("end")


if __name__ == "__main__":
    name, words = sys.argv[1], sys.argv[2:]
    if name in ("silent", "begun", "half"):
        flood(*words, first={"silent": b"", "begun": CALL, "half": CALL + HALF}[name])
    elif name == "strip":
        relay(*words, strip=True)
    else:
        globals()[name](*words)
