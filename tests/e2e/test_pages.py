"""The pages in docs/ are true: what they have the reader write is run here on a real Slurm of emulated
hosts (slurm.py), two hosts with two workers each; those of a library need a Python with it in MUSTER_TEST_FRAMEWORKS."""
import os
import re
import shlex
import signal
import subprocess

import pytest

from harness import HERE, free_port
from hosts import hosts_or_skip
from page_lines import lines
from slurm import slurm_or_skip
from sshd import sshd_or_skip
from test_slurm import MUSTER, Here

DOCS = HERE.parent.parent / "docs"
README = DOCS.parent / "README.md"
PACKAGE = DOCS.parent / "packaging" / "python"
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))
LIBRARIES = ["accelerate", "transformers", "deepspeed", "lightning", "jax"]
PYTHON = os.environ.get("MUSTER_TEST_FRAMEWORKS", "")
BY_HAND = re.compile(r"`(muster run [^`]*--rdzv-endpoint=node1:29400 train\.py)`")

TELLS = """\
import os
print("RESULT", *(os.environ[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK")), os.environ.get("SLURMD_NODENAME"), flush=True)
"""
# What a program calls in place of the image's own.
APPTAINER = """\
#!/bin/sh
[ "$1 $2 $3" = "exec --nv image.sif" ] || exit 9
shift 3
exec "$@"
"""


def blocks(page, kind):
    """The blocks of code of one kind, in their order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.M | re.S)


def script_of(page):
    """The batch script of the page."""
    found = [text for text in blocks(page, "sh") if text.startswith("#!/bin/bash\n")]
    assert len(found) == 1, found
    return found[0]


def test_there_is_a_page_for_each_of_them():
    assert {"slurm", *LIBRARIES} <= set(PAGES) and "docs/README.md" in README.read_text()


# ---- without a library ----

class Reader(Here):
    """Somebody who has read a page and has muster and a train.py."""

    def __init__(self, slurm, job, train=TELLS, python="/usr/bin/python3"):
        super().__init__(slurm, job)
        self.python = python
        self.bin = job.tmp / "bin"
        self.bin.mkdir()
        (self.bin / "muster").symlink_to(MUSTER)
        (job.tmp / "train.py").write_text(train)

    def env(self, more=None):
        return super().env({"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHON_EXEC": self.python, **(more or {})})

    def sbatch(self, script, seconds=60, **env):
        """Runs the script as it is. Returns its output when the job has completed."""
        path = self.job.tmp / "train.sbatch"
        path.write_text(script)
        number = self.slurm.run("sbatch", "--parsable", f"--output={self.job.tmp}/out-%j", path, folder=self.job.tmp,
                                env=self.job.env("a", self.env(env))).stdout.strip()
        facts = self.slurm.end(number, seconds)
        assert (facts["JobState"], facts["ExitCode"]) == ("COMPLETED", "0:0"), f"{facts}\n{self.output(number)[-6000:]}"
        self.gone()
        return self.output(number)

    def line(self, *words):
        """Runs these words of a user's shell."""
        return self.slurm.run(*words, folder=self.job.tmp, env=self.job.env("a", self.env())).stdout

    def all_four(self, said):
        """Each of the four workers has told, and there are two on each host."""
        found = sorted(line.split()[1:] for line in re.findall(r"RESULT .*", said))
        hosts = self.on(2, 2)
        assert found == [[str(n), "4", str(n % 2), hosts[n]] for n in range(4)], said


@pytest.fixture(scope="module")
def cluster():
    with slurm_or_skip(2, gpus=2) as slurm:
        yield slurm


@pytest.fixture
def reader(cluster, job):
    cluster.settle()
    return Reader(cluster, job)


@pytest.mark.parametrize("page", ["slurm", *LIBRARIES])
def test_the_batch_script_of_a_page(reader, page):
    reader.all_four(reader.sbatch(script_of(page)))


@pytest.mark.parametrize("line", [line for text in blocks("slurm", "sh")[1:] for line in text.splitlines()])
def test_the_lines_for_a_terminal(reader, line):
    reader.all_four(reader.line(*shlex.split(line)))


@pytest.mark.parametrize("line", ["muster run train.py", "srun muster run train.py"])
def test_the_lines_of_readme_in_a_job(reader, line):
    assert line in [found.text for found in lines() if found.page == "README.md"]
    reader.all_four(reader.sbatch(script_of("slurm").replace("exec muster run train.py", line)))


def test_the_line_that_asks_where_each_rank_is(reader):
    """On the login host, with the number of the job; and muster stop there."""
    line = re.search(r"`(srun --jobid=4711 [^`]* muster stacks)`", (DOCS / "slurm.md").read_text())[1]
    (reader.job.tmp / "train.py").write_text("import threading\nprint('there', flush=True)\nthreading.Event().wait()\n")
    agent = reader.client("salloc", "--quiet", "-N2", "--ntasks-per-node=1", "muster", "run", "--nproc-per-node=1", "train.py")
    assert agent.out.until(lambda: agent.output().count("there") == 2, 60), agent.said()
    said = reader.line(*shlex.split(line.replace("4711", reader.only())))
    assert "2 workers on 2 nodes\n" in said and "\nranks 0-1: wait" in said, said
    assert "the job is being stopped" in reader.line("muster", "stop")
    assert agent.finish()[0] == 128 + signal.SIGTERM, agent.said()
    reader.gone()


def test_an_image_of_apptainer(reader):
    """A stand-in that starts what follows the image's name: the ranks must reach it by the environment alone."""
    (reader.bin / "apptainer").write_text(APPTAINER)
    (reader.bin / "apptainer").chmod(0o755)
    (reader.bin / "python").symlink_to("/usr/bin/python3")
    line = re.search(r"`(muster run --no-python apptainer [^`]*)`", (DOCS / "slurm.md").read_text())[1]
    reader.all_four(reader.sbatch(script_of("slurm").replace("muster run train.py", line)))


@pytest.mark.parametrize("page", [page for page in LIBRARIES if BY_HAND.search((DOCS / f"{page}.md").read_text())])
def test_the_line_for_each_node_without_slurm(job, page):
    (job.tmp / "train.py").write_text(TELLS)
    line = BY_HAND.search((DOCS / f"{page}.md").read_text())[1]
    here = {"=node1:29400": f"=127.0.0.1:{free_port()}", "=gpu": "=2"}
    for there, instead in here.items():
        assert there in line
        line = line.replace(there, instead)
    agents = [job.agent(tag, *shlex.split(line)[2:], env={"PYTHON_EXEC": "/usr/bin/python3"}) for tag in "ab"]
    ended = [agent.finish() for agent in agents]
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert sorted(line.split()[1] for _, out, _ in ended for line in out.splitlines()) == ["0", "1", "2", "3"]


def test_a_host_file_of_deepspeed(job):
    """The same file, over ssh."""
    line = re.search(r"`(muster run --hostfile=hosts [^`]*)`", (DOCS / "deepspeed.md").read_text())[1]
    (job.tmp / "train.py").write_text(TELLS)
    (job.tmp / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    with sshd_or_skip(2) as cluster:
        env = job.env("a", {"MUSTER_RUN_DIR": "/dev/shm/muster", "HOME": str(cluster.home("login")),
                            "PYTHON_EXEC": "/usr/bin/python3"})
        words = [MUSTER, *shlex.split(line)[1:]]
        done = cluster.run(*words, folder=job.tmp, env=env, seconds=60)
    assert sorted(re.findall(r"RESULT (\d \d \d)", done.stdout)) == ["0 4 0", "1 4 1", "2 4 0", "3 4 1"], done


# ---- for users ----

IDLES_ONCE = """\
import json, os, signal
print("begin", os.environ["TORCHELASTIC_RESTART_COUNT"], os.getpid(), flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    signal.pause()
"""


def test_the_line_of_the_page_on_warm_restarts(job):
    """muster says what the page says, at the first start and at the next."""
    (job.tmp / "train.py").write_text(IDLES_ONCE)
    words = shlex.split(blocks("warm", "sh")[0])
    assert words[:2] == ["muster", "run"]
    cold, warm = "cold because its imports are not known yet", "all 2 workers start warm"
    assert all(f"`{said}`" in (DOCS / "warm.md").read_text() for said in (cold, warm))
    agent = job.agent("a", "--warm-after=0.3", *words[2:], env={"PYTHON_EXEC": "/usr/bin/python3"})
    agent.wait_said(cold)
    agent.wait_said("2 processes wait for the next start")
    os.kill(int(re.search(r"begin 0 (\d+)", agent.output())[1]), signal.SIGKILL)
    agent.wait_said(warm)
    assert agent.wait() == 0 and agent.output().count("begin 1 ") == 2, agent.said()


# ---- for administrators ----

def words_of_line(page, begin):
    """The words of a line in backquotes."""
    return shlex.split(re.search(rf"`({begin}[^`]*)`", (DOCS / f"{page}.md").read_text())[1])


def test_what_the_pages_on_security_name_is_there():
    text = (DOCS / "security.md").read_text()
    assert all((DOCS.parent / name).exists() for name in re.findall(r"`(examples/[^`]+)`", text))
    assert "docs/security.md" in README.read_text() and "(SECURITY.md)" in README.read_text()


def listening(hosts, n):
    """The ports at which somebody listens on host n."""
    words = [*hosts.enter(n), "sh", "-c", "cat /proc/net/tcp /proc/net/tcp6"]
    rows = [row.split() for row in subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()]
    return {int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A"}


def reaches(hosts, n, at, port):
    """Whether a connection from host n is accepted there; a firewall that drops lets it wait."""
    code = f"import socket; socket.create_connection(({at!r}, {port}), 1)"
    return subprocess.run([*hosts.enter(n), "/usr/bin/python3", "-c", code], capture_output=True).returncode == 0


def test_the_firewall_of_the_page_on_security(job):
    """Two hosts of a job run behind these rules, and a third one reaches no port of theirs."""
    rules, = blocks("security", "sh")
    for networks, ours in (("10.1.0.0/16", "10.88.0.1, 10.88.0.2"), ("fd01::/64", "fd88::1, fd88::2")):
        assert networks in rules
        rules = rules.replace(networks, ours)
    program, run, *words = words_of_line("security", "muster run --rdzv-endpoint=node1:29400")
    assert (program, run) == ("muster", "run")
    with hosts_or_skip(3) as hosts:
        if subprocess.run([*hosts.enter(0), "nft", "list", "ruleset"], capture_output=True).returncode:
            pytest.skip("needs nft")
        for n in (0, 1):
            subprocess.run([*hosts.enter(n), "sh", "-ec", rules], check=True)
        words = [word.replace("node1", hosts.address(0)) for word in words]
        agents = [job.agent(f"h{n}", *words, "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=page", "--no-python", job.worker,
                            "start", "go", prefix=hosts.enter(n)) for n in (0, 1)]
        job.events.wait("start", 2, world=2)
        for n in (0, 1):
            ports = listening(hosts, n)
            assert ports and all(29400 <= port <= 29499 for port in ports), ports
            for address in (f"10.88.0.{n + 1}", f"fd88::{n + 1}"):
                assert not any(reaches(hosts, 2, address, port) for port in ports)
        assert reaches(hosts, 1, hosts.address(0), 29400)
        job.go()
        for agent in agents:
            assert agent.finish()[0] == 0, agent.said()


def test_what_the_page_on_security_adds_to_a_pod(job):
    """The key comes from the Secret, may be read by the pod's user, and nodes with it meet; one without is refused."""
    yaml = pytest.importorskip("yaml", reason="needs python3-yaml")
    folder = DOCS.parent / "examples" / "kubernetes"
    jobs = {d["kind"]: d for d in yaml.safe_load_all((folder / "indexed-job.yaml").read_text())}
    policy = yaml.safe_load((folder / "network-policy.yaml").read_text())
    pods = {"matchLabels": {"batch.kubernetes.io/job-name": jobs["Job"]["metadata"]["name"]}}
    assert (policy["apiVersion"], policy["kind"]) == ("networking.k8s.io/v1", "NetworkPolicy")
    assert policy["spec"] == {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": pods}]}]}
    pod, (text,) = jobs["Job"]["spec"]["template"]["spec"], blocks("security", "yaml")
    more = yaml.safe_load(text)
    container, volume = more["containers"][0], more["volumes"][0]
    variable, mount = container["env"][0], container["volumeMounts"][0]
    assert container["name"] == pod["containers"][0]["name"]
    assert more["securityContext"] == {"fsGroup": pod["securityContext"]["runAsUser"]}, "else the user can't read the file"
    assert mount["name"] == volume["name"] and mount["readOnly"] is True
    assert mount["mountPath"] not in {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    create = words_of_line("security", "kubectl create secret generic")
    assert create[4] == volume["secret"]["secretName"]
    assert variable == {"name": "MUSTER_KEY_FILE", "value": f"{mount['mountPath']}/{create[5].split('=')[1]}"}
    key = job.tmp / "key"  # as the kubelet leaves it: root's, and the group's of the pod
    key.write_text("muster-key-1:" + "5a" * 32)
    key.chmod(volume["secret"]["defaultMode"])
    with hosts_or_skip(3) as hosts:
        meet = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address(0)}:29400", "--rdzv-id=page",
                "--no-python", job.worker, "start", "go"]
        agents = {}
        for n in (0, 2, 1):
            agents[n] = job.agent(f"h{n}", "--rdzv-conf=join_timeout=20", *meet, prefix=hosts.enter(n),
                                  env={variable["name"]: key} if n < 2 else None)
            if n == 2:
                agents[2].wait_said("admits only those who have its key")
        job.events.wait("start", 2, world=2)
        job.go()
        assert [agents[n].finish()[0] == 0 for n in (0, 1, 2)] == [True, True, False], agents[2].said()


# ---- with the libraries ----

CPU = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "JAX_PLATFORMS": "cpu", "ACCELERATE_USE_CPU": "true",
       "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
       "TRANSFORMERS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
# Of JAX, what the page says about its arguments: the number of processes and the GPU of each.
JAX_TELLS = """
from jax._src.xla_bridge import CUDA_VISIBLE_DEVICES as gpu
from jax.experimental import multihost_utils

total = multihost_utils.process_allgather(jax.numpy.array([int(os.environ["RANK"]) + 1.0])).sum()
print("RESULT", f"rank={os.environ['RANK']} world={os.environ['WORLD_SIZE']} value={float(total)}",
      f"processes={jax.process_count()} gpu={gpu.value}", flush=True)
jax.distributed.shutdown()
"""
# The worker with rank 3 fails once, after the first checkpoint.
FAILS_ONCE = """
import os

import transformers


class Fails(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, **more):
        Fails.first = state.global_step

    def on_step_end(self, args, state, control, **more):
        if state.global_step == 3 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "3":
            os._exit(1)


"""


def changed(text, *changes):
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def trainer_of(page):
    """A program that does what the page says."""
    code = "\n\n".join(blocks(page, "python"))
    if page == "jax":
        return code + JAX_TELLS
    text = (HERE / "frameworks" / f"train_{page}.py").read_text()
    if page == "lightning":
        return code + changed(text, ("devices=2, num_nodes=common.nodes()", "**SHAPE"))
    if page == "transformers":
        return code + FAILS_ONCE + changed(
            text, ("tempfile.TemporaryDirectory() as folder:", "open(os.devnull):"),
            ("TrainingArguments(folder,", 'TrainingArguments("out", save_steps=2,'), ('save_strategy="no"', 'save_strategy="steps"'),
            ("train_dataset=Rows())", "train_dataset=Rows(), callbacks=[Fails])"), ("trainer.train()\n", "train(trainer)\n"),
            ("processes=arguments.world_size", "processes=arguments.world_size, first=Fails.first"))
    return text


@pytest.mark.slow
@pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="no Python in MUSTER_TEST_FRAMEWORKS")
@pytest.mark.parametrize("page", LIBRARIES)
def test_a_library_as_its_page_says(cluster, job, page):
    if subprocess.run([PYTHON, "-c", f"import {page}"], capture_output=True).returncode:
        pytest.skip(f"{page} is not installed in MUSTER_TEST_FRAMEWORKS")
    cluster.settle()
    reader = Reader(cluster, job, trainer_of(page), PYTHON)
    (job.tmp / "common.py").write_text((HERE / "frameworks" / "common.py").read_text())
    said = reader.sbatch(script_of(page), 300, **CPU)
    found = sorted("RESULT" + line.split("\n")[0] for line in said.split("RESULT")[1:])
    assert len(found) == 4 and all(f"rank={n} world=4 " in line and "processes=4" in line
                                   for n, line in enumerate(found)), said[-6000:]
    assert len({re.search(r"value=(\S+)", line)[1] for line in found}) == 1, found
    if page == "transformers":  # it went on from the checkpoint
        assert all("first=2" in line for line in found), said[-6000:]
    if page == "jax":
        assert [re.search(r"gpu=(\S+)", line)[1] for line in found] == ["0", "1", "0", "1"], found
    if page == "accelerate":
        assert all("precision=bf16" in line for line in found), found


@pytest.mark.slow
@pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="no Python in MUSTER_TEST_FRAMEWORKS")
def test_jax_with_an_argument_too_few(cluster, job):
    """What the page warns of: JAX takes what is missing from Slurm's variables, which are those of the agents."""
    if subprocess.run([PYTHON, "-c", "import jax"], capture_output=True).returncode:
        pytest.skip("jax is not installed in MUSTER_TEST_FRAMEWORKS")
    cluster.settle()
    few = changed(trainer_of("jax"), (', local_device_ids=[env["LOCAL_RANK"]]', "")) + (
        "from jax._src.clusters.slurm_cluster import SlurmCluster as slurm\n"
        "print('COUNTED', slurm.is_env_present(), slurm.get_process_count(), slurm.get_process_id(), flush=True)\n")
    said = Reader(cluster, job, few, PYTHON).sbatch(script_of("jax"), 120, **CPU)
    assert re.findall(r"processes=4 gpu=(\d+)", said) == ["0"] * 4, said
    assert sorted(re.findall(r"COUNTED (.*)", said)) == ["True 2 0", "True 2 0", "True 2 1", "True 2 1"], said


@pytest.mark.slow
@pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="no Python in MUSTER_TEST_FRAMEWORKS")
def test_a_script_for_accelerate_launch(cluster, job):
    """As Accelerate's own example for several nodes has it, with MUSTER_REPLACE_TORCHRUN=1 and no other change."""
    if subprocess.run([PYTHON, "-c", "import accelerate"], capture_output=True).returncode:
        pytest.skip("accelerate is not installed in MUSTER_TEST_FRAMEWORKS")
    cluster.settle()
    reader = Reader(cluster, job, (HERE / "frameworks" / "train_accelerate.py").read_text(), PYTHON)
    (job.tmp / "common.py").write_text((HERE / "frameworks" / "common.py").read_text())
    (job.tmp / "sitecustomize.py").write_text((PACKAGE / "muster.pth").read_text())  # instead of the wheel
    (reader.bin / "accelerate").symlink_to(os.path.join(os.path.dirname(PYTHON), "accelerate"))
    script = f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 --cpus-per-task=2
address=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export LAUNCHER="accelerate launch --multi_gpu --num_processes $((SLURM_NNODES * 2)) --num_machines $SLURM_NNODES \\
    --rdzv_backend c10d --main_process_ip $address --main_process_port {free_port()}"
export SCRIPT="train.py"
srun bash -c "exec $LAUNCHER --machine_rank \\$SLURM_PROCID $SCRIPT"
"""
    said = reader.sbatch(script, 300, **CPU, MUSTER_REPLACE_TORCHRUN="1", MUSTER_BINARY=MUSTER,
                         PYTHONPATH=f"{PACKAGE}:{job.tmp}")
    assert "muster: attempt 1: 2 nodes, 4 workers" in said, said
    assert sorted(re.findall(r"RESULT rank=(\d) world=4 .* processes=4", said)) == ["0", "1", "2", "3"], said[-6000:]
