"""Agents and workers in containers that share the host's network (`docker run --network host`): the kernel knows whose
their connections are, across pid, mount, ipc and uts namespaces. With runc, and with unshare(1) alone."""
import contextlib
import os
import re
import shutil
import signal
import subprocess

import pytest

import harness
from harness import HERE, MUSTER, TORCH_PYTHON
from hosts import hosts_or_skip
from test_attack import as_other
from test_netns import endpoint
from test_store_check import Target, key_file

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or as_other(MUSTER, "--version")[0] != 0,
                                reason="needs root, and a muster that other users can run")

OTHER = 1234
SH = ("--no-python", "/bin/sh", "-c")
# What a client of the store gets, and who it is in its own namespaces.
CLIENT = ["/usr/bin/python3", "-c", (HERE / "attacker.py").read_text()]
ASKS = '"$@" "$MASTER_ADDR" "$MASTER_PORT" write; echo "process $$"'


class Runtime:
    def __init__(self, job, kind):
        self.folder, self.kind = job.tmp, kind
        worker = os.path.dirname(job.worker)
        self.always = ["--bind", f"{worker}:{worker}"]
        job.tmp.chmod(0o755)

    def __call__(self, *options):
        """The prefix of a command line that runs in a container of its own."""
        return ["/usr/bin/python3", str(HERE / "container.py"), str(self.folder), self.kind, *self.always, *map(str, options), "--"]

    def end(self):
        state = self.folder / "containers" / "state"
        for name in os.listdir(state) if state.exists() else []:
            subprocess.run(["runc", "--root", str(state), "delete", "--force", name], capture_output=True, check=False)


@pytest.fixture(params=["runc", "unshare"])
def container(request, job, monkeypatch):
    kind = request.param
    if TORCH_PYTHON:
        both = [TORCH_PYTHON, os.path.realpath(TORCH_PYTHON)]  # that of a virtual environment is a link
        monkeypatch.setenv("E2E_PREFIX", ":".join(os.path.dirname(os.path.dirname(path)) for path in both))
    if kind == "runc" and not shutil.which("runc"):
        pytest.skip("needs runc (Debian: runc)")
    runtime = Runtime(job, kind)
    tried = subprocess.run([*runtime(), "true"], capture_output=True, text=True, env=job.env("try"), stdin=subprocess.DEVNULL)
    if tried.returncode != 0:
        pytest.skip(f"{kind} can't start a container here: {tried.stderr.strip()[-300:]}")
    yield runtime
    runtime.end()


def counts(out):
    return sorted(re.findall(r"^\d+$", out, re.M))


# --- agents in containers --------------------------------------------------------------------------------------------

def test_a_job_inside(job, container):
    code, out, err = job.agent("a", "--standalone", "--nproc-per-node=2", *SH, ASKS, "sh", *CLIENT, prefix=container()).finish()
    assert (code, err) == (0, ""), err
    assert counts(out) == ["1", "2"], out
    assert all(int(pid) < 100 for pid in re.findall(r"process (\d+)", out)), f"its own pid namespace: {out}"


@pytest.mark.torch
def test_gloo_inside(job, container):
    code, out, err = job.agent("a", "--standalone", "--nproc-per-node=2", HERE / "store_worker.py", prefix=container(),
                               env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"}).finish(120)
    assert code == 0 and len(re.findall(r"rank \d of 2: ", out)) == 2, (out, err)


@pytest.mark.parametrize("keyed", [True, False], ids=["key", "auto"])
def test_one_agent_inside_and_one_on_the_host(job, container, keyed):
    words = [f"--key-file={key_file(job)}"] if keyed else ["--auth=auto"]
    place = f"127.0.0.1:{harness.free_port()}"
    agents = [job.agent(tag, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=hn", f"--rdzv-endpoint={place}",
                        *words, *SH, ASKS, "sh", *CLIENT, prefix=prefix) for tag, prefix in (("in", container()), ("out", []))]
    found = []
    for agent in agents:
        code, out, err = agent.finish()
        assert code == 0 and "refused" not in err, err
        found += counts(out)
    assert sorted(found) == ["1", "2", "3", "4"]


def test_an_agent_inside_says_whose_a_connection_of_its_host_is(job, container):
    """The store is on host 0, and asks the agent that is in a container on host 1."""
    with hosts_or_skip(2) as hosts:
        target = Target(job, hosts, enter=lambda n: [*hosts.enter(n), *(container() if n == 1 else [])])
        target.enter = hosts.enter
        assert target.attack(1, "write") == "1", "root of the host"
        assert target.attack(1, "write", other=True) == ""
        target.enter = lambda n: [*hosts.enter(n), *container()]
        assert target.attack(1, "write") == "2", "root of another container"
        target.enter = lambda n: [*hosts.enter(n), *container("--user", OTHER)]
        assert target.attack(1, "write") == ""
        target.enter = hosts.enter
        lines, _ = target.end()
        assert len(lines) == 1 and "it belongs to uid 65534 there, and only this job's user and root may use it " \
            "(--store-check=member admits all users of the nodes)" in lines[0], lines


# --- workers in containers -------------------------------------------------------------------------------------------

def worker(words):
    return [*SH, '"$@" "$MASTER_ADDR" "$MASTER_PORT" write', "sh", *words, *CLIENT]


def test_a_worker_in_a_container_of_root(job, container):
    code, out, err = job.agent("a", "--standalone", "--nproc-per-node=2", *worker(container())).finish()
    assert (code, err, counts(out)) == (0, "", ["1", "2"])


@pytest.mark.parametrize("more", [[], ["unshare", "--user", "--map-root-user", "--"]], ids=["user", "user namespace"])
def test_a_worker_in_a_container_of_another_user(job, container, more):
    """In a user namespace it is root, and for the kernel's answers here it is who it is outside."""
    words = [*container("--user", OTHER), *more]
    code, out, err = job.agent("a", "--standalone", "--nproc-per-node=2", *worker(words)).finish()
    assert code == 0 and counts(out) == [], (out, err)
    lines = re.findall("warning: (.*)", err)
    assert len(lines) == 1 and lines[0].startswith("refused a connection to ") and (
        f"it belongs to uid {OTHER} of this machine, and only root may talk to it (--store-check=member admits workers of "
        "other users, --auth=none all users)") in lines[0], err


@pytest.mark.parametrize("place", ["--standalone", "--master-port", "static"])
@pytest.mark.parametrize("check", ["member", "none"])
def test_the_store_of_this_machine_for_all_its_users(job, container, check, place):
    """Also where it shares its port with the agent, who still talks to nobody else."""
    port = harness.free_port()
    words = {"--standalone": ["--standalone"], "--master-port": [f"--master-port={port}"],
             "static": ["--rdzv-backend=static", f"--rdzv-endpoint=127.0.0.1:{port}", "--node-rank=0"]}[place]
    talk = f'{MUSTER} status "127.0.0.1:$PORT" > /dev/null 2>&1 && echo talked || echo silent'
    code, out, err = job.agent("a", "--nproc-per-node=1", f"--store-check={check}", *words, *SH,
                               '"$@" "$MASTER_ADDR" "$MASTER_PORT" write; PORT=$MASTER_PORT setpriv '
                               f"--reuid={OTHER} --regid={OTHER} --clear-groups /bin/sh -c '{talk}'", "sh",
                               *container("--user", OTHER), *CLIENT).finish()
    assert code == 0 and counts(out) == ["1"] and "silent" in out and "talked" not in out, (out, err)
    assert ("refused a connection" in err) == (place != "--standalone"), err


# --- namespaces that know less ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("proc", ["of the host", "none", "hidepid"])
def test_whatever_proc_a_pid_namespace_has(job, proc):
    """Numbers of another namespace are nobody's here: nothing is ended because of them, nor waited for."""
    change = {"of the host": ":", "none": "mount -t tmpfs none /proc", "hidepid": "mount -t proc -o hidepid=2 proc /proc"}[proc]
    code, out, err = job.agent("a", "--standalone", "--nproc-per-node=2", *SH, "sleep 300 & echo up",
                               prefix=["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c",
                                       f'{change} && exec "$@"', "sh"]).finish()
    assert (code, out, err) == (0, "up\nup\n", ""), (out, err)


# --- commands --------------------------------------------------------------------------------------------------------

def inside_job(job, container, *options):
    agent = job.agent("a", "--standalone", "--nproc-per-node=2", *SH, "echo up; exec sleep 300",
                      prefix=container(*options), env={"MUSTER_RUN_DIR": "/run/muster"})
    assert agent.out.until(lambda: agent.output().count("up\n") == 2, 60), agent.said()
    return agent


def ask(job, *words, prefix=(), where=None):
    return subprocess.run([*prefix, MUSTER, *words], env=job.env("ask", {"MUSTER_RUN_DIR": where or job.tmp / "run"}),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * harness.SLOWER)


def test_commands_find_a_job_inside_by_a_shared_folder(job, container):
    (job.tmp / "run").mkdir(mode=0o700, exist_ok=True)
    agent = inside_job(job, container, "--bind", f"{job.tmp}/run:/run/muster")
    assert ": running for" in ask(job, "status").stdout
    assert "2 workers" in ask(job, "stacks").stdout
    shared = container("--bind", f"{job.tmp}/run:/run/muster")
    assert ": running for" in ask(job, "status", prefix=shared, where="/run/muster").stdout
    done = ask(job, "stop")
    assert done.returncode == 0, done
    code, _, err = agent.finish()
    assert code == 1 and "an operator stopped the job" in err, err


def test_commands_that_do_not_find_it_say_what_to_name(job, container):
    inside_job(job, container)
    for command in ("status", "stacks", "stop"):
        done = ask(job, command)
        assert done.returncode == 1 and re.search("no job .*is known on this machine; give the JOB's address", done.stderr), done


# --- ends ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_the_end_of_the_container_is_the_end_of_everything(job, container, signo):
    agent = inside_job(job, container)
    inside = next(pid for pid in harness.processes_with(job.mark.encode())
                  if pid != agent.pid and f"NSpid:\t{pid}\t1\n" in status_of(pid))
    os.kill(inside, signo)
    assert agent.wait() is not None
    job.all_gone(30)


def status_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return f.read()
    return ""


def test_a_worker_s_container_ends_with_the_worker(job, container):
    """Its first process has no handler of SIGTERM, which the kernel then drops: only the last resort ends it."""
    agent = job.agent("a", "--standalone", "--shutdown-timeout=1", *SH, '"$@"', "sh", *container(), "/bin/sh", "-c",
                      "echo up; sleep 300; :")
    assert agent.out.until(lambda: "up\n" in agent.output(), 60), agent.said()
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143, agent.said()
    job.all_gone(30)
