#!/usr/bin/python3
"""Includes point down, and each outside thing is touched in one place.

    include_check.py SOURCE_ROOT

The rules:
  direction    a room of src/ includes only itself and the rooms below it that ROOMS names
  io           outside src/io, only files named *_io.c or *_io.h may include io/ or the system's headers for
               sockets, descriptors, processes and clocks; an x_priv.h may if only such files include it
  third party  libevent in src/io, OpenSSL in src/io/net/tls*.c, cJSON in src/base/json/json.c, hwloc in
               src/topology/discover/hwloc/, Criterion in tests/
  own first    x.c includes its own header before anything else
  machines     a file of MACHINES includes no header that declares a callback, however far down
"""
import pathlib
import re
import sys

# The rooms of src/, lowest first: each may include itself and the rooms that are named beside it, with "NAME/" for a
# folder and all rooms in it. No room is named before its own line, so there is no circle.
ROOMS = [
    ("base", ""),
    ("base/text", "base"),
    ("base/json", "base base/text"),
    ("io", "base/"),
    ("io/process", "base/ io"),
    ("io/net", "base/ io io/process"),
    ("io/peer", "base/ io io/process io/net"),
    ("client", "base/"),
    ("topology/model", "base/"),
    ("topology/nccl", "base/ topology/model"),
    ("topology/json", "base/ topology/model topology/nccl"),
    ("topology/render", "base/ topology/model topology/nccl"),
    ("topology/discover/net", "base/ io/net topology/model"),
    ("topology/discover/sysfs", "base/ io topology/model"),
    ("topology/discover/hwloc", "base/ io io/process topology/model"),
    ("topology/discover/nvml", "base/ io io/process topology/model"),
    ("topology/discover", "base/ io io/process topology/model topology/nccl topology/json"
                          " topology/discover/net topology/discover/sysfs topology/discover/hwloc"
                          " topology/discover/nvml"),
    ("nccl_env/facts", "base/ io topology/model"),
    ("nccl_env/lint", "base/ topology/model nccl_env/facts"),
    ("nccl_env/rules", "base/ topology/model topology/nccl nccl_env/facts nccl_env/lint"),
    ("watchdog", "base/"),
    ("rendezvous/store", "base/ io/"),
    ("rendezvous/auth", "base/ io/"),
    ("rendezvous/protocol", "base/ io/ rendezvous/auth watchdog"),
    ("rendezvous/arbiter", "base/ io/ rendezvous/protocol"),
    ("rendezvous/arbiter/dir", "base/ io/ rendezvous/auth rendezvous/arbiter"),
    ("rendezvous/arbiter/etcd", "base/ io/ rendezvous/arbiter"),
    ("rendezvous/leader/parts", "base/ rendezvous/protocol rendezvous/arbiter"),
    ("rendezvous/leader", "base/ rendezvous/protocol rendezvous/arbiter rendezvous/leader/parts"),
    ("rendezvous/member", "base/ rendezvous/protocol rendezvous/arbiter rendezvous/leader"),
    ("rendezvous/operate", "base/ io/ rendezvous/auth rendezvous/protocol"),
    ("rendezvous/server", "base/ io/ rendezvous/store rendezvous/auth rendezvous/protocol rendezvous/arbiter rendezvous/operate rendezvous/member"),
    ("rendezvous/client", "base/ io/ rendezvous/auth rendezvous/protocol rendezvous/arbiter rendezvous/member"),
    ("watchdog/look", "base/ io/ topology/model topology/discover/nvml watchdog"),
    ("watchdog/evidence", "base/ io/ topology/discover/nvml watchdog watchdog/look"),
    ("watchdog/profile", "base/ io/ watchdog watchdog/look watchdog/evidence"),
    ("watchdog/judge", "base/ watchdog watchdog/look watchdog/evidence"),
    ("watchdog/act", "base/ io/ watchdog/ rendezvous/protocol rendezvous/arbiter rendezvous/leader rendezvous/leader/parts"
                     " rendezvous/member"),
    ("launcher/hosts", "base/"),
    ("launcher/contain", "base/ io"),
    ("launcher/place", "base/ io/ topology/model launcher/hosts"),
    ("launcher/pmi", "base/ io/ rendezvous/auth launcher/place"),
    ("launcher/job", "base/ topology/model nccl_env/rules watchdog rendezvous/auth rendezvous/protocol launcher/hosts launcher/place"),
    ("launcher/ends", "base/ io/"),
    ("launcher/starter", "base/ io/ rendezvous/auth rendezvous/protocol rendezvous/operate launcher/place launcher/job"),
    ("launcher/srun", "base/ io/ topology/model rendezvous/auth rendezvous/protocol rendezvous/operate launcher/hosts launcher/place launcher/job launcher/starter"),
    ("launcher/worker", "base/ io launcher/job"),
    ("launcher/output", "base/ io/ rendezvous/protocol launcher/job launcher/worker"),
    ("launcher/report", "base/ io rendezvous/protocol rendezvous/leader launcher/worker launcher/output"),
    ("launcher/node", "base/ io/ topology/ nccl_env/ rendezvous/protocol watchdog/look launcher/job"),
    ("launcher/warm", "base/ io/ launcher/job"),
    ("launcher/supervise", "base/ io/ nccl_env/ watchdog rendezvous/protocol rendezvous/member rendezvous/operate launcher/job"
                           " launcher/contain launcher/ends launcher/warm"
                           " launcher/worker launcher/output launcher/report launcher/node"),
    ("launcher/ssh", "base/ io/ topology/model rendezvous/auth rendezvous/protocol rendezvous/operate launcher/hosts launcher/place launcher/job"
                     " launcher/starter launcher/srun launcher/supervise launcher/output"),
    ("launcher/preflight", "base/ io/ topology/ nccl_env/facts rendezvous/protocol rendezvous/leader watchdog/look launcher/job"
                           " launcher/node"),
    ("launcher/agent", "base/ io/ topology/ nccl_env/ rendezvous/ watchdog/ launcher/"),
    ("cli/options", "base/ topology/model rendezvous/auth rendezvous/protocol launcher/hosts launcher/place launcher/job launcher/starter launcher/srun launcher/ssh"),
    ("cli/help", "base/ cli/options"),
    ("cli/jobs", "base/ io/ topology/ rendezvous/ launcher/ watchdog/judge cli/options cli/help"),
    ("cli/logs", "base/ io rendezvous/operate rendezvous/protocol launcher/output cli/options"),
    ("cli/profile", "base/ rendezvous/protocol rendezvous/operate watchdog watchdog/look watchdog/profile"
                    " watchdog/judge cli/logs"),
    ("cli/stacks", "base/ rendezvous/protocol rendezvous/operate watchdog watchdog/look watchdog/evidence watchdog/judge"
                   " cli/logs"),
    ("cli/commands", "base/ io/ topology/ nccl_env/ rendezvous/ launcher/ watchdog/profile cli/options cli/help cli/jobs cli/logs cli/profile cli/stacks"),
    ("cli", "base/ io cli/"),
]

# arpa/inet.h only converts addresses from and to text.
SYSTEM_IO = re.compile(
    r"^(sys/(socket|un|epoll|select|wait|prctl|mman|timerfd|eventfd|signalfd|inotify|resource|ioctl|mount|syscall|uio)"
    r"|netinet/.*|arpa/(?!inet\.h).*|net/if|netdb|ifaddrs|poll|spawn|sched|pthread|threads|unistd|fcntl|termios|dlfcn|pty)\.h$")

# Names of headers -> the only place that may include them.
THIRD_PARTY = [
    (re.compile(r"^(event2/|event\.h|evhttp)"), re.compile(r"^src/io/")),
    (re.compile(r"^openssl/"), re.compile(r"^src/io/net/tls(_library\.[ch]|_psk\.c|_pipe\.c|\.c)$|^tests/unit/io/net/")),
    (re.compile(r"^io/net/tls_library\.h$"), re.compile(r"^src/io/net/tls\w*\.c$")),
    (re.compile(r"^cjson/|^cJSON\.h"), re.compile(r"^src/base/json/json\.c$")),
    (re.compile(r"^hwloc"), re.compile(r"^src/topology/discover/hwloc/hwloc_[a-z_]*(io\.c|priv\.h)$")),
    (re.compile(r"^criterion/"), re.compile(r"^tests/")),
]

# The client of the store is a library of blocking calls: it needs sockets. A command reads and writes what it is given.
IO_FOLDERS = {"io", "io/net", "io/peer", "io/process", "client", "cli", "cli/commands"}

# The pure machines: events in, effects out, no callbacks.
MACHINES = re.compile(r"^src/(rendezvous/(leader|leader/parts|member)/\w+|rendezvous/client/search\w*|watchdog/judge/(hang\w*|places)|rendezvous/store/store(_(?!io|serve_io|door_io|guard_io)\w+)?"
                      r"|launcher/worker/worker|launcher/starter/starter)\.[ch]$")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
CALLBACK = re.compile(r"\(\s*\*\s*\w+\s*\)\s*\(|\btypedef\b[^;{}]*\w\s*\([^;{}]*\)\s*;")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def below():
    """Room -> the rooms that it may include."""
    found = {}
    for room, names in ROOMS:
        found[room] = {room} | {r for n in names.split() for r in found if r == n.rstrip("/") or n[-1] == "/" and r.startswith(n)}
        missing = [n for n in names.split() if not any(r == n.rstrip("/") or r.startswith(n) for r in found if r != room)]
        if missing:
            sys.exit(f"include_check.py: {room} names {missing} before their own line")
    return found


BELOW = below()


def room_of(path, root):
    """The room of a file of src/, else None."""
    parts = path.relative_to(root).parts
    return "/".join(parts[1:-1]) if parts[0] == "src" and len(parts) > 2 else None


def io_privates(files, root):
    """The *_priv.h headers that, in src/, only *_io files and other such headers include."""
    private = {f"{room_of(p, root)}/{p.name}": [] for p in files if p.name.endswith("_priv.h")}
    for path in (p for p in files if room_of(p, root)):
        for _, header in INCLUDE.findall(path.read_text(errors="replace")):
            if header in private:
                private[header].append((path.stem, f"{room_of(path, root)}/{path.name}"))
    found, more = set(), True
    while more:
        more = {h for h, users in private.items() if h not in found and users
                and all(stem.endswith("_io") or user in found for stem, user in users)}
        found |= more
    return found


def check(root, path, privates):
    """The faults of one file, as sentences."""
    name = path.relative_to(root).as_posix()
    folder = room_of(path, root)
    may_io = (folder is None or folder in IO_FOLDERS or path.stem.endswith("_io")
              or f"{folder}/{path.name}" in privates)
    includes = INCLUDE.findall(path.read_text(errors="replace"))
    faults = [f"{name}: src/{folder} is not in ROOMS of include_check.py"] if folder and folder not in BELOW else []
    for quote, header in includes:
        for what, where in THIRD_PARTY:
            if what.search(header) and not where.search(name):
                faults.append(f"{name}: <{header}> belongs in {where.pattern} only")
        if folder is None:
            continue
        target = header.rpartition("/")[0] if quote == '"' and "/" in header else None
        if quote == '"' and target not in ("muster",) and target not in BELOW:
            faults.append(f'{name}: "{header}" should be written "room/file.h"')
        if target in BELOW and target not in BELOW.get(folder, BELOW):
            faults.append(f"{name}: src/{folder} may not include {header}: includes point down")
        if not may_io and target is not None and target.split("/")[0] == "io":
            faults.append(f"{name}: only *_io files may include {header}")
        if not may_io and quote == "<" and SYSTEM_IO.match(header):
            faults.append(f"{name}: only *_io files may include <{header}>")
    own = f"{folder}/{path.stem}.h"
    if folder is not None and path.suffix == ".c" and (root / "src" / own).exists():
        if not includes or includes[0][1] != own:
            faults.append(f"{name}: its own header {own} should come first")
    return faults


def callback_faults(root, path):
    """The headers with callbacks that a machine includes, directly or not, each with the path to it."""
    ways = {path: [path.relative_to(root / "src").as_posix()]}
    left, faults = [path], []
    while left:
        at = left.pop()
        for _, header in INCLUDE.findall(at.read_text(errors="replace")):
            file = root / "src" / header
            if file in ways or not file.is_file():
                continue
            ways[file] = ways[at] + [header]
            left.append(file)
            if CALLBACK.search(COMMENT.sub("", file.read_text(errors="replace"))):
                faults.append(f"a machine includes a header with callbacks: {' > '.join(ways[file])}")
    return faults


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = sorted(p for top in ("src", "include", "tests", "examples")
                   for p in (root / top).rglob("*.[ch]") if p.is_file())
    if len(files) < 10:
        sys.exit(f"{root}: only {len(files)} C files found; is this the source tree?")
    privates = io_privates(files, root)
    faults = [f for p in files for f in check(root, p, privates)]
    machines = [p for p in files if MACHINES.match(p.relative_to(root).as_posix())]
    faults += sorted(f for p in machines for f in callback_faults(root, p))
    print("\n".join(faults) or f"{len(files)} files, no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
