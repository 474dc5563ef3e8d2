"""Binding: what real workers see, and that torchrun's modes do the same as in torchrun."""
import contextlib
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid

import pytest

from harness import HERE, MUSTER, SLOWER, TORCH_PYTHON

sys.path.insert(0, str(HERE.parent / "tools"))

import make_tree  # noqa: E402

TESTS = pathlib.Path(MUSTER).parents[2] / "tests"
PROCESS_WORKER = TESTS / "test-worker"
AFFINITY = TESTS / "test-affinity"
CPUS = sorted(os.sched_getaffinity(0))
TORCH_MODES = ("node", "socket", "exclusive", "core-complex")


def numbers(text):
    """{0, 1, 5} of "0-1,5"."""
    found = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def listed(cpus):
    return ",".join(map(str, sorted(cpus)))


def core_of(cpu):
    path = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return frozenset(numbers(path.read_text().strip()) & set(CPUS)) if path.exists() else frozenset({cpu})


CORES = sorted({core_of(cpu) for cpu in CPUS}, key=min)


def nodes_here():
    """{node: its CPUs that we are allowed to use} of this machine."""
    found = {}
    for folder in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"):
        cpus = numbers((folder / "cpulist").read_text().strip()) & set(CPUS)
        if cpus:
            found[int(folder.name[4:])] = cpus
    return found


NODES = nodes_here()


def policies_work():
    program = "import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(%d, None, None, 0, None, 0) != 0)"
    number = {"x86_64": 239, "aarch64": 236}.get(os.uname().machine, 239)
    return subprocess.run([sys.executable, "-c", program % number]).returncode == 0


needs_policies = pytest.mark.skipif(not policies_work(), reason="get_mempolicy() is refused here")
one_node = pytest.mark.skipif(len(NODES) != 1, reason="written for a machine with one NUMA node")
has_gpus = os.path.exists("/proc/driver/nvidia/gpus") or os.path.exists("/dev/nvidia0")
no_gpus = pytest.mark.skipif(has_gpus, reason="there are GPUs here")


def bound(job, *words, nproc=2, env=None, asks=(), status=0, command=None):
    """What each worker prints about its CPUs, its memory policy and some variables; and the agent's output."""
    asks = [f"env={name}" for name in asks]
    logs = pathlib.Path(tempfile.mkdtemp(dir=job.tmp))
    with contextlib.ExitStack() as stack:
        if command is not None:
            stack.callback(os.sched_setaffinity, 0, CPUS)
            os.sched_setaffinity(0, command)
        code, out, err = job.run(f"--nproc-per-node={nproc}", "-r", "1", "--log-dir", logs, *words,
                                 "--no-python", PROCESS_WORKER, "bound", *asks, env=env or {})
    assert code == status, (out, err)
    said = {}
    for log in logs.rglob("stdout.log"):
        said[int(log.parent.name)] = log.read_text().splitlines()
    return said, err


# --- seen from inside ------------------------------------------------------------------------------------------------


@no_gpus
def test_without_gpus_nothing_is_bound_and_nothing_is_said(job):
    said, err = bound(job)
    assert {r: lines[0] for r, lines in said.items()} == {r: f"{listed(CPUS)} default" for r in (0, 1)}
    assert "bound" not in err


def test_bind_none_binds_nothing(job):
    said, err = bound(job, "--bind=none")
    assert said[0][0] == f"{listed(CPUS)} default"
    assert "bound" not in err


@no_gpus
@one_node
@needs_policies
@pytest.mark.parametrize("memory, policy", [(None, "preferred-many"), ("preferred", "preferred-many"), ("strict", "bind")])
@pytest.mark.parametrize("how", ["numa", "socket"])
def test_all_workers_of_one_node_get_that_node(job, how, memory, policy):
    said, err = bound(job, f"--bind={how}", *([f"--bind-memory={memory}"] if memory else []))
    assert [said[r][0] for r in (0, 1)] == [f"{listed(CPUS)} {policy} {min(NODES)}"] * 2
    assert err.count("workers are bound to CPUs: local rank 0-1 to ") == 1


@no_gpus
@one_node
@needs_policies
@pytest.mark.parametrize("memory, policy", [("preferred", "preferred-many"), ("strict", "bind"), ("off", None)])
def test_memory_follows_own_cores_too(job, memory, policy):
    said, _ = bound(job, "--bind=core", f"--bind-memory={memory}", nproc=len(CORES))
    for rank, core in enumerate(CORES):
        assert said[rank][0] == f"{listed(core)} " + (f"{policy} {min(NODES)}" if policy else "default")


@no_gpus
@needs_policies
def test_memory_stays_the_kernels_where_it_is_told_so(job):
    said, _ = bound(job, "--bind=numa", "--bind-memory=off")
    assert said[0][0].endswith(" default")


@no_gpus
def test_each_worker_gets_cores_of_its_own(job):
    said, err = bound(job, "--bind=core", "-v", nproc=len(CORES))
    sets = [numbers(said[r][0].split()[0]) for r in range(len(CORES))]
    assert sorted(map(frozenset, sets), key=min) == CORES
    assert "local rank 0: CPUs " in err and "an own share of" in err


@no_gpus
def test_more_workers_than_cores_share_them(job):
    said, err = bound(job, "--bind=core", "-v", nproc=2 * len(CORES))
    sets = [frozenset(numbers(said[r][0].split()[0])) for r in range(2 * len(CORES))]
    assert sets == [core for core in CORES for _ in (0, 1)]
    assert "share" in err


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
@pytest.mark.parametrize("how", ["numa", "core"])
def test_a_muster_that_may_use_few_cpus_gives_no_more(job, how):
    last = CORES[-1]
    said, err = bound(job, f"--bind={how}", nproc=len(last) + 1, command=last)
    assert [numbers(said[r][0].split()[0]) for r in range(len(last) + 1)] == [set(last)] * (len(last) + 1)
    assert f"{len(last) + 1} workers share {len(last)} CPU" in err and "srun" not in err


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_few_cpus_for_many_workers_are_told_of(job):
    _, err = bound(job, "--bind=none", nproc=len(CPUS), command=CPUS[:-1], env={"SLURM_JOB_ID": "7"})
    assert f"{len(CPUS)} workers share {len(CPUS) - 1} CPU" in err
    assert "no more may be used here (srun --cpus-per-task=N gives more)" in err
    _, err = bound(job, "--bind=none", nproc=len(CPUS) - 1, command=CPUS[:-1])
    assert "workers share" not in err
    if len(CPUS) == os.cpu_count():  # there are no more
        _, err = bound(job, "--bind=none", nproc=len(CPUS) + 1)
        assert "workers share" not in err


@contextlib.contextmanager
def cpuset_of(cpus):
    """A cgroup that may use these CPUs, and the file with that setting."""
    folder = pathlib.Path("/sys/fs/cgroup/cpuset")
    folder = (folder if folder.exists() else pathlib.Path("/sys/fs/cgroup")) / f"muster-test-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError as e:
        pytest.skip(f"no cgroup can be made here: {e}")
    try:
        try:
            (folder / "cpuset.cpus").write_text(listed(cpus))
            (folder / "cpuset.mems").write_text(listed(NODES))
        except OSError as e:
            pytest.skip(f"cgroups have no cpuset here: {e}")
        yield folder
    finally:
        folder.rmdir()


IN_CGROUP = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@no_gpus
@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
@pytest.mark.parametrize("how", ["numa", "socket", "core"])
def test_a_cgroup_with_few_cpus_gives_no_more(job, monkeypatch, how):
    with cpuset_of(CORES[-1]) as folder:
        monkeypatch.setenv("MUSTER_TEST_COMMAND", shlex.join(["sh", "-c", IN_CGROUP, str(folder), MUSTER, "run"]))
        said, err = bound(job, f"--bind={how}")
    assert [numbers(said[r][0].split()[0]) for r in (0, 1)] == [set(CORES[-1])] * 2
    assert f"workers are bound to CPUs: local rank 0-1 to {listed(CORES[-1])}" in err


@no_gpus
@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_cpus_that_a_cgroup_takes_away_are_not_used_by_the_next_start(job, monkeypatch):
    """Local rank 0 does it before it fails, after 1 has started; then 1 has none of its own CPUs left."""
    worker = f"""'{PROCESS_WORKER}' bound
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit
[ $LOCAL_RANK = 1 ] && echo begun > "$2"
[ $LOCAL_RANK = 0 ] || exec '{PROCESS_WORKER}' wait
read begun < "$2"
echo {listed(CORES[0])} > "$1/cpuset.cpus" && exit 3"""
    os.mkfifo(job.tmp / "begun")
    with cpuset_of(CPUS) as folder:
        monkeypatch.setenv("MUSTER_TEST_COMMAND", shlex.join(["sh", "-c", IN_CGROUP, str(folder), MUSTER, "run"]))
        code, out, err = job.run(f"--nproc-per-node={len(CORES)}", "--bind=core", "--max-restarts=1", "--crash-loop=0",
                                 "--log-dir", job.tmp / "logs", "-r", "1", "--no-python", "sh", "-c", worker, "worker",
                                 folder, job.tmp / "begun")
    assert code == 0, (out, err)
    said = {(log.parts[-4], int(log.parent.name)): numbers(log.read_text().partition(" ")[0])
            for log in (job.tmp / "logs").rglob("stdout.log") if "latest" not in log.parts}
    first, second = sorted({generation for generation, _ in said})
    assert [said[first, rank] for rank in (0, 1)] == [set(core) for core in CORES[:2]]
    assert [said[second, rank] for rank in range(len(CORES))] == [set(CORES[0])] * len(CORES)
    assert "may be used any more" in err


# Like Docker's own list of system calls for containers without CAP_SYS_NICE: no mbind, set_mempolicy, get_mempolicy.
WITHOUT_POLICIES = """
import ctypes, os, struct, sys
calls = {"x86_64": (237, 238, 239), "aarch64": (235, 236, 237)}[os.uname().machine]
code = struct.pack("HBBI", 0x20, 0, 0, 0)                                   # the call's number
for i, call in enumerate(calls):
    code += struct.pack("HBBI", 0x15, len(calls) - i, 0, call)              # to the last line, if it is this one
code += struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000)                         # allowed
code += struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | 1)                     # EPERM
text = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):                # NO_NEW_PRIVS; SECCOMP, FILTER
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def contained(job, monkeypatch):
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("numbers of system calls are not known here")
    refused = [sys.executable, "-c", WITHOUT_POLICIES]
    if subprocess.run([*refused, "/bin/true"], capture_output=True).returncode != 0:
        pytest.skip("no seccomp here")
    monkeypatch.setenv("MUSTER_TEST_COMMAND", shlex.join([*refused, MUSTER, "run"]))
    return job


@no_gpus
def test_where_memory_policies_are_refused_cpus_are_bound(contained):
    said, err = bound(contained, "--bind=core", "-v", nproc=len(CORES))
    assert [said[r][0] for r in range(len(CORES))] == [f"{listed(core)} errno 1" for core in CORES]
    assert "memory policies are refused here" in err
    assert "memory first" not in err


@no_gpus
def test_who_insists_on_memory_hears_that_policies_are_refused(contained):
    _, err = bound(contained, "--bind=numa", "--bind-memory=strict", status=1)
    assert "cannot bind it to its NUMA nodes' memory: Operation not permitted (a container that may not" in err


@no_gpus
def test_threads_as_many_as_a_worker_has_cores(job):
    n = len(CORES)
    said, _ = bound(job, "--omp=cores", nproc=1, asks=["OMP_NUM_THREADS"])
    assert said[0][1] == str(n)


@no_gpus
@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_threads_are_the_share_of_workers_that_share_cores(job):
    said, err = bound(job, "--omp=cores", "--bind=numa", "-v", nproc=2, asks=["OMP_NUM_THREADS"])
    assert said[0][1] == str(max(len(CORES) // 2 // len(NODES), 1) if len(NODES) == 1 else said[0][1])
    assert "as many as it has cores" in err


def test_threads_that_the_user_chose_stay(job):
    said, err = bound(job, "--omp=cores", "-v", nproc=1, asks=["OMP_NUM_THREADS"], env={"OMP_NUM_THREADS": "7"})
    assert said[0][1] == "7"
    assert "OMP_NUM_THREADS=7 from the environment is kept" in err


def test_each_worker_sees_gpus_of_its_own(job):
    said, _ = bound(job, "--gpus-per-worker=2", asks=["CUDA_VISIBLE_DEVICES"], env={"CUDA_VISIBLE_DEVICES": "5,4,3,2"})
    assert [said[r][1] for r in (0, 1)] == ["5,4", "3,2"]


def test_too_few_gpus_for_all_workers_is_a_failure_with_a_sentence(job):
    _, err = bound(job, "--gpus-per-worker=2", env={"CUDA_VISIBLE_DEVICES": "5,4,3"}, status=1)
    assert "--gpus-per-worker: CUDA_VISIBLE_DEVICES=5,4,3 has no device for local rank 1" in err


@no_gpus
def test_torchruns_modes_need_gpus(job):
    _, err = bound(job, "--numa-binding=node", status=2)
    assert "this node has none" in err


@pytest.mark.parametrize("words", [("--bind=numa", "--numa-binding=node"), ("--bind-memory=off", "--numa-binding=node"),
                                   ("--gpus-per-worker=2", "--virtual-local-rank"), ("--bind=near",)])
def test_what_makes_no_sense_together_is_refused(job, words):
    bound(job, *words, status=2)


@no_gpus
def test_workers_that_start_again_are_bound_again_and_it_is_said_once(job):
    job.go()
    code, _, err = job.run("--nproc-per-node=2", "--bind=numa", "--max-restarts=1", "--crash-loop=0", "--no-python", job.worker,
                           "start", "count=0", "exit=3")
    assert code == 0, err
    assert err.count("workers are bound to CPUs") == 1


# --- on a machine that has two sockets and eight GPUs, as far as its files say ----------------------------------------

INSIDE = 'mount --bind "$0/sys" /sys && mount --bind "$0/proc/driver" /proc/driver && exec "$@"'
NVML_SCRIPTS = HERE.parent / "tools" / "nvml"


def may_mount():
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/sys"], capture_output=True).returncode == 0


@pytest.fixture
def machine(job, tmp_path, monkeypatch):
    """Runs muster where /sys and /proc/driver are those of a tree: CPU 0 on one socket, CPU 1 on the other."""
    def on(preset):
        if CPUS != [0, 1] or has_gpus or not may_mount():
            pytest.skip("needs the CPUs 0 and 1, no GPU, and mount namespaces")
        tree = tmp_path / "tree"
        make_tree.make(preset, str(tree), cores=1, smt=1, l3_cores=1)
        (tree / "proc/driver").mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("MUSTER_TEST_COMMAND", shlex.join(["unshare", "-m", "sh", "-c", INSIDE, str(tree), MUSTER, "run"]))
        return tree
    return on


@pytest.fixture
def gpus(job, machine):
    """4 GPUs on each socket."""
    machine("2s-8gpu-8nic")
    return lambda *words, **more: bound(job, *words, **{"nproc": 8, **more})


@pytest.fixture
def amd_gpus(job, machine):
    """The same for AMD; the kernel numbers the GPUs of the second socket first."""
    tree = machine("amd-8gpu")
    places = sorted(path.name for path in (tree / "sys/bus/pci/devices").iterdir()
                    if (path / "vendor").read_text().strip() == "0x1002")
    nodes = tree / "sys/class/kfd/kfd/topology/nodes"
    for i, place in enumerate([None, None, *places[4:], *places[:4]]):
        (nodes / str(i)).mkdir(parents=True)
        bus, slot = (int(place[5:7], 16), int(place[8:10], 16)) if place else (0, 0)
        (nodes / str(i) / "properties").write_text(
            f"cpu_cores_count {0 if place else 1}\nsimd_count {440 if place else 0}\n"
            f"location_id {bus << 8 | slot << 3}\ndomain 0\nunique_id {i + 1000}\n")
    return lambda *words, **more: bound(job, *words, **{"nproc": 8, **more})


@needs_policies
def test_workers_are_bound_near_their_gpus_by_default(gpus):
    said, err = gpus()
    assert [said[r][0] for r in range(4)] == ["0 preferred-many 0"] * 4
    # In reality the memory of node 1 does not exist: a preference that can't be set is left out.
    assert [said[r][0] for r in range(4, 8)] == ["1 default"] * 4
    assert err.count("workers are bound to CPUs: local rank 0-3 to 0, memory first of node 0; 4-7 to 1") == 1


def test_the_visible_gpus_say_who_is_where(gpus):
    said, err = gpus("-v", nproc=2, env={"CUDA_VISIBLE_DEVICES": "7,0"})
    assert [said[r][0].split()[0] for r in (0, 1)] == ["1", "0"]
    assert "local rank 0: CPUs 1 (NUMA node 1 of GPU 0 (0000:35:00.0))" in err
    said, _ = gpus("--gpus-per-worker=4", nproc=2, asks=["CUDA_VISIBLE_DEVICES"])
    assert [(said[r][0].split()[0], said[r][1]) for r in (0, 1)] == [("0", "0,1,2,3"), ("1", "4,5,6,7")]


def test_a_single_worker_belongs_to_all_gpus_that_it_sees(gpus):
    said, err = gpus(nproc=1)
    assert said[0][0] == "0,1 default" and "bound" not in err
    said, err = gpus("-v", nproc=1)
    assert said[0][0] == "0,1 default"
    assert "local rank 0: not bound: all CPUs here are of NUMA nodes 0-1 of GPUs 0-7" in err
    said, err = gpus("-v", nproc=1, env={"CUDA_VISIBLE_DEVICES": "5,6,7"})
    assert said[0][0].split()[0] == "1"
    assert "local rank 0: CPUs 1 (NUMA node 1 of GPUs 0-2)" in err
    for words, cpus in ((["--bind=numa"], "0"), (["--bind=numa", "--gpus-per-worker=5"], "0,1"),
                        (["--gpus-per-worker=1"], "0"), (["--virtual-local-rank"], "0"), (["--bind=core"], "0,1")):
        said, err = gpus(*words, nproc=1)
        assert said[0][0].split()[0] == cpus and "workers are bound to CPUs: local rank 0 to " in err, words


def test_amds_gpus_are_those_that_rocm_shows(amd_gpus):
    said, err = amd_gpus()
    assert [said[r][0].split()[0] for r in range(8)] == ["1"] * 4 + ["0"] * 4
    assert err.count("workers are bound to CPUs: local rank 0-3 to 1; 4-7 to 0") == 1
    said, err = amd_gpus("-v", nproc=2, env={"ROCR_VISIBLE_DEVICES": "7,3,0", "HIP_VISIBLE_DEVICES": "2,0"})
    assert [said[r][0].split()[0] for r in (0, 1)] == ["1", "0"]
    assert "local rank 0: CPUs 1 (NUMA node 1 of GPU 0 (0000:" in err
    said, err = amd_gpus(nproc=2, env={"CUDA_VISIBLE_DEVICES": "GPU-00000000000003ee"})  # the 1006th, of the first socket
    assert [said[r][0].split()[0] for r in (0, 1)] == ["0", "0,1"]
    assert "local rank 1 is not bound: there is no GPU for it among the 1 visible" in err
    said, err = amd_gpus(nproc=2, env={"HIP_VISIBLE_DEVICES": ""})
    assert said[0][0] == "0,1 default" and "bound" not in err
    said, _ = amd_gpus("--numa-binding=node")
    assert [said[r][0] for r in range(8)] == ["1 default"] * 4 + ["0 default"] * 4
    _, err = amd_gpus("--numa-binding=node", nproc=1, env={"HIP_VISIBLE_DEVICES": ""}, status=1)  # as torchrun
    assert "no GPU is visible here; --bind works without" in err


def test_names_of_gpus_and_of_their_parts_say_who_is_where(gpus, tmp_path):
    def name(i):
        return f"GPU-00000000-0000-0000-0000-{i:012x}"
    said, err = gpus("-v", nproc=2, env={"CUDA_VISIBLE_DEVICES": f"{name(6)},{name(1)}"})
    assert [said[r][0].split()[0] for r in (0, 1)] == ["1", "0"]
    if not (TESTS / "libnvidia-ml.so.1").exists():
        pytest.skip("the stand-in for NVML is not built")
    places = sorted(path.name for path in (tmp_path / "tree/proc/driver/nvidia/gpus").iterdir())
    script = tmp_path / "mig.txt"
    script.write_text("driver 550.54.15\ncount 8\ngpu 0-7 name \"NVIDIA H100 80GB HBM3\" cc 9.0\n" + "".join(
        f"gpu {i} busid 0000{place} uuid {name(i)} mig 1\n"
        f"gpu {i} mig-uuid MIG-{i}a\ngpu {i} mig-uuid MIG-{i}b\n" for i, place in enumerate(places)))
    more = {"LD_LIBRARY_PATH": str(TESTS), "FAKE_NVML_SCRIPT": str(script)}
    said, err = gpus(nproc=1, env={"CUDA_VISIBLE_DEVICES": "MIG-7a", **more})
    assert said[0][0].split()[0] == "1", err
    said, err = gpus("--virtual-local-rank", nproc=3, asks=["CUDA_VISIBLE_DEVICES"],
                     env={"CUDA_VISIBLE_DEVICES": "MIG-4b,MIG-0a,MIG-4a", **more})
    assert [(said[r][0].split()[0], said[r][1]) for r in range(3)] == [("1", "MIG-4b"), ("0", "MIG-0a"), ("1", "MIG-4a")]
    said, err = gpus("--bind=numa", nproc=1, env={"CUDA_VISIBLE_DEVICES": "MIG-none", **more})
    assert said[0][0] == "0,1 default"
    assert "no worker is bound: CUDA_VISIBLE_DEVICES names GPUs that can't be distinguished here" in err


def test_who_has_no_gpu_is_not_bound_by_default(gpus):
    said, err = gpus(nproc=9)
    assert [said[r][0].split()[0] for r in range(9)] == ["0"] * 4 + ["1"] * 4 + ["0,1"]
    assert "local rank 8 is not bound: there is no GPU for it among the 8 visible" in err


def test_gpus_of_unknown_place_bind_nobody(job, machine):
    machine("vm-flat")
    said, err = bound(job, nproc=4)
    assert [said[r][0] for r in range(4)] == ["0,1 default"] * 4
    assert "bound" not in err  # there is but one NUMA node
    said, err = bound(job, "--bind=numa", nproc=4)
    assert [said[r][0] for r in range(4)] == ["0,1 default"] * 4
    assert "no worker is bound: the NUMA node of GPU 0 (0000:" in err


def test_a_worker_for_each_gpu_of_amd(amd_gpus):
    for how, env, expected in (("gpu", {}, 8), ("auto", {}, 8), ("gpu", {"HIP_VISIBLE_DEVICES": "3,1,2"}, 3),
                               ("auto", {"ROCR_VISIBLE_DEVICES": "4,5"}, 2), ("auto", {"ROCR_VISIBLE_DEVICES": ""}, len(CPUS))):
        said, err = amd_gpus(nproc=how, env=env)
        assert len(said) == expected, (how, env, err)
    _, err = amd_gpus(nproc="gpu", env={"ROCR_VISIBLE_DEVICES": ""}, status=2)
    assert "no GPU is visible" in err


def test_nothing_is_bound_on_request(gpus):
    said, err = gpus("--bind=none", nproc=2)
    assert said[0][0] == "0,1 default" and "bound" not in err


def test_torchruns_modes_bind_real_workers(gpus):
    for mode in ("node", "socket", "core-complex"):
        said, _ = gpus(f"--numa-binding={mode}")
        assert [said[r][0] for r in range(8)] == ["0 default"] * 4 + ["1 default"] * 4, mode


def test_torchruns_modes_that_can_not_bind_end_the_job(gpus):
    _, err = gpus("--numa-binding=exclusive", status=1)
    assert "NUMA node 0 has 1 core that may be used, fewer than its 4 GPUs" in err
    _, err = gpus("--numa-binding=node", nproc=9, status=1)
    assert "local rank 8 needs a GPU of its own, and 8 are visible" in err


@needs_policies
def test_a_memory_policy_of_whom_started_muster_stays_by_default(gpus, monkeypatch):
    number = {"x86_64": 238, "aarch64": 237}[os.uname().machine]
    interleave = f"import ctypes, os, sys; ctypes.CDLL(None).syscall({number}, 3, ctypes.byref(ctypes.c_ulong(1)), 64); " \
                 "os.execvp(sys.argv[1], sys.argv[1:])"
    command = os.environ["MUSTER_TEST_COMMAND"]
    monkeypatch.setenv("MUSTER_TEST_COMMAND", shlex.join([sys.executable, "-c", interleave]) + " " + command)
    said, err = gpus()
    assert [said[r][0] for r in range(8)] == ["0 interleave 0"] * 4 + ["1 interleave 0"] * 4
    assert "memory first" not in err
    said, _ = gpus("--bind=numa")
    assert [said[r][0] for r in range(4)] == ["0 preferred-many 0"] * 4


@needs_policies
def test_memory_that_is_not_to_be_had_is_an_error_where_it_is_insisted_on(gpus):
    _, err = gpus("--bind-memory=strict", status=1)
    assert "cannot bind it to its NUMA nodes' memory: Invalid argument" in err


@pytest.mark.parametrize("script", ["hang-init", "hang-links"])
def test_nvml_that_hangs_costs_its_deadline_and_a_warning(gpus, script):
    if not (TESTS / "libnvidia-ml.so.1").exists():
        pytest.skip("the stand-in for NVML is not built")
    begun = time.monotonic()
    said, err = gpus(env={"LD_LIBRARY_PATH": str(TESTS), "FAKE_NVML_SCRIPT": str(NVML_SCRIPTS / f"{script}.txt")})
    assert [said[r][0].split()[0] for r in range(8)] == ["0"] * 4 + ["1"] * 4
    assert err.count("NVML did not answer in 2.0 s") == 1
    assert 2 <= time.monotonic() - begun < 4 + 8 * SLOWER


# --- nothing is done that is not needed -------------------------------------------------------------------------------


def processes_of(tmp_path, *words, program=("/bin/true",)):
    """The system calls of muster's own processes that start or name processes and open libraries, by strace."""
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-f", "-o", str(trace), "-e", "trace=openat,prctl,clone,clone3,fork,vfork,set_mempolicy,sched_setaffinity",
                    MUSTER, "run", *words, "--no-python", *program], check=True, stderr=subprocess.DEVNULL,
                   env={"PATH": os.environ["PATH"], "ASAN_OPTIONS": "detect_leaks=0"})  # what strace holds can't look for them
    return trace.read_text()


def strace_works():
    with contextlib.suppress(OSError):
        return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0
    return False


needs_strace = pytest.mark.skipif(not strace_works(), reason="no strace that may trace")


@no_gpus
@needs_strace
@pytest.mark.parametrize("words", [(), ("--bind=none",), ("--bind=none", "--nccl-env=off")])
def test_no_look_without_a_need(tmp_path, words):
    trace = processes_of(tmp_path, *words)
    assert "system/node" not in trace and "nvidia-ml" not in trace
    helpers = re.findall(r'PR_SET_NAME, "([^"]*)"', trace)
    forks = [line for line in trace.splitlines() if " clone" in line or "fork(" in line]
    started = len([line for line in forks if "= -1" not in line and "resumed" not in line])
    # muster-tidy runs on a busy machine, where a short job is no longer short
    assert set(helpers) - {"muster-tidy"} == {"muster-logs"}, helpers
    assert started == 2 + len(helpers), forks         # guardian's agent, worker


@needs_strace
def test_a_short_job_starts_no_process_for_leftovers(tmp_path):
    begun = time.monotonic()
    trace = processes_of(tmp_path, program=("/bin/sleep", "0.3"))
    assert "muster-tidy" not in trace or time.monotonic() - begun > 1


@no_gpus
@needs_strace
def test_the_look_is_seen_where_it_is_needed(tmp_path):
    trace = processes_of(tmp_path, "--bind=numa")
    assert "system/node" in trace and "set_mempolicy" in trace


# --- torchrun's modes ------------------------------------------------------------------------------------------------


def ours(tree, cases, modes):
    """For each case of allowed CPUs and visible GPUs: {mode: [CPUs of each worker, or "unbound" or "error"]}"""
    words = [AFFINITY, tree]
    for allowed, visible in cases:
        words += ["@" + ("all" if allowed is None else listed(allowed)) +
                  "@" + ("all" if visible is None else ",".join(map(str, visible))), *modes]
    run = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert run.returncode == 0, (words, run.stderr)
    found = []
    for line in run.stdout.splitlines():
        if line == "@":
            found.append({mode: [] for mode in modes})
            continue
        mode, _, rest = line.split(" ", 2)
        cpus = rest.split(";")[0]
        found[-1][mode].append(cpus if cpus in ("unbound", "error") else sorted(numbers(cpus)))
    return found


def our(tree, modes, visible=None):
    return ours(tree, [(None, visible)], modes)[0]


def torchs(cases):
    run = subprocess.run([TORCH_PYTHON, str(HERE.parent / "tools" / "torch_numa.py")], input=json.dumps(cases),
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def agree(torch, we):
    """The result must be Torch's set wherever Torch gives one. If Torch fails because a node is absent or not allowed:
    the set without that node. If there are fewer cores than GPUs: an error, as in Torch."""
    if "cpus" in torch:
        return we == torch["cpus"]
    if "left_out" in torch:
        return we == torch["left_out"]
    if "physical cores" in torch["error"] and "only 0 " not in torch["error"]:
        return we == "error"
    return we == "unbound"


def random_machine(chance):
    """Fields of an unusual, random machine."""
    nodes, sockets = chance.choice([1, 1, 2, 4]), chance.choice([1, 2, 2])
    total = nodes * sockets
    places = tuple(make_tree.Place(chance.choice([-1, *range(total)]), [make_tree.Gpu() for _ in range(chance.randint(1, 3))],
                                   chance.choice(["switch", "port", "bus"])) for _ in range(chance.randint(1, 4)))
    l3_cores = chance.choice([1, 2, 3, 4])  # a cache is of one node: hwloc knows no other
    return dict(sockets=sockets, nodes=nodes, cores=l3_cores * chance.randint(1, 4), smt=chance.choice([1, 2, 2, 4]),
                l3_cores=l3_cores, places=places)


def allowances(tree, chance):
    """All CPUs; every second one; the higher hyperthread of each core; half of one socket; any."""
    online = numbers((pathlib.Path(tree) / "sys/devices/system/cpu/online").read_text().strip())
    cpus = sorted(online)
    half = len(cpus) // 2
    return [None, cpus[::2], cpus[half:], cpus[:half], cpus[:1], sorted(chance.sample(cpus, max(half, 1))),
            sorted(chance.sample(cpus, max(len(cpus) - 2, 1)))]


def trees_of(folder, chance):
    """(tree, [(allowed, visible)...])"""
    machines = [(name, {}) for name in ("2s-8gpu-8nic", "1s-4gpu-1nic", "vm-flat", "vm-domains", "snc4-gap", "gpu-memory", "efa")]
    machines += [("2s-8gpu-8nic", random_machine(chance)) for _ in range(12)]
    for i, (preset, changes) in enumerate(machines):
        tree = str(folder / f"tree{i}")
        make_tree.make(preset, tree, **changes)
        gpus = len(list((pathlib.Path(tree) / "proc/driver/nvidia/gpus").iterdir()))
        yield tree, [(allowed, visible) for allowed in allowances(tree, chance)
                     for visible in (None, chance.sample(range(gpus), chance.randint(1, gpus)))]


@pytest.mark.torch
def test_torchruns_modes_give_the_cpus_of_torchs_own_code(tmp_path):
    seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 30)))
    trees = list(trees_of(tmp_path, random.Random(seed)))
    answers = iter(torchs([{"tree": tree, "allowed": a, "visible": v} for tree, cases in trees for a, v in cases]))
    compared, died = 0, 0
    for tree, cases in trees:
        for case, we in zip(cases, ours(tree, cases, TORCH_MODES)):
            torch = next(answers)
            for mode in TORCH_MODES:
                assert len(we[mode]) == len(torch[mode]), (seed, tree, case, mode)
                for gpu, answer in enumerate(torch[mode]):
                    assert agree(answer, we[mode][gpu]), (f"seed {seed}", tree, case, mode, gpu, answer, we[mode][gpu])
                    compared += "cpus" in answer
                    died += "error" in answer
    assert compared > 1000, (compared, died)
    print(f"{compared} sets of CPUs alike, {died} times torch died; seed {seed}")


# --- our modes on machines with two sockets --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """2 sockets of 16 cores with 2 threads, 4 GPUs each: CPUs 0-15,32-47 and 16-31,48-63."""
    tree = tmp_path_factory.mktemp("big")
    make_tree.make("2s-8gpu-8nic", str(tree))
    return tree


SOCKETS = [sorted([*range(16), *range(32, 48)]), sorted([*range(16, 32), *range(48, 64)])]


def test_bind_numa_is_near_the_gpu(big):
    we = our(big, ["bind-numa", "bind-socket"])
    assert we["bind-numa"] == we["bind-socket"] == [SOCKETS[0]] * 4 + [SOCKETS[1]] * 4
    assert our(big, ["bind-numa"], [7, 0])["bind-numa"] == [SOCKETS[1], SOCKETS[0]]


def test_bind_core_gives_each_worker_cores_near_its_gpu(big):
    we = our(big, ["bind-core"])["bind-core"]
    for rank, cpus in enumerate(we):
        first = rank * 4
        assert cpus == sorted([*range(first, first + 4), *range(32 + first, 36 + first)])
    # Two GPUs of the second socket and one of the first: the share of the first two ends in the other socket.
    we = our(big, ["bind-core"], [4, 5, 0])["bind-core"]
    assert [len(cpus) for cpus in we] == [22, 22, 20]
    assert len(set().union(*we)) == 64 and sum(map(len, we)) == 64
    assert set(we[0]) <= set(SOCKETS[1]) and set(we[2]) <= set(SOCKETS[0])


def a_gpu_on_each_of(*nodes):
    return tuple(make_tree.Place(node, [make_tree.Gpu()], "port") for node in nodes)


def test_with_several_nodes_in_a_socket_numa_is_a_part_of_it(tmp_path):
    """NPS4, SNC4: GPU i sits on node i of four; two sockets of four nodes with four cores with two threads."""
    make_tree.make("2s-8gpu-8nic", str(tmp_path / "t"), nodes=4, cores=4, places=a_gpu_on_each_of(0, 1, 2, 7))
    nodes = [sorted([*range(4 * n, 4 * n + 4), *range(4 * n + 32, 4 * n + 36)]) for n in range(8)]
    we = our(tmp_path / "t", ["bind-numa", "bind-socket", "bind-core", *TORCH_MODES])
    assert we["bind-numa"] == we["node"] == [nodes[0], nodes[1], nodes[2], nodes[7]]
    assert we["bind-socket"] == we["socket"] == [sorted(sum(nodes[:4], []))] * 3 + [sorted(sum(nodes[4:], []))]
    shares = [set(cpus) for cpus in we["bind-core"]]  # eight cores each: the own node, and another four of the socket
    for share, node in zip(shares, (0, 1, 2, 7)):
        assert len(share) == 16 and share >= set(nodes[node])
    assert len(set().union(*shares)) == 64


def test_gpus_on_nodes_of_memory_only_are_near_the_cpus_that_the_kernel_says(tmp_path):
    """Nodes 2 and 3 have memory but no CPUs; 2 is near node 1, and 3 is near node 0."""
    make_tree.make("2s-cpu", str(tmp_path / "t"), cores=2, smt=1, memory_nodes=(2, 3), places=a_gpu_on_each_of(2, 3, 1))
    for node, distances in enumerate(("10 32 80 40", "32 10 40 80", "80 40 10 80", "40 80 80 10")):
        (tmp_path / f"t/sys/devices/system/node/node{node}/distance").write_text(distances + "\n")
    we = our(tmp_path / "t", ["bind-numa", "bind-socket", "bind-numa/8"])
    assert we["bind-numa"] == we["bind-socket"] == [[2, 3], [0, 1], [2, 3]]
    # If they are equally far from all nodes, the nearest is not known.
    make_tree.make("2s-cpu", str(tmp_path / "u"), cores=2, smt=1, memory_nodes=(2, 3), places=a_gpu_on_each_of(2, 3, 1))
    assert our(tmp_path / "u", ["bind-numa"])["bind-numa"] == ["unbound", "unbound", [2, 3]]


GRACE = {"gb200": ([range(72)] * 2 + [range(72, 144)] * 2, 34), "gh200": ([range(72)], 9),
         "gh200-4": ([range(72 * s, 72 * s + 72) for s in range(4)], 36)}


@pytest.mark.parametrize("preset", GRACE)
def test_on_grace_workers_are_near_their_gpu_and_the_nodes_of_gpus_have_no_cpus(tmp_path, preset):
    """Eight nodes for each GPU, of which the first has its memory. hwloc lends them CPUs."""
    make_tree.make(preset, str(tmp_path / "t"))
    cpus, nodes = GRACE[preset]
    we = our(tmp_path / "t", ["bind-numa", "node", "bind-numa/8"])
    assert we["bind-numa"] == we["node"] == [list(c) for c in cpus]
    def shown(*options):
        return subprocess.run([MUSTER, "topo", "--sysroot", tmp_path / "t", *options], capture_output=True, text=True, check=True).stdout
    numa = json.loads(shown("--json"))["numa"]
    assert len(numa) == nodes and [n["cpus"] for n in numa[:len(set(cpus))]] == [f"{c.start}-{c.stop - 1}" for c in dict.fromkeys(cpus)]
    assert {n["cpus"] for n in numa[len(set(cpus)):]} == {""}
    tree = shown("--tree")
    assert tree.count(": CPUs ") == len(set(cpus)) and "no CPUs" in tree, tree
    assert shown("--svg=-").count("no CPUs") + shown("--svg=-").count("memory of") >= nodes - len(set(cpus))


def test_gpus_with_memory_as_nodes_of_their_own_are_near_their_processor(tmp_path):
    make_tree.make("gpu-memory", str(tmp_path / "t"))
    we = our(tmp_path / "t", ["bind-numa", "bind-socket", "node"])
    sockets = [sorted(c + 16 * thread + 8 * s for c in range(8) for thread in range(4)) for s in (0, 1)]
    assert we["bind-numa"] == we["bind-socket"] == we["node"] == [sockets[0]] * 2 + [sockets[1]] * 2


def test_cpus_that_are_offline_are_not_bound_to(tmp_path):
    """CPU 1 of cores 0,4 and 1,5 on one socket, 2,6 and 3,7 on the other."""
    make_tree.make("2s-8gpu-8nic", str(tmp_path / "t"), cores=2, smt=2, l3_cores=2)
    system = tmp_path / "t/sys/devices/system"
    (system / "cpu/online").write_text("0,2-7\n")
    (system / "cpu/cpu1/online").write_text("0\n")
    shutil.rmtree(system / "cpu/cpu1/topology")  # as the kernel does
    shutil.rmtree(system / "cpu/cpu1/cache")
    (system / "node/node0/cpulist").write_text("0,4-5\n")
    (system / "node/node0/cpumap").write_text("31\n")
    (system / "cpu/cpu5/topology/thread_siblings_list").write_text("5\n")
    (system / "cpu/cpu5/topology/thread_siblings").write_text("20\n")
    we = our(tmp_path / "t", ["bind-numa/5", "bind-core/4"])
    assert we["bind-numa/5"] == [[0, 4, 5]] * 4 + [[2, 3, 6, 7]]
    assert we["bind-core/4"] == [[0, 4], [5], [2, 6], [3, 7]]


def test_cpus_above_1023_are_cpus(tmp_path):
    """Two CPUs, the second of which the kernel counts as 1100."""
    make_tree.make("2s-8gpu-8nic", str(tmp_path / "t"), cores=1, smt=1, l3_cores=1, places=a_gpu_on_each_of(0, 1))
    system = tmp_path / "t/sys/devices/system"
    (system / "cpu/cpu1").rename(system / "cpu/cpu1100")
    (system / "node/node1/cpu1").unlink()
    (system / "node/node1/cpu1100").symlink_to("../../cpu/cpu1100")
    for file in [*(system / "cpu/cpu1100").rglob("*"), *(system / "node/node1").iterdir()]:
        if file.is_file() and file.name.endswith(("_list", "cpulist")):
            file.write_text("1100\n")
        elif file.is_file() and file.name.endswith(("_map", "_cpus", "siblings", "cpumap")):
            file.write_text("00001000" + 34 * ",00000000" + "\n")  # 1100 is 34 * 32 + 12
    for name in ("online", "present", "possible"):
        (system / "cpu" / name).write_text("0,1100\n")
    we = our(tmp_path / "t", ["bind-numa", "bind-socket", "bind-core", "node"])
    assert list(we.values()) == [[[0], [1100]]] * 4


def test_nodes_and_packages_are_dealt_in_blocks_without_gpus(tmp_path):
    make_tree.make("2s-cpu", str(tmp_path / "t"), nodes=2, cores=2, smt=1)
    nodes = [[0, 1], [2, 3], [4, 5], [6, 7]]
    we = our(tmp_path / "t", ["bind-numa/8", "bind-numa/4", "bind-numa/3", "bind-numa/1", "bind-socket/2",
                                           "bind-socket/4", "bind-core/8", "bind-core/3"])
    assert we["bind-numa/8"] == [n for n in nodes for _ in (0, 1)]
    assert we["bind-numa/4"] == nodes
    assert we["bind-numa/3"] == [[0, 1], [2, 3], [4, 5, 6, 7]]
    assert we["bind-numa/1"] == [list(range(8))]
    assert we["bind-socket/2"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert we["bind-socket/4"] == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2
    assert we["bind-core/8"] == [[c] for c in range(8)]
    assert we["bind-core/3"] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_a_gpu_whose_node_nobody_knows_leaves_its_worker_unbound(tmp_path):
    make_tree.make("vm-flat", str(tmp_path / "t"))
    we = our(tmp_path / "t", ["bind-numa", "bind-socket", "bind-core", "node"])
    assert we["bind-numa"] == we["bind-socket"] == ["unbound"] * 4
    assert sum(map(len, we["bind-core"])) == len(set().union(*we["bind-core"])) == len(we["node"][0])
