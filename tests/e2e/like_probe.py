#!/usr/bin/env python3
"""A worker that leaves in the folder $LIKE_SAW what it saw, and writes a line to stdout and to stderr."""
import json
import os
import re
import sys


def mask(name):
    return re.search(rf"^{name}:\s*(\S+)", open("/proc/self/status").read(), re.M)[1]


def saw():
    fds = sorted(int(n) for n in os.listdir("/proc/self/fd"))
    fds = [n for n in fds if os.path.exists(f"/proc/self/fd/{n}")]  # without the one that read the folder
    try:
        stdin = os.readlink("/proc/self/fd/0")
    except OSError:
        stdin = "closed"
    return {
        "argv": [os.path.basename(sys.argv[0]), *sys.argv[1:]], "env": dict(os.environ), "cwd": os.getcwd(), "stdin": stdin,
        "tty": [os.isatty(n) if n in fds else None for n in (0, 1, 2)], "fds": fds, "name": __name__,
        "package": __package__ or "", "ignored": mask("SigIgn"), "blocked": mask("SigBlk"),
        "leads a session": os.getsid(0) == os.getpid(), "unbuffered": bool(getattr(sys.stdout, "write_through", False)),
        "path": os.path.relpath(sys.path[0] or ".") if sys.path else None, "nice": os.nice(0), "umask": os.umask(0o022),
    }


def main():
    rank = os.environ.get("RANK", "?")
    seen = saw()
    name = f"{rank}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '?')}"
    with open(os.path.join(os.environ["LIKE_SAW"], name), "w") as f:
        json.dump(seen, f)
    for fd, name in ((1, "out"), (2, "err")):
        os.write(fd, f"probe-{name} {rank}\n".encode())  # at once: torchrun does not keep lines of several workers apart


main()
