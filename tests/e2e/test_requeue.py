"""Back into Slurm's queue: jobs that are preempted, lose hosts or reach their time limit, with --requeue. On emulated hosts
with a real Slurm (slurm.py), whose slurmd signals every process of a job or only its own child (test_slurm.py)."""
import os
import pathlib
import re
import shlex
import shutil
import time

import pytest

from harness import TORCH_PYTHON, deadline, kill
from slurm import pause, slurm_or_skip
from test_slurm import QUICK, RUN, Here

# Counts to E2E_STEPS, slowly (not to the end in a first run with E2E_ENDLESS), and saves at SIGTERM; then it tells a safe point, unless E2E_SAFE is 0. Each signal is told.
TRAINS = r"""
import os, pathlib, signal, socket, sys
saved = pathlib.Path(os.environ["E2E_RECORD"] + ".step")
events = os.open(os.environ["E2E_EVENTS"], os.O_WRONLY)
rank, step, steps = os.environ["RANK"], int(saved.read_text()) if saved.exists() else 0, int(os.environ["E2E_STEPS"])
signos = {signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, signos)
def tell(what):
    os.write(events, ("%s rank=%s run=%s\n" % (what, rank, os.environ.get("SLURM_RESTART_COUNT", "0"))).encode())
def program(pid):
    try:
        return pathlib.Path("/proc/%d/comm" % pid).read_text().strip()
    except OSError:
        return "gone"
def save():
    if rank != "0":
        return
    saved.write_text(str(step))
    if os.environ["E2E_SAFE"] == "1":
        name = os.environ["MUSTER_NOTIFY_SOCKET"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b"MUSTER_SAFE_POINT=1", "\0" + name[1:] if name[0] == "@" else name)
    tell("saved step=%d" % step)
if os.environ.get("E2E_ENDLESS"):
    steps = step + steps if "SLURM_RESTART_COUNT" in os.environ else 1 << 30
tell("start step=%d id=%s" % (step, os.environ["TORCHELASTIC_RUN_ID"]))
while step < steps:
    got = signal.sigtimedwait(signos, 0.05)
    if got:
        tell("got name=%s by=%s" % (signal.Signals(got.si_signo).name, program(got.si_pid)))
        save()
        if got.si_signo == signal.SIGTERM:
            while (more := signal.sigtimedwait(signos, 0.3)):
                tell("got name=%s by=%s" % (signal.Signals(more.si_signo).name, program(more.si_pid)))
            sys.exit(143)
    step += 1
tell("trained steps=%d" % step)
"""


EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
# In each Python program: a checkpoint takes some time, so that a test can come between.
SLOW_DISK = r"""
import os, select
def fsync(fd, real=os.fsync):
    real(fd)
    select.select([], [], [], float(os.environ["E2E_DISK"]))
os.fsync = fsync
"""


@pytest.fixture(scope="module")
def linuxproc():
    with slurm_or_skip(3) as slurm:
        yield slurm


# Slurm 22.05 does not get all GPUs back from an exclusive job that it has requeued ("bad node_offset"): not for others.
@pytest.fixture
def with_gpus(job):
    with slurm_or_skip(3, gpus=2) as slurm:
        yield Queue(slurm, job)


@pytest.fixture(scope="module")
def cgroup():
    with slurm_or_skip(3, cgroup=True) as slurm:
        yield slurm


class Queue(Here):
    """Jobs that train, and what becomes of them."""

    def __init__(self, slurm, job):
        super().__init__(slurm, job)
        self.trains = job.tmp / "trains.py"
        self.trains.write_text(TRAINS)

    def train(self, how, *options, words=("--requeue=preempt,node-fail,timeout",), hosts=2, safe=True, steps=1000, path=None,
              endless=False):
        """Submits a job of one worker on each host, which train so many steps. head, step: as Here.telling()."""
        line = shlex.join([*RUN, *words, str(self.trains)])
        env = {**self.env(), "E2E_STEPS": str(steps), "E2E_SAFE": str(int(safe))}
        if endless:
            env["E2E_ENDLESS"] = "1"
        before = f"export PATH={path}\n" if path else ""
        return self.slurm.submit(self.job.tmp, f"{before}exec {'srun ' if how == 'step' else ''}{line}", f"-N{hosts}",
                                 "--ntasks-per-node=1", "--exclusive", *options, env=self.job.env("a", env))

    def runs(self, hosts=2, run=0):
        """Waits until all workers run, and muster knows who gets a signal."""
        found = self.job.events.until(lambda: len(all := self.job.events._all("start", {"run": run})) >= hosts and all, 60)
        assert found, "\n".join([*map(str, map(self.slurm.facts, self.slurm.jobs())), self.slurm.logs()])
        self.told(hosts)
        return found

    def safe(self, number):
        """Waits until the head of the job, which runs with -v, has been notified of a worker's safe point."""
        wait_output(self, number, "a worker reported a safe point")

    def preempt(self, hosts=3):
        """Another job takes all hosts. Returns its id."""
        return self.slurm.submit(self.job.tmp, "true", f"-N{hosts}", "--partition=high", "--exclusive", "--output=/dev/null")

    def end_time(self, number):
        """Slurm looks at the clock every half minute."""
        self.slurm.run("scontrol", "update", f"JobId={number}", "EndTime=now+1")

    def again(self, number, restarts=1):
        """Waits until the job is in the queue again, and lets it begin at once instead of after two minutes. Before that
        Slurm must have heard the end of its first run, which it would take for that of the second one."""
        self.slurm.until(number, 90, JobState="PENDING", Restarts=str(restarts))
        end = deadline(60)
        while any(f"slurmstepd: [{number}.".encode() in line for host in self.slurm.nodes for line in host.titles()):
            assert time.monotonic() < end, self.slurm.logs()
            pause(0.1)
        pause(2.1)  # slurmd starts no job in the second in which it has ended it
        while (facts := self.slurm.facts(number))["JobState"] == "PENDING":
            assert time.monotonic() < end, f"{facts}\n{self.slurm.logs()}"
            self.slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now", "TimeLimit=60", check=False)
            pause(1)

    def goes_on(self, number, hosts=2, run=1):
        """The job has been requeued, and its workers go on where they were saved."""
        self.again(number, run)
        saved = self.checkpoint()
        again = self.job.events.until(lambda: len(found := self.job.events._all("start", {"run": run})) >= hosts and found, 30)
        assert again, f"{self.slurm.facts(number)}\n{self.output(number)}\n{self.slurm.logs()}"
        assert saved > 0 and {e.fields["step"] for e in again} == {str(saved)}, (saved, again)
        assert {e.fields["id"].rpartition(".")[2] for e in again} == {str(run)}, again


def leads(pid):
    """Whether this is a task of the step that muster has started: its guardian."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        env = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return words.startswith(RUN[0].encode() + b"\0run\0") and b"MUSTER_HEAD=" in env


@pytest.fixture
def queue(linuxproc, job):
    linuxproc.settle()
    return Queue(linuxproc, job)


@pytest.fixture(params=["linuxproc", "cgroup"])
def either(request, job):
    slurm = request.getfixturevalue(request.param)
    slurm.settle()
    return Queue(slurm, job)


@pytest.mark.parametrize("how", ["head", "step"])
def test_a_preempted_job_goes_on_from_its_checkpoint(either, how):
    number = either.train(how, steps=150, hosts=3)
    either.runs(3)
    either.preempt()
    either.job.events.wait("saved", 1, 60)
    either.goes_on(number, 3)
    either.got_once("SIGTERM", 3, run=0)
    assert either.slurm.end(number, 60)["JobState"] == "COMPLETED", either.output(number)
    assert len(either.job.events.all("trained")) == 3
    said = either.output(number)
    assert re.search(rf"requeueing job {number}: the job is preempted \(requeue 1 of at most 10\)", said), said
    assert f"job {number} is back in Slurm's queue" in said, said
    either.gone()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["head", "step"])
def test_a_job_whose_time_is_over_goes_on_from_its_checkpoint(either, how):
    number = either.train(how, steps=1500)
    either.runs()
    either.end_time(number)
    either.job.events.wait("saved", 1, 90)
    either.goes_on(number)
    either.got_once("SIGTERM", 2, run=0)
    assert either.slurm.end(number, 90)["JobState"] == "COMPLETED", either.output(number)
    assert f"requeueing job {number}: the job has reached its time limit" in either.output(number)
    either.gone()


def test_a_job_that_has_lost_a_host_goes_on_without_it(queue):
    """Two of three hosts, and no place for a third: the third takes over in the next run."""
    words = ("-v", "--requeue=node-fail", *QUICK, "--rdzv-conf=join_timeout=2")
    number = queue.train("head", "--no-kill", words=words, steps=300, endless=True)
    queue.runs()
    queue.job.events.wait("start", 2)
    queue.slurm.run("scancel", "--signal=USR1", number)  # saves, and goes on
    queue.job.events.wait("saved", 1)
    queue.safe(number)
    queue.slurm.power_off(1)
    queue.goes_on(number)
    facts = queue.slurm.end(number, 60)
    assert (facts["JobState"], facts["ExcNodeList"], facts["NodeList"]) == ("COMPLETED", "node2", "node[1,3]"), facts
    assert "nodes of the job were lost" in queue.output(number) and "avoids node2" in queue.output(number)
    queue.gone()


def test_a_job_that_has_lost_its_leader_goes_on_without_it(queue):
    """Its agent is killed on the first host, where the head lives on and hears no verdict."""
    words = ("-v", "--requeue=node-fail", *QUICK, "--rdzv-conf=read_timeout=2")
    number = queue.train("head", "--no-kill", words=words, steps=300, endless=True)
    starts = queue.runs()
    assert len(starts) == 2
    queue.slurm.run("scancel", "--signal=USR1", number)
    queue.job.events.wait("saved", 1)
    queue.safe(number)  # what the agent has not passed on dies with it; then only the status 75 requeues the job
    for pid in [p for p in queue.slurm.nodes[0].processes() if leads(p)]:
        kill(pid)
    queue.goes_on(number)
    facts = queue.slurm.facts(number)
    assert facts["ExcNodeList"] == "node1", f"{facts}\n{queue.output(number)}\n{queue.slurm.logs()}"
    queue.slurm.run("scancel", number)
    queue.gone()


@pytest.mark.parametrize("options, words, safe, said", [
    ([], ("--requeue=preempt",), False, "is not requeued: no worker has reported a safe point"),
    ([], ("--requeue=preempt", "--max-requeues=0"), True, "is not requeued: it was 0 times already"),
    (["--no-requeue"], ("--requeue=preempt",), True, "was submitted with --no-requeue"),
    ([], (), True, "it is not requeued when it ends now; --requeue=preempt puts it back"),
    ([], ("--requeue=timeout",), True, "it is not requeued when it ends now; --requeue=preempt puts it back")])
def test_a_job_that_is_not_requeued_says_why(queue, options, words, safe, said):
    number = queue.train("head", *options, words=words, safe=safe, hosts=3)
    queue.runs(3)
    queue.preempt()
    facts = queue.slurm.end(number, 60)
    assert (facts["JobState"], facts["ExitCode"], facts["Restarts"]) == ("FAILED", "143:0", "0"), facts
    assert queue.output(number).count(said) == (2 if "--no-requeue" in options else 1), queue.output(number)
    queue.gone()


def tools_but(queue, scontrol=None):
    """A folder with all programs beside scontrol, and this script instead of it."""
    tools = queue.job.tmp / "bin"
    tools.mkdir()
    for path in pathlib.Path(shutil.which("scontrol")).parent.iterdir():
        if path.name != "scontrol":
            (tools / path.name).symlink_to(path)
    if scontrol:
        (tools / "scontrol").write_text(scontrol)
        (tools / "scontrol").chmod(0o755)
    return str(tools)


def test_without_scontrol_the_status_asks_the_site_to_requeue(queue):
    """RequeueExit=75, as this cluster has it."""
    number = queue.train("head", hosts=3, path=tools_but(queue))
    queue.runs(3)
    queue.preempt()
    queue.slurm.until(number, 60, JobState="PENDING", Restarts="1")
    said = queue.output(number)
    assert "scontrol does not answer here" in said and "does not report why the job ends" in said and "status 75" in said, said
    queue.slurm.run("scancel", number)
    queue.gone()


@pytest.mark.parametrize("end, said", [("kill -9 $$", "scontrol ended with status 137 and printed nothing"),
                                       ("exec yes >&2", "scontrol prints without end")])
def test_a_request_that_fails_without_a_word(queue, end, said):
    script = f'#!/bin/sh\n[ $# = 0 ] && {end}\nexec {shutil.which("scontrol")} "$@"\n'
    number = queue.train("head", hosts=3, path=tools_but(queue, script))
    queue.runs(3)
    queue.preempt()
    queue.slurm.until(number, 60, JobState="PENDING", Restarts="1")
    assert f"Slurm did not requeue job {number}: {said}; muster exits with status 75" in queue.output(number)
    queue.slurm.run("scancel", number)
    queue.gone()


def test_lost_hosts_are_avoided_however_long_scontrol_takes(queue):
    """One that is started after the job was requeued does not come to its request before Slurm kills it."""
    real, stalls = shutil.which("scontrol"), queue.job.tmp / "stalls"
    path = tools_but(queue, f'''#!/bin/sh
[ -e {stalls} ] && exec tail -f /dev/null
[ "$1" = show ] && exec {real} "$@"
{real} "$@"; status=$?
touch {stalls}
exit $status
''')
    words = ("-v", "--requeue=node-fail", *QUICK, "--rdzv-conf=join_timeout=2")
    number = queue.train("head", "--no-kill", words=words, path=path, endless=True)
    queue.runs()
    queue.slurm.run("scancel", "--signal=USR1", number)
    queue.job.events.wait("saved", 1)
    queue.safe(number)
    queue.slurm.power_off(1)
    queue.slurm.until(number, 90, JobState="PENDING", Restarts="1")
    facts = queue.slurm.facts(number)
    queue.slurm.run("scancel", number)
    assert facts["ExcNodeList"] == "node2", f"{facts}\n{queue.output(number)}"
    queue.gone()


def test_a_cancelled_job_stays_so_if_slurm_does_not_answer(queue):
    """A busy controller. Slurm takes a request for a cancelled job, too, which then runs again."""
    script = f'#!/bin/sh\n[ $1 = show ] && [ -e {queue.job.tmp}/busy ] && exit 1\nexec {shutil.which("scontrol")} "$@"\n'
    number = queue.train("head", hosts=3, path=tools_but(queue, script))
    queue.runs(3)
    (queue.job.tmp / "busy").touch()
    queue.slurm.run("scancel", number)
    queue.gone()
    facts = queue.slurm.end(number, 20)
    assert facts["JobState"] == "CANCELLED" and facts["Restarts"] == "0", queue.output(number)
    assert "a cancelled job must not run again" in queue.output(number)


def test_salloc_says_at_once_that_it_is_no_batch_job(queue):
    done = queue.slurm.run("salloc", "-N2", *RUN, "--requeue=preempt", "--no-python", "sleep", "1")
    assert "Slurm requeues only batch jobs" in done.stderr, done.stderr


def test_a_job_that_is_cancelled_is_not_requeued(queue):
    number = queue.train("head")
    queue.runs()
    queue.slurm.run("scancel", number)
    assert queue.slurm.end(number)["JobState"] == "CANCELLED"
    assert "requeue" not in queue.output(number), queue.output(number)
    queue.gone()


def test_the_time_that_is_said_is_the_workers(queue):
    """KillWait is 3 s here, so workers have one."""
    number = queue.train("head", words=("-vv",))
    queue.runs()
    wait_output(queue, number, "workers have 1 s after SIGTERM, by KillWait of Slurm")
    queue.slurm.run("scancel", number)
    wait_output(queue, number, "got SIGTERM: stopping the job (up to 1 s)")
    queue.gone()


@pytest.mark.slow
def test_a_signal_before_the_end_of_the_time_is_the_end_of_the_time(either):
    """The workers are told before the limit, and the job goes back at once."""
    number = either.train("head", "--time=1", "--signal=TERM@30", steps=1000)
    either.runs()
    either.job.events.wait("saved", 1, 90)
    either.goes_on(number)
    either.got_once("SIGTERM", 2, run=0)
    assert f"requeueing job {number}: the job's time is nearly over" in either.output(number), either.output(number)
    either.slurm.run("scancel", number)
    either.gone()


# ---- examples/slurm ----

def submit_example(queue, disk):
    """Submits examples/slurm/train.sbatch in a folder of its own, where writing a checkpoint takes so many seconds."""
    folder = queue.job.tmp
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(EXAMPLES)
        (folder / "slow").mkdir()
        (folder / "slow" / "sitecustomize.py").write_text(SLOW_DISK)
    env = {**queue.env(), "PYTHON_EXEC": TORCH_PYTHON, "PYTHONPATH": str(folder / "slow"), "E2E_DISK": str(disk),
           "OMP_NUM_THREADS": "1", "PATH": f"{pathlib.Path(RUN[0]).parent}:{os.environ['PATH']}"}
    return queue.slurm.run("sbatch", "--parsable", f"--output={folder}/out-%j", "--gpus-per-node=2", "--exclusive", "--time=30",
                           "examples/slurm/train.sbatch", folder=folder, env=queue.job.env("a", env)).stdout.strip()


def wait_output(queue, number, text, seconds=120):
    end = deadline(seconds)
    while text not in queue.output(number):
        assert time.monotonic() < end, f"no {text!r}: {queue.output(number)}"
        pause(0.1)


def learned(said):
    """The loss of each epoch, and the part of the digits that were read right at the end."""
    losses = {int(n): float(loss) for n, loss in re.findall(r"epoch (\d+) of 15: loss ([0-9.]+)", said)}
    accuracy = re.findall(r"test accuracy: ([0-9.]+) %", said)
    assert sorted(losses) == list(range(1, 16)) and len(accuracy) == 1, said
    return [*(losses[n] for n in sorted(losses)), float(accuracy[0]) / 100]


def run_example(queue, disk, interrupt=lambda number: None):
    """What the example said in a job that completed. Threads of PyTorch abort a worker at its exit now and then: then
    the job is run again, and for no other cause."""
    for _ in range(3):
        number = submit_example(queue, disk)
        interrupt(number)
        state, said = queue.slurm.end(number, 180)["JobState"], queue.output(number)
        if state == "COMPLETED" or "terminate called without an active exception" not in said:
            break
    assert state == "COMPLETED", said
    return said


@pytest.mark.torch
@pytest.mark.parametrize("why", ["preempted", pytest.param("time", marks=pytest.mark.slow)])
def test_the_example_goes_on_and_learns_the_same(with_gpus, why):
    queue = with_gpus
    assert len((EXAMPLES / "slurm" / "train.sbatch").read_text().splitlines()) <= 10

    def interrupt(number):
        wait_output(queue, number, "epoch 3 of 15")
        if why == "preempted":
            queue.preempt()
        else:
            queue.end_time(number)
        queue.again(number)

    said = run_example(queue, 1 if why == "preempted" else 4, interrupt)
    assert said.count("epoch 15 of 15") == 1 and "continuing from the checkpoint of epoch" in said, said
    results = [learned(said), learned(run_example(queue, 0))]
    # DDP sums in another order in its first step after a start, so the last bits differ.
    assert results[0] == pytest.approx(results[1], abs=0.001), results
    queue.gone()
