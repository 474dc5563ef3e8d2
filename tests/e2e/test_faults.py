"""When muster itself is killed or frozen, soon none of its processes is left; and what the other node does then.

Each worker has two descendants that ignore SIGTERM, one of them double-forked into a session of its own. The FIFO that
they hold open shows whether any of them lives (harness.Job.held), not a process table. Every worker that starts reports
itself whether anything of another generation is alive. MUSTER_KILLS (10; 50 in the slow suite) is the number of runs.
"""
import contextlib
import fcntl
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from harness import KILLS, SLOWER, TOOL_LOGS, alive, children, free_port, kill, processes_with

LEASE, HEARTBEAT = 1.0, 0.2
QUICK_LEASE = [f"--lease={LEASE}", f"--heartbeat-interval={HEARTBEAT}"]
# The lease is so long that a node that is found gone earlier was not found by the end of its lease.
LONG_LEASE = ["--lease=300", f"--heartbeat-interval={HEARTBEAT}"]
FAMILY = ("family", "start", "go")
# The limit until the other node runs again, or has reported why not.
AFTER_DEATH = 1.0


def started(job, world):
    """Waits until all workers of the first generation run."""
    job.events.wait("start", world, world=world)


def by_node(job, agents):
    node_of = {e.fields["tag"]: e.fields["node"] for e in job.events.all("start")}
    return sorted(agents, key=lambda a: int(node_of[a.tag]))


def time_of_start(job, tag, world, count):
    events = job.events.wait("start", count, 30, tag=tag, world=world)
    return max(int(e.fields["ns"]) for e in events) / 1e9


@pytest.mark.parametrize("victim", ["agent", "guardian"])
@pytest.mark.parametrize("turn", range(KILLS))
def test_the_other_node_goes_on_when_one_is_killed(job, victim, turn):
    """The follower's agent or guardian is killed: none of its processes lives when the smaller group starts, within 1
    s."""
    agents = job.pair(*LONG_LEASE, worker=FAMILY)
    started(job, 4)
    leader, follower = by_node(job, agents)
    victim_pid = follower.agent_pid() if victim == "agent" else follower.pid
    at = time.monotonic()
    kill(victim_pid)
    again = time_of_start(job, leader.tag, 2, 2)
    assert job.held(follower.tag) == [], job.culprits()
    job.no_overlap()
    assert again - at <= AFTER_DEATH * SLOWER, f"{again - at:.3f} s until the smaller group ran"
    restarts = {e.fields["count"] for e in job.events.all("start", world=2)}
    assert restarts == {"0"}, "a lost node is not charged to the budget"
    job.go()
    code, _, err = leader.finish()
    assert code == 0, err
    assert follower.wait() is not None


@pytest.mark.parametrize("victim", ["agent", "guardian"])
@pytest.mark.parametrize("turn", range(max(1, KILLS // 5)))
def test_below_the_smallest_number_of_nodes_it_ends_with_the_reason(job, victim, turn):
    agents = job.pair(*QUICK_LEASE, "--rdzv-conf=join_timeout=1", worker=FAMILY, nnodes="2")
    started(job, 4)
    leader, follower = by_node(job, agents)
    at = time.monotonic()
    kill(follower.agent_pid() if victim == "agent" else follower.pid)
    job.wait_gone(follower.tag, AFTER_DEATH)
    leader.wait_said(r"node|agent", AFTER_DEATH * 20)
    code, _, err = leader.finish(30)
    assert code == 75, err
    assert job.held(leader.tag) == [] and job.held(follower.tag) == []
    assert re.search(r"lost|gone|closed|left|ended", err), err
    assert time.monotonic() - at < 20 * SLOWER


@pytest.mark.parametrize("turn", range(KILLS))
def test_workers_of_a_frozen_agent_die_with_its_lease(job, turn):
    agents = job.pair(*QUICK_LEASE, worker=FAMILY)
    started(job, 4)
    leader, follower = by_node(job, agents)
    frozen = follower.agent_pid()
    at = time.monotonic()
    kill(frozen, signal.SIGSTOP)
    gone = job.wait_gone(follower.tag, LEASE + 5)
    assert gone - at <= (LEASE + 1) * SLOWER, f"dead after {gone - at:.3f} s, the lease is {LEASE} s"
    time_of_start(job, leader.tag, 2, 2)
    job.no_overlap()
    job.go()
    code, _, err = leader.finish()
    assert code == 0, err
    kill(frozen, signal.SIGCONT)
    assert follower.wait(20) not in (None, 0), "a node that was counted out must not say that all went well"


def test_workers_of_a_frozen_leader_die_with_its_lease(job):
    """Also those of its own node, at a fixed endpoint: the other nodes have left by then."""
    agents = job.pair(*QUICK_LEASE, worker=FAMILY)
    started(job, 4)
    leader, _ = by_node(job, agents)
    frozen = leader.agent_pid()
    kill(frozen, signal.SIGSTOP)
    for agent in agents:
        job.wait_gone(agent.tag, LEASE + 5)
    kill(frozen, signal.SIGCONT)
    for agent in agents:
        agent.signal(signal.SIGTERM)
        assert agent.wait(30) not in (None, 0), agent.said()


def test_an_old_fence_explains_no_later_kill(job):
    """When the lease ends, the workers have ended otherwise, and the guardian kills only what they left. In the next
    group a worker is killed: the job must not run without it."""
    agent = job.agent("a", *QUICK_LEASE, "--nproc-per-node=2", "--nnodes=1:2", "--rdzv-backend=dir",
                      f"--rdzv-endpoint={job.tmp}/rdzv", "--rdzv-id=fence", "--rdzv-conf=last_call_timeout=0.2",
                      "--max-restarts=9", "--crash-loop=0", "--no-python", job.worker, *FAMILY)
    started(job, 2)
    frozen = agent.agent_pid()
    kill(frozen, signal.SIGSTOP)
    for event in job.events.all("start"):
        kill(int(event.fields["pid"]), signal.SIGSEGV)
    job.wait_gone("a", LEASE + 5)
    kill(frozen, signal.SIGCONT)
    kill(int(job.events.wait("start", 4)[2].fields["pid"]))
    agent.wait_said(r"died of SIGKILL", 10)
    job.events.wait("start", 6)
    job.go()
    code, _, err = agent.finish()
    assert code == 0, err


def everything_below(pid):
    return [pid, *(p for child in children(pid) for p in everything_below(child))]


def pause(agents, seconds):
    """Stops all processes of these agents for so long, the workers last, and continues them in the same order."""
    family = [pid for agent in agents for pid in everything_below(agent.pid)]
    for pid in family:
        kill(pid, signal.SIGSTOP)
    select.select([], [], [], seconds)
    for pid in family:
        kill(pid, signal.SIGCONT)
    return family


def freeze(agents, seconds, kind="freezer"):
    """The same by a cgroup, as docker pause does: of the freezer, or of the unified hierarchy."""
    mounted = pathlib.Path("/sys/fs/cgroup")
    root = mounted / kind if kind == "freezer" or (mounted / kind).exists() else mounted
    file, words = ("freezer.state", ("FROZEN", "THAWED")) if kind == "freezer" else ("cgroup.freeze", ("1", "0"))
    if not os.access(root / "cgroup.procs", os.W_OK):
        pytest.skip(f"no {kind} cgroups that we may write to")
    group = root / f"muster-test-{os.getpid()}"
    group.mkdir()
    try:
        for pid in (pid for agent in agents for pid in everything_below(agent.pid)):
            with contextlib.suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(pid))
        (group / file).write_text(words[0])
        select.select([], [], [], seconds)
        (group / file).write_text(words[1])
    finally:
        while pids := (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (root / "cgroup.procs").write_text(pids[0])
        group.rmdir()


def together(job, place, nodes, *words, nnodes=None, etcd=None):
    """Nodes with C workers that meet at this place."""
    where = {"dir": ["--rdzv-backend=dir", f"--rdzv-endpoint={job.tmp}/rdzv"],
             "etcd": etcd and [f"--rdzv-endpoint=etcd://{','.join(etcd.endpoints)}/muster"],
             "c10d": ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}"],
             "alone": ["--standalone"]}[place]
    agents = [job.agent(tag, *QUICK_LEASE, f"--nnodes={nnodes or nodes}", "--nproc-per-node=2", *where,
                        *([] if place == "alone" else ["--rdzv-id=pause"]), "--rdzv-conf=last_call_timeout=0.5", *words,
                        "--no-python", job.worker, *FAMILY) for tag in "abc"[:nodes]]
    started(job, 2 * nodes)
    return agents


@pytest.mark.parametrize("how", ["signal", "freezer"])
@pytest.mark.parametrize("place, nodes", [("alone", 1), ("dir", 1), ("dir", 3), ("c10d", 3)])
def test_a_job_that_is_paused_as_a_whole_continues(job, place, nodes, how):
    """As by scontrol suspend, docker pause, a suspended laptop: for longer than the lease, and twice."""
    agents = together(job, place, nodes, "--max-restarts=0")
    for nth in range(2):
        if how == "signal":
            pause(agents, 3 * LEASE)
        else:
            freeze(agents, 3 * LEASE)
        for agent in agents:
            agent.wait_said(r"(this node was paused for [2-9]\.\d s; its workers continue.*){%d}" % (nth + 1), 10)
    job.go()
    for agent in agents:
        code, _, err = agent.finish(30)
        assert code == 0 and "lease" not in err, err
    assert len(job.events.all("start")) == 2 * nodes, "no worker was started again"


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_job_that_is_paused_for_about_a_lease_continues(job, nodes):
    """The first leases after such a pause last only for the rest of one from before it."""
    agents = together(job, "dir", nodes, "--max-restarts=0")
    for tenth in range(5, 13):
        pause(agents, tenth / 10 * LEASE)
        select.select([], [], [], 1.5 * LEASE)  # one that is over is noticed
    job.go()
    for agent in agents:
        code, _, err = agent.finish(30)
        assert code == 0 and "lease" not in err, err
    assert len(job.events.all("start")) == 2 * nodes, "no worker was started again"


@pytest.mark.parametrize("place", ["dir", "c10d"])
@pytest.mark.parametrize("turn", range(max(1, KILLS // 5)))
def test_a_node_that_is_paused_alone_is_replaced(job, place, turn):
    """Its workers do not run beside the next group, also not after the pause."""
    agents = together(job, place, 3, nnodes="1:3")
    paused = by_node(job, agents)[1]
    family = everything_below(paused.pid)
    for pid in family:
        kill(pid, signal.SIGSTOP)
    others = [a for a in agents if a is not paused]
    for agent in others:
        time_of_start(job, agent.tag, 4, 2)
    for pid in family:
        kill(pid, signal.SIGCONT)
    job.wait_gone(paused.tag, 5)
    assert "its workers continue" not in paused.said()
    job.go()
    for agent in others:
        code, _, err = agent.finish(30)
        assert code == 0, err
    paused.wait(30)


def test_the_agent_of_one_node_can_be_frozen_alone(job):
    """As by a debugger. Without an arbiter no other group can form, so its workers run on."""
    agent, = together(job, "alone", 1, "--max-restarts=0")
    frozen = agent.agent_pid()
    kill(frozen, signal.SIGSTOP)
    select.select([], [], [], 4 * LEASE)
    kill(frozen, signal.SIGCONT)
    agent.wait_said("its workers continue", 10)
    job.go()
    code, _, err = agent.finish(30)
    assert code == 0 and "lease" not in err, err
    assert len(job.events.all("start")) == 2, "no worker was started again"


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def wait_state(pid, states, seconds):
    end = time.monotonic() + seconds * SLOWER
    while state_of(pid) not in states and time.monotonic() < end:
        select.select([], [], [], 0.01)
    return state_of(pid) in states


@pytest.mark.parametrize("turn", range(max(1, KILLS // 2)))
def test_the_leader_killed_ends_all_in_a_clear_way(job, turn):
    """Without succession, the group is lost with its leader: the other node reports it and ends."""
    agents = job.pair(*QUICK_LEASE, worker=FAMILY)
    started(job, 4)
    leader, follower = by_node(job, agents)
    kill(leader.agent_pid())
    job.wait_gone(leader.tag, AFTER_DEATH)
    job.wait_gone(follower.tag, LEASE + 5)
    code, _, err = follower.finish(30)
    assert code == 75, err
    assert re.search(r"leader|lost|closed|host", err), err


def contain_or_skip(how):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if how == "cgroup":
        mounts = open("/proc/self/mountinfo").read()
        path = re.search(r"^\d+ \d+ \S+ \S+ (\S+) .* - cgroup2 ", mounts, re.M)
        if not path or not os.access(path.group(1), os.W_OK):
            pytest.skip("no cgroup2 that we may write to")


@pytest.mark.parametrize("how", ["pidns", "cgroup"])
@pytest.mark.parametrize("turn", range(KILLS))
def test_agent_and_guardian_killed_at_once(job, how, turn):
    """Then the processes are ended only if the workers have a pid namespace or a cgroup of their own."""
    contain_or_skip(how)
    lease = LONG_LEASE if how == "pidns" else QUICK_LEASE
    agents = job.pair(*lease, f"--contain={how}", worker=FAMILY)
    job.events.wait("start", 4, world=4)
    leader, follower = by_node(job, agents)
    # All of muster's own processes on this node, without the workers.
    own = [follower.pid] + [p for p in muster_below(follower.pid)]
    assert len(own) >= 2, own
    at = time.monotonic()
    for pid in own[:2]:
        kill(pid)
    again = time_of_start(job, leader.tag, 2, 2)
    assert job.held(follower.tag) == [], job.culprits()
    job.no_overlap()
    if how == "pidns":
        assert again - at <= AFTER_DEATH * SLOWER, f"{again - at:.3f} s"
    job.go()
    assert leader.wait() == 0, leader.said()


def muster_below(pid):
    """The descendants of a process that are muster's own, the guardian's child first."""
    own = os.readlink(f"/proc/{pid}/exe")
    for child in children(pid):
        try:
            if os.readlink(f"/proc/{child}/exe") == own:
                yield child
                yield from muster_below(child)
        except OSError:
            continue


@pytest.mark.parametrize("turn", range(KILLS))
def test_a_worker_killed_restarts_both_nodes(job, turn):
    agents = job.pair("--max-restarts=1", worker=FAMILY)
    job.events.wait("start", 4, count=0)
    victim = job.events.all("start", count=0)[turn % 4]
    kill(int(victim.fields["pid"]))
    seen = job.events.wait("start", 4, count=1)
    assert {e.fields["rank"] for e in seen} == {"0", "1", "2", "3"}
    assert len({e.fields["gen"] for e in seen}) == 1
    job.no_overlap()
    job.go()
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 0, err
        assert re.search(rf"rank {victim.fields['rank']} \(.*SIGKILL", err), f"{agent.tag}: {err}"


@pytest.mark.parametrize("failing_rank", [0, 3])
def test_budget_spent_ends_both_nodes_with_the_first_cause(job, failing_rank):
    agents = job.pair("--max-restarts=1", worker=("family", "start", f"rank={failing_rank}", "go",
                                                  f"rank={failing_rank}", "exit=41", "wait"))
    job.events.wait("start", 4, count=0)
    job.go()
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 1, err
        assert re.search(rf"rank\s*:? {failing_rank}\b", err) and re.search(r"exitcode\s*: 41|status 41|code 41", err), \
            f"{agent.tag}: {err}"
        assert job.held(agent.tag) == []
    assert len(job.events.all("start", count=1, rank=failing_rank)) == 1
    assert not job.events.all("start", count=2)
    job.no_overlap()


def test_a_worker_dead_at_its_start_takes_its_descendants_along(job):
    code, _, err = job.run("--no-python", job.worker, "family", "start", "exit=3")
    assert code == 1, err
    assert job.held("a") == [], job.culprits()


def test_descendants_of_a_worker_that_did_well_are_ended_too(job):
    code, _, err = job.run("--nproc-per-node=2", "--no-python", job.worker, "family", "start")
    assert code == 0, err
    assert job.held("a") == [], job.culprits()


@pytest.fixture
def no_proc():
    """The beginning of a command that runs without /proc."""
    if TOOL_LOGS:
        pytest.skip("valgrind and the sanitizers need /proc")
    words = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("/proc can't be unmounted")
    return words


@pytest.mark.parametrize("end", ["success", "failure", "agent killed", "agent frozen"])
def test_descendants_of_workers_are_ended_without_proc(job, no_proc, end):
    where = ["--nnodes=1", "--rdzv-id=frozen", "--rdzv-backend=dir", f"--rdzv-endpoint={job.tmp}/rdzv"] if end == "agent frozen" else ["--standalone"]
    agent = job.agent("a", *QUICK_LEASE, *where, "--nproc-per-node=2", "--no-python", job.worker, *FAMILY,
                      f"exit={0 if end == 'success' else 3}", prefix=no_proc)
    started(job, 2)
    if end.startswith("agent"):
        kill(agent.agent_pid(), signal.SIGKILL if end == "agent killed" else signal.SIGSTOP)
        job.wait_gone("a", LEASE + 5)
    else:
        job.go()
    code, _, err = agent.finish(20)
    assert code == {"success": 0, "failure": 1}.get(end, 137), err
    assert job.held("a") == [], job.culprits()


def test_what_a_worker_left_does_not_run_beside_the_next_group_without_proc(job, no_proc):
    text = 'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then (trap "" TERM; echo up; exec sleep 300) & echo "left $!"; exit 3; fi; echo next; read x < $E2E_GO; exit 0'
    agent = job.agent("a", "--standalone", "--max-restarts=1", "--no-python", "/bin/sh", "-c", text, prefix=no_proc)
    assert agent.out.until(lambda: b"next" in agent.out.raw, 20), agent.said()
    assert not alive(int(re.search(r"left (\d+)", agent.output())[1]))
    with open(job.tmp / "go", "w"):
        pass
    code, _, err = agent.finish(20)
    assert code == 0, err


def test_detached_processes_can_be_left_without_proc(job, no_proc):
    agent = job.agent("a", "--standalone", "--leave=detached", "--no-python", job.worker, "family", "start", prefix=no_proc)
    code, _, err = agent.finish()
    assert code == 0, err
    assert job.held("a") != []
    for pid in processes_with(job.mark.encode()):
        kill(pid)


def test_nothing_of_muster_is_left_after_the_agent_was_killed(job):
    agent = job.agent("a", "--nproc-per-node=2", "--no-python", job.worker, "family", "start", "wait")
    job.events.wait("start", 2)
    inner = agent.agent_pid()
    kill(inner)
    code, _, err = agent.finish(10)
    assert code not in (0, None), err
    assert job.held("a") == [], job.culprits()
    assert not alive(inner)
    assert processes_with(job.mark.encode()) == [], job.culprits()


# --- leftovers ------------------------------------------------------------------------------------------------

# Ends when these are gone: a start removes leftovers while its workers run.
UNTIL_GONE = 'for path; do while [ -e "$path" ]; do sleep 0.01; done; done'


def kill_whole(agent, victim):
    """Kills the guardian or the agent, which ends the other, too. Returns when both are gone."""
    inner = os.pidfd_open(agent.agent_pid())
    kill(agent.agent_pid() if victim == "agent" else agent.pid)
    agent.finish()
    assert select.select([inner], [], [], 30)[0]
    os.close(inner)


@pytest.mark.parametrize("victim", ["agent", "guardian"])
@pytest.mark.parametrize("contain", ["none", "pidns"])
def test_the_next_start_sweeps_what_a_killed_one_left(job, tmp_path, victim, contain):
    """Files of living agents are not touched, although their pids have no meaning here."""
    temp, run = tmp_path / "temp", job.tmp / "run"
    temp.mkdir()

    def start(tag):
        before = set(temp.iterdir()), set(run.glob("agent-*"))
        agent = job.agent(tag, f"--contain={contain}", "--no-python", "/bin/sh", "-c", "echo up; exec sleep 600",
                          env={"TMPDIR": temp})
        agent.out.until(lambda: b"up" in agent.out.raw, 30)
        if b"up" not in agent.out.raw and contain == "pidns":
            pytest.skip(f"no pid namespace here: {agent.said()}")
        return agent, list(set(temp.iterdir()) - before[0]), list(set(run.glob("agent-*")) - before[1])

    killed, *left = start("a")
    assert [len(paths) for paths in left] == [1, 1], left
    # Another agent in a pid namespace of its own, where its file in the run directory has the same name.
    living, in_temp, _ = start("b")
    assert len(in_temp) == 1
    kill_whole(killed, victim)
    gone = left[0] + (left[1] if contain == "none" else [])
    code, _, err = job.run("--no-python", "/bin/sh", "-c", UNTIL_GONE, "sh", *gone, env={"TMPDIR": temp})
    assert code == 0, err
    assert list(temp.iterdir()) == in_temp, "that of the living is there, and nothing else"
    living.signal(signal.SIGTERM)
    assert living.finish()[0] == 128 + signal.SIGTERM


def test_the_next_start_sweeps_cgroups_that_nobody_has(job):
    """A guardian that is killed right after it has created its cgroup leaves it empty. In a cgroup of which all were
    killed are those of jobs that its workers had started."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    own = re.search(r"^0::(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
    roots = [pathlib.Path(m[1]) for m in mounts if m[2] == "cgroup2"]
    if not roots or not own:
        pytest.skip("no cgroup v2 here")
    folder = roots[0] / own[1].strip("/")
    left, claimed = folder / f"muster-{os.getpid()}1", folder / f"muster-{os.getpid()}2"
    try:
        left.mkdir()
        (left / "muster-2" / "of-a-worker").mkdir(parents=True)
        claimed.mkdir()
    except OSError as e:
        pytest.skip(f"no cgroup can be made here: {e}")
    claim = os.open(claimed, os.O_RDONLY)
    try:
        fcntl.flock(claim, fcntl.LOCK_SH)
        code, _, err = job.run("--contain=cgroup", "--no-python", "/bin/sh", "-c", UNTIL_GONE, "sh", left)
        if "--contain=cgroup" in err:
            pytest.skip(err)
        assert code == 0, err
        assert claimed.exists(), "a guardian that lives may be about to enter it"
    finally:
        os.close(claim)
        for path in (*list(left.glob("*/*")), *list(left.glob("*")), left, claimed):
            with contextlib.suppress(OSError):
                path.rmdir()


# --- a debugger -----------------------------------------------------------------------------------------------------

# Stops a process like a debugger, reports it, and does nothing more until its standard input ends.
TRACER = ("import ctypes, os, sys\n"
          "pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)\n"
          "if libc.ptrace(16, pid, None, None) < 0:\n"  # PTRACE_ATTACH
          "    sys.exit(os.strerror(ctypes.get_errno()))\n"
          "os.waitpid(pid, 0x40000000)\n"  # __WALL
          "print('stopped', flush=True)\n"
          "sys.stdin.read()\n")


@pytest.fixture
def debugger():
    """Called with a pid: stops that process; called without: lets it continue."""
    tracers = []

    def debug(pid=None):
        if pid is None:
            tracers[0].stdin.close()
            return tracers[0].wait()
        tracers.append(subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        if tracers[0].stdout.readline() != "stopped\n":
            pytest.skip(f"nothing can be traced here: {tracers[0].stderr.read()}")
        return tracers[0].pid

    yield debug
    for tracer in tracers:
        tracer.kill()
        tracer.wait()
        for pipe in (tracer.stdin, tracer.stdout, tracer.stderr):
            pipe.close()


def test_a_worker_in_a_debugger_is_named_with_it(job, debugger):
    """Next to another worker, whose failure ends the group; the debugger stays much longer than the lease."""
    agent = job.agent("a", *QUICK_LEASE, "--nproc-per-node=2", "--shutdown-timeout=1", "--no-python", "/bin/sh", "-c",
                      'echo "$RANK is $$$$"; [ $RANK = 0 ] || { : < "$E2E_GO"; exit 3; }; exec sleep 600')
    found = agent.out.until(lambda: re.search(rb"0 is (\d+)", bytes(agent.out.raw)), 30)
    assert found, agent.said()
    worker = int(found[1])
    tracer = debugger(worker)
    job.go()
    at = time.monotonic()
    agent.wait_said(rf"process {worker}, [^\n]*(traced by|tracer,) process {tracer}, [^\n]*python", 30)
    took = time.monotonic() - at
    assert took > 5.5, f"--shutdown-timeout and 5 s, not {took:.1f} s"
    used = sum(map(int, pathlib.Path(f"/proc/{agent.agent_pid()}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    said = agent.said()
    assert used / os.sysconf("SC_CLK_TCK") < 2, "the loop is not kept busy by it"
    assert "lease" not in said and "process 0" not in said and said.count(f"error: process {worker}") == 1, said
    assert agent.wait(0) is None, "it is waited for"
    debugger()
    code, _, err = agent.finish(30)
    assert code == 1 and "lease" not in err and "rank 1 " in err, err


def test_a_worker_in_a_debugger_on_another_node_is_named_to_the_leader(job, debugger):
    agents = job.pair("--shutdown-timeout=1", *QUICK_LEASE[1:], nproc=1, nnodes="2",
                      worker=("start", "rank=0", "go", "rank=0", "exit=3", "wait"))
    by_rank = {e.fields["rank"]: e.fields for e in job.events.wait("start", 2)}
    worker, tag = int(by_rank["1"]["pid"]), by_rank["1"]["tag"]
    follower, = [a for a in agents if a.tag == tag]
    leader, = [a for a in agents if a.tag != tag]
    tracer = debugger(worker)
    job.go()
    for agent in (follower, leader):
        agent.wait_said(rf"process {worker}, [^\n]*(traced by|tracer,) process {tracer}, [^\n]*python", 30)
    debugger()
    for agent in agents:
        code, _, err = agent.finish(30)
        assert code == 1 and "lease" not in err and "rank 0 " in err, err
