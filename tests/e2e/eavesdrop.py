"""What others could learn of a job's secrets: from processes of its machines, and from its network.

    assert not shown(key, pids)                                  # on no command line, in no environment
    with Wire(cluster, 0) as wire:                               # all that comes to host 0 and leaves it
        ...
    assert b"LEAD" not in wire.said(port)
"""
import pathlib
import subprocess
import sys
import tempfile

# Writes all frames of this network namespace to a file, each after its length, until its input ends; those of the machine with
# itself only if it is told so.
LISTENER = r"""
import select, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
with open(sys.argv[1], "wb") as f:
    print("listening", flush=True)
    while True:
        ready = select.select([s, sys.stdin], [], [])[0]
        if s in ready:
            frame, at = s.recvfrom(1 << 17)
            if at[0] != "lo" or sys.argv[2:]:
                f.write(len(frame).to_bytes(4, "little") + frame)
        elif ready:
            break
"""


def shown(secret, pids):
    """Where it is: of which processes, by their titles, in which file. [] also of processes that have ended."""
    found = []
    for pid in pids:
        for name in "cmdline", "environ":
            try:
                if secret.encode() in pathlib.Path(f"/proc/{pid}/{name}").read_bytes():
                    title = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(f"{name} of {title}")
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def tcp(frame):
    """(port, port, bytes) of a TCP packet, else None."""
    kind, at = int.from_bytes(frame[12:14], "big"), 14
    if kind == 0x800 and frame[at + 9] == 6:
        end, at = at + int.from_bytes(frame[at + 2:at + 4], "big"), at + (frame[at] & 15) * 4
    elif kind == 0x86dd and frame[at + 6] == 6:
        end, at = at + 40 + int.from_bytes(frame[at + 4:at + 6], "big"), at + 40
    else:
        return None
    ports = int.from_bytes(frame[at:at + 2], "big"), int.from_bytes(frame[at + 2:at + 4], "big")
    return *ports, frame[at + (frame[at + 12] >> 4) * 4:end]


class Wire:
    """Whoever listens on a host's network; inside: also to what it says to itself."""

    def __init__(self, cluster, n, inside=False):
        self.cluster, self.n, self.more = cluster, n, ["inside"] if inside else []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster-wire.")
        self.path = pathlib.Path(self.folder.name) / "frames"
        self.process = subprocess.Popen(self.cluster.client(sys.executable, "-c", LISTENER, self.path, *self.more, on=self.n),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"listening\n"
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        data, self.packets = self.path.read_bytes(), []
        while data:
            n = int.from_bytes(data[:4], "little")
            if found := tcp(data[4:4 + n]):
                self.packets.append(found)
            data = data[4 + n:]
        self.folder.cleanup()

    def said(self, port):
        """All that went to and from this port, in the order in which it was heard."""
        return b"".join(said for source, to, said in self.packets if port in (source, to))
