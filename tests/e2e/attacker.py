"""What a stranger does to the ports of a job: attacker.py HOST PORT WHAT [SOURCE], run as another user by test_attack.py,
and from other hosts by test_store_check.py. SOURCE: the address from which it comes.

Prints what it got: nothing if it was refused."""
import json
import socket
import struct
import sys

VALIDATE, SET, GET, ADD = b"\0" + struct.pack("<I", 0x3C85F7CE), b"\1", b"\3", b"\4"


def text(data):
    return struct.pack("<Q", len(data)) + data


def add(key, n):
    return ADD + text(key) + struct.pack("<q", n)


def exactly(s, n):
    got = b""
    while len(got) < n:
        piece = s.recv(n - len(got))
        if not piece:
            raise ConnectionError("closed")
        got += piece
    return got


def read(s):
    s.sendall(VALIDATE + GET + text(b"secret"))
    return exactly(s, struct.unpack("<Q", exactly(s, 8))[0]).decode()


def write(s):
    s.sendall(VALIDATE + add(b"attacked", 1))
    return struct.unpack("<q", exactly(s, 8))[0]


def look(s):
    """The counter of write(), without a change."""
    s.sendall(VALIDATE + add(b"attacked", 0))
    return struct.unpack("<q", exactly(s, 8))[0]


def fill(s):
    s.sendall(VALIDATE)
    for i in range(8):
        s.sendall(SET + text(b"fill%d" % i) + text(bytes(4 << 20)))
    s.sendall(add(b"attacked", 8))
    return struct.unpack("<q", exactly(s, 8))[0]


def write_and_close(s):
    s.sendall(VALIDATE + SET + text(b"attacked") + text(b"1"))
    s.close()
    return ""


def write_and_reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return write_and_close(s)


def frame(**message):
    payload = json.dumps(message, separators=(",", ":")).encode()
    return struct.pack("<I", len(payload)) + payload


def message(s):
    return json.loads(exactly(s, struct.unpack("<I", exactly(s, 4))[0]))


CALL = frame(kind="CALL", version=10)


def call_and_close(s):
    """As a probe whose time has run out."""
    s.sendall(CALL)
    s.close()
    return ""


def hello(s):
    """The greeting, then whom the caller has reached."""
    s.sendall(CALL + CALL)
    assert message(s)["kind"] == "GREETING"
    return json.dumps(message(s))


def crowd(s):
    """Silent connections, until one is refused or there are many; holds them until its input ends."""
    held = [s]
    for _ in range(400):
        held.append(socket.create_connection(s.getpeername()[:2], 30))
    refused = 0
    for each in held:
        each.settimeout(30)
        try:
            refused += each.recv(1) == b""
        except ConnectionError:
            refused += 1
        except TimeoutError:
            pass
    return refused or ""


def main():
    source = (sys.argv[4], 0) if sys.argv[4:] and sys.argv[4] else None
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30, source)
    try:
        print(globals()[sys.argv[3]](s), flush=True)
    except ConnectionError:
        pass


if __name__ == "__main__":
    main()
