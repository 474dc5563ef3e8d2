"""`muster profile`, on real trainers, and the record of a job's time."""
import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree

import pytest

import test_operate
from harness import HERE, MUSTER, TOOL_LOGS, TORCH_PYTHON, deadline, free_port
from hosts import hosts_or_skip
from test_clock import Clock, stepped  # noqa: F401, a fixture
from test_operate import ask

pytestmark = pytest.mark.torch
LINES = (HERE / "profile_train.py").read_text().splitlines()
DATA_LINE = next(n for n, line in enumerate(LINES, 1) if 'IS_SLOW["data"]' in line) + 1
RANKS = 4


def start(job, *options, slow="", **env):
    """A job of RANKS workers that train, all of them when this returns."""
    meets = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    agent = job.agent("a", "--nnodes=1", f"--nproc-per-node={RANKS}", "--rdzv-backend=c10d", meets, "--rdzv-id=trains", *options,
                      HERE / "profile_train.py",
                      env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "SLOW": slow, "STOP": job.tmp / "stop", **env})
    job.events.wait("trains", RANKS, 120)
    return agent


def end(job, agent):
    (job.tmp / "stop").touch()
    code, _, err = agent.finish(120)
    assert code == 0, err
    return err


def profile(job, *words, status=0):
    code, out, err = ask(job, "profile", *words, "trains", seconds=60)
    assert code == status, (code, out, err)
    return out if status == 0 else err


def test_the_rank_that_the_others_wait_for_is_named_with_its_line(job):
    agent = start(job, slow="2:data")
    files = [job.tmp / f"job{suffix}" for suffix in (".svg", ".strip.svg", ".speedscope.json", ".txt")]
    found = json.loads(profile(job, "--json", "--seconds=12", f"--output={files[0]}"))
    assert [late["rank"] for late in found["late"]] == [2], found
    late, reason = found["late"][0], found["late"][0]["reasons"][0]
    assert reason["class"] == "data" and reason["place"] == f"__getitem__ (profile_train.py:{DATA_LINE})", late
    assert late["share"] > 0.3 and abs(sum(found["shares"].values()) - 1) < 0.01, found
    for file in files[1:]:
        out = profile(job, "--seconds=5", "--rank=0,2", f"--output={file}")
        assert re.search(r"^rank 2 ", out, re.M) and "data loading" in out, out
    for file in files[:2]:
        assert xml.etree.ElementTree.parse(file).getroot().tag.endswith("svg")
    assert [p["name"] for p in json.loads(files[2].read_text())["profiles"]] == ["rank 0", "rank 2"]
    assert files[3].read_text().startswith("job trains: 4 ranks on 1 node")
    end(job, agent)


def test_no_rank_of_a_balanced_job_is_named(job):
    agent = start(job)
    found = json.loads(profile(job, "--json", "--seconds=8"))
    assert found["late"] == [], found
    assert "none of these ranks runs: the job has ranks 0 to 3" in profile(job, "--seconds=1", "--rank=4-9", status=1)
    assert found["shares"]["backward"] > 0.2, found
    end(job, agent)


def test_mistakes_and_an_interrupted_profile(job):
    agent = start(job, "--profile=off")
    assert "must be a number from 1 to 600" in profile(job, "--seconds=601", status=2)
    assert "must be a number from 0.1 to 100" in profile(job, "--rate=0", status=2)
    assert "must end with .svg" in profile(job, "--output=job.png", status=2)
    assert "No such file or directory" in profile(job, f"--output={job.tmp}/absent/job.svg", status=1)
    long = subprocess.Popen([MUSTER, "profile", "--seconds=600", "trains"], env=job.env("operator"), cwd=job.tmp,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert long.stderr.readline() == "taking samples for 600 s\n"
    limit = deadline(30)
    while True:  # until the leader has its question
        code, _, err = ask(job, "profile", "--seconds=1", "trains")
        if code == 1:
            break
        assert deadline(0) < limit
    assert "another profile of this job is being taken; try again in" in err, err
    long.send_signal(signal.SIGINT)
    long.communicate(timeout=60)
    assert long.returncode != 0
    while ask(job, "profile", "--seconds=1", "trains")[0] != 0:
        assert deadline(0) < limit + 60
    assert ask(job, "status", "trains")[1].find("  time ") < 0, "--profile=off"
    end(job, agent)


def test_workers_that_stop_or_end_meanwhile(job):
    agent = start(job, "--max-restarts=1")
    pids = {e.fields["rank"]: int(e.fields["pid"]) for e in job.events.all("trains")}
    os.kill(pids["1"], signal.SIGSTOP)
    found = json.loads(profile(job, "--json", "--seconds=3"))
    assert {row["rank"] for row in found["rows"]} == {0, 1, 2, 3}, found
    asked = subprocess.Popen([MUSTER, "profile", "--json", "--seconds=8", "trains"], env=job.env("operator"), cwd=job.tmp,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    asked.stderr.readline()
    os.kill(pids["1"], signal.SIGKILL)
    out, err = asked.communicate(timeout=120)
    assert asked.returncode in (0, 1) and (json.loads(out) if out else err), (out, err)
    job.events.wait("trains", 2 * RANKS, 120)
    end(job, agent)


def test_status_and_the_event_log_have_the_record(job):
    agent = start(job, f"--event-log={job.tmp}/record", slow="2:data")
    found = test_operate.until(job, lambda s: s["time"] and s["first_step_ms"], "trains", seconds=120)
    assert re.match(r"training \d+ % of ", found["time"]), found
    code, out, _ = ask(job, "status", "trains")
    assert code == 0 and re.search(r"^  time +training \d+ % of .*", out, re.M), out
    assert re.search(r"^  first step +after .*: import .*, init .*, load ", out, re.M), out
    end(job, agent)
    events = [json.loads(line) for line in (job.tmp / "record").read_text().splitlines()]
    first = [e for e in events if e["event"] == "first_step"]
    assert len(first) == 1 and first[0]["first_step_ms"] > 0 and first[0]["import_ms"] >= 0, events


@pytest.mark.skipif(bool(TOOL_LOGS), reason="sanitizers want to be loaded first")
def test_two_hosts_whose_clocks_differ_by_50_ms(job, stepped):
    with hosts_or_skip(2, ipv6=False, names=True) as hosts:
        clocks = [Clock(job.tmp, n, stepped) for n in range(2)]
        clocks[1].set(0.05)
        meets = f"--rdzv-endpoint={hosts.address(0)}:29400"
        agents = [job.agent(f"h{n}", "--nnodes=2", f"--nproc-per-node={RANKS // 2}", "--rdzv-backend=c10d", meets, "--rdzv-id=trains",
                            HERE / "profile_train.py", prefix=hosts.enter(n),
                            env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "SLOW": "3:backward", "STOP": job.tmp / "stop",
                                 "GLOO_SOCKET_IFNAME": "eth0", **clocks[n].env}) for n in range(2)]
        job.events.wait("trains", RANKS, 120)
        code, out, err = ask(job, "profile", "--json", "--seconds=15", "trains", prefix=hosts.enter(0), seconds=60)
        assert code == 0, (code, out, err)
        found = json.loads(out)
        assert [late["rank"] for late in found["late"]] == [3], found
        assert found["late"][0]["reasons"][0]["class"] == "backward", found
        (job.tmp / "stop").touch()
        for agent in agents:
            code, _, err = agent.finish(120)
            assert code == 0, err
