#!/usr/bin/python3
"""Includes point down, and each outside thing is touched in one place.

    include_check.py SOURCE_ROOT

The rules, from the README's "Layout":
  direction    a folder of src/ includes only itself and lower layers
  io           outside src/io, only files named *_io.c or *_io.h may include io/ or the system's headers for
               sockets, descriptors, processes and clocks; an x_priv.h may if only such files include it
  third party  libevent in src/io, OpenSSL in src/io/tls.c, cJSON in src/base/json.c, hwloc in
               src/topology/hwloc_*io.c and a header of theirs, Criterion in tests/
  own first    x.c includes its own header before anything else
"""
import pathlib
import re
import sys

# Folder -> what it may include besides itself.
BELOW = {
    "base": set(),
    "io": {"base"},
    "topology": {"base"},
    "client": {"base"},
    "rendezvous": {"base", "io", "topology"},
    "watchdog": {"base", "io", "topology"},
    "nccl_env": {"base", "io", "topology"},
    "launcher": {"base", "io", "topology", "rendezvous", "watchdog", "nccl_env"},
    "cli": {"base", "io", "topology", "rendezvous", "watchdog", "nccl_env", "launcher"},
}

SYSTEM_IO = re.compile(
    r"^(sys/(socket|un|epoll|select|wait|prctl|mman|timerfd|eventfd|signalfd|inotify|resource|ioctl|mount|syscall|uio)"
    r"|netinet/.*|arpa/.*|net/if|netdb|ifaddrs|poll|spawn|sched|pthread|threads|unistd|fcntl|termios|dlfcn|pty)\.h$")

# Names of headers -> the one place.
THIRD_PARTY = [
    (re.compile(r"^(event2/|event\.h|evhttp)"), re.compile(r"^src/io/")),
    (re.compile(r"^openssl/"), re.compile(r"^src/io/tls\.c$")),
    (re.compile(r"^cjson/|^cJSON\.h"), re.compile(r"^src/base/json\.c$")),
    (re.compile(r"^hwloc"), re.compile(r"^src/topology/hwloc_[a-z_]*(io\.c|priv\.h)$")),
    (re.compile(r"^criterion/"), re.compile(r"^tests/")),
]

# A client of the store is a library of blocking calls: sockets are what it is for.
IO_FOLDERS = {"io", "client"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def io_privates(files):
    """The *_priv.h headers that *_io files alone include."""
    private = {f"{p.parent.name}/{p.name}": [] for p in files if p.name.endswith("_priv.h")}
    for path in files:
        for _, header in INCLUDE.findall(path.read_text(errors="replace")):
            if header in private:
                private[header].append(path.stem)
    return {h for h, stems in private.items() if stems and all(s.endswith("_io") for s in stems)}


def check(root, path, privates):
    """The faults of one file, as sentences."""
    name = path.relative_to(root).as_posix()
    parts = name.split("/")
    folder = parts[1] if parts[0] == "src" and len(parts) > 2 else None
    may_io = (folder is None or folder in IO_FOLDERS or path.stem.endswith("_io")
              or f"{folder}/{path.name}" in privates)
    includes = INCLUDE.findall(path.read_text(errors="replace"))
    faults = []
    for quote, header in includes:
        for what, where in THIRD_PARTY:
            if what.search(header) and not where.search(name):
                faults.append(f"{name}: <{header}> belongs in {where.pattern} only")
        if folder is None:
            continue
        target = header.split("/")[0] if quote == '"' and "/" in header else None
        if quote == '"' and target not in ("muster",) and target not in BELOW:
            faults.append(f'{name}: "{header}" should be written "folder/file.h"')
        if target in BELOW and target != folder and target not in BELOW[folder]:
            faults.append(f"{name}: src/{folder} may not include {header}: includes point down")
        if not may_io and target == "io":
            faults.append(f"{name}: only *_io files may include {header}")
        if not may_io and quote == "<" and SYSTEM_IO.match(header):
            faults.append(f"{name}: only *_io files may include <{header}>")
    own = f"{folder}/{path.stem}.h"
    if folder is not None and path.suffix == ".c" and (root / "src" / own).exists():
        if not includes or includes[0][1] != own:
            faults.append(f"{name}: its own header {own} should come first")
    return faults


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = sorted(p for top in ("src", "include", "tests", "examples")
                   for p in (root / top).rglob("*.[ch]") if p.is_file())
    if len(files) < 10:
        sys.exit(f"{root}: only {len(files)} C files found; is this the source tree?")
    privates = io_privates(files)
    faults = [f for p in files for f in check(root, p, privates)]
    print("\n".join(faults) or f"{len(files)} files, no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
