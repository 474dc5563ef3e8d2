#!/usr/bin/python3
"""Eight ordinary failures under torchrun and under muster, side by side: a table of docs/from-torchrun.md.

    failures.py                prints the table
    failures.py --check PAGE   fails if the page has another one: times and numbers of lines may differ
    failures.py --write PAGE   puts it there

Needs MUSTER and MUSTER_TEST_PYTHON as the end-to-end tests do. Of each output the line that first names the cause and the
last line are shown. Both have OMP_NUM_THREADS=1; without it torchrun begins with a warning of four lines.
"""
import pathlib
import re
import socket
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import harness  # noqa: E402
import like  # noqa: E402
import page_section  # noqa: E402

LAUNCHERS = ("torchrun", "muster")
QUIET_S = 40  # muster reports a hang after 30 s

IN_RANK_1 = 'import os, signal, sys\nif os.environ["RANK"] == "1":\n    {}\nsignal.pause()\n'
HANGS = """\
import os, signal
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    print("start", file=open(os.environ["E2E_EVENTS"], "w"), flush=True)
    signal.pause()
dist.barrier()
"""
FAILURES = [  # what fails, the script, what names the cause
    ("a syntax error", 'import os\nprint("start"\n', "SyntaxError: "),
    ("an exception in rank 1", IN_RANK_1.format('raise ValueError("loss is nan")'), "ValueError: "),
    ("a missing module", "import flash_attn\n", "ModuleNotFoundError: "),
    ("SIGKILL to rank 1 (out of memory)", IN_RANK_1.format("os.kill(os.getpid(), signal.SIGKILL)"), "SIGKILL"),
    ("`sys.exit(3)` in rank 1", IN_RANK_1.format("sys.exit(3)"), r"(exit ?code|status)\W*3\b"),
    ("a wrong path", None, "[Nn]o such file"),
    ("the port is in use", "", "(address|port) already in use|another program"),
    ("rank 1 hangs, rank 0 waits for it", HANGS, None),
]


def plain(text, job):
    """Without what is different in every run."""
    text = like.Names(job).plain(text).replace("<folder>/", "").replace("<folder>", "/home/me").replace("<host>", "node1")
    text = re.sub(r"\S*/(?=hang\.txt)", "DIR/", re.sub(r"(/\S*/)?\bpython(3(\.\d+)?)?\b", "python3", text))
    text = re.sub(r"^([WEI])\d{4} [\d:.]+ \d+ \S+\] ", r"\1... ", text)
    text = re.sub(r"\b(pid:?) \d+", r"\1 N", text, flags=re.I)
    return re.sub(r"  +", " ", re.sub(r"after \d+ ms", "after N ms", text).strip())


def lines_of(agent, job):
    """Its lines on the terminal, without empty ones and rules."""
    with agent.err.changed:
        return [plain(line, job) for line in agent.err.lines if line.strip(" =-*")]


def start(launcher, folder, script, options=()):
    job = harness.Job(folder / launcher)
    if script is not None:
        (job.tmp / "train.py").write_text(script)
    env = like.environment(job, {"OMP_NUM_THREADS": "1"})
    return job, job.agent("a", "--nproc-per-node=2", *options, "train.py", env=env, program=like.program(launcher))


def cell(launcher, folder, script, cause, options):
    began = time.monotonic()
    job, agent = start(launcher, folder, script, options)
    with job:
        status = agent.finish(90)[0]
        seconds = time.monotonic() - began
        lines = lines_of(agent, job)
        at = next((n for n, line in enumerate(lines) if re.search(cause, line)), None)
        assert at is not None, f"{launcher}: no {cause!r} in {lines}"
    shown = [f"line {at + 1}: `{lines[at]}`"] if lines[at] != lines[-1] else []
    count = f"{len(lines)} lines" if len(lines) > 1 else "1 line"
    return "<br>".join([f"status {status}, {seconds:.{1 if seconds > 1 else 2}f} s, {count}", *shown, f"last: `{lines[-1]}`"])


def rows(folder):
    """The two jobs of the last row hang while the others run."""
    *others, (name, script, _) = FAILURES
    hanging = [start(launcher, folder / "hang", script) for launcher in LAUNCHERS]
    try:
        for job, _ in hanging:
            job.events.wait("start", 1, 60)
        began = time.monotonic()
        with socket.create_server(("127.0.0.1", harness.free_port())) as other:
            port = str(other.getsockname()[1])
            for n, (what, text, cause) in enumerate(others):
                options = [f"--master-port={port}"] if "port" in what else []
                cells = [cell(launcher, folder / str(n), text, cause, options) for launcher in LAUNCHERS]
                yield f"| {what} | {' | '.join(cells)} |".replace(port, "29500")
        hanging[1][1].wait_said("what each rank did is in", 90)
        hanging[0][1].wait(max(0, QUIET_S - (time.monotonic() - began)) / harness.SLOWER)
        assert all(agent.process.poll() is None for _, agent in hanging), [agent.said() for _, agent in hanging]
        theirs, ours = (lines_of(agent, job) for job, agent in hanging)
        assert not theirs, theirs
        yield f"| {name} | still running after {QUIET_S} s, no line | after 30 s:<br>" + "<br>".join(f"`{line}`" for line in ours) + " |"
    finally:
        for job, _ in hanging:
            job.close()


def table():
    with tempfile.TemporaryDirectory() as folder:
        return "\n".join(["| | torchrun 2.13 | muster |", "| --- | --- | --- |", *rows(pathlib.Path(folder).resolve())]) + "\n"


def stable(text):
    """What must be equal in each run: any rank may be the first that finds no module."""
    text = re.sub(r"[\d.]+ s, \d+ lines?", "", re.sub(r"line \d+: ", "", text))
    return re.sub(r"for \d+ s", "for N s", re.sub(r"(rank|local)(\W+)\d", r"\1\2N", text)).splitlines()


if __name__ == "__main__":
    assert harness.MUSTER and harness.TORCH_PYTHON, "MUSTER and MUSTER_TEST_PYTHON must be set"
    page_section.run(sys.argv[1:], "failures", "failures.py", table, stable)
