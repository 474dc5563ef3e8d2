"""The gate: where workers of --warm pass before their script begins. man muster-protocol, "Warm workers".

It is sitecustomize.py of a zip in a memfd that is first in PYTHONPATH, so Python runs it before it looks at the
script. MUSTER_WARM names its role, "ROLE:AGENT:ZIP:CONTROL:RECORD:HAD_PATH:SKIP":

  record    a worker that starts cold: the names of the modules that it imports are written to RECORD, a memfd of
            the agent, while the script runs
  standby   imports what was recorded, and waits here for "go"; then Python itself runs the script
  template  the same, and forks standbys at "fork"
  reach     reports that it is reached, and exits: so will be a standby that is started in the same way

Nothing of this is left in the environment, in sys.path or in sys.modules when the script begins.
"""
import os
import sys
from posix import _exit  # imports may replace that of os

RECORD_MAX = 1 << 20  # bytes
COPIED_MAX = 1 << 20  # of what was printed while importing
QUIET_THREADS = ("jemalloc_bg_thd",)  # jemalloc's own handler of forks takes care of its locks
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/infiniband/")
OWN = ("sitecustomize", "usercustomize")  # they are imported anyway
PER_RANK = ("RANK", "LOCAL_RANK", "ROLE_RANK", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
MARKER = b"MUSTER_WORKER_ID="
OOM = "/proc/self/oom_score_adj"
RECORD = "/memfd:muster-record"  # the name that the agent gives it


def take_away(zip_fd, had_path):
    """Takes the gate out of everything in which a script could see it."""
    here = f"/proc/self/fd/{zip_fd}"
    os.environ.pop("MUSTER_WARM", None)
    rest = os.environ.get("PYTHONPATH", "").split(":", 1)
    if had_path:
        os.environ["PYTHONPATH"] = rest[1] if len(rest) == 2 else ""
    else:
        os.environ.pop("PYTHONPATH", None)
    if here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    sys.modules.pop("sitecustomize", None)
    zips = sys.modules.get("zipimport")
    getattr(zips, "_zip_directory_cache", {}).pop(here, None)
    os.close(zip_fd)


def is_installed(path):
    """Whether this file belongs to Python or to an installed package, and not to the user's own program."""
    return ("/site-packages/" in path or "/dist-packages/" in path or path.startswith(STDLIB)
            or path.startswith("<frozen"))


STDLIB = os.path.dirname(os.__file__) + "/"


def words_of_script():
    """FILE ARGS, or -m NAME ARGS."""
    with open("/proc/self/cmdline", "rb") as f:
        words = [os.fsdecode(w) for w in f.read().split(b"\0")[1:-1]]
    while words and words[0].startswith("-") and words[0] != "-m":
        words = words[2 if words[0] in ("-W", "-X") else 1:]
    return words


def program():
    """The package that the script belongs to, if it is an installed one, or "": it is the user's, and may do anything."""
    words = words_of_script()
    if words[:1] == ["-m"] and len(words) > 1:
        return words[1].split(".")[0]
    inside = os.path.abspath(words[0]).split("-packages/")[1:] if words else []
    return inside[-1].split("/")[0] if inside else ""


# ---- a worker that starts cold ----

class Recorder:
    """Writes down which modules arrive in sys.modules, in this order. Names that are only asked for don't count. A module
    that is still being imported has a line with "~", and one without when that has ended: an import that does not end may
    be the program itself, or start another one in its place.
    """

    def __init__(self, agent, fd, skip):
        self.path, self.pid, self.skip = f"/proc/{agent}/fd/{fd}", os.getpid(), {*skip, *OWN, program()}
        if not os.readlink(self.path).startswith(RECORD):
            raise OSError("/proc is that of another pid namespace, where this is another process's file")
        self.asked, self.begun, self.size, self.on = [], [], 0, True
        self.putenv = os.putenv
        self.write(f"gate {sys.version_info[0]}.{sys.version_info[1]}")
        os.putenv = self.on_putenv
        sys.meta_path.insert(0, self)

    def write(self, line):
        data = os.fsencode(line + "\n")
        self.size += len(data)
        if self.size > RECORD_MAX:
            self.on = False
            return
        # no descriptor stays open, because the script would see it
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def find_spec(self, name, path=None, target=None):
        if self.on and os.getpid() == self.pid:
            try:
                self.look()
            except Exception:  # the script must not meet it
                self.on = False
            self.asked.append(name)
        return None

    def look(self):
        left, begun, found = [], [], []
        for name in self.begun:
            if self.is_begun(name):
                begun.append(name)
            elif name in sys.modules:
                found.append(name)
        for name in self.asked:
            if name not in sys.modules:
                left.append(name)
            else:
                found += self.lines_of(name)
                if found and found[-1] == "~" + name:
                    begun.append(name)
        self.asked, self.begun = left[-256:], begun
        if found:
            self.write("\n".join(found))

    @staticmethod
    def spec(name):
        """Without asking the module, which may do anything then: a lazy one is loaded by that."""
        try:
            return object.__getattribute__(sys.modules[name], "__spec__")
        except Exception:
            return None

    def is_begun(self, name):
        return getattr(self.spec(name), "_initializing", False) is True

    def lines_of(self, name):
        """The lines of the record for a module that has arrived."""
        origin = getattr(self.spec(name), "origin", None)
        if not isinstance(origin, str) or type(sys.modules[name]).__module__ == "importlib.util":  # not loaded yet
            return []
        chosen = is_installed(origin) and name.split(".")[0] not in self.skip
        return ["~" * self.is_begun(name) + name] if chosen else []

    def on_putenv(self, name, value):
        """A script that sets a variable may mean a module that it imports afterwards: these stay cold."""
        self.putenv(name, value)
        frame = sys._getframe(1)
        while frame is not None and os.path.basename(frame.f_code.co_filename) in ("os.py", "_collections_abc.py",
                                                                                  "<frozen os>", "<frozen _collections_abc>"):
            frame = frame.f_back
        if self.on and os.getpid() == self.pid and frame is not None and not is_installed(frame.f_code.co_filename):
            try:
                self.look()
                self.write("!" + os.fsdecode(name))
            except Exception:
                pass
            self.on = False


# ---- a standby ----

class Watched(os.environ.__class__):
    """os.environ while modules are imported: which variables they read by name. Reading all of them does not count."""
    read = set()
    whole = {}  # name -> code that got the name from a list of all names

    @staticmethod
    def caller():
        frame = sys._getframe(2)
        while frame.f_back is not None and os.path.basename(frame.f_code.co_filename) in (
                "os.py", "_collections_abc.py", "<frozen os>", "<frozen _collections_abc>"):
            frame = frame.f_back
        return frame.f_code

    def __getitem__(self, key):
        if Watched.whole.pop(key, None) is not Watched.caller():
            Watched.read.add(key)
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        Watched.read.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key):
        Watched.read.add(key)
        super().__delitem__(key)

    def __contains__(self, key):
        Watched.read.add(key)
        return super().__contains__(key)

    def __iter__(self):
        code = Watched.caller()
        for key in super().__iter__():
            Watched.whole[key] = code
            yield key


class Standby:
    def __init__(self, agent, control, record, skip):
        import json
        import socket
        import time
        self.json, self.socket, self.time = json, socket, time
        self.agent, self.skip, self.record, self.pid, self.gone = agent, skip, record, os.getpid(), False
        self.control = self.connect(control)
        self.copied = None
        self.oom = None

    def connect(self, fd):
        control = self.socket.socket(fileno=fd)
        control.settimeout(None)  # imports may set another default
        return control

    def end_forked(self):
        """Ends a process that an import has forked, and that does not end by itself: it must not become the worker."""
        if os.getpid() != self.pid:
            _exit(0)

    def guard(self):
        """An import that puts another program in its place would begin the script again, which does not pass the gate."""
        def guarded(real):
            def run(*args, **more):
                if not self.gone and os.getpid() == self.pid:
                    try:
                        self.send("cold", reason="importing starts another program in the place of this one")
                        self.receive(0)
                    finally:
                        _exit(1)
                return real(*args, **more)
            return run

        self.real = {name: getattr(os, name) for name in ("execv", "execve")}
        self.guards = {name: guarded(real) for name, real in self.real.items()}
        vars(os).update(self.guards)

    def unguard(self):
        self.gone = True
        for name, real in self.real.items():
            if getattr(os, name) is self.guards[name]:
                setattr(os, name, real)

    def sacrifice(self):
        """When memory runs out the kernel ends this process, and not a worker."""
        try:
            with open(OOM, "r+") as f:
                self.oom = f.read()
                f.seek(0)
                f.write("1000")
        except OSError:
            self.oom = None

    def spare(self):
        if self.oom is not None:
            with open(OOM, "w") as f:
                f.write(self.oom)

    def send(self, kind, **fields):
        self.control.sendall(self.json.dumps(dict(fields, kind=kind)).encode())

    def send_ready(self, **facts):
        nothing = {"seconds": 0, "modules": 0, "failed": 0, "threads": "", "devices": "", "read": "", "moved": ""}
        self.send("ready", pid=os.getpid(), **{**nothing, **facts})

    def receive(self, n_fds):
        """The next message, and the descriptors that came with it. The end of the file is our end."""
        try:
            data, fds, _, _ = self.socket.recv_fds(self.control, 1 << 18, n_fds) if hasattr(self.socket, "recv_fds") \
                else self.recv_fds(n_fds)
        except OSError:
            data, fds = b"", []
        if not data:
            _exit(0)
        return self.json.loads(data), list(fds)

    def recv_fds(self, n_fds):  # Python 3.8
        import array
        fds = array.array("i")
        data, more, flags, where = self.control.recvmsg(1 << 18, self.socket.CMSG_LEN(n_fds * fds.itemsize))
        for level, kind, got in more:
            if level == self.socket.SOL_SOCKET and kind == self.socket.SCM_RIGHTS:
                fds.frombytes(got[:len(got) - len(got) % fds.itemsize])
        return data, list(fds), flags, where

    # -- before the go --

    def names(self):
        with os.fdopen(self.record, "rb") as f:
            lines = os.fsdecode(os.pread(f.fileno(), RECORD_MAX, 0)).split("\n")
        ended = {}  # in the order in which they began
        for line in lines[1:]:
            if line.startswith("~"):
                ended.setdefault(line[1:], False)
            elif line and line[0] != "!":
                ended[line] = True
        return [n for n, has in ended.items() if has and n.split(".")[0] not in self.skip]

    def reached(self):
        """Reports that the gate is reached."""
        self.send_ready()
        self.leave()

    def leave(self):
        self.receive(0)  # until the agent has received it
        _exit(0)

    def warm(self, template):
        import importlib
        began, before, failed, place = self.time.monotonic(), len(sys.modules), 0, self.place()
        plain = os.environ.__class__
        os.environ.__class__ = Watched
        try:
            for name in self.names():
                if name in sys.modules:
                    continue
                try:
                    importlib.import_module(name)
                except BaseException:  # the script meets it again, if it does
                    failed += 1
                self.end_forked()
        finally:
            os.environ.__class__ = plain
        self.stamps = self.stat_all()
        threads = self.threads()
        if template and threads and self.has_openblas():
            threads = self.threads_after_a_fork(threads)
        if template:
            threads += self.children()
        moved = [name for name, now in self.place().items() if now != place[name]]
        per_rank = sorted(Watched.read.intersection(PER_RANK))
        return {"seconds": round(self.time.monotonic() - began, 3), "modules": len(sys.modules) - before, "failed": failed,
                "threads": ", ".join(threads), "devices": ", ".join(self.devices()), "read": ", ".join(per_rank),
                "moved": ", ".join(moved)}

    @staticmethod
    def place():
        """What the go sets again, so that imports must not have changed it."""
        mask = os.umask(0)
        os.umask(mask)
        here = os.stat(".")
        return {"the working directory": (here.st_dev, here.st_ino), "the umask": mask}

    def threads(self):
        found = []
        for tid in os.listdir("/proc/self/task"):
            try:
                if int(tid) != os.getpid():
                    with open(f"/proc/self/task/{tid}/comm", errors="replace") as f:
                        found.append(f.read().strip())
            except OSError:  # it has ended
                pass
        return sorted(set(found).difference(QUIET_THREADS))[:8]

    @staticmethod
    def has_openblas():
        with open("/proc/self/maps", errors="replace") as f:
            return any("openblas" in line.rsplit("/", 1)[-1] for line in f)

    @staticmethod
    def children():
        """Forked workers would have the same ones, and none could wait for them."""
        found = []
        try:
            for tid in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{tid}/children") as f:
                    pids = f.read().split()
                for pid in pids:
                    with open(f"/proc/{pid}/comm", errors="replace") as f:
                        found.append(f"{f.read().strip()} (a process)")
        except OSError:  # it has ended, or this kernel has no such file
            pass
        return found[:8]

    def daemons(self):
        """They are the agent's children now, and end with the group: the worker would believe that they run."""
        found, unsure = {}, True
        until = self.time.monotonic() + 0.1
        while unsure and self.time.monotonic() < until:
            unsure = False
            self.time.sleep(0.001)
            for pid in self.children_of_agent() | self.children_of_agent():  # the kernel may leave one out
                try:
                    with open(f"/proc/{pid}/environ", "rb") as f:
                        environ = f.read()
                    unsure = unsure or not environ  # as one is that becomes another program just now
                    if MARKER + b"-" in environ and pid != os.getpid() and self.started(pid) >= self.started("self"):
                        with open(f"/proc/{pid}/comm", errors="replace") as f:
                            found[pid] = f.read().strip()
                except OSError:  # it has ended
                    pass
        return list(found.values())[:8]

    def children_of_agent(self):
        try:
            with open(f"/proc/{self.agent}/task/{self.agent}/children") as f:
                return {int(pid) for pid in f.read().split()}
        except OSError:  # this kernel has no such file
            return set()

    @staticmethod
    def started(pid):
        with open(f"/proc/{pid}/stat", "rb") as f:
            return int(f.read().rsplit(b")", 1)[1].split()[19])

    def threads_after_a_fork(self, before):
        """OpenBLAS's threads have the name of the process, but not its life: its own handler of forks ends them, and the
        next call of BLAS makes new ones, in each process. So those are harmless that a fork ends in the process that forks.
        """
        import threading
        if len(threading.enumerate()) > 1:
            return before  # Python's own
        child = self.fork_quietly()
        if child == 0:
            _exit(0)
        self.wait_for(child)
        until = self.time.monotonic() + 1  # /proc shows an ended thread a little longer
        while self.threads() and self.time.monotonic() < until:
            self.time.sleep(0.001)
        return self.threads()

    @staticmethod
    def wait_for(child):
        try:
            os.waitpid(child, 0)
        except ChildProcessError:  # an import has left SIGCHLD ignored, or to a handler that was faster
            pass

    @staticmethod
    def fork_quietly():
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # since Python 3.12: that there are threads
            return os.fork()

    @staticmethod
    def devices():
        found = set()
        for fd in os.listdir("/proc/self/fd"):
            try:
                found.add(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError:
                pass
        return sorted(p for p in found if p.startswith(DEVICES))[:8]

    @staticmethod
    def stat_all():
        """What must not change between the imports and the go: interpreter, script, installed packages."""
        stamps = {}
        for path in map(str, [sys.executable, *sys.argv[:1], *sys.path]):
            try:
                st = os.stat(path)
                if path in (sys.executable, *sys.argv[:1]) or path.endswith("-packages"):
                    stamps[path] = (st.st_dev, st.st_ino, st.st_mtime_ns)
            except (OSError, ValueError):
                pass
        return stamps

    # -- the template --

    def serve(self):
        """Forks standbys until this process is one, and returns in it."""
        import gc
        gc.collect()
        gc.freeze()
        while True:
            message, fds = self.receive(1)
            if message.get("kind") == "fork" and fds and self.fork(fds[0], message):
                return

    def fork(self, fd, message):
        child = self.fork_quietly()
        if child != 0:
            os.close(fd)
            self.wait_for(child)
            return False
        try:
            between = os.getpid()
            if self.fork_quietly() != 0:
                _exit(0)
            self.pid = os.getpid()
            self.control.close()
            self.control = self.connect(fd)
            self.settle(message, between)
        except BaseException as e:  # never back into the template's loop
            try:
                self.send("cold", reason=f"the forked process can't be set up: {e}")
            finally:
                _exit(1)
        return True

    def settle(self, message, between):
        """Makes this grandchild of the template the agent's child, as a cold worker is."""
        until = self.time.monotonic() + 10
        while os.getppid() != self.agent:
            if self.time.monotonic() > until or os.getppid() not in (between, self.agent):
                raise OSError("the agent is not its parent")
            self.time.sleep(0.0005)
        os.setsid()
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(1, 9, 0, 0, 0) != 0:  # PR_SET_PDEATHSIG, SIGKILL
            raise OSError(ctypes.get_errno(), "prctl")
        if os.getppid() != self.agent:
            _exit(1)
        libc.prctl(0x59616d61, ctypes.c_ulong(self.agent), 0, 0, 0)  # PR_SET_PTRACER; EINVAL without Yama
        self.bind_memory(libc, ctypes, message)
        self.reseed()
        self.send_ready()

    @staticmethod
    def bind_memory(libc, ctypes, message):
        nodes = [i for i, bit in enumerate(reversed(bin(int(message.get("nodes", "0"), 16))[2:])) if bit == "1"]
        for mode, chosen in {"bind": [(2, nodes)], "prefer": [(5, nodes), (1, nodes[:1])]}.get(message.get("memory"), ()):
            words = (ctypes.c_ulong * 128)()
            for i in chosen:
                words[i // 64] |= 1 << i % 64
            if libc.syscall(ctypes.c_long(message["syscall"]), ctypes.c_long(mode), words, ctypes.c_ulong(8193)) == 0:
                return
            if ctypes.get_errno() != 22:  # EINVAL: an older kernel
                break
        else:
            if "memory" not in message:
                return
        raise OSError(ctypes.get_errno(), "set_mempolicy")

    @staticmethod
    def reseed():
        """All forked processes have the same generators; a cold one seeds its own. random does it by itself."""
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            numpy.seed()
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "default_generator"):
            torch.default_generator.seed()

    # -- the go --

    def wait(self):
        message, fds = self.receive(3)
        try:
            reason = self.begin(message, fds)
        except Exception as e:
            reason = f"{type(e).__name__}: {e}"
        if reason is not None:
            self.send("cold", reason=reason[:400])
            self.leave()
        self.unguard()
        self.send("going")
        self.control.close()

    def begin(self, message, fds):
        if message.get("kind") != "go" or len(fds) != 3:
            return "the message of the agent is not a go"
        changed = sorted(Watched.read.intersection([*message["set"], *message["unset"]]))
        if changed:
            return f"an import has read {changed[0]}, which has changed"
        for path, stamp in self.stat_all().items():
            if self.stamps.get(path) != stamp:
                return f"{path} has changed since the modules were imported"
        self.mark(message["marker"].encode())
        for name in message["unset"]:
            os.environ.pop(name, None)
        os.environ.update(message["set"])
        if "cwd" in message:
            os.chdir(message["cwd"])
        os.umask(message["umask"])
        self.spare()
        printed = [self.printed(1), self.printed(2)]
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        self.copied = printed
        return None

    @staticmethod
    def printed(fd):
        stream = sys.stdout if fd == 1 else sys.stderr
        if stream is not None:
            stream.flush()
        try:
            return os.pread(fd, COPIED_MAX, 0)
        except OSError:
            return b""

    @staticmethod
    def mark(marker):
        """Processes are found by the marker in /proc/PID/environ, which keeps what they were started with."""
        with open("/proc/self/stat", "rb") as f:
            fields = f.read().rsplit(b")", 1)[1].split()
        start, end = int(fields[47]), int(fields[48])
        with open("/proc/self/mem", "r+b", buffering=0) as mem:
            mem.seek(start)
            block = b"\0" + mem.read(end - start)
            at = block.find(b"\0" + MARKER)
            room = block.find(b"\0", at + 1) - at - 1 - len(MARKER)
            if at < 0 or room < len(marker):
                raise OSError("there is no room for the marker in /proc/self/environ")
            mem.seek(start + at + len(MARKER))
            mem.write(marker + b"\0" * (room - len(marker)))

    def print_again(self):
        for fd, data in zip((1, 2), self.copied):
            try:
                while data:
                    data = data[os.write(fd, data):]
            except OSError:  # a full disk: the script meets it if it prints, too
                pass


def import_own(name):
    """Imports the user's own module of this name. Returns the exception that Python would get, or None."""
    try:
        __import__(name)
    except BaseException as e:
        return e
    return None


def pass_by(role, agent, zip_fd, control, record, had_path, skip):
    skip = set(skip.split(",")) if skip else set()
    take_away(int(zip_fd), had_path == "1")
    if os.getppid() != int(agent):  # another Python, which the one that is meant starts first
        for fd in (control, record):
            if int(fd) >= 0 and role != "record":
                os.close(int(fd))
        return
    if role == "record":
        Recorder(int(agent), int(record), skip)
        return
    begun = False
    try:
        stand_by(role, Standby(int(agent), int(control), int(record), skip))
        begun = True
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        if not begun:  # Python would continue with the script, which runs elsewhere
            _exit(1)


def stand_by(role, standby):
    """Returns when the script is to begin."""
    if role == "reach":
        standby.reached()
    standby.guard()
    standby.sacrifice()
    own = import_own("sitecustomize")
    site = sys.modules.get("site")
    if own is None or isinstance(own, ImportError):
        if getattr(site, "ENABLE_USER_SITE", False):
            import_own("usercustomize")
    standby.end_forked()
    facts = standby.warm(role == "template")
    daemons = standby.daemons()
    if daemons:
        standby.send("cold", reason=f"importing leaves a daemon: {', '.join(daemons)}"[:400])
        standby.leave()
    standby.send_ready(**facts)
    if role == "template":
        standby.serve()
    standby.wait()
    standby.print_again()


if "MUSTER_WARM" in os.environ:
    words = os.environ["MUSTER_WARM"].split(":", 6)
    try:
        pass_by(*words)
    except Exception:
        if words[0] != "record":
            _exit(1)
    # The user's own module takes the place of this one. Without one, Python gets the ImportError that it expects.
    if "sitecustomize" not in sys.modules:
        import sitecustomize  # noqa: F401
