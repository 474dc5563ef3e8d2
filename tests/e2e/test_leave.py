"""What workers leave when they end: it is ended with them, except with --leave=detached when the job has succeeded.

Each worker of these jobs has two descendants that ignore SIGTERM: one in its own session, and one, detached, in another,
as an upload that a training script starts."""
import contextlib
import os
import pathlib
import random
import re
import select
import signal
import socket

import pytest

from harness import KILLS, VALGRIND, alive, children, free_port, kill, processes_with
from test_bind import may_mount

CONTAIN = ["none", pytest.param("cgroup", marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root"))]
LEAVE = "--leave=detached"
FAMILY = ("family", "start")


def finish(agent):
    code, _, err = agent.finish()
    if "--contain=cgroup" in err:
        pytest.skip(err)
    return code, err


def left(job):
    """The processes of the job that live although its agents have ended. A log writer that its agent killed ends, too."""
    for pid in processes_with(job.mark.encode()):
        with contextlib.suppress(OSError):
            if "muster-" in pathlib.Path(f"/proc/{pid}/comm").read_text():
                assert gone(pid), f"{pid} outlives its agent"
    return sorted(processes_with(job.mark.encode()))


def named(err, what):
    return sorted(int(pid) for pid in re.findall(rf"muster: process (\d+), \S*worker family start[^\n]*{what}", err))


def killed(err):
    return set(re.findall(r"process (\d+)", "".join(re.findall("muster: killed what had not ended: (.*)", err))))


def gone(pid, seconds=30):
    fd = os.pidfd_open(pid)
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


def await_end_of(job, **fields):
    """Waits until this worker has ended."""
    pid = int(job.events.wait("start", 1, **fields)[0].fields["pid"])
    with contextlib.suppress(ProcessLookupError):
        assert gone(pid)


@pytest.mark.parametrize("contain", CONTAIN)
def test_what_is_ended_with_a_successful_worker_is_told(job, contain):
    code, err = finish(job.agent("a", "--nproc-per-node=2", f"--contain={contain}", "--no-python", job.worker, *FAMILY))
    assert code == 0 and job.held("a") == [] and left(job) == []
    assert len(set(named(err, "is stopped; --leave=detached leaves it running"))) == 2 == err.count("muster: process"), err
    pids = re.findall(r"muster: process (\d+)", err)  # each process has one message
    assert len(killed(err)) == 2 and not killed(err) & set(pids), err


@pytest.mark.parametrize("last", ["exit=3", "wait"])
def test_nothing_is_told_when_the_job_does_not_succeed(job, last):
    agent = job.agent("a", "--no-python", job.worker, *FAMILY, last)
    job.events.wait("start", 1)
    if last == "wait":
        agent.signal(signal.SIGTERM)
    code, err = finish(agent)
    assert code == (1 if last == "exit=3" else 128 + signal.SIGTERM) and job.held("a") == []
    assert "--leave" not in err, err


def test_many_are_told_in_few_lines(job):
    code, err = finish(job.agent("a", "--nproc-per-node=12", "--no-python", job.worker, *FAMILY))
    assert code == 0 and job.held("a") == []
    assert err.count("is stopped;") == 9 and len(set(named(err, "is stopped;"))) == 8 and "more of the same" in err, err


@pytest.mark.parametrize("contain", CONTAIN)
@pytest.mark.parametrize("env", [None, {"PET_LEAVE": "detached"}], ids=["option", "variable"])
def test_what_is_detached_lives_on_when_the_job_has_succeeded(job, contain, env):
    words = ["--nproc-per-node=2", f"--contain={contain}", *([] if env else [LEAVE])]
    code, err = finish(job.agent("a", *words, "--no-python", job.worker, *FAMILY, env=env))
    pids = left(job)
    assert code == 0 and len(pids) == 2, err  # not those in the workers' sessions
    assert named(err, r"continues \(--leave") == pids, err
    workers = {int(e.fields["pid"]) for e in job.events.all("start")}
    assert not {os.getsid(pid) for pid in pids} & (workers | {os.getsid(0)})
    # Another run of this user leaves it alone, also when it looks for what killed runs have left.
    other = job.agent("b", f"--contain={contain}", "--no-python", job.worker, "start", "go")
    job.events.wait("start", 1, tag="b")
    tidy = [p for p in children(other.agent_pid()) if "tidy" in open(f"/proc/{p}/comm").read()]
    job.go()
    assert finish(other)[0] == 0 and all(map(alive, pids)), tidy


def test_one_that_has_ended_itself_is_not_waited_for(job):
    code, _, err = job.run(LEAVE, "--no-python", "/bin/sh", "-c", "setsid true & wait; setsid sh -c 'exit 3' & exit 0")
    assert code == 0, err
    assert left(job) == []


@pytest.mark.parametrize("how", [["exit=3"], ["signal=9"]])
def test_a_job_that_fails_leaves_nothing(job, how):
    """Rank 0 has ended well before, and what it detached lives until then."""
    agent = job.agent("a", LEAVE, "--nproc-per-node=2", "--no-python", job.worker, *FAMILY, "rank=1", "go", "rank=1", *how)
    await_end_of(job, rank=0)
    assert job.held("a")
    job.go()
    code, err = finish(agent)
    assert code == 1 and job.held("a") == [] and left(job) == [], err
    assert "continues (--leave" not in err


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("contain", CONTAIN)
def test_a_job_that_is_ended_by_a_signal_leaves_nothing(job, signo, contain):
    agent = job.agent("a", LEAVE, "--nproc-per-node=2", f"--contain={contain}", "--no-python", job.worker, *FAMILY,
                      "rank=1", "wait")
    job.events.wait("start", 2)
    await_end_of(job, rank=0)
    agent.signal(signo)
    code, err = finish(agent)
    assert code == 128 + signo and job.held("a") == [] and left(job) == [], err


@pytest.mark.skipif(VALGRIND, reason="a killed process has no report")
@pytest.mark.parametrize("victim", ["agent", "guardian"])
@pytest.mark.parametrize("contain", CONTAIN)
def test_nothing_is_left_when_muster_is_killed(job, victim, contain):
    agent = job.agent("a", LEAVE, "--nproc-per-node=2", f"--contain={contain}", "--no-python", job.worker, *FAMILY,
                      "rank=1", "wait")
    job.events.wait("start", 2)
    await_end_of(job, rank=0)
    kill(agent.agent_pid() if victim == "agent" else agent.pid)
    assert finish(agent)[0] == 128 + signal.SIGKILL
    job.wait_gone("a", 10)


def test_a_restart_ends_what_was_detached_before(job):
    agent = job.agent("a", LEAVE, "--nproc-per-node=2", "--max-restarts=1", "--no-python", job.worker, *FAMILY,
                      "rank=1", "count=0", "go", "rank=1", "count=0", "exit=3")
    await_end_of(job, rank=0, count=0)
    job.go()
    code, err = finish(agent)
    pids = left(job)
    assert code == 0 and len(pids) == 2 and named(err, r"continues \(--leave") == pids, err
    assert {p.split(".")[1] for p in job.held("a")} == {"2"}


def nodes(job, *words, worker):
    port = free_port()
    return [job.agent(tag, LEAVE, "--nnodes=2", "--nproc-per-node=2", f"--node-rank={i}", "--rdzv-backend=static",
                      "--master-addr=127.0.0.1", f"--master-port={port}", "--lease=2", "--heartbeat-interval=0.2", *words,
                      "--no-python", job.worker, *worker) for i, tag in enumerate("ab")]


@pytest.mark.parametrize("first", [0, 1])
def test_a_node_that_has_finished_waits_for_the_end_of_the_job(job, first):
    """What its workers have detached lives on with the job's success, which comes later than two leases."""
    last = [w for rank in (2 - 2 * first, 3 - 2 * first) for w in (f"rank={rank}", "go")]
    agents = nodes(job, worker=(*FAMILY, *last))
    for rank in (2 * first, 2 * first + 1):
        await_end_of(job, rank=rank)
    assert not gone(agents[first].agent_pid(), 4)
    assert job.held("ab"[first])
    job.go()
    ends = [finish(agent) for agent in agents]
    assert [code for code, _ in ends] == [0, 0], ends
    assert sorted(pid for _, err in ends for pid in named(err, r"continues \(--leave")) == left(job) and len(left(job)) == 4


@pytest.mark.parametrize("first", [0, 1])
def test_another_node_that_fails_ends_what_was_detached(job, first):
    last = [w for rank in (2 - 2 * first, 3 - 2 * first) for w in (f"rank={rank}", "go", f"rank={rank}", "exit=3")]
    agents = nodes(job, worker=(*FAMILY, *last))
    for rank in (2 * first, 2 * first + 1):
        await_end_of(job, rank=rank)
    job.go()
    ends = [finish(agent) for agent in agents]
    assert [code for code, _ in ends] == [1, 1], ends
    assert left(job) == []


@pytest.mark.parametrize("first", [0, 1])
def test_a_restart_for_another_node_ends_what_was_detached_before(job, first):
    last = [w for rank in (2 - 2 * first, 3 - 2 * first) for w in (f"rank={rank}", "count=0", "go",
                                                                    f"rank={rank}", "count=0", "exit=3")]
    agents = nodes(job, "--max-restarts=2", worker=(*FAMILY, *last))
    for rank in (2 * first, 2 * first + 1):
        await_end_of(job, rank=rank, count=0)
    job.go()
    ends = [finish(agent) for agent in agents]
    assert [code for code, _ in ends] == [0, 0], ends
    assert {p.split(".")[1] for tag in "ab" for p in job.held(tag)} == {"2"}
    assert sorted(pid for _, err in ends for pid in named(err, r"continues \(--leave")) == left(job) and len(left(job)) == 4


def test_a_pid_namespace_can_leave_nothing(job):
    code, _, err = job.run(LEAVE, "--contain=pidns", "--no-python", job.worker, "start")
    assert code == 2 and "--leave=detached" in err and "--contain" in err, err


HELPER = """
import os, signal, socket, sys
kind, end, rank, count = *sys.argv[1:3], os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
go = os.path.join(os.path.dirname(os.path.abspath(__file__)), "go")
def event(what):
    os.write(1, f"{what} {rank} {count}\\n".encode())
def helper():
    def term(*_):
        event("term")
        open(go).close()
        event("saved")
        os._exit(0)
    signal.signal(signal.SIGTERM, term)
    if kind == "session":
        os.setsid()
    if kind == "gpu":
        import ctypes
        libc = ctypes.CDLL(None)
        assert libc.unshare(0x20000) == 0  # CLONE_NEWNS
        assert libc.mount(b"none", b"/", None, 0x44000, None) == 0  # MS_REC | MS_PRIVATE
        assert libc.mount(b"none", b"/dev", b"tmpfs", 0, None) == 0
        held = open("/dev/nvidia7", "w")
    if kind.isdigit():
        held = socket.create_server(("127.0.0.1", int(kind)))
    os.write(ready[1], b"r")
    while True:
        signal.pause()
if count == "0":
    ready = os.pipe()
    if os.fork() == 0:
        helper()
    os.read(ready[0], 1)
event("begin")
if count == "0":
    if end == "fail":
        open(os.path.join(os.path.dirname(go), "met"), "w" if rank == "0" else "r").close()
    if end == "one" or (end == "fail" and rank == "1"):
        sys.exit(5)
    if end != "ok":
        signal.pause()
"""


@pytest.fixture
def helpers(job):
    """Starts a job whose workers have helpers that need time after SIGTERM, until job.go()."""
    script = job.tmp / "helper.py"
    script.write_text(HELPER)
    os.mkfifo(job.tmp / "met")
    return lambda kind, end, *words: job.agent("a", "--nproc-per-node=2", "--shutdown-timeout=60", *words, script, kind, end)


def saw(agent, *lines):
    assert agent.out.until(lambda: all(f"{line}\n" in agent.output() for line in lines), 30), agent.output() + agent.said()


@pytest.mark.parametrize("end, status", [("ok", 0), ("fail", 1), ("term", 128 + signal.SIGTERM)])
@pytest.mark.parametrize("kind", ["group", "session"])
def test_helpers_of_workers_have_the_rest_of_the_grace(job, helpers, kind, end, status):
    agent = helpers(kind, end)
    saw(agent, "begin 0 0", "begin 1 0")
    if end == "term":
        agent.signal(signal.SIGTERM)
    saw(agent, "term 0 0", "term 1 0")
    assert agent.process.poll() is None
    job.go()
    code, err = finish(agent)
    assert code == status and "killed what had not ended" not in err, err
    saw(agent, "saved 0 0", "saved 1 0")
    assert agent.output().count("term ") == 2


def test_a_restart_does_not_wait_for_helpers(job, helpers):
    agent = helpers("session", "fail", "--max-restarts=1")
    saw(agent, "term 0 0", "term 1 0", "begin 0 1", "begin 1 1")
    assert "saved" not in agent.output()
    assert agent.process.poll() is None  # the second group has ended, and what the first one left has time
    job.go()
    code, err = finish(agent)
    assert code == 0, err
    saw(agent, "saved 0 0", "saved 1 0")


def test_leftovers_beside_a_running_group_are_not_reported(job):
    script = job.tmp / "stubborn.sh"
    script.write_text("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && echo begun && : < go && exit 0\n"
                      "(trap '' TERM; : > up; exec sleep 300) & while [ ! -e up ]; do :; done; exit 3\n")
    agent = job.agent("a", "--shutdown-timeout=4", "--max-restarts=1", "--no-python", "/bin/sh", script)
    saw(agent, "begun")
    agent.wait_said("killed what had not ended: process", 10)
    job.go()
    code, err = finish(agent)
    assert code == 0 and "which a worker left" not in err, err


def test_restarts_of_one_worker_do_not_wait_for_earlier_leftovers(job):
    """With standard error in a file, no log writer runs until the last group prints."""
    script = job.tmp / "stubborn.sh"
    script.write_text("[ $TORCHELASTIC_RESTART_COUNT = 3 ] && echo last && exit 0\n"
                      "(trap '' TERM; : > up; exec sleep 300) & while [ ! -e up ]; do :; done; exit 3\n")
    with open(job.tmp / "err", "w") as err:
        agent = job.agent("a", "--shutdown-timeout=300", "--max-restarts=3", "--crash-loop=0", "--no-python", "/bin/sh", script,
                          stderr=err)
        saw(agent, "last")


def port_of_the_job():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        first = int(f.read().split()[0])
    for port in random.sample(range(1024, first), 100):  # other tests do the same
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return str(port)


@pytest.mark.parametrize("kind", ["port", "gpu"])
def test_a_restart_waits_for_a_helper_that_holds_a_port_or_a_gpu(job, helpers, kind):
    if kind == "gpu" and not may_mount():
        pytest.skip("needs mount namespaces")
    agent = helpers("gpu" if kind == "gpu" else port_of_the_job(), "one", "--max-restarts=1", "--nproc-per-node=1")
    saw(agent, "term 0 0")
    agent.wait_said("waiting up to [0-9]+ s for process [0-9]+, .*, which a worker left; \\^C ends it")
    assert "begin 0 1" not in agent.output()
    job.go()
    assert finish(agent)[0] == 0
    saw(agent, "saved 0 0", "begin 0 1")


def test_a_second_interrupt_ends_the_time_of_helpers(job, helpers):
    agent = helpers("group", "term")
    saw(agent, "begin 0 0", "begin 1 0")
    agent.signal(signal.SIGINT)
    saw(agent, "term 0 0", "term 1 0")
    agent.signal(signal.SIGINT)
    code, err = finish(agent)
    assert code == 128 + signal.SIGINT and left(job) == [], err


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind, end, n", [("group", "fail", 2), ("port", "one", 1), ("port", "ok", 1)])
def test_a_late_signal_does_not_change_how_a_job_ended(job, helpers, signo, kind, end, n):
    """Only what workers left lives; a port of the job holds up the end of the group."""
    agent = helpers(port_of_the_job() if kind == "port" else kind, end, f"--nproc-per-node={n}")
    agent.wait_said("waiting up to [0-9]+ s for process")
    agent.signal(signo)
    if signo == signal.SIGTERM:
        agent.wait_said("got SIGTERM, but the job has ended: waiting for what workers left; \\^C kills it")
        job.go()
    code, err = finish(agent)
    assert code == (0 if end == "ok" else 1) and left(job) == [], err
    assert ("got SIGINT: killing what workers left" in err) == (signo == signal.SIGINT) == (len(killed(err)) == n), err


def test_a_late_signal_ends_nothing_that_is_detached(job):
    """The job has succeeded, and a helper with a port of the job holds up its end."""
    script = job.tmp / "both.py"
    script.write_text("import signal, socket, subprocess, sys\n"
                      "code = 'import signal, socket, sys; signal.signal(15, signal.SIG_IGN); s = socket.create_server((\"127.0.0.1\", int(sys.argv[1]))); print(1, flush=True); open(\"go\")'\n"
                      "subprocess.Popen([sys.executable, '-c', code, sys.argv[1]], stdout=subprocess.PIPE).stdout.readline()\n"
                      "subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n")
    agent = job.agent("a", LEAVE, "--shutdown-timeout=60", script, port_of_the_job())
    agent.wait_said("waiting up to [0-9]+ s for process")
    agent.signal(signal.SIGTERM)
    agent.wait_said("got SIGTERM, but the job has ended")
    job.go()
    code, err = finish(agent)
    assert code == 0 and len(left(job)) == 1, err


@pytest.mark.parametrize("end", ["deadline", "interrupt"])
def test_workers_that_are_killed_are_named(job, end):
    script = job.tmp / "stubborn.sh"
    script.write_text("trap '' TERM INT; echo $RANK; while :; do sleep 300; done\n")
    timeout = "--shutdown-timeout=" + ("1" if end == "deadline" else "300")
    agent = job.agent("a", timeout, "--nproc-per-node=2", "--no-python", "/bin/sh", script)
    saw(agent, "0", "1")
    agent.signal(signal.SIGTERM if end == "deadline" else signal.SIGINT)
    if end == "interrupt":
        agent.wait_said("got SIGINT: stopping 2 workers")
        agent.signal(signal.SIGINT)
    code, err = finish(agent)
    assert code in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert {"0", "1"} == set(re.findall(r"rank (\d), process \d+, /bin/sh \S*stubborn.sh", err)), err


def test_the_helper_that_is_waited_for_is_named_and_not_its_child(job):
    script = job.tmp / "busy.sh"
    script.write_text("sh -c 'trap \"\" TERM; : > up; while [ ! -e end ]; do sleep 0.05; done' busy & while [ ! -e up ]; do :; done\n")
    agent = job.agent("a", "--shutdown-timeout=60", "--no-python", "/bin/sh", script)
    agent.wait_said("waiting up to [0-9]+ s for process [0-9]+, sh -c .* busy, which a worker left")
    (job.tmp / "end").touch()
    assert finish(agent)[0] == 0


LOADER = """
import os, signal
from_child, to_worker = os.pipe()
def term(*_):
    os.write(to_worker, b"T")
    os._exit(0)
signal.signal(signal.SIGTERM, term)
signal.signal(signal.SIGWINCH, lambda *_: os.write(to_worker, b"W"))  # handled after SIGTERM
pid = os.fork()
def save(*_):
    os.kill(pid, signal.SIGWINCH)
    print("saved" if os.read(from_child, 1) == b"W" else "the data loader has got SIGTERM", flush=True)
    os._exit(0)
if pid:
    signal.signal(signal.SIGTERM, save)
    print("ready", flush=True)
while True:
    signal.pause()
"""


def test_a_worker_saves_with_its_data_loader(job):
    script = job.tmp / "loader.py"
    script.write_text(LOADER)
    agent = job.agent("a", script)
    saw(agent, "ready")
    agent.signal(signal.SIGTERM)
    assert finish(agent)[0] == 128 + signal.SIGTERM
    assert agent.output() == "ready\nsaved\n"


@pytest.mark.parametrize("last", ["", "\nexec true"])
def test_an_upload_that_has_not_reached_its_session_yet_lives_on(job, last):
    line = f"setsid sleep 600 < /dev/null > /dev/null 2>&1 &{last}"
    for n in range(2 * KILLS):
        code, err = finish(job.agent("a", LEAVE, "--no-python", "/bin/sh", "-c", line))
        assert code == 0 and len(left(job)) == n + 1, err
