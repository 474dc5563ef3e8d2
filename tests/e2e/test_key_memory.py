"""Where a job's key is while the job runs: in the memory of those that talk to other machines, in pages that neither core
files nor forked processes get. Not in guardians, helpers, relays, workers, and nowhere else in memory, not even in what was
freed."""
import contextlib
import os
import pathlib
import re
import subprocess

import pytest

import harness
from eavesdrop import forms, held, shown
from hosts import hosts_or_skip
from test_attack_hosts import write_key
from test_ssh_head import Hosts as Logins

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to read the memory of processes")
PORT = 29400


def kind_of(pid, pids):
    """What a process of the job is."""
    words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    if not words[0].endswith(b"/muster"):
        return "worker"
    if name != "muster":
        return name
    if words[1] == b"ssh-node":
        return "relay"
    parent = int(re.search(r"^PPid:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
    if words[2].startswith(b"-H") and parent not in pids:  # its agents have the same arguments
        return "head"
    above = pathlib.Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0") if parent in pids else []
    return "agent" if above[1:] == words[1:] else "guardian"


def look(job, key):
    """{what the process is: its copies}; fails where there must be none."""
    pids, seen = harness.processes_with(job.mark.encode()), {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            kind = kind_of(pid, pids)
            seen.setdefault(kind, []).extend(held(key, pid))
    assert not shown(key.strip().removeprefix("muster-key-1:"), pids)
    for kind, copies in seen.items():
        if kind in ("agent", "head"):
            assert copies and all(copy.private and copy.form != "text" for copy in copies), (kind, copies)
        else:
            assert not copies, (kind, copies)
    return seen


def pair(job, hosts, *words, env=None, endpoint=True):
    where = ["--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address(0)}:{PORT}"] if endpoint else []
    agents = [job.agent(f"h{n}", "--nnodes=2", "--nproc-per-node=1", *where, "--rdzv-id=net", *words, "--no-python", job.worker, "start",
                        "env=MUSTER_KEY", "go", prefix=hosts.enter(n), env=env) for n in (0, 1)]
    job.events.wait("start", 2, world=2)
    assert [e.fields["set"] for e in job.events.wait("env", 2)] == ["0", "0"]
    return agents


@pytest.mark.parametrize("source", ["file", "environment", "folder"])
def test_only_who_talks_to_others_has_the_key(job, source):
    secret = f"muster-key-1:{os.urandom(32).hex()}"
    with hosts_or_skip(2, ipv6=False) as hosts:
        if source == "file":
            path = write_key(job.tmp / "key")
            secret = path.read_text()
            agents = pair(job, hosts, f"--key-file={path}")
        elif source == "environment":
            agents = pair(job, hosts, env={"MUSTER_KEY": secret})
        else:
            agents = pair(job, hosts, f"--rdzv-endpoint=dir:{job.tmp}/shared", endpoint=False)
            secret = (job.tmp / "shared/muster-net/key").read_text()
        seen = look(job, secret)
        assert {"agent", "guardian", "worker"} <= set(seen) and ("muster-arbiter" in seen) == (source == "folder"), seen
        job.go()
        for agent in agents:
            code, out, err = agent.finish()
            assert code == 0 and secret.strip()[-64:] not in out + err, err


@pytest.mark.parametrize("given", [True, False], ids=["given", "made"])
def test_heads_and_relays_leave_nothing_of_it(job, given):
    """The head sends it on as text, with all of the environment."""
    words = [f"--key-file={write_key(job.tmp / 'key')}"] if given else []
    head = Logins(job).workers("a,b", *words, "--log-dir=logs", "--redirects=3")
    job.events.wait("start", 2, world=2)
    secret = next((job.tmp / "run").glob("key-*")).read_text()
    seen = look(job, secret)
    assert {"head", "relay", "guardian", "agent", "worker"} <= set(seen), seen
    job.go()
    code, out, err = head.finish()
    assert code == 0 and secret.strip()[-64:] not in out + err, err
    written = [path for path in (job.tmp / "logs").rglob("*") if path.is_file()]
    assert written and not [path for path in written if secret.strip()[-64:].encode() in path.read_bytes()]


def test_a_core_file_has_no_key(job):
    """The kernel leaves out what is marked; gcore writes what the kernel would."""
    gcore = subprocess.run(["sh", "-c", "command -v gcore"], capture_output=True, text=True).stdout.strip()
    if not gcore:
        pytest.skip("needs gcore (Debian: gdb)")
    with hosts_or_skip(2, ipv6=False) as hosts:
        path = write_key(job.tmp / "key")
        agents = pair(job, hosts, f"--key-file={path}")
        pid = agents[0].agent_pid()
        done = subprocess.run([gcore, "-o", job.tmp / "core", str(pid)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        core = (job.tmp / f"core.{pid}").read_bytes()
        assert str(job.tmp).encode() in core, "it is a core file of this agent"
        assert not [form for form, text in forms(path.read_text()).items() if text in core]
        job.go()
        assert [a.finish()[0] for a in agents] == [0, 0]
