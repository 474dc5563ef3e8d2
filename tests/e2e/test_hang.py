"""Jobs that hang: the rank that the others wait for is named, and the job starts again.

The workers are shells that pass a token around in a ring of FIFOs, as ranks wait for each other in a collective. In
between they compute: less than a millisecond in a second is no sign of life.
"""
import contextlib
import ctypes
import json
import os
import re
import signal
import time

import pytest

from harness import SLOWER, free_port, kill
from test_operate import ask, status

# Arguments: a folder for the FIFOs, what happens, the ranks to whom it happens, and in which round of the token, in the
# first group. Later groups end after five rounds, and so does the first one when the file "end" is there.
RING = r"""
in=$1/$MUSTER_GENERATION.$RANK
next=$1/$MUSTER_GENERATION.$(( (RANK + 1) % WORLD_SIZE ))
mkfifo "$in"
exec 3<> "$in"
while [ ! -p "$next" ]; do sleep 0.05; done
if [ "$RANK" = 0 ]; then echo 0 > "$next" & fi
while read -r n <&3; do
    if [ "$RANK" = 0 ] && [ "$n" != end ]; then
        n=$((n + 1))
        if [ -e "$1/end" ] || { [ "$MUSTER_GENERATION" != 1.1 ] && [ "$n" -gt 5 ]; }; then n=end; fi
    fi
    if [ "$MUSTER_GENERATION" = 1.1 ] && [ "$n" = "$4" ]; then
        echo "pid of $RANK: $$."
        case " $3 " in *" $RANK "*)
            case $2 in
                stop) kill -STOP $$;;
                sleep) sleep 1000;;
            esac;;
        esac
    fi
    if [ "$n" = end ]; then
        if [ "$RANK" != $((WORLD_SIZE - 1)) ]; then echo end > "$next"; fi
        exit 0
    fi
    if [ "$2" = pause ] && [ "$RANK" = 1 ] && [ $((n % 10)) = 0 ]; then sleep 5; fi
    i=0
    while [ "$i" -lt 5000 ]; do i=$((i + 1)); done
    sleep 0.05
    echo "$n" > "$next"
done
"""
PTRACE_ATTACH, PTRACE_DETACH = 16, 17  # ptrace(2)
# The limit for a stopped rank is 10 s: what has not been said by then will not be.
LATE = 14


def kill_children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as children:
        for child in children.read().split():
            kill(int(child), signal.SIGKILL)


class Ring:
    def __init__(self, job, *options, what="nothing", ranks=(), turn=3):
        self.folder, self.log = job.tmp / "ring", job.tmp / "timeline"
        self.folder.mkdir()
        script = job.tmp / "ring.sh"
        script.write_text(RING)
        endpoint = f"127.0.0.1:{free_port()}"
        self.agents = [job.agent(tag, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=e2e",
                                 f"--rdzv-endpoint={endpoint}", f"--event-log={self.log}", f"--log-dir={job.tmp}/logs",
                                 *options, "--no-python",
                                 "/bin/sh", script, self.folder, what, " ".join(map(str, ranks)), turn)
                       for tag in ("a", "b")]

    def timeline(self, event):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    def said(self):
        return "\n".join(a.said() for a in self.agents)

    def find(self, pattern, stream, seconds):
        """The first match of this pattern in what any agent writes, within this time; None: there is none."""
        heard = [getattr(agent, stream) for agent in self.agents]

        def found():
            return re.search(pattern, "\n".join(h.text() for h in heard), re.S)
        end = time.monotonic() + seconds
        while not found() and time.monotonic() < end:
            for h in heard:
                h.until(found, min(0.2, max(0.0, end - time.monotonic())))
        return found()

    def says(self, pattern, seconds):
        return self.find(pattern, "err", seconds)

    def pid(self, rank):
        match = self.find(rf"pid of {rank}: (\d+)\.", "out", 60 * SLOWER)
        assert match, f"rank {rank} did not come so far: {self.said()}"
        return int(match[1])

    def end(self):
        (self.folder / "end").touch()

    def finish(self, seconds=90):
        return [a.finish(seconds)[0] for a in self.agents]


def test_a_stopped_rank_is_named_and_the_job_starts_again(job):
    ring = Ring(job, "--max-restarts=1", what="stop", ranks=[2])
    assert ring.finish() == [0, 0], ring.said()
    [hang] = ring.timeline("hang")
    assert "rank 2" in hang["cause"], hang
    assert (hang["rank"], hang["local_rank"], hang["restarts_used"]) == (2, 0, 0) and hang["pid"] == ring.pid(2), hang
    assert os.path.isfile(f"{hang['evidence']}/hang.json"), hang
    assert re.search(r"the job hangs: .*rank 2 .*restart 1 of 1", ring.said()), ring.said()
    assert int(hang["monotonic_ns"]) - int(ring.timeline("started")[0]["monotonic_ns"]) >= 10e9, "it may be for 10 s"


def test_a_hang_ends_a_job_without_restarts_if_that_is_wanted(job):
    ring = Ring(job, "--hang-action=restart", what="stop", ranks=[1])
    assert ring.finish() == [1, 1], ring.said()
    assert re.search(r"the job hangs: .*rank 1 .*no restarts \(--max-restarts=0\)", ring.said()), ring.said()


def test_a_hang_counts_against_the_node_of_the_suspect(job):
    ring = Ring(job, "--nnodes=1:2", "--max-restarts=3", "--exclude-after=1", what="stop", ranks=[0, 1])
    excluded = ring.says(r"rank 0 \(node (.*?)\).*excluded", 90 * SLOWER)
    assert excluded, ring.said()
    assert 0 in ring.finish(), ring.said()
    assert len(ring.timeline("hang")) == 1, ring.said()


def test_with_few_open_files_a_hang_is_noticed_or_it_is_said_that_it_may_not_be(job):
    """How many files an agent has open at the start differs, so the lowest limit that lets the workers start is looked for."""
    script = job.tmp / "ring.sh"
    script.write_text(RING)
    for limit in range(40, 72, 4):
        folder = job.tmp / f"ring-{limit}"
        folder.mkdir()
        few = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh"]
        agent = job.agent(f"a{limit}", "--standalone", "--nproc-per-node=4", "--max-restarts=1", f"--log-dir={job.tmp}/logs",
                          "--no-python", "/bin/sh", script, folder, "stop", "2", 3, prefix=few)
        outcomes = rf"the job hangs: rank 2 is stopped|open files [(]{limit}[)] is too low to watch the workers"
        if agent.err.until(lambda: re.search(outcomes, agent.err.text()), 60 * SLOWER):
            break
        assert agent.finish()[0] == 1 and "Too many open files" in agent.err.text(), agent.said()
        assert "raise it with ulimit -n" in agent.err.text(), agent.said()
    else:
        pytest.fail(f"no limit lets the workers start: {agent.said()}")
    assert "is busy" not in agent.err.text(), agent.said()
    agent.signal(signal.SIGTERM)
    agent.wait()


def test_it_is_only_reported_where_there_is_no_restart(job):
    ring = Ring(job, what="stop", ranks=[3])
    assert ring.says(r'the job hangs: .*rank 3.*; nothing is stopped, as there are no restarts \(--max-restarts=0\); "muster stop" ends the job\n', 60 * SLOWER), ring.said()
    seen = status(job)
    assert seen["watchdog"] == "hung" and seen["quiet_seconds"] >= 10 and "rank 3" in seen["quiet_text"], seen
    assert seen["state"] == "running", seen
    code, out, err = ask(job, "status")
    assert code == 0 and re.search(r"^  watchdog   hung, quiet for .*stopped", out, re.M), (out, err)
    pids = [a.agent_pid() for a in ring.agents]  # root also sees jobs of other tests
    seen = {a["pid"]: a["watchdog"] for a in json.loads(ask(job, "ps", "--json")[1])["agents"]}
    assert [seen.get(pid) for pid in pids] == ["hung"] * 2, seen
    assert re.search(r"^e2e +hung ", ask(job, "ps")[1], re.M)
    os.kill(ring.pid(3), signal.SIGCONT)
    assert ring.says("the job continues: ", 60 * SLOWER), ring.said()
    seen = status(job)
    assert re.search(r"^the job hangs: .*rank 3", seen["incident"]) and seen["restart_seconds"] is None, seen
    ring.end()
    assert ring.finish() == [0, 0], ring.said()
    [hang], [resumed] = ring.timeline("hang"), ring.timeline("resumed")
    assert hang["rank"] == 3 and os.path.isfile(f"{hang['evidence']}/hang.txt"), hang
    assert "rank 3" in hang["cause"] and resumed["quiet_ms"] >= 10e3, (hang, resumed)
    assert len(ring.timeline("started")) == 1, "nobody was stopped for it"


def test_operators_see_a_quiet_job_and_that_it_goes_on(job):
    ring = Ring(job, "--hang-report=5", "--hang-still=0", "--hang-timeout=0", what="sleep", ranks=[2], turn=20)
    assert ring.says("the job is quiet: .*rank 2", 60 * SLOWER), ring.said()
    seen = status(job)
    assert seen["watchdog"] == "quiet" and seen["quiet_seconds"] >= 5 and "rank 2" in seen["quiet_text"], seen
    assert seen["quiet_limit_seconds"] is None, seen
    assert re.search(r"^  watchdog   quiet for [^(]*: most workers", ask(job, "status")[1], re.M)
    assert re.search(r"^e2e +quiet ", ask(job, "ps")[1], re.M)
    [quiet] = ring.timeline("quiet")
    assert "rank 2" in quiet["cause"] and quiet["quiet_ms"] >= 5e3, quiet
    kill_children(ring.pid(2))  # its sleep ends
    assert ring.says("the job continues: ", 60 * SLOWER), ring.said()
    ring.end()
    assert ring.finish() == [0, 0], ring.said()
    assert ring.timeline("resumed"), ring.said()


# Both are seen to move for some seconds; then one of them exits, and the other one waits for it.
LEAVES = r"""
if [ "$MUSTER_GENERATION" = 1.1 ]; then
    n=0
    while [ "$n" -lt 30 ]; do
        n=$((n + 1)) i=0
        while [ "$i" -lt 5000 ]; do i=$((i + 1)); done
        sleep 0.1
    done
    if [ "$RANK" = 0 ]; then sleep 1000; fi
fi
"""


def test_a_rank_that_does_not_end_while_another_has_is_named(job):
    script = job.tmp / "leaves.sh"
    script.write_text(LEAVES)
    endpoint, log = f"127.0.0.1:{free_port()}", job.tmp / "timeline"
    agents = [job.agent(tag, "--nnodes=2", "--nproc-per-node=1", "--max-restarts=1", "--hang-action=restart", "--hang-still=5", "--hang-timeout=0",
                        "--rdzv-backend=c10d", "--rdzv-id=e2e", f"--rdzv-endpoint={endpoint}", f"--event-log={log}",
                        "--no-python", "/bin/sh", script) for tag in ("a", "b")]
    codes = [a.finish(120)[0] for a in agents]
    said = "\n".join(a.said() for a in agents)
    assert codes == [0, 0], said
    assert re.search(r"the job hangs: .*--hang-still.*rank 0 .*still runs.*restart 1 of 1", said), said


# Before the workers were seen to move, --hang-still does not count; 20 rounds take more than 4 s.
def test_all_asleep_are_started_again_after_hang_still(job):
    ring = Ring(job, "--max-restarts=1", "--hang-action=restart", "--hang-still=5", "--hang-report=2", what="sleep", ranks=[1], turn=20)
    assert ring.finish() == [0, 0], ring.said()
    [hang] = ring.timeline("hang")
    assert "--hang-still" in hang["cause"], hang
    assert int(hang["monotonic_ns"]) - int(ring.timeline("started")[0]["monotonic_ns"]) >= 5e9
    assert re.search("the job is quiet: ", ring.said()), ring.said()


@pytest.mark.slow
def test_waits_are_not_added_up(job):
    """Four waits of 5 s, and between them the job works: none of them is a hang."""
    ring = Ring(job, "--max-restarts=1", "--hang-still=15", "--hang-report=12", what="pause", ranks=[1], turn=41)
    ring.pid(1)
    ring.end()
    assert ring.finish() == [0, 0], ring.said()
    assert not ring.timeline("hang") and not re.search("the job is quiet", ring.said()), ring.said()


def test_somebody_who_stops_the_whole_job_is_left_alone(job):
    ring = Ring(job, "--max-restarts=1", "--hang-still=2", "--hang-timeout=8")
    pids = [ring.pid(rank) for rank in range(4)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    assert not ring.says("the job hangs", LATE), ring.said()
    ring.end()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert ring.finish() == [0, 0], ring.said()


@contextlib.contextmanager
def traced(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(PTRACE_ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    try:
        os.waitpid(pid, 0)
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, pid, None, None)


def test_a_debugger_is_left_alone(job):
    ring = Ring(job, "--max-restarts=1", "--hang-still=2", "--hang-timeout=8")
    with traced(ring.pid(1)):
        assert not ring.says("the job hangs", LATE), ring.said()
        ring.end()
    assert ring.finish() == [0, 0], ring.said()


ASKS = r"""
i=0
while [ "$i" -lt 100000 ]; do i=$((i + 1)); done
if [ "$RANK" = 1 ]; then
    read -r line
    echo "typed: $line"
    echo > "$1"
else
    read -r line < "$1"
fi
"""


def test_a_rank_that_waits_for_somebody_to_type_is_left_alone(job):
    """As at a debugger's prompt. It is said once, as the prompt may be where nobody sees it."""
    script, fifo = job.tmp / "asks.sh", job.tmp / "fifo"
    script.write_text(ASKS)
    os.mkfifo(fifo)
    keyboard, terminal = os.openpty()
    agent = job.agent("a", "--nproc-per-node=2", "--max-restarts=1", "--hang-action=restart", "--hang-still=0", "--hang-timeout=15", "--hang-report=18",
                      "--no-python", "/bin/sh", script, fifo, stdin=terminal)
    try:
        agent.wait_said(r"the job is quiet: rank 1 waits for input, as at a debugger's prompt.*rank 1 \(node .*read\(\)", 90 * SLOWER)
        os.write(keyboard, b"go on\n")
        status, out, said = agent.finish(60)
        assert (status, "typed: go on" in out) == (0, True), out + said
        assert "the job hangs" not in said and said.count("waits for input, as at a debugger") == 1, said
    finally:
        os.close(keyboard)
        os.close(terminal)


@pytest.mark.parametrize("options, words", [
    (["--local-ranks-filter=0"], "--local-ranks-filter hides its prompt; add its local rank to the filter"),
    (["--log-dir=logs", "--redirects=1:1"], "--redirects hides its prompt; use --tee instead"),
], ids=["filter", "redirects"])
def test_a_prompt_that_an_option_hides_is_explained(job, options, words):
    script, fifo = job.tmp / "asks.sh", job.tmp / "fifo"
    script.write_text(ASKS)
    os.mkfifo(fifo)
    keyboard, terminal = os.openpty()
    agent = job.agent("a", "--nproc-per-node=2", *options, "--no-python", "/bin/sh", script, fifo, stdin=terminal)
    try:
        agent.wait_said(f"warning: rank 1 waits for input, but {words}", 60 * SLOWER)
        os.write(keyboard, b"go on\n")
        status, _, said = agent.finish(60)
        assert (status, said.count("hides its prompt")) == (0, 1), said
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_workers_whose_output_nobody_reads_are_left_alone(job):
    """As with a pager that nobody scrolls, once there is no room for more: they wait for it, and not for each other."""
    reader, pipe = os.pipe()
    agent = job.agent("a", "--nproc-per-node=2", "--max-restarts=1", "--hang-action=restart", "--hang-still=2", "--hang-timeout=6", "--hang-report=8",
                      "--output-spool=0", "--no-python", "/bin/sh", "-c",
                      'seq -f "$RANK %.0f of the lines that a worker writes" 400000', stdout=pipe)
    os.close(pipe)
    agent.wait_said("the job is quiet: rank 0 and 1 more wait until the output of the job is read", 90 * SLOWER)
    with os.fdopen(reader) as out:
        lines = out.read().count("\n")
    status, _, said = agent.finish(60)
    assert (status, lines) == (0, 800000) and "the job hangs" not in said, said


def test_nothing_is_watched_with_off(job):
    ring = Ring(job, "--max-restarts=1", "--hang-action=off", what="stop", ranks=[0])
    pid = ring.pid(0)
    assert not ring.says("the job (hangs|is quiet)", LATE), ring.said()
    ring.end()
    os.kill(pid, signal.SIGCONT)
    assert ring.finish() == [0, 0], ring.said()
