"""The kit for a GPU (tests/gpu): each judge with right facts and wrong ones, and the whole kit without a GPU and with a fake NVML."""
import copy
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import harness

KIT = harness.HERE.parent / "gpu"
sys.path[:0] = [str(KIT), str(harness.HERE.parent / "tools")]

import checks  # noqa: E402
import judges  # noqa: E402
import make_tree  # noqa: E402

JUDGES = {name: judge for row in checks.TABLE for name, judge in row[4].items()}

# ---- facts: what an H100 80GB HBM3 with driver 580.159.04 and PyTorch 2.11 showed, where that was recorded ----

SMI_MATRIX = "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t0-15\t0\t\tN/A\n\nLegend:\n\n  X    = Self\n"
OUR_MATRIX = "      GPU0  CPU Affinity  NUMA Affinity  GPU NUMA ID\nGPU0  X     0-15          0              N/A\n\nLegend:\n  X     the device itself\n"
# As nvidia-smi prints two GPUs and an adapter.
SMI_NIC = ("\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV18\tPXB\t0-7\t0\t\tN/A\n"
           "GPU1\tNV18\t X \tSYS\t8-15\t1\t\tN/A\nNIC0\tPXB\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n")
OUR_NIC = ("        GPU0  GPU1  mlx5_0  CPU Affinity  NUMA Affinity  GPU NUMA ID\nGPU0    X     NV18  PXB     0-7           0              N/A\n"
           "GPU1    NV18  X     SYS     8-15          1              N/A\nmlx5_0  PXB   SYS   X       0-7           0\n")
SMI = """
==============NVSMI LOG==============

Driver Version                                         : 580.159.04
CUDA Version                                           : 13.0

Attached GPUs                                          : 1
GPU 00000000:00:06.0
    Product Name                                       : NVIDIA H100 80GB HBM3
    Product Brand                                      : NVIDIA
    GPU UUID                                           : GPU-a80f615a-7688-7f04-0d14-dd4cb61400e2
    GPU Recovery Action                                : None
"""
GPU = {"bus_id": "0000:00:06.0", "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-a80f615a-7688-7f04-0d14-dd4cb61400e2"}
ENV = """vm: 1 GPU, NVIDIA H100 80GB HBM3; NCCL 2.28.9; PyTorch 2.11.0

Set by muster
  NCCL_RAS_ADDR=localhost:PORT
  CUDA_DEVICE_ORDER=PCI_BUS_ID
  TORCH_FR_BUFFER_SIZE=2000
"""
HUNG = ("muster: the job hangs: most workers have waited for 15 s, while rank 1 was busy (--hang-timeout); rank 0 (node vm, pid 932): futex() in "
        "all_reduce from sync (worker.py:94), still for 14 s; rank 1 (node vm, pid 933): runs in sync (worker.py:92); stopping 2 workers; restart 1 of 1")
REPORTED = ("muster: warning: the job hangs: most workers have waited for 15 s (--hang-timeout); the only rank (node vm, pid 565): runs in item "
            "(worker.py:101); nothing is stopped: no rank waits in a collective or for the job's store; --hang-action=restart restarts anyway")
CHECKS = [{"level": level, "code": code, "text": text} for level, code, text in (
    ("ok", "GPU", "1 x NVIDIA H100 80GB HBM3"), ("ok", "GPU-FREE", "no process holds a GPU"),
    ("warn", "CLOCK-UNSYNCED", "no NTP or PTP daemon synchronizes the clock, according to the kernel"))]
ACTION = [{"result": 0, "value": 0}]
PLACE = {"share": {"R": 0.98, "S futex futex_do_wait": 0.02}, "samples": 79, "main_cpu": 0.99, "other_cpu": 0.01}

RIGHT = {
    "topo": {"muster": OUR_MATRIX, "smi": SMI_MATRIX, "seconds": 0.12},
    "gpus": {"muster": {"gpus": [GPU], "driver": "580.159.04", "cuda": "13.0"}, "smi": SMI},
    "nvml-child": {"seconds": 0.09, "total_s": 0.12, "rss_kib": 14000, "in_parent": False, "init_s": 0.03, "read_s": 0.001},
    "check": {"checks": CHECKS, "names": [GPU["name"]], "seconds": 0.13, "status": 0},
    "gpu-busy": {"checks": [{"level": "fail", "code": "GPU-BUSY", "text": "1 process holds GPUs already: python3 (4711, GPU 0)"}], "status": 1,
                 "pid": 4711},
    "binding": {"near": ["0-15"], "workers": {"0": "0-15"}, "allowed": "0-15"},
    "recovery": {"root": ACTION, "user": ACTION, "smi": ["None"], "kmsg": {"root": "0 Xids", "user": "Operation not permitted"}},
    "env": {"text": ENV, "seconds": 0.12, "count": 1, "nccl": "2.28.9", "torch": "2.11.0"},
    "events": {"root": {"register": 0, "type": 8, "xid": 31, "at": 10.1}, "user": {"register": 0, "type": 8, "xid": 31, "at": 10.1},
               "fault": 700, "fault_at": 10.0},
    "nccl-example": {"status": 0, "text": "sum of 256 MiB over 1 GPUs: right; 0.210 ms, bus bandwidth 0.00 GB/s"},
    "restarts": {"seconds": {"warm": 0.44, "warm-process": 0.5, "cold": 7.6, "torchrun": 9.5}, "warm_started": True, "warm_process_started": True,
                 "imported": "imported 1868 modules in 7.9 s"},
    "warm-refused": {"refused": {"cold_because": "importing opens /dev/nvidia-uvm /dev/nvidia0 /dev/nvidiactl", "seconds": 8.4}},
    "healthy": {"text": "[1795740324.091 r0 c0] done kernels of 6.1 6.4 s\n", "status": 0},
    "main-thread": {"places": {name: PLACE for name in ("item", "event", "backward", "nccl")}, "seconds": 4, "text": ""},
    "hang-sync": {"text": HUNG, "status": 0, "restarted": True, "done": 2, "reported_s": 15.3},
    "hang-item": {"text": REPORTED, "status": None, "restarted": False, "done": 0, "reported_s": 15.4},
    "hang-nccl": {"text": HUNG, "status": 0, "restarted": True, "done": 1, "reported_s": 16.0},
    "evidence": {"gpus": "0000:00:06.0: busy 100 %, 1980 of 1980 MHz\n", "ras": "job: 1 process\n", "gaps": [], "own_ras": "{}", "own_ras_json": True},
    "recorder": {"dump": {"bytes": 5000, "collectives": ["nccl:all_reduce"]}},
    "nccl-worker": {"communicates": "NCCL 2 28 9", "warnings": [], "text": ""},
    "killed": {"free_start": 80552, "free_held": 40276, "freed_s": 0.5, "restart_s": 4.0, "free_restart": 80026, "works": True},
    "leftover": {"text": "", "status": 0, "failed_at": 1.0, "ended_at": 3.1, "restart_at": 3.2, "second": True},
}
# Each of them makes a failure of right facts: (check, path of keys, wrong value)
WRONG = [
    ("topo", ["muster"], OUR_MATRIX.replace("0-15", "0-7 ")), ("topo", ["muster"], "muster: NVML: no answer"), ("topo", ["smi"], "No devices"),
    ("gpus", ["muster", "gpus", 0, "uuid"], "GPU-0"), ("gpus", ["muster", "gpus", 0, "bus_id"], "0000:00:07.0"), ("gpus", ["muster", "cuda"], "12.4"),
    ("gpus", ["muster", "gpus"], []), ("gpus", ["smi"], "No devices were found"),
    ("nvml-child", ["in_parent"], True), ("nvml-child", ["seconds"], 2.5), ("nvml-child", ["rss_kib"], 0),
    ("check", ["checks"], CHECKS[1:]), ("check", ["checks", 0, "text"], "2 x NVIDIA H100 80GB HBM3"),
    ("check", ["checks", 1], {"level": "fail", "code": "GPU-BUSY", "text": "1 process holds GPUs already: x (1)"}),
    ("check", ["checks", 2], {"level": "warn", "code": "GPU-COUNT", "text": "the driver has 1 GPU, the PCI bus 2"}),
    ("gpu-busy", ["pid"], 471), ("gpu-busy", ["status"], 0), ("gpu-busy", ["checks"], CHECKS),
    ("binding", ["near"], ["0-7"]), ("binding", ["workers"], {}),
    ("recovery", ["root", 0, "value"], 1), ("recovery", ["root", 0, "value"], 77), ("recovery", ["user"], [{"result": 0, "value": 1}]),
    ("env", ["count"], 2), ("env", ["nccl"], "2.27.3"), ("env", ["torch"], "2.9.0"), ("env", ["text"], ENV.replace("NCCL_RAS_ADDR=", "")),
    ("env", ["text"], "muster: NVML hangs"),
    ("events", ["root"], {"register": 0, "type": None}), ("events", ["root", "register"], 3), ("events", ["user"], {"register": 0, "type": None}),
    ("nccl-example", ["status"], 1), ("nccl-example", ["text"], "nccl-allreduce: element 3 is 7 and should be 1"),
    ("restarts", ["seconds", "warm"], 7.0), ("restarts", ["seconds", "warm-process"], None), ("restarts", ["seconds", "cold"], 20.0),
    ("restarts", ["warm_started"], False), ("restarts", ["warm_process_started"], False),
    ("warm-refused", ["refused", "cold_because"], None), ("warm-refused", ["refused", "cold_because"], "importing leaves threads: x"),
    ("warm-refused", ["refused", "seconds"], None),
    ("healthy", ["text"], "muster: warning: the job hangs: nothing has moved for 10 s (--hang-still): main threads used at most 15997.4 ms of CPU\n"
     "[1 r0 c0] done kernels of 6.1 6.4 s\n"), ("healthy", ["text"], ""), ("healthy", ["status"], None),
    ("main-thread", ["places", "item", "samples"], 3), ("main-thread", ["places"], {"item": PLACE}),
    ("main-thread", ["places", "nccl", "share"], {"R": 0.5}),
    ("hang-sync", ["text"], HUNG.replace("rank 1 (node", "rank 2 (node")), ("hang-sync", ["restarted"], False), ("hang-sync", ["done"], 1),
    ("hang-sync", ["status"], 1), ("hang-sync", ["text"], "[1 r0 c0] done"),
    ("hang-item", ["text"], HUNG), ("hang-item", ["restarted"], True), ("hang-item", ["text"], ""),
    ("hang-nccl", ["restarted"], False), ("hang-nccl", ["text"], ""), ("hang-nccl", ["done"], 0), ("hang-nccl", ["status"], None),
    ("evidence", ["gpus"], None), ("evidence", ["gpus"], "0000:00:06.0: lost, or needs a reset\n"), ("evidence", ["ras"], None),
    ("recorder", ["dump"], None), ("recorder", ["dump", "bytes"], 0), ("recorder", ["dump", "collectives"], ["nccl:broadcast"]),
    ("nccl-worker", ["communicates"], None),
    ("nccl-worker", ["warnings"], ["Warning: Environment variable TORCH_NCCL_TRACE_BUFFER_SIZE is deprecated; use TORCH_FR_BUFFER_SIZE instead"]),
    ("killed", ["free_restart"], 40300), ("killed", ["works"], False), ("killed", ["restart_s"], None),
    ("leftover", ["second"], False), ("leftover", ["restart_at"], 2.0), ("leftover", ["ended_at"], None), ("leftover", ["status"], 1),
]


def changed(facts, path, value):
    facts = copy.deepcopy(facts)
    part = facts
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return facts


def test_each_check_has_right_and_wrong_facts():
    assert set(RIGHT) == set(JUDGES) == {name for name, _, _ in WRONG} == set(checks.NAMES)


def test_each_judge_passes_what_is_right_and_fails_what_is_wrong():
    judged = [(name, JUDGES[name](facts), True) for name, facts in RIGHT.items()]
    judged += [((name, *path, value), JUDGES[name](changed(RIGHT[name], path, value)), False) for name, path, value in WRONG]
    assert not [(what, answer) for what, answer, wanted in judged if answer[0] is not wanted or not answer[1]]


def test_adapters_are_found_by_the_legend():
    facts = {"muster": OUR_NIC, "smi": SMI_NIC, "seconds": 0.1}
    assert judges.topo(facts)[0], judges.topo(facts)
    assert not judges.topo({**facts, "muster": OUR_NIC.replace("PXB  ", "PIX  ")})[0]


def test_ras_that_does_not_answer_is_a_gap():
    facts = {**RIGHT["evidence"], "ras": None, "own_ras": "", "own_ras_json": False,
             "gaps": ["NCCL RAS: no worker offers the service"]}
    for answer in ("", "an answer of NCCL before 2.28.7"):
        assert judges.evidence({**facts, "own_ras": answer})[0]
    assert not judges.evidence({**facts, "gaps": []})[0]


# ---- the whole kit ----

def kit(out, *words, command=(KIT / "run.sh",), status=0, env=None, enter=()):
    """Runs it; {check: result}, and the report's text."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("MUSTER_NVML", "FAKE_NVML", "GPU_KIT"))}
    done = subprocess.run([*enter, *command, "--out", out, *words], capture_output=True, text=True, timeout=300 * harness.SLOWER, cwd=out.parent,
                          env={**base, **(env or {})})
    print(done.stdout, done.stderr)
    assert done.returncode == status, done
    report = json.loads((out / "report.json").read_text())
    assert done.stdout == (out / "report.txt").read_text()
    return {r["name"]: r for r in report["checks"]}, done.stdout


MUSTER = ["--muster", harness.MUSTER]


def test_without_a_gpu_every_check_is_skipped_by_name(tmp_path):
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("there is a GPU here")
    began = time.monotonic()
    found, text = kit(tmp_path / "out", *MUSTER)
    assert list(found) == checks.NAMES and time.monotonic() - began < 120
    for name, result in found.items():
        assert result["state"] == "skipped" and result["reason"].startswith("no GPU: "), result
        assert f"\nskipped {name} " in text
    assert "0 passed, 0 failed, 22 skipped" in text


def test_what_is_packed_needs_nothing_beside_it(tmp_path):
    file = tmp_path / "kit.sh"
    subprocess.run([KIT / "run.sh", "--pack", file, *MUSTER], check=True)
    assert file.stat().st_size < 40 << 20
    found, text = kit(tmp_path / "out", "--only", "topo,killed", command=(file,))
    assert list(found) == ["topo", "killed"] and "muster " in text
    assert not list(pathlib.Path(tempfile.gettempdir()).glob("tmp.*/tests/gpu/kit.py")), "its folder is removed"


@pytest.mark.parametrize("words, why", [
    (["--only", "topo,nothing"], "no such check: 'nothing'"), (["--only", ","], "no such check: ''"),
    (["--limit=1"], "--limit"), (["--limit=-5"], "--limit"), (["--limit=nan"], "--limit"),
    (["--muster", "/nowhere"], "/nowhere is not executable"), (["--muster=/tmp"], "/tmp can't be executed"),
    (["--muster=/bin/false"], "/bin/false does not work"),
    (["--out", "/dev/null"], "can't write to /dev/null"), (["--out", "/proc/nothing"], "can't write to /proc/nothing"),
    (["--pack", ""], "--pack needs a file"), (["--pack", "/tmp/kit.sh"], "--pack takes no --out")])
def test_a_wrong_command_line_is_refused(tmp_path, words, why):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([KIT / "run.sh", "--out", tmp_path / "out", *MUSTER, *words], capture_output=True, text=True, env=env)
    assert done.returncode == 2 and why in done.stderr and "Traceback" not in done.stderr, done
    assert not list(tmp_path.glob("muster-gpu-kit.*")), "nothing is left"


@pytest.mark.parametrize("to_all", [False, True], ids=["to it", "as ^C"])
@pytest.mark.parametrize("out_is_removed", [False, True], ids=["out", "no out"])
def test_a_packed_kit_that_is_stopped_leaves_nothing(tmp_path, to_all, out_is_removed):
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("there is a GPU here")
    file, out, folder = tmp_path / "kit.sh", tmp_path / "out", tmp_path / "tmp"
    folder.mkdir()
    subprocess.run([KIT / "run.sh", "--pack", file, *MUSTER], check=True)
    mark, script = f"GPU_KIT_TEST={os.urandom(8).hex()}", tmp_path / "script"
    os.mkfifo(script)  # NVML hangs while it reads this
    env = {**os.environ, **harness.nvml_env(tmp_path, "none"), "FAKE_NVML_SCRIPT": str(script), "TMPDIR": str(folder),
           **dict([mark.split("=")])}
    process = subprocess.Popen([file, "--out", out], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    held = []
    opens = threading.Thread(target=lambda: held.append(open(script, "w", encoding="utf-8")), daemon=True)
    opens.start()
    opens.join(60 * harness.SLOWER)
    assert held and list(folder.iterdir()), "the kit has not reached NVML"
    if out_is_removed:
        shutil.rmtree(out)
    if to_all:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    text, error = process.communicate(timeout=60 * harness.SLOWER)
    assert process.returncode == 143 and "0 passed, 0 failed, 22 skipped" in text and "Traceback" not in error, (text, error)
    assert ("can't write to" in error) == out_is_removed and not list(folder.iterdir()), error
    assert not harness.processes_with(mark.encode())
    held[0].close()


def test_a_packed_kit_that_is_cut_off_is_refused(tmp_path):
    whole, cut = tmp_path / "kit.sh", tmp_path / "cut.sh"
    subprocess.run([KIT / "run.sh", "--pack", whole, *MUSTER], check=True)
    cut.write_bytes(whole.read_bytes()[:-1000])
    done = subprocess.run(["sh", cut, "--out", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 2 and "is damaged" in done.stderr and not (tmp_path / "out").exists(), done


def test_a_packed_kit_does_not_pack(tmp_path):
    file, other = tmp_path / "kit.sh", tmp_path / "other.sh"
    subprocess.run([KIT / "run.sh", "--pack", file, *MUSTER], check=True)
    done = subprocess.run([file, "--pack", other], capture_output=True, text=True)
    assert done.returncode == 2 and "is packed already" in done.stderr and not other.exists(), done


def test_a_python_that_cannot_run_is_not_taken(tmp_path):
    broken = tmp_path / "bin/python3"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    command = [KIT / "run.sh", *MUSTER, "--out", tmp_path / "out", "--only", "topo"]
    for path, status, words in [(f"{broken.parent}:/usr/bin:/bin", 0, ""), (str(broken.parent), 2, "no python3 on PATH that runs")]:
        for tool in ["dirname", "tr", "sed"]:
            if not (broken.parent / tool).exists():
                (broken.parent / tool).symlink_to(shutil.which(tool))
        env = {**os.environ, "PATH": path}
        env.pop("GPU_KIT_PYTHON", None)
        done = subprocess.run(["/bin/sh", *command], capture_output=True, text=True, env=env)
        assert done.returncode == status and words in done.stderr, done


def test_help_needs_no_muster(tmp_path):
    shutil.copytree(KIT, tmp_path / "tests/gpu")
    done = subprocess.run([tmp_path / "tests/gpu/run.sh", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--limit" in done.stdout, done


# The machine of make_tree.py: CPU 0 and four GPUs on one socket, CPU 1 and four on the other.
INSIDE = """
mount --bind "$0/sys" /sys && mount --bind "$0/proc/driver" /proc/driver && mkdir -p "$0.dev" && mount -t tmpfs none "$0.dev" &&
mkdir "$0.dev/shm" && touch "$0.dev/null" "$0.dev/nvidia5" && mount --bind /dev/null "$0.dev/null" && mount --rbind "$0.dev" /dev && exec "$@"
"""
SMI_PROGRAM = """#!/bin/sh
case $1 in topo) cat <<'END'
{matrix}
END
;; *) cat <<'END'
{query}
END
;; esac
"""
WITH_NVML = {"topo", "gpus", "nvml-child", "check", "gpu-busy", "binding", "recovery", "env", "events"}


@pytest.fixture
def machine(tmp_path):
    """Runs the kit on a machine with eight GPUs, as far as files, a fake NVML and a fake nvidia-smi say."""
    mounts = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or os.path.exists("/dev/nvidia0") or sorted(os.sched_getaffinity(0)) != [0, 1] or subprocess.run(
            [*mounts, "mount", "-t", "tmpfs", "none", "/sys"], capture_output=True).returncode:
        pytest.skip("needs root, mount namespaces, the CPUs 0 and 1, and no GPU")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-gpu-kit-test.", dir="/tmp"))  # which another user may read
    folder.chmod(0o755)
    tree = folder / "tree"
    make_tree.make("2s-8gpu-8nic", str(tree), cores=1, smt=1, l3_cores=1)
    places = sorted(path.name for path in (tree / "proc/driver/nvidia/gpus").iterdir())
    names = [f"GPU{i}" for i in range(8)]
    matrix = "\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" + "\n".join(
        name + "\t" + "\t".join(" X " if other == name else "NV18" for other in names) + f"\t{i // 4}\t{i // 4}\t\tN/A"
        for i, name in enumerate(names))
    query = "Driver Version : 580.159.04\nCUDA Version : 13.0\n\n" + "".join(
        f"GPU 0000{at.upper()}\n    Product Name : NVIDIA H100 80GB HBM3\n    GPU UUID : GPU-{i}\n    GPU Recovery Action : None\n"
        for i, at in enumerate(places))
    (folder / "bin").mkdir()
    (folder / "bin/nvidia-smi").write_text(SMI_PROGRAM.format(matrix=matrix, query=query))
    (folder / "bin/nvidia-smi").chmod(0o755)
    script = ("driver 580.159.04\ncuda 13000\ncount 8\nslow nvmlInit_v2 40\n"
              'gpu 0-7 name "NVIDIA H100 80GB HBM3" cc 9.0 memory 85520809984 pcie 5 16 5 16 recovery 0\n'
              "gpu 0-7 nvlink 0-17 remote 00000000:C4:00.0 type switch\ngpu 2 xid 31\n" +
              "".join(f"gpu {i} busid 0000{at.upper()} uuid GPU-{i}\n" for i, at in enumerate(places)))

    def run(*words, nvml="", **more):
        env = {**harness.nvml_env(folder, script + nvml + "\n"), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        return kit(tmp_path / "out", *MUSTER, *words, env=env, enter=[*mounts, "sh", "-c", INSIDE, str(tree)], **more)

    yield run
    shutil.rmtree(folder)


def test_with_nvml_alone_its_checks_run(machine):
    found, text = machine()
    for name, result in found.items():
        assert result["state"] == ("passed" if name in WITH_NVML else "skipped"), result
        assert name in WITH_NVML or "PyTorch" in result["reason"], result
    assert "64 cells" not in text and "88 cells as in nvidia-smi topo -m" in found["topo"]["reason"]
    assert "worker 0: CPUs 0" in found["binding"]["reason"] and "worker 7: CPUs 1" in found["binding"]["reason"]
    assert "as a user the same" in found["recovery"]["reason"] and "user: Xid 31" in found["events"]["reason"]
    assert "8 x NVIDIA H100 80GB HBM3; driver 580.159.04, CUDA 13.0" in text


def test_a_wrong_answer_of_the_machine_fails_its_check_alone(machine):
    wrong = {"gpus": "GPU-other", "topo": "GPU0 GPU7: NV17, nvidia-smi: NV18", "check": "NVLINK-UNEQUAL", "recovery": "field 230"}
    found, text = machine("--only", "gpus,topo,check,recovery,env,binding", status=1,
                          nvml="gpu 6 uuid GPU-other recovery 1\ngpu 7 nvlink 17 remote 00000000:C4:00.0 type switch active 0")
    for name, result in found.items():
        assert result["state"] == ("failed" if name in wrong else "passed"), result
        assert wrong.get(name, "") in result["reason"], result
    assert "2 passed, 4 failed, 0 skipped" in text


@pytest.mark.alone
def test_after_its_time_the_rest_is_skipped(machine):
    began = time.monotonic()
    found, _ = machine("--limit", "14", nvml="slow nvmlDeviceGetName 0 1500")
    assert time.monotonic() - began < 20 * harness.SLOWER
    assert {result["state"] for result in found.values()} == {"skipped", "passed"}
    assert found["topo"]["state"] == "passed" and found["events"]["reason"] == "no time left", found


def test_nvml_that_hangs_does_not_hang_the_kit(machine):
    found, _ = machine("--limit", "20", nvml="hang nvmlDeviceGetCount_v2")
    assert {result["state"] for result in found.values()} == {"skipped"}, found


@pytest.mark.torch
def test_workers_of_the_kit_run_without_a_gpu(tmp_path):
    """Where their kernels are sleeps: the scenarios, paths and limits of time are right before there is a GPU."""
    found, _ = kit(tmp_path / "out", *MUSTER, "--only", "hang-item,leftover",
                   env={"GPU_KIT_PYTHON": harness.TORCH_PYTHON, "GPU_KIT_DEVICE": "cpu", "OMP_NUM_THREADS": "1"})
    assert {name: result["state"] for name, result in found.items()} == dict.fromkeys(found, "passed"), found
