"""What others could learn of a job's secrets: from processes of its machines, and from its network.

    assert not shown(key, pids)                                  # on no command line, in no environment
    assert not held(key, pid)                                    # nowhere in its memory
    with Wire(cluster, 0) as wire:                               # all that comes to host 0 and leaves it
        ...
    assert b"version" not in wire.said(port)
"""
import collections
import contextlib
import hmac
import pathlib
import re
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


Copy = collections.namedtuple("Copy", "form where private")


def forms(key):
    """A key, as its file has it, and what is made of it."""
    digits = key.strip().removeprefix("muster-key-1:")
    secret = bytes.fromhex(digits)
    return {"text": digits.encode(), "bytes": secret, "psk": hmac.digest(secret, b"muster tls psk v1", "sha256")}


def regions(pid):
    """(begin, end, what it is, the kernel's flags) of all memory that can be read."""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if at := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)", line):
            found.append([int(at[1], 16), int(at[2], 16), at[4] or "anonymous", at[3]])
        elif line.startswith("VmFlags:"):
            found[-1].append(line.split()[1:])
    return [(begin, end, what, flags) for begin, end, what, mode, flags in found if "r" in mode and what not in ("[vvar]", "[vsyscall]")]


def part(memory, begin, end):
    """What is there; of a file that is shorter than its mapping, what it has."""
    memory.seek(begin)
    data = b""
    with contextlib.suppress(OSError):
        while begin + len(data) < end and (piece := memory.read(end - begin - len(data))):
            data += piece
    return data


def held(key, pid):
    """Copies of a key in a process's memory. private: in memory that core files and forked processes do not get. [] also
    of a process that has ended."""
    found = []
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for begin, end, what, flags in regions(pid):
                data = part(memory, begin, end)
                for form, text in forms(key).items():
                    found += [Copy(form, what, {"dd", "wf"} <= set(flags))] * data.count(text)
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
