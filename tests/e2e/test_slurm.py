"""In a real Slurm: where muster finds itself, and how its jobs end. Emulated hosts (slurm.py), in two clusters: one whose
slurmd signals every process of a job (proctrack/linuxproc), one whose slurmstepd signals only what it has started itself
(proctrack/cgroup), which is what most sites have."""
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

import pytest

import harness
from harness import deadline, free_port, kill
from slurm import pause, slurm_or_skip

MUSTER = str(pathlib.Path(harness.MUSTER).resolve())
RUN = [MUSTER, "run"]
# Found on each host, but another folder there: the run directory of a real host is its own, too.
RUN_DIR = "/dev/shm/muster"
SHOW = ("start", "env=SLURMD_NODENAME", "go")
# Quick recovery, where a host is lost.
QUICK = ("--lease=1", "--heartbeat-interval=0.2")

# Tells of each signal that comes, and whose it is. Ends at `go`, and some time after SIGTERM, when rank 0 has saved its step.
TELLS = r"""
import os, pathlib, signal, time
saved = pathlib.Path(os.environ["E2E_RECORD"] + ".step")
events = os.open(os.environ["E2E_EVENTS"], os.O_WRONLY)
go = os.open(os.environ["E2E_GO"], os.O_RDONLY | os.O_NONBLOCK)
rank, step, end = os.environ["RANK"], int(saved.read_text()) if saved.exists() else 0, None
signos = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, signos)
def tell(what):
    os.write(events, ("%s rank=%s gen=%s\n" % (what, rank, os.environ["MUSTER_GENERATION"])).encode())
def program(pid):
    try:
        return pathlib.Path("/proc/%d/comm" % pid).read_text().strip()
    except OSError:
        return "gone"
tell("start world=%s step=%d" % (os.environ["WORLD_SIZE"], step))
while end is None or time.monotonic() < end:
    got = signal.sigtimedwait(signos, 0.01)
    if got:
        tell("got name=%s by=%s" % (signal.Signals(got.si_signo).name, program(got.si_pid)))
        if got.si_signo == signal.SIGTERM and end is None:
            end = time.monotonic() + 0.3
    step += 1
    try:
        os.read(go, 1)
    except BlockingIOError:  # somebody has opened it for writing
        break
if rank == "0":
    saved.write_text(str(step))
    tell("saved step=%d" % step)
if end:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signos)
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.fixture(scope="module")
def linuxproc():
    with slurm_or_skip(4, gpus=2) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def cgroup():
    with slurm_or_skip(4, gpus=2, cgroup=True) as slurm:
        yield slurm


class Here:
    """A cluster, and the programs that a test starts in it."""

    def __init__(self, slurm, job):
        self.slurm, self.job = slurm, job
        self.tells = job.tmp / "tells.py"
        self.tells.write_text(TELLS)

    def env(self, more=None):
        return {"MUSTER_RUN_DIR": RUN_DIR, **(more or {})}

    def client(self, *words, env=None):
        """Starts this on the controller's host."""
        return self.job.agent("a", env=self.env(env), program=self.slurm.client(*words, folder=self.job.tmp))

    def srun(self, options, *words, worker=SHOW, env=None):
        return self.client("srun", *options, *self.line(*words, worker=worker), env=env)

    def line(self, *words, worker=SHOW):
        """The words of `muster run`, with C workers; worker=None: with the Python program that tells."""
        what = [str(self.tells)] if worker is None else ["--no-python", self.job.worker, *worker]
        return [*RUN, *words, *what]

    def shell(self, *words, worker=SHOW):
        return shlex.join(self.line(*words, worker=worker))

    def batch(self, script, *options):
        """Submits these lines. Returns the job's id."""
        return self.slurm.submit(self.job.tmp, script, *options, env=self.job.env("a", self.env()))

    def telling(self, how, *options, hosts=2, words=()):
        """Submits a job of workers that tell. step: the script is srun; head: it is muster. Returns its id."""
        return self.batch(f"exec {'srun ' if how == 'step' else ''}{self.shell(*words, worker=None)}", f"-N{hosts}",
                          "--ntasks-per-node=1", *options)

    def output(self, number):
        path = self.job.tmp / f"out-{number}"
        return path.read_text(errors="replace") if path.exists() else ""

    def only(self):
        """The id of the only job there is."""
        end = deadline(20)
        while not (found := self.slurm.jobs()):
            assert time.monotonic() < end, "no job came"
            pause(0.05)
        assert len(found) == 1, found
        return found[0]

    def workers(self, world):
        """Waits for a whole group of this size. Returns the host of each rank, in their order."""
        starts = self.job.events.wait("start", world, 30, world=world)
        assert sorted(int(e.fields["rank"]) for e in starts) == list(range(world)), starts
        told = self.job.events.wait("env", world)
        return [e.fields["value"] for e in sorted(told, key=lambda e: int(e.fields["rank"]))]

    def on(self, *counts):
        """The hosts of the ranks, if so many are on each host, in the order of hosts."""
        return [name for name, count in zip(self.slurm.names, counts) for _ in range(count)]

    def ends_well(self, agent):
        self.job.go()
        code, out, err = agent.finish()
        assert code == 0, f"{code}\n{out}{err}\n{self.slurm.logs()}"
        self.gone()
        return out, err

    def completes(self, number):
        self.job.go()
        facts = self.slurm.end(number)
        assert (facts["JobState"], facts["ExitCode"]) == ("COMPLETED", "0:0"), f"{facts}\n{self.output(number)}"
        self.gone()
        return self.output(number)

    def gone(self, seconds=5):
        """No process of the job is left on any host."""
        end = deadline(seconds)
        while self.job.culprits():
            assert time.monotonic() < end, self.job.culprits()
            pause(0.05)

    def checkpoint(self):
        return int((self.job.tmp / "record.step").read_text())

    def told(self, hosts):
        """Waits until the workers that tell run on so many hosts, and muster knows on each who gets a signal."""
        self.job.events.wait("start", hosts)
        end = deadline(20)
        while sum(b"signal-witness" in line for host in self.slurm.nodes for line in host.titles()) < hosts:
            assert time.monotonic() < end, "no witness of signals"
            pause(0.05)
        pause(0.1)

    def got_once(self, name, ranks, **fields):
        """Each of these ranks got the signal by muster, once, or by Slurm itself, but not by both."""
        senders = {rank: [] for rank in range(ranks)}
        for event in self.job.events.all("got", name=name, **fields):
            senders[int(event.fields["rank"])].append(event.fields["by"])
        for rank, found in senders.items():
            ours = [by for by in found if by.startswith("muster")]
            assert found and (not ours or ours == found and len(ours) == 1), f"rank {rank}: {name} by {found}"


def settled(slurm, job):
    slurm.settle()
    return Here(slurm, job)


@pytest.fixture(params=["linuxproc", "cgroup"])
def either(request, job):
    return settled(request.getfixturevalue(request.param), job)


@pytest.fixture(params=["linuxproc", pytest.param("cgroup", marks=pytest.mark.slow)])
def here(request, job):
    """For what hardly depends on the kind of cluster."""
    return settled(request.getfixturevalue(request.param), job)


# ---- the cluster itself ----

def test_a_step_reaches_every_host(either):
    said = either.slurm.run("srun", f"-N{either.slurm.count}", "hostname").stdout
    assert sorted(said.split()) == either.slurm.names


def test_a_batch_script_sees_its_job(here):
    number = here.batch("echo $SLURM_JOB_NUM_NODES; srun hostname", "-N3", "--ntasks-per-node=1")
    assert here.slurm.end(number)["JobState"] == "COMPLETED"
    assert sorted(here.output(number).split()) == ["3", *here.slurm.names[:3]]


def test_a_step_is_in_control_groups_of_its_own(cgroup):
    cgroup.settle()
    said = cgroup.run("srun", "-N1", "-n1", "--mem=64", "cat", "/proc/self/cgroup").stdout
    assert re.search(rf"memory:.*/slurm_{cgroup.names[0]}/.*job_\d+/step_0", said), said
    done = cgroup.run("srun", "-N1", "-n1", "--mem=64", "sh", "-c", "tail /dev/zero; echo $?", check=False)
    assert done.stdout.split() == ["137"], done  # killed for lack of memory


def test_a_host_that_is_switched_off_comes_back(here):
    here.slurm.power_off(3)
    assert here.slurm.nodes[3].processes() == []
    here.slurm.boot(3)
    assert here.slurm.run("srun", f"-w{here.slurm.names[3]}", "hostname").stdout.split() == here.slurm.names[3:]


def test_a_test_that_is_killed_leaves_no_cluster(linuxproc, tmp_path):
    here = pathlib.Path(__file__).resolve().parent
    code = ("import sys; sys.path.insert(0, sys.argv[1])\nfrom slurm import Slurm\nwith Slurm(1) as slurm:\n"
            " print(slurm.folder, *(h.pid for h in (slurm.head, *slurm.nodes)), slurm._keeper.pid, flush=True)\n"
            " sys.stdin.read()\n")
    other = subprocess.Popen(["/usr/bin/python3", "-c", code, str(here)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True)
    folder, *pids = other.stdout.readline().split()
    other.kill()
    other.communicate()
    end = deadline(20)
    while os.path.exists(folder) or any(harness.alive(int(pid)) for pid in pids):
        assert time.monotonic() < end, (folder, pids)
        pause(0.05)


# ---- where am I ----

def test_options_as_for_torchrun(here):
    """What scripts for torchrun say goes on to mean what it says."""
    endpoint = f"--rdzv-endpoint={here.slurm.names[0]}:{free_port()}"
    agent = here.srun(["-N4", "--ntasks-per-node=1"], "--nnodes=4", "--nproc-per-node=2", "--rdzv-backend=c10d", endpoint,
                      "--rdzv-id=mine")
    assert sorted(here.workers(8)) == sorted(here.on(2, 2, 2, 2))
    here.ends_well(agent)


def test_srun(here):
    agent = here.srun(["-N4"])
    assert here.workers(4) == here.on(1, 1, 1, 1)
    here.ends_well(agent)


def test_an_explicit_option_wins_alone(here):
    agent = here.srun(["-N2"], "--nproc-per-node=3")
    assert here.workers(6) == here.on(3, 3)
    here.ends_well(agent)


def test_standalone_is_one_host_each(here):
    agent = here.srun(["-N2"], "--standalone", "--nproc-per-node=1")
    starts = here.job.events.wait("start", 2)
    assert [e.fields["world"] for e in starts] == ["1", "1"]
    here.ends_well(agent)


def test_a_batch_script(here):
    number = here.batch(here.shell(), "-N4", "--ntasks-per-node=1")
    assert here.workers(4) == here.on(1, 1, 1, 1)
    here.completes(number)


def test_salloc(here):
    agent = here.client("salloc", "--quiet", "-N4", "--ntasks-per-node=1", *here.line())
    assert here.workers(4) == here.on(1, 1, 1, 1)
    here.ends_well(agent)


def test_an_interactive_step(here):
    agent = here.client("salloc", "--quiet", "-N3", "--ntasks-per-node=1", "srun", "--interactive", "--preserve-env",
                        *here.line())
    assert here.workers(3) == here.on(1, 1, 1)
    here.ends_well(agent)


def test_a_batch_script_submitted_from_inside_a_step(here):
    """It inherits the step's variables, and is in no step."""
    script = here.job.tmp / "inner.sh"
    script.write_text(f"#!/bin/bash\nenv | grep ^SLURM_STEP_ > {here.job.tmp}/leaked\n{here.shell()}\n")
    number = here.slurm.run("srun", "-N1", "-n1", "sbatch", "--parsable", "-N2", "--ntasks-per-node=1",
                            f"--output={here.job.tmp}/out-%j", script, folder=here.job.tmp,
                            env=here.job.env("a", here.env())).stdout.strip()
    assert here.workers(2) == here.on(1, 1)
    assert "SLURM_STEP_NUM_NODES=1" in (here.job.tmp / "leaked").read_text()
    here.completes(number)


def test_a_step_of_two_of_four_hosts(here):
    number = here.batch("srun -N2 -n2 " + here.shell(), "-N4", "--ntasks-per-node=1")
    assert here.workers(2) == here.on(1, 1)
    here.completes(number)


def test_a_heterogeneous_job(here):
    number = here.batch("srun --het-group=0,1 " + here.shell(), "-N1", "--ntasks-per-node=1", ":", "-N2",
                        "--ntasks-per-node=1")
    assert here.workers(3) == here.on(1, 1, 1)
    here.completes(number)


def test_all_components_of_a_heterogeneous_job_are_one_job(here):
    """muster itself is the script; in its second component each host has two tasks."""
    number = here.batch(here.shell(), "-N1", "--ntasks-per-node=1", ":", "-N2", "--ntasks-per-node=2")
    assert here.workers(5) == here.on(1, 2, 2)
    here.completes(number)
    agent = here.client("salloc", "--quiet", "-N1", ":", "-N2", *here.line())
    here.job.events.wait("start", 3, 30, world=3)
    here.ends_well(agent)


def test_the_components_of_a_heterogeneous_job_are_not_chosen(here):
    number = here.batch(here.shell("--nnodes=2") + "\necho status $?", "-N1", ":", "-N2")
    here.slurm.end(number)
    assert re.search(r"the components .* have 3; .* srun --het-group=0 muster run \.\.\.\nstatus 2", here.output(number))


def test_the_tasks_of_an_array_do_not_meet(here):
    """On the same hosts, at the same time."""
    here.batch("srun " + here.shell(), "-N2", "--ntasks-per-node=1", "--array=1-2")
    starts = here.job.events.wait("start", 4)
    assert sorted((e.fields["world"], e.fields["rank"]) for e in starts) == sorted([("2", "0"), ("2", "1")] * 2)
    here.job.go()
    assert here.slurm.wait_idle()
    here.gone()


def test_two_steps_on_the_same_hosts_do_not_meet(here):
    step = "srun --overlap -N2 -n2 " + here.shell()
    number = here.batch(f"{step} & {step} & wait %1 && wait %2", "-N2", "--ntasks-per-node=1")
    starts = here.job.events.wait("start", 4)
    assert sorted((e.fields["world"], e.fields["rank"]) for e in starts) == sorted([("2", "0"), ("2", "1")] * 2)
    here.completes(number)


def test_ranks_are_in_the_order_of_tasks(here):
    """The first host of the step's list leads, but ranks go by the file."""
    order = [here.slurm.names[n] for n in (2, 0, 1)]
    hostfile = here.job.tmp / "hosts"
    hostfile.write_text("\n".join(order) + "\n")
    agent = here.srun(["-n3", "--distribution=arbitrary"], env={"SLURM_HOSTFILE": str(hostfile)})
    assert here.workers(3) == order
    here.ends_well(agent)


def test_several_tasks_of_a_host_are_one_agent(here):
    """The others hold, else --wait would end the step two seconds later."""
    tasks = ["--ntasks-per-node=4"] if here.slurm.cpus >= 4 else ["-n8", "--overcommit"]
    agent = here.srun(["-N2", *tasks, "--wait=2"])
    assert here.workers(8) == here.on(4, 4)
    pause(3)
    assert agent.process.poll() is None, agent.said()
    here.ends_well(agent)
    assert len(here.job.events.all("start")) == 8


def test_the_tasks_that_hold_end_with_the_status(here):
    agent = here.srun(["-N2", "--ntasks-per-node=2", "--wait=2"], worker=("start", "rank=1", "exit=3", "go"))
    code, _, err = agent.finish()
    assert code == 1, err
    here.gone()


def test_hosts_with_different_numbers_of_gpus(here):
    agent = here.srun(["-N2", "-n2", "--gpus=3"], worker=(*SHOW[:-1], "env=CUDA_VISIBLE_DEVICES", "go"))
    starts = here.job.events.wait("start", 3, 30, world=3)
    assert sorted(int(e.fields["rank"]) for e in starts) == [0, 1, 2]
    assert sorted(e.fields["value"] for e in here.job.events.wait("env", 3, 30, name="SLURMD_NODENAME")) in (
        here.on(2, 1), here.on(1, 2))
    here.ends_well(agent)


def test_a_task_that_sees_a_part_of_the_gpus_is_refused(here):
    code, _, err = here.srun(["-N2", "--ntasks-per-node=2", "--gpus-per-task=1"]).finish()
    assert code != 0 and err.count("--gpus-per-node=") == 1, err
    here.gone()


def test_a_port_that_is_taken_is_passed_over(here):
    """The first of the run's ports is held on the first host by somebody else."""
    hold = ("import os, socket, sys\ns = socket.create_server(('', int(sys.argv[1])))\nprint('up', flush=True)\n"
            "open(os.environ['E2E_GO']).close()\n")
    (here.job.tmp / "hold.py").write_text(hold)
    script = here.job.tmp / "task.sh"
    config = here.shell("--print-config")
    script.write_text(
        f"port=$({config} | grep -o '\"endpoint_port\": [0-9]*' | grep -o '[0-9]*$')\n"
        "[ -n \"$port\" ] || exit 9\nif [ $SLURM_PROCID = 0 ]; then\n"
        "    (setsid python3 hold.py $port > held &)\n    until [ -s held ]; do :; done\nfi\n"
        f"exec {here.shell()}\n")
    agent = here.client("srun", "-N2", "sh", script)
    assert here.workers(2) == here.on(1, 1)
    assert (here.job.tmp / "held").read_text() == "up\n"
    here.ends_well(agent)


def test_variables_of_pmi_are_not_for_workers(here):
    agent = here.srun(["-N2", "--mpi=pmi2"], worker=("start", "env=PMI_RANK", "env=PMI_FD", "go"))
    told = here.job.events.wait("env", 4)
    assert {e.fields["set"] for e in told} == {"0"}, told
    here.ends_well(agent)


def test_a_first_host_that_is_down_before_anybody_has_led(here):
    """The others say so within seconds, and which it is."""
    script = here.job.tmp / "task.sh"
    script.write_text(f"[ $SLURM_NODEID = 0 ] && exec sleep 60\nread -r _ < {here.job.tmp}/begin\nexec {here.shell()}\n")
    os.mkfifo(here.job.tmp / "begin")
    agent = here.client("srun", "-N2", "--no-kill", "sh", script)
    end = deadline(20)
    while not here.slurm.run("squeue", "--steps", "--noheader").stdout:
        assert time.monotonic() < end
        pause(0.05)
    here.slurm.cut(0)
    (here.job.tmp / "begin").write_text("go\n")
    first, other = here.slurm.names[:2]
    agent.wait_said(rf"muster: {other}: no leader at {first} \(10.88.1.1\): no answer at any of its 16 ports")
    assert re.search(r"trying again \(0:0[4-9] of", agent.said()), agent.said()
    here.slurm.heal(0)
    here.slurm.run("scancel", here.only())
    agent.finish()
    here.gone()


# ---- signals ----

@pytest.mark.parametrize("how", ["srun", "step", "head"])
def test_each_worker_gets_one_sigterm_of_scancel(either, how):
    agent = either.srun(["-N2"], worker=None) if how == "srun" else None
    number = either.only() if agent else either.telling(how)
    either.told(2)
    either.slurm.run("scancel", number)
    assert either.job.events.wait("saved", 1)
    assert either.slurm.end(number)["JobState"] == "CANCELLED"
    either.gone()
    either.got_once("SIGTERM", 2)


@pytest.mark.parametrize("how, form", [("step", ""), ("head", ""), ("head", "--batch"), ("head", "--full")])
def test_each_worker_gets_a_users_signal_once(either, how, form):
    """As Slurm sends it for --signal=USR1, which is for steps, and for --signal=B:USR1; and to all."""
    number = either.telling(how)
    either.told(2)
    either.slurm.run("scancel", "--signal=USR1", *form.split(), number)
    either.job.events.wait("got", 2)
    either.completes(number)
    either.got_once("SIGUSR1", 2)


def test_a_users_signal_through_srun(either):
    agent = either.srun(["-N2"], worker=None)
    either.told(2)
    kill(harness.children(agent.pid)[0], signal.SIGUSR1)
    either.job.events.wait("got", 2)
    either.ends_well(agent)
    either.got_once("SIGUSR1", 2)


# ---- ends ----

def test_a_failed_job_is_failed_for_slurm(here):
    number = here.batch(here.shell(worker=("start", "rank=1", "exit=3", "go")), "-N2", "--ntasks-per-node=1")
    facts = here.slurm.end(number)
    assert (facts["JobState"], facts["ExitCode"]) == ("FAILED", "1:0"), here.output(number)
    here.gone()
    assert "ChildFailedError" in here.output(number)


def test_a_worker_that_took_too_much_memory_is_replaced(cgroup, job):
    """Slurm calls the step OUT_OF_MEMORY; the job has recovered, and muster says how it ended."""
    here = settled(cgroup, job)
    hungry = job.tmp / "hungry.py"
    hungry.write_text("import os\nif os.environ['RANK'] == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
                      "    x = b'x' * (1 << 30)\nprint('trained', os.environ['TORCHELASTIC_RESTART_COUNT'], flush=True)\n")
    words = [*RUN, "--max-restarts=1", hungry]
    number = here.batch(shlex.join(map(str, words)) + "; echo status $?", "-N2", "--ntasks-per-node=1", "--mem=128")
    here.slurm.end(number, 60)
    assert "status 0\n" in here.output(number), here.output(number)
    assert here.output(number).count("trained 1") == 2
    here.gone()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["step", "head"])
def test_the_end_of_the_time(either, how):
    """The job is told, its workers once each; they save, and the next job goes on from there."""
    number = either.telling(how, "--time=1")
    either.told(2)
    either.job.events.wait("saved", 1, 150)
    assert either.slurm.end(number)["JobState"] == "TIMEOUT"
    either.gone()
    either.got_once("SIGTERM", 2)
    assert re.search("time limit", either.output(number)), either.output(number)
    saved = either.checkpoint()
    again = either.telling(how)
    assert {e.fields["step"] for e in either.job.events.wait("start", 4)[2:]} == {str(saved)}
    either.completes(again)


@pytest.mark.slow
@pytest.mark.parametrize("how, form", [("step", "USR1@50"), ("head", "USR1@50"), ("head", "B:USR1@50")])
def test_a_signal_before_the_end_of_the_time(either, how, form):
    number = either.telling(how, "--time=1", f"--signal={form}")
    either.told(2)
    either.job.events.wait("got", 2, 100)
    either.completes(number)
    either.got_once("SIGUSR1", 2)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["step", "head"])
def test_preemption(either, how):
    """A job that ends within the grace is not requeued, and muster says why it ends."""
    hosts = either.slurm.count
    number = either.telling(how, "--exclusive", hosts=hosts)
    either.told(hosts)
    other = either.slurm.submit(either.job.tmp, "true", f"-N{hosts}", "--partition=high", "--exclusive")
    either.job.events.wait("saved", 1, 60)
    assert either.slurm.end(number)["JobState"] == "FAILED"
    either.got_once("SIGTERM", hosts)
    assert re.search("preempted", either.output(number)), either.output(number)
    assert either.slurm.end(other)["JobState"] == "COMPLETED"
    either.gone()


@pytest.mark.slow
def test_a_lost_host_costs_no_restart(either):
    """With --no-kill the job goes on with the others, is back in a group long before Slurm knows, and ends well."""
    hosts = either.slurm.count
    number = either.batch("exec " + either.shell(f"--nnodes={hosts - 1}:{hosts}", *QUICK), f"-N{hosts}",
                          "--ntasks-per-node=1", "--no-kill")
    either.workers(hosts)
    either.slurm.power_off(hosts - 1)
    again = either.job.events.wait("start", hosts - 1, 30, world=hosts - 1)
    assert {e.fields["count"] for e in again} == {"0"}
    either.slurm.wait_state(hosts - 1, "down*")
    pause(5)  # Slurm acts on a lost host some time after it has given it up
    either.completes(number)


@pytest.mark.slow
def test_a_lost_host_without_no_kill(either):
    """Slurm ends the whole job, and puts it back into the queue; the workers are told first, each once."""
    hosts = either.slurm.count
    number = either.telling("head", "--requeue", hosts=hosts, words=(f"--nnodes={hosts - 1}:{hosts}", *QUICK))
    either.told(hosts)
    either.slurm.power_off(hosts - 1)
    generation = either.job.events.wait("start", hosts - 1, 30, world=hosts - 1)[0].fields["gen"]
    either.job.events.wait("saved", 1, 60, gen=generation)
    either.slurm.until(number, 60, JobState="PENDING", Restarts="1")
    either.gone()
    either.got_once("SIGTERM", hosts - 1, gen=generation)
    either.slurm.run("scancel", number)


@pytest.mark.slow
def test_too_few_hosts_are_left(here):
    """The program is not to blame: 75, which requeues the job where the site says so."""
    number = here.batch(here.shell(*QUICK, "--rdzv-conf=join_timeout=10") + "; echo status $?", "-N2", "--ntasks-per-node=1",
                        "--no-kill")
    here.workers(2)
    here.slurm.power_off(1)
    here.slurm.end(number, 90)
    assert "status 75\n" in here.output(number), here.output(number)
    here.gone()


@pytest.mark.slow
def test_the_leaders_host_is_lost(here):
    """Without a shared directory nobody can take its place. The others look for it, and then end."""
    line = here.shell(*QUICK, "--rdzv-conf=read_timeout=5")
    agent = here.client("srun", "-N3", "--no-kill", "sh", "-c", f"{line}; echo status $?")
    here.workers(3)
    here.slurm.power_off(0)
    assert agent.out.until(lambda: agent.out.lines.count("status 75") == 2, 30), agent.output() + agent.said()
    here.slurm.run("scancel", here.only())
    agent.finish()
    here.gone()


# ---- suspension ----

@pytest.mark.parametrize("hosts, how", [(1, "head"), (3, "step"), pytest.param(1, "step", marks=pytest.mark.slow),
                                        pytest.param(3, "head", marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", ["", "dir"])
def test_a_suspended_job_continues(either, hosts, how, place):
    """For longer than the lease, and than the arbiter's. Slurm sends SIGTSTP to all processes, and SIGSTOP or the
    freezer follows two seconds later."""
    words = ["--rdzv-backend=dir", f"--rdzv-endpoint={either.job.tmp}/rdzv", "--rdzv-id=suspended",
             f"--nnodes={hosts}", "--arbiter-lease=2.5"] if place else []
    line = either.shell(*QUICK, *words, "--max-restarts=0")
    number = either.batch(f"exec {'srun ' if how == 'step' else ''}{line}", f"-N{hosts}", "--ntasks-per-node=1")
    either.workers(hosts)
    either.slurm.run("scontrol", "suspend", number)
    either.slurm.until(number, JobState="SUSPENDED")
    pause(6)
    either.slurm.run("scontrol", "resume", number)
    end = deadline(10)
    while either.output(number).count("its workers continue") < hosts:
        assert time.monotonic() < end, either.output(number)
        pause(0.1)
    output = either.completes(number)
    assert "are killed" not in output and len(either.job.events.all("start")) == hosts, output
