"""Runs a command in a container that shares the host's network, as `docker run --network host` does:

    container.py FOLDER runc|unshare [--user N] [--bind FROM:TO]… -- COMMAND…

It has its own pid, mount, ipc and uts namespace and its own root, and the program's environment. Of the host it sees what
muster's tests need, at the same place. With runc its capabilities are those of Docker, and its files are below
FOLDER/containers.
"""
import json
import os
import pathlib
import sys
import uuid

CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "NET_RAW",
                "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP"]
LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}

# $1 is the root, $2 the user, then come pairs of what is bound there, up to "--".
ENTER = r"""
set -e
root="$1" user="$2"; shift 2
mount --make-rprivate /
mount -t tmpfs none "$root"
for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/run"
chmod 1777 "$root/tmp"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do mkdir -p "$root/$2"; mount --bind "$1" "$root/$2"; shift 2; done
shift
cd "$root"
mkdir old
pivot_root . old
mount -t proc proc /proc
umount -l old
cd /
[ "$user" = 0 ] || exec setpriv --reuid "$user" --regid "$user" --clear-groups -- "$@"
exec "$@"
"""


def binds(folder, more):
    """What the container sees of the host, at the same place."""
    seen = ["/usr", "/etc", os.path.dirname(os.environ.get("MUSTER", "")), str(pathlib.Path(__file__).resolve().parent),
            *os.environ.get("E2E_PREFIX", "").split(":"), str(folder)]
    return [(path, path) for path in dict.fromkeys(seen) if path] + [tuple(m.split(":")) for m in more]


def by_unshare(folder, user, more, words):
    root = folder / "root"
    root.mkdir(exist_ok=True)
    pairs = [path for pair in binds(folder, more) for path in pair]
    os.execvp("unshare", ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "/bin/sh", "-c", ENTER, "sh",
                          str(root), str(user), *pairs, "--", *words])


def config(folder, user, more, words):
    """The OCI runtime specification's config.json: no control groups, no limits, and no network namespace."""
    linux = {"namespaces": [{"type": name} for name in ("pid", "mount", "ipc", "uts")]}
    caps = ["CAP_" + name for name in CAPABILITIES]
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"},
              {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
              {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["mode=1777", "size=65536k"]}]
    mounts += [{"destination": to, "type": "bind", "source": path, "options": ["rbind", "rw" if path == str(folder) else "ro"]}
               for path, to in binds(folder, [])]
    mounts += [{"destination": m.split(":")[1], "type": "bind", "source": m.split(":")[0], "options": ["rbind", "rw"]} for m in more]
    return {"ociVersion": "1.0.2", "hostname": os.uname().nodename, "root": {"path": "root"}, "mounts": mounts, "linux": linux,
            "process": {"args": words, "cwd": "/", "env": [f"{k}={v}" for k, v in os.environ.items()], "noNewPrivileges": True,
                        "user": {"uid": user, "gid": user},
                        "capabilities": {kind: caps for kind in ("bounding", "effective", "permitted")} if user == 0 else {}}}


def by_runc(folder, user, more, words):
    os.environ.pop("NOTIFY_SOCKET", None)  # runc would serve it at a path that is too long for a socket
    name = f"muster-e2e-{uuid.uuid4().hex}"
    bundle = folder / "containers" / name
    (bundle / "root").mkdir(parents=True)
    for link, to in LINKS.items():
        (bundle / "root" / link).symlink_to(to)
    for name_in in ("tmp", "run"):
        (bundle / "root" / name_in).mkdir()
        (bundle / "root" / name_in).chmod(0o1777)
    (bundle / "config.json").write_text(json.dumps(config(folder, user, more, words)))
    os.execvp("runc", ["runc", "--root", str(folder / "containers" / "state"), "run", "--bundle", str(bundle), name])


def main(folder, kind, *rest):
    user, more, rest = 0, [], list(rest)
    while rest[0] != "--":
        option, value = rest.pop(0), rest.pop(0)
        if option == "--bind":
            more.append(value)
        else:
            user = int(value)
    {"runc": by_runc, "unshare": by_unshare}[kind](pathlib.Path(folder), user, more, rest[1:])


if __name__ == "__main__":
    main(*sys.argv[1:])
