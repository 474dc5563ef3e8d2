"""`muster status` and the commands for operators, on real jobs."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

import etcd
from harness import KILLS, MUSTER, Job, deadline, free_port, kill
from hosts import hosts_or_skip
from terminal import Shell
from test_faults import by_node

GROUP_KEYS = {"run_id", "state", "state_seconds", "outcome", "reason", "epoch", "generation", "started_seconds", "leader",
              "leader_host", "endpoint", "successors", "min_nodes", "max_nodes", "node_unit", "members", "world_size", "spares",
              "excluded", "restarts_used", "max_restarts", "losses", "job_seconds", "command", "incident", "incident_seconds",
              "restart_seconds", "phase_seconds", "incidents", "watchdog", "quiet_seconds",
              "quiet_limit_seconds", "quiet_text", "time", "late", "import_ms", "init_ms", "load_ms", "first_step_ms", "step", "auth", "auth_keys", "refused",
              "domains", "nodes"}
NODE_KEYS = {"node", "id", "place", "state", "node_rank", "first_rank", "workers", "connected", "silent_seconds",
             "address", "domain", "fabric", "pid", "joined_seconds", "stalls", "longest_stall_seconds", "why", "warm", "cold", "warm_waiting",
             "cold_because"}


def ask(job, *words, prefix=(), seconds=30):
    """Runs `muster WORDS`: (status, stdout, stderr)."""
    done = subprocess.run([*prefix, MUSTER, *map(str, words)], env=job.env("operator"), cwd=job.tmp, timeout=seconds * 4,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def status(job, *words, **more):
    code, out, err = ask(job, "status", "--json", *words, **more)
    assert code == 0, err
    assert out.count("\n") == 1, out
    return json.loads(out)


def until(job, what, *words, seconds=30, **more):
    """The first status for which what() is true. Each question takes time, so this is not a busy loop."""
    end = deadline(seconds)
    while True:
        found = status(job, *words, **more)
        if what(found):
            return found
        assert deadline(0) < end, found


def listener(job, agent):
    """HOST:PORT of this agent's own listener, from its file in the run directory."""
    entry = json.loads((job.tmp / "run" / f"agent-{agent.agent_pid()}").read_text())
    return f"{entry['addr']}:{entry['port']}"


def endpoint(agent):
    return next(w.split("=", 1)[1] for w in agent.words if w.startswith("--rdzv-endpoint="))


# --- status ----------------------------------------------------------------------------------------------------------


def test_a_job_that_waits_for_nodes(job):
    a, = job.pair(nnodes="2", tags="a")
    a.wait_said("waiting for nodes")
    seen = status(job, endpoint(a))
    assert seen["state"] == "gathering" and seen["generation"] is None and seen["members"] == 0
    assert (seen["min_nodes"], seen["max_nodes"]) == (2, 2)
    assert [n["place"] for n in seen["nodes"]] == ["waiting"]
    code, out, err = ask(job, "status", endpoint(a))
    assert code == 0, err
    assert out.startswith("job e2e: gathering for "), out


def test_a_job_that_runs_seen_from_every_side(job):
    a, b = job.pair(nnodes="2")
    job.events.wait("start", 4)
    leader = until(job, lambda s: all(n["state"] == "running" for n in s["nodes"]), endpoint(a))
    assert set(leader) == GROUP_KEYS
    assert all(set(n) == NODE_KEYS for n in leader["nodes"])
    assert leader["state"] == "running" and leader["generation"] == "1.1" and leader["run_id"] == "e2e"
    assert (leader["members"], leader["world_size"], leader["restarts_used"], leader["losses"]) == (2, 4, 0, 0)
    assert [(n["node_rank"], n["first_rank"], n["workers"]) for n in leader["nodes"]] == [(0, 0, 2), (1, 2, 2)]
    assert {n["pid"] for n in leader["nodes"]} == {a.agent_pid(), b.agent_pid()}
    assert leader["leader"] in [n["id"] for n in leader["nodes"]]
    # An agent that does not lead redirects; without an endpoint the agents of this machine are found.
    for words in ([listener(job, a)], [listener(job, b)], [], ["--rdzv-id=e2e"]):
        seen = status(job, *words)
        assert seen["leader"] == leader["leader"] and len(seen["nodes"]) == 2
    done = subprocess.run(["/bin/sh", "-c", f"{MUSTER} status >&-"], env=job.env("operator"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "muster: error: can't write to standard output: it is closed\n"), done
    code, out, err = ask(job, "status")
    assert code == 0, err
    rows = out[out.index("NODE "):].splitlines()
    assert len(rows) == 3 and re.search(r" 0  0-1 +member +running ", rows[1]) and " 2-3 " in rows[2], out
    job.go()
    assert (a.wait(), b.wait()) == (0, 0)
    code, _, err = ask(job, "status")
    assert code == 1 and "no job of yours" in err
    code, _, err = ask(job, "status", endpoint(a))
    assert code == 1 and f"no agent listens at {endpoint(a)}" in err


def test_ps_lists_the_agents_of_this_machine(job):
    code, out, err = ask(job, "ps")
    assert (code, err) == (0, "") and re.fullmatch(r"no job( of yours)? runs on this machine\n", out), (out, err)
    a, b = job.pair(nnodes="2")
    job.events.wait("start", 4)
    until(job, lambda s: all(n["state"] == "running" for n in s["nodes"]), endpoint(a))
    code, out, err = ask(job, "ps")
    assert code == 0 and not err, err
    title, *rows = out.splitlines()
    assert title.split() == "JOB STATE NODE ATTEMPT WORKERS SINCE COMMAND".split() and len(rows) == 2, out
    for row in rows:
        assert re.match(r"e2e +running +\S+ +1 +2 of 4 +\d\d:\d\d +\S.* --rdzv-id=e2e ", row), out
    shell = Shell(job, "operator")
    shell.resize(24, 70)
    shell.type(f"{MUSTER} ps; echo status=$?\n")
    shell.wait_said("status=0")
    assert len(re.findall(r"^e2e .*\+\r?$", shell.said(), re.M)) == 2, shell.said()
    assert max(map(len, re.findall(r"^e2e .*?(?=\r?$)", shell.said(), re.M))) == 70, shell.said()
    shell.close()
    code, out, err = ask(job, "ps", "-o", "wide")
    assert code == 0 and all("--rdzv-id=e2e" in row for row in out.splitlines()[1:]), out
    assert listener(job, a) in out and str(b.agent_pid()) in out, out
    code, out, err = ask(job, "ps", "--json")
    agents = json.loads(out)["agents"]
    assert {x["pid"] for x in agents} == {a.agent_pid(), b.agent_pid()} and out.count("\n") == 1, out
    assert {x["first_rank"] for x in agents} == {0, 2} and {x["node_rank"] for x in agents} == {0, 1}
    for x in agents:
        assert (x["run_id"], x["state"], x["generation"], x["place"]) == ("e2e", "running", "1.1", "member")
        assert (x["workers"], x["world_size"]) == (2, 4) and "--rdzv-id=e2e" in x["command"]
    job.go()
    assert (a.wait(), b.wait()) == (0, 0)
    assert json.loads(ask(job, "ps", "--json")[1]) == {"agents": [], "heads": []}


def test_several_jobs_of_one_machine_must_be_told_apart(job, worker, tmp_path):
    job.pair(tags="a", nnodes="1")
    job.events.wait("start", 2)
    with Job(tmp_path / "other", worker) as other:
        one = other.agent("x", "--rdzv-endpoint=127.0.0.1:0", "--rdzv-backend=c10d", "--rdzv-id=second", "--no-python",
                          worker, "start", "wait", env={"MUSTER_RUN_DIR": job.tmp / "run"})
        other.events.wait("start", 1)
        code, _, err = ask(job, "status")
        assert (code, err) == (1, "muster: error: several jobs run on this machine; choose one:\n"
                                  "  muster status e2e\n  muster status second\n")
        code, _, err = ask(job, "exclude", "--reason", "bad node", "node")  # the whole line, to paste
        assert code == 1 and "  muster exclude --reason 'bad node' node second\n" in err, err
        assert status(job, "--rdzv-id=second")["run_id"] == "second"
        assert status(job, "--rdzv-id", "e2e")["run_id"] == "e2e"
        assert status(job, "second")["run_id"] == status(job, "sec")["run_id"] == status(job, "--rdzv-id=s")["run_id"] == "second"
        code, _, err = ask(job, "status", "third.invalid")
        assert code == 1 and err.startswith("muster: error: no job 'third.invalid' is known on this machine; as a host: "
                                            "cannot look up the host name"), err
        code, _, err = ask(job, "status", "--rdzv-id=third")
        assert code == 1 and "'third'" in err
        code, _, err = ask(job, "status", listener(job, one), "--rdzv-id=e2e")
        assert code == 1 and "belongs to the run 'second', not to 'e2e'" in err, err
        with Job(tmp_path / "more", worker) as more:
            two = more.agent("y", "--rdzv-id=second-b", "--no-python", worker, "start", "wait",
                             env={"MUSTER_RUN_DIR": job.tmp / "run"})
            more.events.wait("start", 1)
            assert status(job, "second")["run_id"] == "second", "a whole id"
            for words in (["status", "seco"], ["stop", "--rdzv-id=seco"], ["stacks", "seco"], ["exclude", "node", "seco"]):
                code, out, err = ask(job, *words)
                lines = ["  muster " + " ".join(words).replace("seco", name) for name in ("second", "second-b")]
                assert code == 1 and not out and err.splitlines() == [
                    "muster: error: several jobs have an id that begins with 'seco'; choose one:", *lines], (words, out, err)
            assert ask(job, "stop", "second-b")[0] == 0 and two.wait() == 1
            assert ended(job, "seco", "exit 0", 0) == ("success", None), "a whole id, although 'second' runs"
            code, _, err = ask(job, "stop", "seco")
            assert code == 1 and "error: 'seco' is over: " in err, err
        code, _, err = ask(job, "stop", "second")  # as "muster ps" shows it
        assert code == 0 and one.wait() == 1, err
        assert status(job)["run_id"] == "e2e"


def test_what_a_container_left_behind_does_not_hide_the_job_that_runs(job):
    a, = job.pair(tags="a", nnodes="1")
    job.events.wait("start", 2)
    here = job.tmp / "run" / f"agent-{a.agent_pid()}"
    entry = json.loads(here.read_text())
    left = here.with_name("agent-1")
    # In a directory without locks: there is no sign that its agent is gone.
    entry |= {"run_id": "left", "pid": 1, "pid_namespace": "1", "port": 1, "locked": False}
    left.write_text(json.dumps(entry))
    assert status(job)["run_id"] == "e2e"
    code, _, err = ask(job, "status", "--rdzv-id=left")
    assert code == 1 and "no agent listens at 127.0.0.1:1" in err, err
    assert left.exists(), "it may live"
    left.write_text(json.dumps(entry | {"locked": True}))
    code, _, err = ask(job, "status", "--rdzv-id=left")
    assert code == 1 and "no job 'left'" in err and not left.exists(), "nobody holds its lock"


def test_what_is_no_agent_is_said(job):
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"

        def chat(words):
            peer, _ = server.accept()
            with peer:
                peer.sendall(words)
                peer.recv(100)

        thread = threading.Thread(target=chat, args=(b"HTTP/1.1 400 Bad Request\r\n\r\n",))
        thread.start()
        code, _, err = ask(job, "stop", where)
        thread.join()
        assert code == 1 and "is not a muster agent" in err, err
        code, _, err = ask(job, "stop", where, "--timeout=0.2")  # the agent does not accept, but the kernel does
        assert code == 1 and f"no answer from {where} within 0.2 s; what listens there may not be muster" in err, err


def test_status_again_and_again_until_the_job_ends(job):
    a, b = job.pair(nnodes="2")
    job.events.wait("start", 4)
    watch = job.agent("w", "status", "--watch", "--json", "--rdzv-id=e2e", program=[MUSTER])
    lines = watch.out.until(lambda: watch.out.lines[1:], 30)
    assert lines, watch.said()
    job.go()
    assert (a.wait(), b.wait()) == (0, 0)
    code, out, err = watch.finish()
    assert code == 0, err
    seen = [json.loads(line) for line in out.splitlines()]
    assert len(seen) >= 2 and {s["run_id"] for s in seen} == {"e2e"}
    assert seen[1]["state_seconds"] > seen[0]["state_seconds"] or seen[0]["state"] != seen[1]["state"]


def test_the_last_event_of_a_job_that_was_restarted(job):
    """Two failures: the last one is shown, with the time that the restart took."""
    shell = "if mkdir one; then kill -SEGV $$$$; fi; if mkdir two; then while [ ! -e fail ]; do sleep 0.1; done; " \
            "echo ValueError: bad >&2; exit 3; fi; exec sleep 1000"
    one = job.agent("a", "--rdzv-id=e2e", "--max-restarts=3", "--crash-loop=0", "--no-python", "sh", "-c", shell)
    one.wait_said("died of SIGSEGV")
    first = until(job, lambda s: s["restarts_used"] == 1 and s["state"] == "running", "e2e")
    assert re.fullmatch(r"rank 0 \(node \S+\) died of SIGSEGV( \(core dumped\))?", first["incident"]) and first["restart_seconds"] is not None, first
    (job.tmp / "fail").touch()
    second = until(job, lambda s: s["restarts_used"] == 2 and s["state"] == "running", "e2e")
    assert re.fullmatch(r"rank 0 \(node \S+\) ended with exit code 3: ValueError: bad", second["incident"]), second
    assert second["incident_seconds"] >= second["restart_seconds"], second
    assert second["job_seconds"] > second["state_seconds"] and second["command"].startswith("sh"), second
    _, out, err = ask(job, "status", "--output=wide", "e2e")
    assert re.search(r"^  command    sh .*\n  age        .*\n(?:.*\n)*  last       rank 0 \(node \S+\) ended with exit code 3: "
                     r"ValueError: bad, .* ago, restarted in \d.*$", out, re.M), (out, err)
    one.signal(signal.SIGTERM)
    one.wait()


def ended(job, name, shell, want, *words):
    """Runs a job to its end. What its status says: the outcome and the reason."""
    code, _, err = job.run("--rdzv-id", name, *words, "--no-python", "sh", "-c", shell)
    assert code == want, err
    seen = status(job, name)
    assert set(seen) == GROUP_KEYS and (seen["run_id"], seen["state"], seen["nodes"]) == (name, "closed", []), seen
    assert 0 < seen["state_seconds"] < 3600, seen
    return seen["outcome"], seen["reason"]


@pytest.mark.parametrize("words", [(), ("--starter=local", "--nnodes=2")], ids=["one node", "started by muster"])
def test_a_job_that_was_stopped_names_the_operator(job, words):
    agent = job.agent("a", "--rdzv-id=halted", *words, "--no-python", job.worker, "start", "wait")
    job.events.wait("start", 1 + len(words) // 2)
    assert ask(job, "stop", "halted")[0] == 0 and agent.wait() == 1, agent.said()
    seen = status(job, "halted")
    assert (seen["outcome"], seen["reason"]) == ("failed", "an operator stopped the job"), seen
    code, _, err = ask(job, "status")
    assert code == 1 and err.endswith("no job of yours runs on this machine; how the last one ended: muster status halted\n"), err


def test_a_run_that_ended_ran_as_long_as_its_job(job):
    """The first node waits for the second one."""
    where = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}", "--rdzv-id=aged"]
    first = job.agent("a", *where, "--no-python", "true")
    first.wait_said("waiting for nodes")
    began = time.monotonic()
    until(job, lambda s: s["job_seconds"] is None or s["job_seconds"] > 1, "aged")
    second = job.agent("b", *where, "--no-python", "true")
    assert (first.wait(), second.wait()) == (0, 0), first.said()
    assert 1 < status(job, "aged")["job_seconds"] < time.monotonic() - began + 10


def test_how_a_run_ended_is_known_on_its_machine(job):
    assert ended(job, "fine", "exit 0", 0) == ("success", None)
    outcome, reason = ended(job, "exits", "echo no such file >&2; exit 3", 1, "--log-dir=logs")
    assert outcome == "failed" and re.fullmatch(
        r"rank 0 \(node \S+\) ended with exit code 3: no such file", reason), reason
    outcome, reason = ended(job, "dies", "kill -SEGV $$$$", 1)  # "$$" is "$"
    assert outcome == "failed" and "died of SIGSEGV" in reason, reason
    code, out, err = ask(job, "status", "exi")
    assert code == 0 and re.match(r"job exits: failed .* ago\n  ran for    .*\n  reason     rank 0 ", out), (out, err)
    for words in (["stop", "fine"], ["grow", "--rdzv-id=fin"]):
        code, out, err = ask(job, *words)
        assert (code, out, err) == (1, "", "muster: error: 'fine' is over: the job succeeded\n"), words
    assert ended(job, "exits", "exit 0", 0) == ("success", None), "the last run with that name"
    assert ended(job, "fine-too", "exit 0", 0) == ("success", None)
    code, out, err = ask(job, "status", "f")
    assert (code, out, err) == (1, "", "muster: error: several jobs have an id that begins with 'f'; choose one:\n"
                                       "  muster status fine-too\n  muster status fine\n"), (out, err)
    seen = status(job, "fine")
    assert seen["run_id"] == "fine", "a whole id"
    assert {k for k in GROUP_KEYS if seen[k] is not None and seen[k] != []} == {
        "run_id", "state", "state_seconds", "outcome", "job_seconds"}, "what is not known is null"
    code, _, err = ask(job, "status")
    assert code == 1 and "no job of yours runs on this machine; how the last one ended: muster status fine-too\n" in err, err
    done = subprocess.run([MUSTER, "status", "fine"], env=job.env("operator", {"MUSTER_RUN_DIR": job.tmp / "another-users"}),
                          capture_output=True, text=True)
    assert done.returncode != 0 and not done.stdout, done


def test_status_has_an_answer_while_the_job_ends(job):
    """Its agent does not listen any more, and is not gone yet."""
    for turn in range(2 * KILLS):
        one = job.agent(f"t{turn}", "--rdzv-id", f"run{turn}", "--no-python", job.worker, "start")
        job.events.wait("start", 1, tag=f"t{turn}")
        while one.process.poll() is None:
            code, out, err = ask(job, "status", f"run{turn}")
            assert code == 0 and f"job run{turn}: " in out, (turn, out, err)


def test_a_prefix_changes_only_the_job_that_it_means(job):
    """An operator who stops exp-1 must not stop exp-10, also where exp-1 is not known."""
    one = job.agent("a", "--rdzv-id=exp-10", "--no-python", job.worker, "start", "go")
    job.events.wait("start", 1)
    for words in (["stop", "exp-1"], ["stop", "--rdzv-id=exp-1"], ["grow", "exp-1"], ["leave", "exp-1"], ["exclude", "vm", "exp-1"]):
        code, out, err = ask(job, *words)
        assert code == 1 and not out and "runs on this machine; did you mean 'exp-10'?" in err, (words, out, err)
    assert status(job, "exp-1")["state"] == "running"
    assert ask(job, "stop", "exp") == (0, "exp-10: the job is being stopped\n", "") and one.wait() == 1
    assert ended(job, "exp-1", "exit 0", 0) == ("success", None)
    two = job.agent("b", "--rdzv-id=here.4711.0", "--no-python", job.worker, "start", "go")
    job.events.wait("start", 1, tag="b")
    code, _, err = ask(job, "stop", "exp-1")
    assert code == 1 and "error: 'exp-1' is over: " in err, err
    assert ask(job, "stop", "here.47")[0] == ask(job, "stop", "471")[0] == 1
    assert ask(job, "stop", "4711")[0] == 0 and two.wait() == 1, "the number of a Slurm job is a name of its own"


def test_the_last_event_names_the_signal_and_the_node(job):
    agents = job.pair("--rdzv-conf=last_call_timeout=0.5", worker=("start", "wait"))
    job.events.wait("start", 4, gen="1.1")
    leader, other = by_node(job, agents)
    other.signal(signal.SIGHUP)
    job.events.wait("start", 2, gen="1.2")
    seen = status(job, "e2e")
    assert re.fullmatch(r"node \S+-2 was stopped by SIGHUP", seen["incident"]), seen
    assert seen["restart_seconds"] is not None, seen  # 0.0 if it took less than half a millisecond
    assert other.wait() == 128 + signal.SIGHUP and "has left" not in leader.said(), leader.said()


def test_status_names_what_happened_last_whatever_it_was(job):
    """One fault after the other, with three agents of a shared directory; the group has two, or one."""
    agents = [job.agent(tag, "--nnodes=1:2", "--nproc-per-node=1", f"--rdzv-endpoint=dir:{job.tmp}/rdzv", "--rdzv-id=e2e",
                        "--max-restarts=9", "--crash-loop=0", "--rdzv-conf=last_call_timeout=60",
                        f"--event-log={job.tmp}/log-{tag}", "--no-python", job.worker, "start", "wait") for tag in "abc"]
    job.events.wait("start", 2)

    def next_group(then):
        """The status as soon as the next group runs, and the pids of its workers by rank."""
        seen = until(job, lambda s: s["state"] == "running" and s["generation"] != then and len(s["nodes"]) > 0, "e2e")
        starts = job.events.wait("start", seen["world_size"], gen=seen["generation"])
        return seen, {int(e.fields["rank"]): int(e.fields["pid"]) for e in starts}

    def after(fault, incident):
        fault()
        now, pids = next_group(seen["generation"])
        assert re.fullmatch(incident, now["incident"]) and now["restart_seconds"] is not None, now
        assert now["incident_seconds"] >= now["restart_seconds"], now
        _, out, _ = ask(job, "status", "e2e")
        assert re.sub(r"\s+", " ", now["incident"]) in re.sub(r"\s+", " ", out) and "restarted in" in out, out
        return now, pids

    seen, pids = next_group(None)
    assert seen["incident"] is None and seen["incident_seconds"] is None, seen
    until(job, lambda s: s["spares"] == 1, "e2e")
    for signo in signal.SIGSEGV, signal.SIGKILL:
        seen, pids = after(lambda: kill(pids[1], signo), rf"rank 1 \(node \S+\) died of {signo.name}( \(core dumped\))?")

    def followers(s):
        return [n for n in s["nodes"] if s["state"] == "running" and n["place"] == "member" and n["id"] != s["leader"]]

    seen, pids = after(lambda: ask(job, "exclude", followers(seen)[0]["id"], "e2e"), r"node \S+ was excluded: an operator asked")
    if not followers(seen):  # on a busy machine the spare can be silent for a moment
        seen = until(job, lambda s: followers(s) or ask(job, "grow", "e2e") is None, "e2e")
    seen, pids = after(lambda: kill(followers(seen)[0]["pid"]), r"node \S+ is gone: its agent ended unexpectedly")
    failed = [json.loads(line) for a in agents for line in (job.tmp / f"log-{a.tag}").open() if '"worker_failed"' in line]
    assert [(e["rank"], e["local_rank"], e["signal"], e["restarts_used"]) for e in failed] == [(1, 0, 11, 0), (1, 0, 9, 1)], failed
    assert all(e["pid"] > 0 and e["node"] and "exitcode" not in e for e in failed), failed
    assert ask(job, "stop", "--reason=enough", "e2e")[0] == 0
    assert 1 in [a.wait() for a in agents]
    ended = status(job, "e2e")
    assert ended["incident"] == "an operator stopped the job: enough" and ended["incident_seconds"] == ended["state_seconds"], ended


def test_status_names_a_leader_that_was_lost(job):
    agents = [job.agent(tag, "--nnodes=1:2", "--nproc-per-node=1", f"--rdzv-endpoint=dir:{job.tmp}/rdzv", "--rdzv-id=e2e",
                        "--no-python", job.worker, "start", "wait") for tag in "ab"]
    job.events.wait("start", 2)
    first = until(job, lambda s: s["state"] == "running", "e2e")
    pid = [n["pid"] for n in first["nodes"] if n["id"] == first["leader"]][0]
    other, = [a for a in agents if a.agent_pid() != pid]
    kill(pid)
    other.wait_said("this node leads from now on")
    seen = until(job, lambda s: s["state"] == "running" and s["leader"] != first["leader"], "e2e")
    assert re.fullmatch(r"node \S+ is gone: its agent ended unexpectedly", seen["incident"]) and seen["restart_seconds"] is not None, seen


def test_how_a_run_ended_that_was_stopped_or_killed(job):
    for name, signo, want in (("interrupted", signal.SIGINT, ("failed", "stopped by SIGINT")), ("killed", signal.SIGKILL, (
            None, "muster did not record how it ended, for example because it was killed"))):
        one = job.agent(name, "--rdzv-id", name, "--no-python", job.worker, "start", "wait")
        job.events.wait("start", 1, tag=name)
        assert status(job, name)["state"] == "running"
        one.signal(signo)
        one.wait()
        job.wait_gone(name, 30)
        seen = status(job, name)
        assert (seen["state"], seen["outcome"], seen["reason"]) == ("closed", *want), seen
    a, = job.pair(nnodes="2", worker=("start", "wait"), tags="a")
    there = {"MUSTER_RUN_DIR": job.tmp / "run-b"}  # as on another node
    b = job.agent("b", *a.words[a.words.index("run") + 1:], env=there)
    job.events.wait("start", 4, gen="1.1")
    assert ask(job, "stop", "--reason=enough", "e2e")[0] == 0 and (a.wait(), b.wait()) == (1, 1)
    for env in {}, there:
        done = subprocess.run([MUSTER, "status", "--json", "e2e"], env=job.env("operator", env), capture_output=True, text=True)
        seen = json.loads(done.stdout)
        assert (seen["outcome"], seen["reason"]) == ("failed", "an operator stopped the job: enough"), done


ENTER, LEAVE = b"\033[?1049h\033[?25l", b"\033[0m\033[?25h\033[?1049l"


@pytest.fixture
def shell(job):
    one = Shell(job, "shell", term="xterm")
    yield one
    one.close()


def watch(shell, words, rows=24, columns=80):
    """Starts it on the shell's terminal, whose settings are printed before."""
    shell.resize(rows, columns)
    shell.type(f"stty -g; {MUSTER} status {words}\n")
    return shell.wait_frame(lambda rows: "job e2e: running" in rows[0])


def left(shell, want):
    """It has ended with this status, and the terminal is as it was."""
    assert shell.heard.until(lambda: LEAVE in shell.heard.raw, 60), shell.said()
    shell.type("echo status=$?; stty -g\n")
    shell.wait_said(rf"status={want}\r?\n[0-9a-f:]+\r?\n")
    raw = bytes(shell.heard.raw)
    assert raw.count(ENTER) == raw.count(LEAVE) > 0 and raw.rindex(LEAVE) > raw.rindex(ENTER)
    settings = re.findall(rb"[0-9a-f]+(?::[0-9a-f]+){20,}", raw)
    assert len(settings) == 2 and settings[0] == settings[1], settings


def test_watch_is_a_screen_until_the_job_ends(job, shell):
    one = job.agent("a", "--rdzv-id=e2e", "--nproc-per-node=2", "--max-restarts=1", "--no-python", job.worker, "start", "wait")
    victim = next(e for e in job.events.wait("start", 2) if e.fields["rank"] == "1")
    until(job, lambda s: all(n["state"] == "running" for n in s["nodes"]), "e2e")
    rows = watch(shell, "-w e2e")
    assert any(re.match(r"  ranks      2 running", row) for row in rows), rows
    assert any(re.match(r"\S+ +0  0-1 +member  running ", row) for row in rows), rows
    kill(int(victim.fields["pid"]), signal.SIGSEGV)
    rows = shell.wait_frame(lambda rows: any("died of SIGSEGV" in row for row in rows))
    assert any(re.match(r" +\d+ s ago  rank 1 \(node \S+\) died of SIGSEGV", row) for row in rows), rows
    assert b"\033[7m" in bytes(shell.heard.raw), "what is new stands out"
    shell.resize(8, 40)
    rows = shell.wait_frame(lambda rows: len(rows) <= 8)
    assert max(map(len, rows)) < 40 and rows[0].startswith("job e2e: "), rows
    one.signal(signal.SIGTERM)
    one.wait()
    left(shell, 0)
    after = bytes(shell.heard.raw).rpartition(LEAVE)[2].decode()
    assert "job e2e: " in after or "the job has ended" in after, "the end stays on the terminal: " + after


@pytest.mark.parametrize("how", ["q", "^C", "TERM", "HUP", "ABRT"])
def test_each_end_of_watch_restores_the_terminal(job, shell, how):
    job.pair(tags="a", nnodes="1")
    job.events.wait("start", 2)
    watch(shell, "--watch")
    if how in ("q", "^C"):
        shell.type({"q": "q", "^C": "\003"}[how])
    else:
        pid, = [int(p) for p in os.listdir("/proc") if p.isdigit() and is_watch(p, job)]
        os.kill(pid, getattr(signal, f"SIG{how}"))
    left(shell, {"q": 0, "^C": 130, "TERM": 143, "HUP": 129, "ABRT": 134}[how])


def is_watch(pid, job):
    """Whether that process is `muster status` of this test."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[:2] == [MUSTER.encode(), b"status"] and os.readlink(f"/proc/{pid}/cwd") == str(job.tmp)
    except OSError:
        return False


def test_watch_is_stopped_and_continued(job, shell):
    job.pair(tags="a", nnodes="1")
    job.events.wait("start", 2)
    watch(shell, "--watch")
    shell.type("\032")
    shell.wait_said("Stopped")
    raw = bytes(shell.heard.raw)
    assert raw.count(ENTER) == raw.count(LEAVE) == 1 and raw.rindex(LEAVE) < raw.rindex(b"Stopped"), raw
    shell.type("fg\n")
    assert shell.heard.until(lambda: bytes(shell.heard.raw).count(ENTER) == 2, 30), shell.said()
    shell.wait_frame(lambda rows: "job e2e: running" in rows[0])
    shell.type("q")
    assert shell.heard.until(lambda: bytes(shell.heard.raw).count(LEAVE) == 2, 30), shell.said()


def test_watch_shows_that_its_state_is_old(job, shell):
    a, = job.pair(tags="a", nnodes="1")
    job.events.wait("start", 2)
    watch(shell, "--watch --timeout=0.2 e2e")
    kill(a.agent_pid(), signal.SIGSTOP)
    try:
        rows = shell.wait_frame(lambda rows: rows[1].startswith("no answer for "))
        assert "job e2e: running" in rows[0], rows
    finally:
        kill(a.agent_pid(), signal.SIGCONT)
    shell.wait_frame(lambda rows: not rows[1].startswith("no answer for "))
    shell.type("q")
    assert shell.heard.until(lambda: LEAVE in shell.heard.raw, 30), shell.said()


def test_watch_without_a_terminal_that_can_is_blocks(job, shell):
    job.pair(tags="a", nnodes="1")
    job.events.wait("start", 2)
    shell.type(f"TERM=dumb {MUSTER} status --watch\n")
    shell.wait_said("job e2e: running", times=2)
    shell.type("\003")
    piped = job.agent("w", "status", "--watch", program=[MUSTER])
    assert piped.out.until(lambda: sum("job e2e: running" in line for line in piped.out.lines) > 1, 30), piped.said()
    piped.signal(signal.SIGINT)
    piped.wait()
    shell.type(f"{MUSTER} status --watch --once; echo status=$?\n")
    shell.wait_said("status=0")
    for text in bytes(shell.heard.raw), bytes(piped.out.raw):
        assert b"\033" not in text and re.search(rb"\n\r?\njob e2e: running", text), text


# --- commands --------------------------------------------------------------------------------------------------------


def test_a_node_leaves_and_nothing_is_charged(job):
    a, b = job.pair("--max-restarts=1", nnodes="1:2")
    job.events.wait("start", 4)
    code, _, err = ask(job, "leave")
    assert code == 1 and "several agents of that job" in err, err
    assert {*err.splitlines()[1:]} == {f"  muster leave {listener(job, x)}" for x in (a, b)}, err
    seen = status(job, endpoint(a))
    leader = next(n["pid"] for n in seen["nodes"] if n["id"] == seen["leader"])
    if b.agent_pid() == leader:
        a, b = b, a
    code, _, err = ask(job, "leave", listener(job, a))
    assert code == 1 and "leads the job at a fixed endpoint" in err, err
    code, out, err = ask(job, "leave", listener(job, b), "--reason=maintenance")
    assert code == 0, err
    assert out.strip()
    assert b.wait() == 0, b.said()
    job.events.wait("start", 2, 30, gen="1.2")
    seen = status(job, endpoint(a))
    assert (seen["generation"], seen["members"], seen["restarts_used"], seen["losses"]) == ("1.2", 1, 0, 0)
    assert seen["incident"].startswith("node ") and seen["restart_seconds"] is not None, seen
    assert "maintenance" in b.said()
    job.go()
    assert a.wait() == 0
    job.no_overlap()


def test_stop_ends_the_job_on_every_node(job):
    a, b = job.pair(nnodes="2", worker=("start", "wait"))
    job.events.wait("start", 4)
    code, out, err = ask(job, "stop", "--reason", "new data", listener(job, b))
    assert (code, out) == (0, "e2e: the job is being stopped\n"), err
    for agent in (a, b):
        code, _, err = agent.finish()
        assert code == 1 and "the job ended: an operator stopped the job: new data" in err, err


def test_grow_takes_in_who_waits(job):
    a, = job.pair("--grow=never", "--rdzv-conf=last_call_timeout=1", tags="a", nnodes="1:2")
    job.events.wait("start", 2)
    code, _, err = ask(job, "grow", endpoint(a))
    assert code == 1 and "no waiting node" in err, err
    b = job.agent("b", *a.words[a.words.index("run") + 1:])
    until(job, lambda s: [n["place"] for n in s["nodes"]] == ["member", "waiting"], endpoint(a))
    assert not job.events.all("start", gen="1.2")
    code, out, err = ask(job, "grow", endpoint(a))
    assert code == 0, err
    job.events.wait("start", 4, 30, gen="1.2")
    seen = status(job, endpoint(a))
    assert (seen["generation"], seen["members"], seen["restarts_used"]) == ("1.2", 2, 0)
    assert "grows from 1 to 2 nodes: an operator asked" in seen["incident"] and seen["restart_seconds"] is not None, seen
    code, _, err = ask(job, "grow", endpoint(a))
    assert code == 1 and "already has its largest number of nodes" in err, err
    job.go()
    assert (a.wait(), b.wait()) == (0, 0)
    job.no_overlap()


def test_exclude_puts_a_spare_in(job):
    with hosts_or_skip(3, ipv6=False) as net:
        exclude(job, net)


def exclude(job, net):
    words = ("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=10.88.0.1:29400", "--rdzv-id=e2e",
             "--no-python", job.worker, "start", "go")
    here = net.enter(0)
    a, b = (job.agent(tag, *words, prefix=net.enter(n)) for n, tag in enumerate("ab"))
    job.events.wait("start", 2)
    c = job.agent("c", *words, prefix=net.enter(2))
    where = "10.88.0.1"
    seen = until(job, lambda s: s["spares"] == 1, where, prefix=here)
    assert [(n["node"], n["place"]) for n in seen["nodes"]] == [("host1", "member"), ("host2", "member"),
                                                                ("host3", "spare")]
    assert seen["nodes"][1]["address"] == "10.88.0.2"
    code, _, err = ask(job, "exclude", "host9", where, prefix=here)
    assert code == 1 and "host9" in err
    code, out, err = ask(job, "exclude", "--reason=bad GPU", "host2", where, prefix=net.enter(2))
    assert code == 0 and "host2 is excluded" in out, err
    job.events.wait("start", 2, 30, gen="1.2")
    seen = until(job, lambda s: s["state"] == "running", where, prefix=here)
    assert [(n["node"], n["place"], n["node_rank"]) for n in seen["nodes"]] == [
        ("host1", "member", 0), ("host3", "member", 1), ("host2", "excluded", None)]
    assert seen["incident"] == "node host2 was excluded: bad GPU" and seen["restart_seconds"] is not None, seen
    assert seen["nodes"][2]["why"] == "bad GPU" and seen["excluded"] == 1 and seen["restarts_used"] == 0
    _, out, _ = ask(job, "status", where, prefix=here)
    assert re.search(r"^host2 .* excluded .*\n(?:.*\n)*? *host2: bad GPU$", out, re.M), out
    job.go()
    assert (a.wait(), c.wait()) == (0, 0)
    assert b.wait() is not None
    assert "this node is excluded from the job: bad GPU" in b.said(), b.said()
    assert "waits for a place" not in b.said(), b.said()
    job.no_overlap()


# --- through an arbiter ----------------------------------------------------------------------------------------------


def test_a_job_is_found_by_its_directory_and_known_there_when_it_is_over(job):
    shared = job.tmp / "shared"
    shared.mkdir()
    where = f"dir:{shared}"
    code, _, err = ask(job, "status", where, "--rdzv-id=e2e")
    assert code == 1 and "no agent has led the run 'e2e' there yet" in err and not list(shared.iterdir()), err
    code, _, err = ask(job, "status", f"dir:{shared}/nowhere", "--rdzv-id=e2e")
    assert code == 1 and "nowhere" in err and not list(shared.iterdir()), err
    a, b = (job.agent(tag, "--nnodes=2", "--nproc-per-node=1", f"--rdzv-endpoint={where}", "--rdzv-id=e2e", "--no-python",
                      job.worker, "start", "go") for tag in "ab")
    job.events.wait("start", 2)
    seen = status(job, where, "--rdzv-id=e2e")
    assert seen["state"] == "running" and len(seen["nodes"]) == 2 and seen["run_id"] == "e2e"
    assert len(seen["successors"]) >= 1
    code, _, err = ask(job, "status", where)
    assert code == 2 and "--rdzv-id" in err
    code, _, err = ask(job, "leave", where, "--rdzv-id=e2e")
    assert code == 2 and "HOST:PORT" in err
    job.go()
    assert (a.wait(), b.wait()) == (0, 0)
    seen = status(job, where, "--rdzv-id=e2e")
    assert (seen["state"], seen["outcome"], seen["nodes"]) == ("closed", "success", [])
    code, _, err = ask(job, "stop", where, "--rdzv-id=e2e")
    assert code == 1 and "is over" in err, err


def test_a_job_is_found_by_etcd(job):
    with etcd.EtcdCluster(1, tls=True) as cluster:
        where = f"etcds://{cluster.endpoints[0]}"
        conf = f"--rdzv-conf=cacert={cluster.cacert}"
        code, _, err = ask(job, "status", where, conf, "--rdzv-id=e2e")
        assert code == 1 and "no agent has led the run 'e2e' there yet" in err, err
        a, b = (job.agent(tag, "--nnodes=2", "--nproc-per-node=1", f"--rdzv-endpoint={where}", conf, "--rdzv-id=e2e",
                          "--no-python", job.worker, "start", "go") for tag in "ab")
        job.events.wait("start", 2)
        seen = status(job, where, conf, "--rdzv-id=e2e")
        assert seen["state"] == "running" and len(seen["nodes"]) == 2, seen
        code, _, err = ask(job, "status", where, "--rdzv-id=e2e")
        assert code == 1 and err.count("\n") == 1, "its certificate is of an unknown authority: " + err
        job.go()
        assert (a.wait(), b.wait()) == (0, 0)
        seen = status(job, where, conf, "--rdzv-id=e2e")
        assert (seen["state"], seen["outcome"]) == ("closed", "success")


def test_who_watches_is_taken_to_the_next_leader_and_told_the_end(job):
    shared = job.tmp / "shared"
    shared.mkdir()
    where = f"dir:{shared}"
    for tag in "abc":
        job.agent(tag, "--nnodes=1:3", "--nproc-per-node=1", f"--rdzv-endpoint={where}", "--rdzv-id=e2e", "--no-python",
                  job.worker, "start", "go")
    job.events.wait("start", 3)
    watch = job.agent("w", "status", "--watch", "--json", "--rdzv-id=e2e", where, program=[MUSTER])

    def seen():
        return [json.loads(line) for line in watch.out.lines if line.endswith("}")]

    first = watch.out.until(seen, 30)[0]
    assert first["epoch"] == 2 and len(first["successors"]) == 2, first
    leader = next(n["pid"] for n in first["nodes"] if n["id"] == first["leader"])
    kill(leader)
    after = watch.out.until(lambda: [s for s in seen() if s["epoch"] == 3 and s["state"] == "running"], 60)
    assert after, watch.said()
    assert "is gone" in after[0]["incident"] and after[0]["restart_seconds"] is not None, "the old leader's loss is the last event"
    assert after[0]["job_seconds"] > first["job_seconds"], "it is as old as under the old leader"
    code, out, err = ask(job, "stop", "--reason=enough", where, "--rdzv-id=e2e")
    assert (code, out) == (0, "e2e: the job is being stopped\n"), err
    code, _, err = watch.finish()
    assert code == 0, err
    last = seen()[-1]
    assert (last["state"], last["outcome"], last["reason"]) == ("closed", "failed", "an operator stopped the job: enough"), last
