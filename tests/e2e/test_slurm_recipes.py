"""What people write for torchrun in Slurm, as it is written, with muster's torchrun in place of PyTorch's: batch scripts of
the shapes that circulate, with their usual mistakes. Each works, or the line to write is said. On emulated hosts with a
real Slurm (slurm.py)."""
import os
import re
import time

import pytest

from harness import deadline, free_port
from slurm import pause, slurm_or_skip
from test_slurm import MUSTER, Here

TRAIN = """\
import os, sys
print("trained", *(os.environ[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURMD_NODENAME")), *sys.argv[1:], flush=True)
"""
# "${nodes}" of an array is its first element.
FIRST_ADDRESS = """
nodes=( $(scontrol show hostnames $SLURM_JOB_NODELIST) )
array=($nodes)
address=$(srun --nodes=1 --ntasks=1 -w "${array[0]}" hostname --ip-address)
"""
FIRST_NAME = "first=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
ONE_EACH = "--ntasks-per-node=1 --gpus-per-node=2"
C10D = "--rdzv_backend c10d --rdzv_endpoint"


@pytest.fixture(scope="module")
def cluster():
    with slurm_or_skip(3, gpus=2) as slurm:
        with open(slurm.folder / "hosts", "a") as hosts:  # the names of another network
            hosts.write("".join(f"10.88.1.{n + 1} {name}i\n" for n, name in enumerate(slurm.names)))
        yield slurm


class Recipe(Here):
    """A user with a torchrun that is muster, and a train.py."""

    def __init__(self, slurm, job):
        super().__init__(slurm, job)
        self.bin = job.tmp / "bin"
        self.bin.mkdir()
        (self.bin / "torchrun").symlink_to(MUSTER)
        (job.tmp / "train.py").write_text(TRAIN)
        self.port = free_port()

    def env(self, more=None):
        return super().env({"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHON_EXEC": "/usr/bin/python3", **(more or {})})

    def submit(self, script, options):
        """PORT is one that is free. The status of the last command of the script is told."""
        return self.batch(script.replace("PORT", str(self.port)) + "\necho status ${PIPESTATUS[0]}", *options.split())

    def trains(self, script, options, *counts, words=""):
        """So many workers on each host run, with these arguments, and the job ends well. Returns the output."""
        number = self.submit(script, options)
        said = self.completes(number)
        world, places = sum(counts), []
        for host, count in enumerate(counts):
            places += [(self.slurm.names[host], local) for local in range(count)]
        wanted = [f"{rank} {world} {local} {host}{words}" for rank, (host, local) in enumerate(places)]
        found = sorted(re.findall(r"trained (.*)", said), key=lambda line: int(line.split()[0]))
        assert found == wanted or self.same_but_for_hosts(found, wanted), said
        assert "status 0\n" in said, said
        return said

    def same_but_for_hosts(self, found, wanted):
        """Where nodes meet by themselves, as under torchrun, the first one to come has the first ranks."""
        rest = {host: host for host in self.slurm.names}
        hosts = [re.search(r"node\d+", line)[0] for line in found + wanted]
        for ours, theirs in zip(hosts[:len(found)], hosts[len(found):]):
            rest[ours] = theirs
        return len(set(rest.values())) == len(rest) and wanted == [
            re.sub(r"node\d+", lambda m: rest[m[0]], line) for line in found]

    def is_told(self, script, options, pattern):
        """Waits until this is said; then somebody cancels the job."""
        number = self.submit(script, options)
        end = deadline(30)
        while not re.search(pattern, self.output(number)):
            assert time.monotonic() < end, self.output(number)
            pause(0.05)
        self.slurm.run("scancel", number)
        self.slurm.end(number)
        self.gone()


@pytest.fixture
def user(cluster, job):
    cluster.settle()
    return Recipe(cluster, job)


# ---- these work ----

def test_an_address_from_a_step_of_its_own(user):
    """As PyTorch's own examples and torchtitan have it."""
    user.trains(FIRST_ADDRESS + f"srun torchrun --nnodes 3 --nproc_per_node 2 --rdzv_id $RANDOM {C10D} $address:PORT train.py 50 10",
                "--nodes=3 --ntasks=3", 2, 2, 2, words=" 50 10")


def test_a_launcher_in_a_variable(user):
    """With a role, prefixes, options for srun, and a tee. The role is that of the batch script's host on each node."""
    said = user.trains(FIRST_NAME + f"""
launcher="torchrun --nproc_per_node 2 --nnodes $SLURM_NNODES {C10D} $first:PORT --max_restarts 0 --role `hostname -s`: --tee 3"
command="$launcher train.py --lr 1"
srun --wait=60 --kill-on-bad-exit=1 --jobid $SLURM_JOB_ID bash -c "$command" 2>&1 | tee -a main.log""",
                       f"-N2 {ONE_EACH}", 2, 2, words=" --lr 1")
    assert said.count("[node1:0]:trained") == said.count("[node1:1]:trained") == 2


def test_ranks_that_each_task_puts_in(user):
    user.trains(FIRST_NAME + """
launcher="torchrun --nproc_per_node 2 --nnodes $SLURM_NNODES --node_rank \\$SLURM_PROCID --master_addr $first --master_port PORT"
srun bash -c "$launcher train.py" """, f"-N2 {ONE_EACH}", 2, 2)


def test_the_name_of_another_network_and_is_host(user):
    user.trains(FIRST_NAME + f"""
export MASTER_ADDR="${{first}}i" MASTER_PORT=PORT
srun bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc_per_node=2 --rdzv_id=$SLURM_JOB_ID {C10D} $MASTER_ADDR:$MASTER_PORT \\
    --rdzv_conf=is_host=$(if ((SLURM_NODEID)); then echo 0; else echo 1; fi) train.py'""", f"-N2 {ONE_EACH}", 2, 2)


@pytest.mark.parametrize("how", ["--node-rank $i --master-addr $first --master-port PORT",
                                 f"--rdzv-id $SLURM_JOB_ID {C10D} $first:PORT"])
def test_a_step_for_each_node(user, how):
    user.trains(FIRST_NAME + f"""
i=0
for node in $(scontrol show hostnames); do
    srun -N1 -n1 -w $node torchrun --nnodes 2 --nproc-per-node 2 {how} train.py &
    i=$((i+1))
done
wait""", f"-N2 {ONE_EACH}", 2, 2)


def test_the_address_of_the_host_of_srun(user):
    """Below sbatch it is the first node."""
    said = user.trains(f"srun bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc-per-node=2 {C10D} "
                       "$SLURM_LAUNCH_NODE_IPADDR:PORT train.py'", f"-N2 {ONE_EACH}", 2, 2)
    assert "where srun runs" not in said


@pytest.mark.parametrize("srun", ["", "srun "])
def test_variables_of_a_line_that_needs_them(user, srun):
    """MASTER_ADDR and the like, exported for workers without a launcher, change nothing; nor does a task for each GPU."""
    user.trains("export MASTER_ADDR=node1 MASTER_PORT=PORT WORLD_SIZE=$SLURM_NTASKS RANK=$SLURM_PROCID\n"
                f"{srun}torchrun train.py", "-N2 --ntasks-per-node=2 --gpus-per-node=2", 2, 2)


def test_each_task_exports_its_rank(user):
    """For `python train.py` in each task. With torchrun in its place, one task of a node is the agent."""
    script = "export MASTER_ADDR=node1 MASTER_PORT=PORT WORLD_SIZE=$SLURM_NTASKS\n" \
             "srun bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; exec {} train.py'"
    for program in ("python3", "torchrun"):
        user.trains(script.format(program), "-N2 --ntasks-per-node=2 --gpus-per-node=2", 2, 2)


@pytest.mark.parametrize("how", [f"{C10D} node1:PORT", "--node-rank=$SLURM_NODEID --master-addr=node1 --master-port=PORT"])
def test_a_task_for_each_gpu(user, how):
    """Under torchrun each of them is an agent, and two of one node may be all of the job."""
    said = user.trains(f"srun --wait=1 bash -c 'exec torchrun --nnodes=2 --nproc-per-node=2 {how} train.py'",
                       "-N2 --ntasks-per-node=2 --gpus-per-node=2", 2, 2)
    warnings = [line for line in said.splitlines() if "warning" in line and "this job is open" not in line]
    assert "never ran" not in said and not warnings


def test_two_jobs_of_one_script_do_not_mix(user):
    """With the run id and the port of the example, on the same hosts. One of them runs, and the other one is told why not."""
    line = f"srun torchrun --nnodes 2 --nproc_per_node 1 --rdzv_id 101 {C10D} node1:PORT --no-python {user.job.worker} start go"
    first, second = (user.submit(line, "-N2 --ntasks-per-node=1 -wnode[1-2] --cpus-per-task=1") for _ in range(2))
    user.job.events.wait("start", 2, 30, world=2)
    end = deadline(30)
    while all(user.output(n).count("the leader refused this node") < 2 for n in (first, second)):
        assert time.monotonic() < end, user.output(first) + user.output(second)
        pause(0.05)
    user.job.go()
    assert {user.slurm.end(n)["JobState"] for n in (first, second)} == {"COMPLETED"}
    said = sorted((user.output(n) for n in (first, second)), key=lambda text: "refused this node" in text)
    assert "status 0\n" in said[0] and "status 1\n" in said[1], said
    assert re.search(r"refused this node: it was started with 'Slurm's step emu\.\d+\.0: .*and the job there runs "
                     r"'Slurm's step emu\.\d+\.0: .*give each job an --rdzv-id and an endpoint of its own", said[1]), said[1]
    assert len(user.job.events.all("start")) == 2
    user.gone()


# ---- these are told ----

def test_no_srun(user):
    """Only the first node runs anything."""
    line = "torchrun --nnodes=2 --nproc-per-node=2 {} train.py"
    told = r"in the batch script of Slurm's job \d+, on one of its 2 nodes; if nothing else .* write srun before it"
    user.is_told(line.format(f"{C10D} $(hostname):PORT"), f"-N2 {ONE_EACH}", told)
    user.is_told(line.format("--node-rank=$SLURM_NODEID --master-addr=node1 --master-port=PORT"), f"-N2 {ONE_EACH}", told)


@pytest.mark.parametrize("nodes, told", [(4, r"asks for 4 nodes, but .* has 3 nodes: the job waits .*srun -N4"),
                                         (2, r"takes 2 nodes, but .* has 3 nodes: the others run nothing.*--spares=1")])
def test_a_number_of_nodes_that_was_not_adjusted(user, nodes, told):
    user.is_told(FIRST_NAME + f"srun torchrun --nnodes {nodes} --nproc_per_node 1 --rdzv_id 101 {C10D} $first:PORT train.py",
                 f"-N3 {ONE_EACH}", told)


@pytest.mark.parametrize("host", ["localhost", "127.0.1.1"])
def test_an_address_that_each_host_has(user, host):
    """As of a host whose own name is that of loopback: `hostname --ip-address`."""
    user.is_told(f"srun torchrun --nnodes 2 --nproc_per_node 1 {C10D} {host}:PORT train.py", f"-N2 {ONE_EACH}",
                 rf"{host} is another host on each node .* leave it out: muster then takes node1")


def test_several_addresses_of_a_host(user):
    """`hostname --ip-address` may print more than one: the second becomes the script."""
    user.is_told(f"address='fd88:1::1 10.88.1.1'\nsrun torchrun --nnodes 2 {C10D} $address:PORT train.py", f"-N2 {ONE_EACH}",
                 r"the program to run is 10\.88\.1\.1:\d+, which looks like an address: .* muster then takes node1")


def test_a_rank_that_the_batch_script_puts_in(user):
    user.is_told("srun torchrun --nnodes=2 --nproc-per-node=2 --node-rank=$SLURM_NODEID --master-addr=node1 "
                 "--master-port=PORT train.py", f"-N2 {ONE_EACH}", r"a batch script puts 0 in place of \$SLURM_NODEID .*"
                 "leave out --node-rank and --master-addr")


@pytest.mark.parametrize("meeting", ["--rdzv-endpoint=node1:PORT", "--master-addr=node1 --master-port=PORT"])
def test_a_rank_that_nobody_gives(user, meeting):
    """Without a backend the ranks are fixed, also with an endpoint."""
    user.is_told(f"srun torchrun --nnodes=2 --nproc-per-node=2 {meeting} train.py", f"-N2 {ONE_EACH}",
                 "no --node-rank is given, so each task of .* wants to be node 0; leave out --rdzv-endpoint and --master-addr, or add")


def test_a_name_that_does_not_resolve(user):
    user.is_told(f"srun torchrun --nnodes=2 {C10D} nowhere:PORT train.py", f"-N2 {ONE_EACH}",
                 "cannot look up the host name 'nowhere'")


def test_variables_that_nobody_has_set(user):
    """The script is put into one pair of variables and taken from another."""
    user.is_told(f'export SCRIPT=train.py SCRIPT_ARGS=--x\nsrun torchrun --nnodes 2 {C10D} node1:PORT $PYTHON_FILE $ARGS',
                 f"-N2 {ONE_EACH}", "no SCRIPT to run")


def test_the_host_of_srun_is_no_node(user):
    """Below salloc, srun runs where the user is."""
    agent = user.client("salloc", "--quiet", "-N2", *ONE_EACH.split(), "srun", "bash", "-c",
                        f"exec torchrun --nnodes=2 {C10D} $SLURM_LAUNCH_NODE_IPADDR:{user.port} train.py")
    agent.wait_said(r"10\.88\.1\.254 \(SLURM_LAUNCH_NODE_IPADDR\) is where srun runs; .*leave it out, and muster takes node1")
    user.slurm.run("scancel", user.only())
    agent.finish()
    user.gone()
