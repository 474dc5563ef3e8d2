"""`muster stacks`: what the workers of a job do, asked from any of its nodes."""
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile

import pytest

import test_operate
from harness import Job, command, deadline, free_port, kill
from test_operate import endpoint, listener

# Each rank says that it is about to do what the test wants of it. What it does then has no end.
TRAIN = '''
import os
import threading


def wait_for_all():
    threading.Event().wait()


def load():
    os.read(os.pipe()[0], 1)


def compute():
    while True:
        pass


def main():
    does = dict(word.split(":") for word in os.environ.get("DOES", "").split())
    with open(os.environ["E2E_EVENTS"], "w") as events:
        events.write(f"there rank={os.environ['RANK']} pid={os.getpid()}\\n")
    {"load": load, "compute": compute, "wait": wait_for_all}[does.get(os.environ["RANK"], "wait")]()


main()
'''
LINE = {name: TRAIN.splitlines().index(text) + 1 for name, text in (
    ("wait_for_all", "    threading.Event().wait()"), ("load", "    os.read(os.pipe()[0], 1)"))}
MAIN = next(i for i, line in enumerate(TRAIN.splitlines(), 1) if '"load": load' in line)
# Root sees the jobs of all users, which other tests may run: not without these capabilities.
OWN = ["setpriv", "--bounding-set=-dac_read_search,-dac_override"] if os.geteuid() == 0 else []
NOBODY = "no job is known on this machine" if os.geteuid() == 0 else "no job of yours is known on this machine"
WAITS = f"wait_for_all (train.py:{LINE['wait_for_all']})"
LOADS = f"load (train.py:{LINE['load']})"


def ask(job, *words):
    return test_operate.ask(job, *words, prefix=OWN)


def start(job, *options, does="", tags="ab"):
    """Agents with two workers each, which run TRAIN."""
    script = job.tmp / "train.py"
    script.write_text(TRAIN)
    meets = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    agents = [job.agent(tag, f"--nnodes={len(tags)}", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=e2e", meets,
                        *options, "--no-python", sys.executable, script, env={"DOES": does}) for tag in tags]
    job.events.wait("there", 2 * len(tags), 60)
    return agents


def until(job, wanted, *words):
    """Asks until the answer's text matches."""
    end = deadline(60)
    while True:
        code, out, err = ask(job, "stacks", *words)
        assert code == 0, (code, out, err)
        if re.search(wanted, out, re.S | re.M):
            return out
        assert deadline(0) < end, f"no {wanted!r} in: {out}"


def test_ranks_are_grouped_by_their_stacks_from_every_node(job):
    a, b = start(job, does="2:load")
    out = until(job, rf"^ranks 0-1,3 wait in {re.escape(WAITS)}; rank 2 .*: read\(\) in load .*^rank 2: waits in {re.escape(LOADS)}")
    assert out.startswith("job e2e: 4 workers on 2 nodes\n"), out
    script = job.tmp / "train.py"
    pid = {e.fields["rank"]: e.fields["pid"] for e in job.events.all("there")}["2"]
    assert re.search(rf"^ranks 0-1,3 wait in .*; rank 2 \(node \S+, pid {pid}\): read\(\) in load .*, pipe", out, re.M), out
    groups = out.split("\n\n")[1:]
    assert len(groups) == 2, out
    assert groups[0].startswith(f"ranks 0-1,3: wait in {WAITS}\n") and groups[1].startswith(f"rank 2: waits in {LOADS}\n"), out
    assert f"      wait_for_all  {script}:{LINE['wait_for_all']}\n      main  {script}:{MAIN}\n" in groups[0], out
    assert f"      load  {script}:{LINE['load']}\n      main  {script}:{MAIN}\n" in groups[1], out
    # The agent that does not lead, too, and in every way in which a job can be named.
    for words in ([listener(job, a)], [listener(job, b)], [endpoint(a)], ["e2e"], ["--rdzv-id=e2e"]):
        until(job, re.escape(out.split(";")[0]), *words)


def test_the_json_has_the_evidence_of_all_nodes(job):
    start(job, does="1:load")
    until(job, "^ranks 0,2-3: wait in wait_for_all .*^rank 1: waits in load")
    code, out, err = ask(job, "stacks", "--json")
    assert code == 0 and out.count("\n") == 1, (out, err)
    seen = json.loads(out)
    assert (seen["job"], seen["generation"], seen["ranks"], seen["majority"]) == ("e2e", "1.1", 4, True), out
    assert [(g["ranks"], g["count"], g["where"]) for g in seen["groups"]] == [("0,2-3", 3, WAITS), ("1", 1, LOADS)], out
    assert [f["function"] for f in seen["groups"][1]["stack"]] == ["load", "main", "<module>"], out
    assert [s["rank"] for s in seen["suspects"]] == [1], out
    workers = [w for n in seen["nodes"] for w in n["evidence"]["workers"]]
    pids = {e.fields["rank"]: int(e.fields["pid"]) for e in job.events.all("there")}
    assert {str(w["rank"]): w["pid"] for w in workers} == pids, out
    code, out, err = ask(job, "stacks", "--json", "--rank=1")
    assert code == 0, err
    [node] = json.loads(out)["nodes"]
    assert [w["rank"] for w in node["evidence"]["workers"]] == [1], out


def test_some_ranks_or_one_node(job):
    start(job, does="2:load")
    until(job, "^ranks 0-1,3: wait in wait_for_all .*^rank 2: waits in load")
    code, out, err = ask(job, "stacks", "--rank=2")
    assert code == 0 and "; shown: 1\n" in out and "wait_for_all" not in out, (out, err)
    names = [n["node"] for n in json.loads(ask(job, "stacks", "--json")[1])["nodes"]]
    code, out, err = ask(job, "stacks", f"--node={names[1]}")
    assert code == 0 and re.findall(r"^ranks? (\d):", out, re.M) == ["2", "3"], (out, err)
    code, out, err = ask(job, "stacks", "--rank=2,7")
    assert code == 1 and "; shown: 1\n" in out and "there is no rank 7: the job has ranks 0 to 3" in err, (out, err)
    code, out, err = ask(job, "stacks", "--rank=4")
    assert (code, out) == (1, "") and "the job has ranks 0 to 3" in err, err
    code, out, err = ask(job, "stacks", "--node=nowhere")
    assert (code, out) == (1, "") and "no worker runs on a node 'nowhere'" in err, err


def test_workers_that_work_are_not_disturbed(job):
    """Also without the watchdog, and on a single node."""
    a, = start(job, "--hang-action=off", does="0:compute 1:compute", tags="a")
    until(job, r"^all ranks run in compute \(train\.py:\d+\)\n")
    for event in job.events.all("there"):
        with open(f"/proc/{event.fields['pid']}/status", encoding="utf-8") as status:
            assert not re.search(r"State:\s+[TtZ]", status.read()), "it goes on"
    assert a.wait(0) is None
    code, _, err = ask(job, "stop")
    assert code == 0, err
    a.finish()
    code, _, err = ask(job, "stacks")
    assert code == 1 and "no job of yours runs on this machine" in err, err


def test_a_node_that_does_not_answer_is_named(job):
    _, b = start(job, "--lease=120", "--heartbeat-interval=1")
    until(job, "^all ranks wait in wait_for_all")
    follower = b.agent_pid()
    names = {n["pid"]: n for n in json.loads(ask(job, "status", "--json")[1])["nodes"]}
    if names[follower]["node_rank"] == 0:
        follower = next(pid for pid in names if pid != follower)
    kill(follower, signal.SIGSTOP)
    try:
        code, out, err = ask(job, "stacks", "--timeout=3", endpoint(b))
        assert code == 1, (out, err)
        assert re.search(r"no evidence from ranks 2-3 \(node \S+: it did not answer in time\)\n", out), out
        assert "\nranks 0-1: wait in wait_for_all" in out, out
        assert re.search(r"^node \S+: no evidence: it did not answer in time$", out, re.M), out
    finally:
        kill(follower, signal.SIGCONT)


OTHER_USER = 65534


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, and setpriv of util-linux")
def test_what_may_not_be_read_is_said(job):
    """Workers of another user, and root without the right to look at them."""
    without = ["setpriv", "--bounding-set=-sys_ptrace,-sys_admin,-dac_read_search,-dac_override", *command()]
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "train.py"
        script.write_text("import threading\nprint('there', flush=True)\nthreading.Event().wait()\n")
        script.parent.chmod(0o755)
        agent = job.agent("a", "--nproc-per-node=2", "--rdzv-id=e2e", "--no-python", "setpriv", f"--reuid={OTHER_USER}",
                          "--clear-groups", "/usr/bin/python3", script, program=without)
        assert agent.out.until(lambda: agent.output().count("there") == 2, 60), agent.said()
        out = until(job, r"^ranks 0-1: wait\n.*missing: Python stack: no right to read the memory of pid \d+: .*CAP_SYS_PTRACE", "e2e")
        assert re.search(r"missing: /proc: permission denied reading what process \d+ waits for", out), out
        code, _, err = ask(job, "stop")
        assert code == 0, err
        agent.finish()


def test_there_is_nobody_to_look_at(job, worker, tmp_path):
    for command in ("stacks", "profile"):
        code, out, err = ask(job, command)
        assert (code, out) == (1, "") and NOBODY in err, err
    for seconds in ("61", "3601", "0", "x"):
        code, _, err = ask(job, "stacks", f"--timeout={seconds}")
        assert code == 2 and f"--timeout={seconds}: must be a number of seconds from 0.001 to 60\n" in err, err
    code, _, err = ask(job, "stacks", "--rank=x")
    assert code == 2 and "list of ranks" in err, err
    a, = job.pair(nnodes="2", tags="a")
    a.wait_said("waiting for nodes")
    code, out, err = ask(job, "stacks")
    assert (code, out) == (1, "") and "no worker runs at the moment" in err, err
    with Job(tmp_path / "other", worker) as other:
        other.agent("x", "--rdzv-endpoint=127.0.0.1:0", "--rdzv-backend=c10d", "--rdzv-id=second", "--no-python",
                    worker, "start", "wait", env={"MUSTER_RUN_DIR": job.tmp / "run"})
        other.events.wait("start", 1)
        code, out, err = ask(job, "stacks")
        assert (code, out) == (1, "") and "several jobs" in err and "  muster stacks second\n" in err, err
        code, out, err = ask(job, "stacks", "second")
        assert code == 0 and out.startswith("job second: 1 worker on 1 node\nthe only rank "), (out, err)
