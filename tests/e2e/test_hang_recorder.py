"""What PyTorch's flight recorder tells of a job that hangs: real gloo jobs, whose workers are asked by their own server.
"""
import datetime
import json
import pathlib
import re

import pytest

from harness import HERE, TORCH_PYTHON, free_port

pytestmark = pytest.mark.torch

ENDED = 15  # collectives of all ranks before one of them does something else
REPORT = r"the job is quiet: ([^\n]*)\n[^\n]*what each rank did is in (\S+/hang)\.txt"


class Recorded:
    """A job of two nodes with two ranks each that hangs, and the report about that."""

    def __init__(self, job, odd, how, server, timeout=60):
        endpoint = f"127.0.0.1:{free_port()}"
        env = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
        self.agents = [
            job.agent(tag, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=e2e",
                      f"--rdzv-endpoint={endpoint}", f"--rdzv-conf=is_host={int(tag == 'a')}", "--hang-report=4",
                      "--hang-timeout=0", "--hang-still=0", f"--evidence-timeout={timeout}", "--log-dir", job.tmp / "logs",
                      HERE / "torch_recorder.py", odd, how, server, env=env) for tag in "ab"]
        waits = job.events.wait("waits", 4, 180)
        self.since = max(float(e.fields["wall"]) for e in waits)
        found = self.agents[0].err.until(self.find, 180)
        assert found, self.agents[0].said()
        self.line, self.text, self.doc = found
        evidence = [node["evidence"] for node in self.doc["nodes"]]
        self.workers = {w["rank"]: w for e in evidence for w in e["workers"]}
        self.gaps = [gap for e in evidence for gap in e["gaps"]]

    def find(self):
        """The start of the job can be quiet, too."""
        for line, path in re.findall(REPORT, self.agents[0].err.text()):
            doc = json.loads(pathlib.Path(f"{path}.json").read_text())
            if datetime.datetime.fromisoformat(doc["time"].replace("Z", "+00:00")).timestamp() >= self.since:
                return line, pathlib.Path(f"{path}.txt").read_text(), doc
        return None

    def suspects(self):
        return [(s["rank"], s["reason"]) for s in self.doc["suspects"]]

    def suspect(self, rank):
        """What is told of it in hang.txt."""
        return re.search(rf"\nsuspect: rank {rank} (?:.+\n)+", self.text)[0]

    def waits_in(self, rank):
        """The oldest collective of this rank that has not ended."""
        return self.workers[rank]["recorder"].splitlines()[0]


def collective(what, number, group="default_pg"):
    return rf"open: gloo:{what}, number {number} of {group}, Float \[7,3\], scheduled \d+ s ago"


def test_a_rank_in_another_group_is_named_though_all_are_at_the_same_line(job):
    """By their stacks nobody stands out."""
    seen = Recorded(job, "2", "pair", "main")
    behind = rf"rank 2 \(node \S+, pid \d+\): at collective {ENDED}, others at {ENDED + 1}: "
    assert re.search(rf"ranks 0-1,3 wait in all_reduce from step .*; {behind}", seen.line), seen.line
    assert seen.suspects() == [(2, "collectives")], seen.doc["suspects"]
    assert {rank: w["collectives"] for rank, w in seen.workers.items()} == {0: ENDED + 1, 1: ENDED + 1, 2: ENDED, 3: ENDED + 1}
    for rank in (0, 1, 3):
        assert re.fullmatch(collective("all_reduce", ENDED + 1), seen.waits_in(rank)), seen.waits_in(rank)
    assert re.fullmatch(collective("all_reduce", 1, r"(?!default_pg).+"), seen.waits_in(2)), seen.waits_in(2)
    assert f"default_pg: {ENDED} enqueued, {ENDED} completed" in seen.workers[2]["recorder"]
    assert "  flight recorder:\n    open: gloo:all_reduce, number 1 of " in seen.suspect(2), seen.text


def test_a_rank_that_has_changed_its_title_tells_its_collectives(job):
    seen = Recorded(job, "2", "pair", "title")
    assert seen.suspects() == [(2, "collectives")], seen.doc["suspects"]
    assert f"default_pg: {ENDED} enqueued, {ENDED} completed" in seen.workers[2]["recorder"], seen.workers[2]


def test_half_of_the_ranks_that_leave_out_a_collective_are_named(job):
    """Two against two: there is no majority."""
    seen = Recorded(job, "2,3", "sleep", "main")
    for rank in (2, 3):
        behind = rf"rank {rank} \(node \S+, pid \d+\): at collective {ENDED}, others at {ENDED + 1}: "
        assert re.search(behind, seen.line), seen.line
        assert "open: " not in seen.workers[rank]["recorder"], "it waits for no collective"
    assert seen.suspects() == [(2, "collectives"), (3, "collectives")], seen.doc["suspects"]


def test_another_collective_is_told(job):
    """All have as many: it is the stack that names the rank."""
    seen = Recorded(job, "2", "broadcast", "main")
    assert re.search(r"ranks 0-1,3 wait in all_reduce from step .*; rank 2 \(node \S+, pid \d+\): ", seen.line), seen.line
    assert seen.suspects() == [(2, "elsewhere")], seen.doc["suspects"]
    assert re.fullmatch(collective("broadcast", ENDED + 1), seen.waits_in(2)), seen.waits_in(2)
    for rank in (0, 1, 3):
        assert re.fullmatch(collective("all_reduce", ENDED + 1), seen.waits_in(rank)), seen.waits_in(rank)
    assert "  flight recorder:\n    open: gloo:broadcast, " in seen.suspect(2), seen.text


def test_a_program_without_a_server_has_a_gap_that_says_so(job):
    seen = Recorded(job, "2", "sleep", "none")
    assert re.search(r"rank 2 \(node \S+, pid \d+\): ", seen.line), seen.line
    gap = "flight recorder: 2 workers have no server for it: the program does not use worker_main() of " \
          "torch.distributed.elastic.control_plane"
    assert seen.gaps.count(gap) == 2 and seen.text.count(f"missing: {gap}\n") == 2, seen.text
    assert not any("recorder" in w for w in seen.workers.values())


def test_a_server_that_answers_a_byte_a_second_costs_its_own_time_only(job):
    """The rank on its node that is asked after it, and the other node, tell everything."""
    seen = Recorded(job, "2", "sleep", "slow", timeout=20)
    assert job.events.all("asked", rank=2), "it was asked"
    assert re.search(r"ranks 0-1,3 wait in all_reduce from step .*; rank 2 \(node \S+, pid \d+\): ", seen.line), seen.line
    [gap] = [gap for gap in seen.workers[2]["gaps"] if gap.startswith("flight recorder: ")]
    assert "did not answer in time" in gap and "collectives" not in seen.workers[2], seen.workers[2]
    for rank in (0, 1, 3):
        assert seen.workers[rank]["collectives"] == ENDED + 1, seen.workers[rank]
