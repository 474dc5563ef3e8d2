"""Runs the same thing under torchrun and under muster, and compares what can be seen from outside.

    seen = observe_line(job, "muster", line)             # a command line of like_lines.py
    seen = behave(job, "torchrun", behaviour)            # a function of like_behaviours.py
    left = unexplained(name, recorded(name), seen)       # what no row of like_differences.py explains

An observation is JSON. The answers of the real torchrun are in like_torchrun.json; MUSTER_TEST_REWRITE=1 writes them anew.
"""
import copy
import fcntl
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import sys
import threading
import zipfile

import harness
from like_differences import DIFFERENCES

GOLDEN = harness.HERE / "like_torchrun.json"
TORCHRUN = os.environ.get("MUSTER_TEST_TORCHRUN") or os.path.join(os.path.dirname(harness.TORCH_PYTHON), "torchrun")
# What every case gets of the environment of the tests: nothing, but what a program needs.
KEPT = ("CC", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS")
PORT = "<port>"


def program(launcher):
    return [TORCHRUN] if launcher == "torchrun" else [*harness.muster(), "run"]


def environment(job, extra):
    """The whole environment of a launcher, as arguments of Job.env()."""
    python = os.path.dirname(os.path.abspath(harness.TORCH_PYTHON or sys.executable))
    tmp = job.tmp / "tmp"
    tmp.mkdir(exist_ok=True)
    unset = {k: "\0unset" for k in os.environ if k not in KEPT}
    return {**unset, "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin", "HOME": str(job.tmp), "TMPDIR": str(tmp),
            "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "LIKE_SAW": str(job.tmp / "saw"), **extra}


# --- what is seen ----------------------------------------------------------------------------------------------------


class Names:
    """Takes out of texts what is different in every run."""

    def __init__(self, job, ports=()):
        self.job, self.ports = job, [str(p) for p in ports]

    def plain(self, value):
        if isinstance(value, dict):
            return {self.plain(k): self.plain(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.plain(v) for v in value]
        if not isinstance(value, str):
            return value
        value = value.replace(str(self.job.tmp), "<folder>").replace(str(harness.HERE), "<tests>")
        for n, port in enumerate(self.ports):
            value = re.sub(rf"(?<!\d){port}(?!\d)", "{port}" if n == 0 else f"{{port{n}}}", value)
        value = re.sub(r"torchinductor_\w+", "torchinductor_<user>", value)
        value = re.sub(r"pytorch-errorfile-\w{8}\.pickle", "pytorch-errorfile-<name>.pickle", value)
        value = re.sub(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b|\b\d{36,39}\b|"
                       r"\b[\w-]{1,24}-\d{4}-\d{4}-[0-9a-f]{6}\b", "<id>", value)
        # As a whole word: the name can be a part of any text.
        hosts = "|".join(map(re.escape, {"localhost", socket.getfqdn(), socket.gethostname()}))
        return re.sub(rf"(?<![\w.-])(?:{hosts})(?![\w-])", "<host>", value)


def environment_seen(env, given):
    """What the launcher changed: {name: value}, None for a variable that it took out."""
    changed = {k: v for k, v in env.items() if given.get(k) != v}
    changed.update({k: None for k in given if k not in env})
    for name in ("LC_CTYPE", "MUSTER_RUN_DIR"):  # Python's own, and the tests'
        changed.pop(name, None)
    if changed.get("MASTER_PORT", "").isdigit():
        changed["MASTER_PORT"] = PORT
    if changed.get("TORCHELASTIC_ERROR_FILE"):
        name = os.path.basename(changed["TORCHELASTIC_ERROR_FILE"])
        changed["TORCHELASTIC_ERROR_FILE"] = "<file>" if name.endswith("error.json") else name
    if changed.get("TORCH_WORKER_SERVER_SOCKET", "").endswith(".socket"):
        changed["TORCH_WORKER_SERVER_SOCKET"] = "<socket>"
    for name in [k for k in changed if k.startswith("MUSTER_") or k == "NOTIFY_SOCKET"]:
        changed[name] = "<set>" if changed[name] else changed[name]
    return changed


def workers_seen(job, given, ports=()):
    """{"RANK.RESTART": what it saw}, with the variables that the launcher changed."""
    seen = {}
    for path in sorted((job.tmp / "saw").glob("*.*")):
        one = json.loads(path.read_text())
        one["nice"] -= os.nice(0)
        if set(one["fds"]) - {0, 1, 2}:
            one["fds"] = sorted({0, 1, 2} & set(one["fds"])) + ["others"]
        if one["path"] and one["path"].startswith("../"):
            one["path"] = "<elsewhere>"
        port = one["env"].get("MASTER_PORT")
        one["env"] = environment_seen(one["env"], given)
        if port in [str(p) for p in ports]:
            one["env"]["MASTER_PORT"] = port
        seen[path.name] = one
    return seen


def log_name(parts):
    """ATTEMPT/RANK/FILE of a path below the log folder, of either launcher; any other path as it is."""
    for n, part in enumerate(parts):
        if found := re.fullmatch(r"attempt_(\d+)", part):
            return "/".join([*parts[:n - 1], found[1], *parts[n + 1:]])
        if (found := re.fullmatch(r"\d+\.(\d+)", part)) and len(parts) > n + 2:
            return "/".join([*parts[:n - 1], str(int(found[1]) - 1), *parts[n + 2:]])
    return parts[-1]


def file_seen(path):
    data = path.read_text(errors="backslashreplace")
    if path.name.startswith("."):
        return "<any>"
    if path.name.endswith("error.json"):
        return [json.loads(data)["message"]["message"]]
    return sorted(line if len(line) < 200 else f"{line[:20]}… {len(line)} characters" for line in data.splitlines())


def logs_seen(folder):
    """{name: lines in alphabetical order} of all log files."""
    found = {}
    if folder.is_dir():
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not any(p.is_symlink() for p in [path, *path.parents]):
                found[log_name(path.relative_to(folder).parts)] = file_seen(path)
    return found


def left_in(folder):
    return sorted({re.sub(r"^(torchelastic_\w{8}|muster-\w{6})$", "<folder of the launcher>", p.name) for p in folder.iterdir()})


def report(err):
    """The launcher's report about a failure: its heading, its root cause, and the other failures."""
    found = re.search(r"^(=+)\n(.*) FAILED\n-+\nFailures:\n(.*?)-+\nRoot Cause.*?:\n(.*?)^=+$", err, re.S | re.M)
    if not found:
        return None

    def entry(text):
        fields = dict(re.findall(r"^  (\w+) *: (.*?) *$", text, re.M))
        for name in ("time", "host"):
            fields[name] = bool(fields.get(name))
        fields = {k: re.sub(r"\s+", " ", re.sub(r"(?<=pid: )\d+|(?<=PID )\d+", "<pid>", v)) if v is not True else v
                  for k, v in fields.items()}
        if fields.get("error_file", "<N/A>") != "<N/A>":
            fields["error_file"] = "<file>"
        return fields

    others = [entry(text) for text in re.split(r"^\[\d+\]:\n", found[3], flags=re.M) if "exitcode" in text]
    return {"of": found[2], "root": entry(found[4]), "others": sorted(others, key=json.dumps),
            "ChildFailedError": bool(re.search(r"^torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError: *$",
                                               err, re.M))}


# --- a command line --------------------------------------------------------------------------------------------------


CPUS = """#!/usr/bin/env python3
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[1])])
os.execvp(sys.argv[2], sys.argv[2:])
"""


def furnish(job):
    """The files that command lines name."""
    shutil.copy(harness.HERE / "like_probe.py", job.tmp / "probe.py")
    (job.tmp / "probe.py").chmod(0o755)
    (job.tmp / "saw").mkdir(exist_ok=True)
    for folder, name in (("pkg", "mod.py"), ("pkg", "__main__.py"), ("folder", "__main__.py"), ("a b", "é.py")):
        (job.tmp / folder).mkdir(exist_ok=True)
        shutil.copy(harness.HERE / "like_probe.py", job.tmp / folder / name)
    (job.tmp / "probe.sh").write_text('#!/bin/sh\nexec ./probe.py "$@"\n')
    (job.tmp / "probe.sh").chmod(0o755)
    (job.tmp / "plain").write_text("not a folder\n")
    (job.tmp / "cpus").write_text(CPUS)
    (job.tmp / "cpus").chmod(0o755)
    (job.tmp / "link.py").symlink_to("probe.py")
    with zipfile.ZipFile(job.tmp / "archive.zip", "w") as archive:
        archive.write(harness.HERE / "like_probe.py", "__main__.py")


def observe_line(job, launcher, line):
    """Runs a command line to its end. The folders named logs* are log folders."""
    furnish(job)
    ports = [harness.free_port()] if "{port}" in line.text + str(line.env) else []

    def fill(text):
        return (text.replace("{port}", str(ports[0])) if ports else text).replace("{folder}", str(job.tmp))

    words = [fill(w) for w in shlex.split(line.text)]
    given = environment(job, {k: fill(v) for k, v in line.env.items()})
    agent = job.agent("a", *words, env=given, program=program(launcher), prefix=line.prefix)
    status, out, err = agent.finish(90)
    whole = job.env("a", given)
    seen = {
        "status": status, "workers": workers_seen(job, whole, ports),
        "stdout": sorted(out.splitlines()) if "-h" not in words and "--help" not in words else bool(out),
        "stderr": sorted(l for l in err.splitlines() if "probe-err" in l),
        "logs": {p.name: logs_seen(p) for p in sorted(job.tmp.glob("logs*"))}, "tmp": left_in(job.tmp / "tmp"),
    }
    return Names(job, ports).plain(seen)


# --- a behaviour -----------------------------------------------------------------------------------------------------


class Rig:
    """One job whose workers are like_actor.py, for a behaviour."""

    def __init__(self, job, launcher):
        self.job, self.launcher, self.actor = job, launcher, str(harness.HERE / "like_actor.py")
        furnish(job)

    def start(self, options, words, tag="a", env=None, program_words=None, **more):
        """`options` of the launcher and `words` of the actor, as one text each."""
        given = environment(self.job, {"LIKE_LAUNCHER": shlex.join(program(self.launcher)), **(env or {})})
        argv = [*shlex.split(options), *(program_words or [self.actor, *shlex.split(words)])]
        return self.job.agent(tag, *argv, env=given, program=program(self.launcher), **more)

    def end(self, options, words, seconds=90, **more):
        """Runs it to its end: (status, stdout, stderr)."""
        return self.start(options, words, **more).finish(seconds)

    def happens(self, what, agent, seconds=30):
        """Waits until the workers' events make what() true, or the agent has ended: the last what()."""
        def end():
            agent.process.wait()
            with self.job.events.changed:
                self.job.events.changed.notify_all()

        threading.Thread(target=end, daemon=True).start()
        self.job.events.until(lambda: what() or agent.process.poll() is not None, seconds)
        return what()

    def told(self, *kinds):
        """What the workers told so far, in alphabetical order: "KIND RANK.RESTART", and the signal's name."""
        return sorted(" ".join(filter(None, [e.kind, f"{e.fields['rank']}.{e.fields['restart']}", e.fields.get("name")]))
                      for e in self.job.events.all() if not kinds or e.kind in kinds)

    def alive(self, kind):
        """How many of the processes live about which the workers told with this kind. Called when the launcher has
        ended: those that it killed before are gone."""
        return sum(harness.alive(int(e.fields["pid"])) for e in self.job.events.all(kind))


def behave(job, launcher, behaviour):
    return Names(job).plain(json.loads(json.dumps(behaviour(Rig(job, launcher)))))


# --- the record and the comparison -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def all_recorded(_changed_ns):
    return json.loads(GOLDEN.read_text())["seen"]


def recorded(name):
    """What torchrun did, or None if that is not recorded."""
    return copy.deepcopy(all_recorded(GOLDEN.stat().st_mtime_ns).get(name)) if GOLDEN.exists() else None


def record(name, seen, version):
    """One answer of torchrun, into the file. Several may write."""
    folder = os.open(GOLDEN.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        whole = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"seen": {}}
        whole["seen"][name] = seen
        rows = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in sorted(whole["seen"].items()))
        new = pathlib.Path(f"{GOLDEN}.new")
        new.write_text(f'{{"torch": {json.dumps(version)}, "seen": {{\n{rows}\n}}}}\n')
        new.rename(GOLDEN)
    finally:
        os.close(folder)


def leaves(value, path=""):
    """{path: value} of everything that is no dictionary. An empty one is a leaf, too."""
    if not isinstance(value, dict) or not value:
        return {path: value}
    found = {}
    for key, below in value.items():
        found.update(leaves(below, f"{path}/{key}" if path else key))
    return found


def compare(theirs, ours):
    """[(path, theirs, ours)] of every leaf that differs; a leaf that one side lacks is "(none)". If workers ran on one side
    only, that is all; the status of lines without workers has a name of its own."""
    if bool(theirs.get("workers")) != bool(ours.get("workers")):
        return [("workers", *(f"{'run' if side.get('workers') else 'do not run'}, status {side['status']}" for side in (theirs, ours)))]
    a, b = leaves(theirs), leaves(ours)
    if theirs.get("workers") == ours.get("workers") == {}:
        for side in (a, b):
            side["status without workers"] = side.pop("status")
    return [(path, a.get(path, "(none)"), b.get(path, "(none)")) for path in sorted(a.keys() | b.keys())
            if a.get(path, "(none)") != b.get(path, "(none)")]


def explained(name, theirs, ours):
    """({row: number of leaves it explains}, [what no row explains])."""
    used, unknown = {}, []
    for path, a, b in compare(theirs, ours):
        row = next((d for d in DIFFERENCES if d.explains(name, path, a, b)), None)
        if row:
            used[row] = used.get(row, 0) + 1
        else:
            unknown.append(f"{path}: torchrun {json.dumps(a)}, muster {json.dumps(b)}")
    return used, unknown
