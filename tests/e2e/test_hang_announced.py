"""Workers that announce their steps: how long a job may be quiet is what they say, not --hang-still.

The workers pass a token around in a ring of FIFOs, and tell each round as a step, with the function of examples/heartbeat.
"""
import json
import re

import pytest
from harness import SLOWER, free_port
from test_examples import EXAMPLES

# Arguments: the folder of heartbeat.py, one for the FIFOs, what rank 2 does in round 6 of the first group, and for how long rank 1 is slow in
# round 3. Later groups end after three rounds.
RING = """
import os, select, sys, time
sys.path.insert(0, sys.argv[1])
from heartbeat import notify
def idle(seconds):
    select.select([], [], [], seconds)
folder, what, slow = sys.argv[2], sys.argv[3], float(sys.argv[4])
rank, size, group = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MUSTER_GENERATION"]
mine, following = (f"{folder}/{group}.{r}" for r in (rank, (rank + 1) % size))
os.mkfifo(mine)
while not os.path.exists(following):
    idle(0.05)
token, on = os.open(mine, os.O_RDWR), os.open(following, os.O_RDWR)
if rank == size - 2:  # which is then the last in each round
    os.write(on, b"x")
first = group == "1.1"
for step in range(1, 9 if first else 4):
    os.read(token, 1)
    end = time.process_time() + 0.01
    while time.process_time() < end:
        pass
    idle(slow if first and rank == 1 and step == 3 else 0.05)
    if first and rank == 2 and step == 6 and what != "nothing":
        if what == "checkpoint":
            notify("WATCHDOG_USEC=3600000000")
        print("here it waits", flush=True)
        while not os.path.exists(f"{folder}/go"):
            idle(0.2)
        if what == "checkpoint":
            notify("WATCHDOG_USEC=0")
    notify(f"MUSTER_STEP={step}")
    if first:
        print("told step", step, "at", time.monotonic_ns(), flush=True)
    if rank != size - 2 or step != (8 if first else 3):
        os.write(on, b"x")
"""
# A limit of the least is 10 s: what has not been said by then will not be.
LATE = 14


class Ring:
    def __init__(self, job, what, *options, slow=0.05):
        self.folder, self.log = job.tmp / "ring", job.tmp / "timeline"
        self.folder.mkdir()
        script = job.tmp / "ring.py"
        script.write_text(RING)
        endpoint = f"127.0.0.1:{free_port()}"
        self.agents = [job.agent(tag, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=e2e",
                                 f"--rdzv-endpoint={endpoint}", f"--event-log={self.log}",
                                 f"--log-dir={job.tmp}/logs", *options, script,
                                 EXAMPLES / "heartbeat", self.folder, what, slow)
                       for tag in ("a", "b")]

    def hangs(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["event"] == "hang"]

    def said(self):
        return "\n".join(a.said() for a in self.agents)

    def says(self, pattern, seconds, stream="err"):
        """Whether this comes within this time."""
        heard = [getattr(agent, stream) for agent in self.agents]

        def found():
            return re.search(pattern, "\n".join(h.text() for h in heard), re.S)
        left = seconds
        while not found() and left > 0:
            for h in heard:
                h.until(found, 0.2)
            left -= 0.2 * len(heard)
        return found()

    def finish(self):
        return [a.finish(120)[0] for a in self.agents]


# Three times 7 s is more than 12 s also if an agent hears of a step 3 s late.
@pytest.mark.parametrize("slow, least", [(0.05, 10), pytest.param(7, 12, marks=pytest.mark.slow)])
def test_a_rank_that_takes_three_times_the_longest_step_is_named(job, slow, least):
    ring = Ring(job, "hang", "--max-restarts=1", slow=slow)
    assert ring.finish() == [0, 0], ring.said()
    [hang] = ring.hangs()
    assert "announced" in hang["cause"] and "rank 2" in hang["cause"], hang
    last = max(int(at) for a in ring.agents for at in re.findall(r"told step 6 at (\d+)", a.out.text()))
    assert int(hang["monotonic_ns"]) - last >= least * 1e9, (hang, last)


@pytest.mark.slow
def test_a_longer_deadline_for_a_checkpoint_is_kept(job):
    ring = Ring(job, "checkpoint", "--max-restarts=1", "--hang-report=5")
    assert ring.says("here it waits", 60 * SLOWER, "out"), ring.said()
    assert ring.says("the job is quiet", 60 * SLOWER), ring.said()
    assert not ring.says("the job hangs", LATE), ring.said()
    (ring.folder / "go").touch()
    assert ring.finish() == [0, 0], ring.said()
    assert not ring.hangs(), ring.said()
