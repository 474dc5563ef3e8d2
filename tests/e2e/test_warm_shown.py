"""`muster run --warm`: what `muster status` and the event log tell of it, on one node and on two."""
import json
import os
import signal
import sys

import pytest

from harness import VALGRIND, Job, deadline, free_port, kill
from hosts import hosts_or_skip
from test_operate import ask, listener, until

# Says who it is, and idles.
IDLE = """import json, decimal, os, signal
os.write(1, f"begin {os.environ['RANK']} {os.environ['TORCHELASTIC_RESTART_COUNT']} {os.getpid()}\\n".encode())
signal.pause()
"""
COLD = "its imports are not known yet"
pytestmark = pytest.mark.skipif(VALGRIND, reason="the agent's own second for an answer is not enough there")


@pytest.fixture
def job(tmp_path):
    with Job(tmp_path) as job:
        (tmp_path / "the_script.py").write_text(IDLE)
        yield job
        for agent in job.agents:
            if agent.process.poll() is None:
                agent.signal(signal.SIGTERM)
        for agent in job.agents:
            agent.wait()
        job.all_gone(20)


def pids(agent, generation, n, seconds=25):
    """Of the workers of this generation of one agent."""
    def found():
        lines = [line.split() for line in agent.output().splitlines()]
        seen = [int(w[3]) for w in lines if w[:1] == ["begin"] and w[2] == str(generation) and len(w) == 4]
        return seen if len(seen) == n else None

    seen = agent.out.until(found, seconds)
    assert seen, f"no {n} of generation {generation}: {agent.output()} {agent.said()}"
    return seen


def started(log, n):
    """The lines of so many starts, from the event log."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines = [line for line in lines if line["event"] == "started"]
    return lines if len(lines) >= n else None


def warm_of(node):
    return node["warm"], node["cold"], node["warm_waiting"], node["cold_because"]


def pair(job, *words, tags="ab", nnodes=2, endpoint=None, env=None, script=None, script_args=(), prefix=()):
    """Agents that run the script."""
    endpoint = endpoint or f"127.0.0.1:{free_port()}"
    agents = []
    for tag in tags:
        agent = job.agent(tag, "-v", f"--nnodes={nnodes}", "--rdzv-id=e2e", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                          "--warm-after=0.3", *words, *(script or [job.tmp / "the_script.py"]), *script_args, env=env, prefix=prefix)
        agent.endpoint = endpoint
        agents.append(agent)
    return agents


def test_status_and_event_log_say_who_was_warm_and_why_not(job):
    log = job.tmp / "timeline"
    words = ["--warm", "--nproc-per-node=2", "--max-restarts=9", "--crash-loop=0", f"--event-log={log}"]
    a, b = pair(job, *words)
    first = pids(a, 0, 2)
    asked = [listener(job, agent) for agent in (a, b)]
    seen = until(job, lambda s: all(warm_of(n) == (0, 2, 2, COLD) for n in s["nodes"]), asked[1])
    assert len(seen["nodes"]) == 2
    code, out, err = ask(job, "status", asked[0])
    assert "  warm       0 of 4 workers started warm; 4 processes wait for the next start;\n" \
           f"             cold because {COLD} (" in out, out
    kill(first[0])
    pids(a, 1, 2)
    pids(b, 1, 2)
    seen = until(job, lambda s: all(warm_of(n)[:2] == (2, 0) for n in s["nodes"]), asked[1])
    assert [n["cold_because"] for n in seen["nodes"]] == [None, None]
    until(job, lambda s: started(log, 2), asked[0])
    cold, warm = started(log, 2)
    assert (cold["warm"], cold["cold_because"], cold["world_size"]) == (0, COLD, 4)
    assert warm["warm"] == 4 and "cold_because" not in warm and warm["generation"] == "1.2"
    assert warm["total_ms"] > 0


def test_without_warm_nothing_is_said(job):
    log = job.tmp / "timeline"
    agent = job.agent("a", "-v", "--standalone", f"--event-log={log}", job.tmp / "the_script.py")
    pids(agent, 0, 1)
    seen = until(job, lambda s: s["state"] == "running", listener(job, agent))
    assert warm_of(seen["nodes"][0]) == (None, None, None, None)
    until(job, lambda s: started(log, 1), listener(job, agent))
    assert "warm" not in started(log, 1)[0]
    code, out, err = ask(job, "status", listener(job, agent))
    assert "warm" not in out, out


def test_a_cold_restart_is_reported_also_without_v(job):
    """The worker fails before its imports are known: --warm did nothing, once at the restart."""
    (job.tmp / "fails.py").write_text("import os, sys\nsys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n")
    code, _, said = job.run("--warm", "--standalone", "--max-restarts=1", job.tmp / "fails.py")
    line = "muster: 0 of 1 workers start warm; cold because its imports are not known yet"
    assert code == 0 and said.count(line) == 1 and said.index("restart 1 of 1") < said.index(line), said


def test_a_job_that_can_t_be_warm_says_why(job):
    agent = job.agent("a", "-v", "--warm", "--standalone", "--no-python", "/bin/sleep", "1000")
    agent.wait_said("0 of 1 workers start warm")
    seen = until(job, lambda s: s["nodes"] and s["nodes"][0]["cold"] == 1, listener(job, agent))
    assert warm_of(seen["nodes"][0]) == (0, 1, 0, "--no-python starts no Python")


# --- the first start -------------------------------------------------------------------------------------------------

KEPT = "what an earlier run imported is imported while nodes wait for each other"
UNUSED = "what an earlier run imported is not used: "


def first(job, text=None, log_mode="0600", until=lambda kept: True, **more):
    """A run whose record is kept; the file."""
    if text:
        (job.tmp / "the_script.py").write_text(text)
    logs = job.tmp / "logs"
    agent, = pair(job, f"--log-dir={logs}", f"--log-mode={log_mode}", "--warm", tags="a", nnodes=1, **more)
    pids(agent, 0, 1)
    agent.wait_said("1 processes wait for the next start")
    assert agent.err.until(lambda: list(logs.glob(".warm-*")) and not list(logs.glob(".warm-*.*")) and
                           until(next(logs.glob(".warm-*")).read_text())), agent.said()
    agent.signal(signal.SIGTERM)
    agent.wait()
    kept, = logs.glob(".warm-*")
    return kept


def again(job, *words, said=KEPT, **more):
    """A node that waits for another one."""
    agent, = pair(job, f"--log-dir={job.tmp / 'logs'}", "--warm", *words, tags="a", **more)
    agent.wait_said(said)
    return agent


def test_imports_of_every_name_are_kept_also_later_ones(job):
    """sysconfig imports _sysconfigdata__x86_64-linux-gnu, when it is asked."""
    kept = first(job, text=IDLE.replace("signal.pause()", """
signal.sigtimedwait([signal.SIGUSR1], 1)
import colorsys, sysconfig
sysconfig.get_config_vars()
import html
signal.pause()"""), until=lambda kept: "sysconfigdata" in kept)
    again(job).wait_said("1 processes wait for the next start")


MORE = "import os\nif os.path.exists('more'):\n    import colorsys, html\n" + IDLE


def kept_has(job, agent, *names):
    """Until exactly these of the modules that the script may import are kept."""
    def found():
        try:
            text = next((job.tmp / "logs").glob(".warm-*")).read_text()
        except (FileNotFoundError, StopIteration):  # it is being replaced
            return False
        return {"colorsys", "html"}.intersection(text.split("\n")) == set(names)

    end = deadline(30)
    while not agent.err.until(found, 0.05):  # nothing is said of it
        assert deadline(0) < end, (names, agent.said())


@pytest.mark.parametrize("form", ["process", "fork"])
def test_a_record_gets_what_a_warm_worker_imports_beyond_it(job, form):
    first(job, text=MORE)
    (job.tmp / "more").touch()
    a = again(job, f"--warm={form}")
    a.wait_said("1 processes wait for the next start")
    b, = pair(job, tags="b", endpoint=a.endpoint)
    pids(a, 0, 1)
    a.wait_said("all 1 workers start warm")
    kept_has(job, a, "colorsys", "html")


def test_a_record_of_another_module_of_the_user_is_not_used(job):
    (job.tmp / "own.py").write_text("import html\n")
    first(job, text="import own\n" + IDLE)
    (job.tmp / "own.py").write_text("\n")
    agent = again(job, said=UNUSED + ".*own.py has changed since")
    b, = pair(job, tags="b", endpoint=agent.endpoint)
    pids(agent, 0, 1)
    kept_has(job, agent)


@pytest.mark.parametrize("form", ["process", "fork"])
def test_with_the_record_of_an_earlier_run_the_first_start_is_warm(job, form):
    kept = first(job, log_mode="0644")
    assert kept.stat().st_mode & 0o7777 == 0o600
    a = again(job, f"--warm={form}", "--nproc-per-node=2")
    a.wait_said("2 processes wait for the next start")
    assert "begin" not in a.output()
    b, = pair(job, "--nproc-per-node=2", tags="b", endpoint=a.endpoint)
    pids(a, 0, 2)
    a.wait_said("all 2 workers start warm")
    pids(b, 0, 2)


SHOW = IDLE.replace("signal.pause()", "os.write(1, f'environment {json.dumps(dict(os.environ))}\\n'.encode())\nsignal.pause()")


def environments(agent, n):
    def found():
        seen = [json.loads(line[12:]) for line in agent.output().splitlines() if line.startswith("environment ") and line[-1] == "}"]
        return seen if len(seen) == n else None

    return agent.out.until(found)


def begins_like_a_cold_node(job, n, *words, script=None, **places):
    """A warm and a cold node; how they are placed: what pair() takes."""
    first(job, text=SHOW, script=script, prefix=places.get("prefix", [()])[0])
    a = again(job, *words, script=script, **{name: place[0] for name, place in places.items()})
    a.wait_said(f"{n} processes wait for the next start")
    b, = pair(job, *words, tags="b", script=script, **{"endpoint": a.endpoint, **{name: place[1] for name, place in places.items()}})
    warm, cold = environments(a, n), environments(b, n)
    a.wait_said(f"all {n} workers start warm")
    assert len(warm) == n and {frozenset(e) for e in warm} == {frozenset(e) for e in cold}
    return warm, cold


@pytest.mark.parametrize("words", [("--nproc-per-node=4",), ("--bind=core", "--nproc-per-node=2"), ("--bind-memory=strict",),
                                   ("--virtual-local-rank", "--nproc-per-node=2")], ids=" ".join)
def test_the_first_start_is_warm_with(job, words):
    begins_like_a_cold_node(job, int((words[-1] + "=1").split("=")[1]) if "nproc" in words[-1] else 1, *words)


def test_the_first_start_of_a_module_is_warm(job):
    begins_like_a_cold_node(job, 1, script=["-m", "the_script"])


def test_the_first_start_gets_the_network_that_only_the_group_knows(job):
    with hosts_or_skip(2) as hosts:
        warm, cold = begins_like_a_cold_node(job, 1, prefix=[hosts.enter(0), hosts.enter(1)],
                                             endpoint=[f"{hosts.address(0)}:29400"] * 2)
        assert warm[0]["NCCL_SOCKET_IFNAME"] == cold[0]["NCCL_SOCKET_IFNAME"] and warm[0]["GLOO_SOCKET_IFNAME"]
        for agent in job.agents:
            agent.signal(signal.SIGTERM)
            agent.wait()


CHANGES = {
    "script": ("the_script.py has changed since", lambda job, kept: (job.tmp / "the_script.py").write_text(IDLE + "# new")),
    "arguments": ("the script has other arguments now", None),
    "damage": ("it is damaged", lambda job, kept: kept.write_bytes(kept.read_bytes()[:-3])),
    "noise": ("it is damaged", lambda job, kept: kept.write_bytes(bytes(range(256)) * 9)),
    "no module": ("it is damaged", lambda job, kept: kept.write_text(kept.read_text().replace("decimal", "dec/mal"))),
    "too long": ("it is too long", lambda job, kept: kept.write_bytes(b"x" * (1 << 21))),
    "mode": ("others may write to it", lambda job, kept: kept.chmod(0o666)),
    "link": ("symbolic links", lambda job, kept: (kept.rename(job.tmp / "x"), kept.symlink_to(job.tmp / "x"))),
    "folder": ("it is not a file", lambda job, kept: (kept.unlink(), kept.mkdir())),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_record_that_is_not_of_this_run_is_not_used(job, what):
    reason, change = CHANGES[what]
    kept = first(job)
    if change:
        change(job, kept)
    args = () if change else ("7",)
    agent = again(job, said=UNUSED + ".*" + reason, script_args=args)
    b, = pair(job, tags="b", endpoint=agent.endpoint, script_args=args)
    pids(agent, 0, 1)
    agent.wait_said("0 of 1 workers start warm; cold because its imports are not known yet")
    agent.wait_said("1 processes wait for the next start")  # of this run's own record
    assert agent.output().count("begin") == 1


def test_an_interpreter_that_passes_by_now_runs_no_script(job):
    """A wrapper that led through the gate in the first run, and does not now."""
    wrapper = job.tmp / "python"
    text = '#!/bin/sh\nexec {python} $FLAGS "$@"\n'.format(python=sys.executable)
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    first(job, env={"PYTHON_EXEC": wrapper})
    agent = again(job, env={"PYTHON_EXEC": wrapper, "FLAGS": "-I"}, said=UNUSED + "a process for the next start has ended")
    b, = pair(job, tags="b", endpoint=agent.endpoint)
    pids(agent, 0, 1)
    assert agent.output().count("begin") == 1


def test_a_group_that_forms_before_does_not_wait(job):
    """The imports last until the test ends them. All that the worker imports is known then, and is kept: it is less."""
    lib = job.tmp / "lib" / "site-packages"
    lib.mkdir(parents=True)
    (lib / "slow.py").write_text("import os\nif os.path.exists('wait'): os.read(os.open('wait', os.O_RDONLY), 1)\n")
    env = {"PYTHONPATH": lib, "PYTHONDONTWRITEBYTECODE": "1"}
    (job.tmp / "more").touch()
    assert "colorsys\n" in first(job, text="import slow\n" + MORE, env=env).read_text()
    (job.tmp / "more").unlink()
    os.mkfifo(job.tmp / "wait")
    agent = again(job, env=env)
    with open(job.tmp / "wait", "wb"):  # as soon as the template reads
        (job.tmp / "wait").rename(job.tmp / "gone")
        b, = pair(job, tags="b", endpoint=agent.endpoint, env=env)
        pids(agent, 0, 1)
        agent.wait_said("0 of 1 workers start warm; cold because no process waits for it yet")
        kept_has(job, agent)


def test_without_a_log_folder_nothing_is_kept(job):
    before = set(job.tmp.rglob("*"))
    agent, = pair(job, "--warm", tags="a", nnodes=1)
    pids(agent, 0, 1)
    agent.wait_said("1 processes wait for the next start")
    agent.signal(signal.SIGTERM)
    agent.wait()
    assert not [p for p in set(job.tmp.rglob("*")) - before if p.name.startswith(".warm")]
