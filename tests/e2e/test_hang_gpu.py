"""Workers whose main thread waits for a GPU, as cudaStreamSynchronize() does: it runs all the time, at one place.

A GPU is a file of its name in a /dev of the worker's own, and NVML is a stand-in whose links are silent.
"""
import os
import re
import subprocess

import pytest

from harness import SLOWER, nvml_env

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a worker gets a /dev of its own")

WORKER = r"""
import ctypes, os, select, sys, threading
folder, kind, seconds, times = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
rank, first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
kernel = ctypes.CDLL(folder + "/kernel.so").kernel
kernel.argtypes = [ctypes.c_double]
libc = ctypes.CDLL(None)
assert libc.unshare(0x20000) == 0  # CLONE_NEWNS
assert libc.mount(b"none", b"/", None, 0x44000, None) == 0  # MS_REC | MS_PRIVATE
assert libc.mount(b"none", b"/dev", b"tmpfs", 0, None) == 0
gpu = open("/dev/nvidia0", "w")

# As a rank on its own machine: also while other tests run, it gets a whole core. sched(7), autogroups
os.setpriority(os.PRIO_PROCESS, 0, -15)
if os.path.exists("/proc/self/autogroup"):
    with open("/proc/self/autogroup", "w") as group:
        group.write("-15")

def watchdog():
    libc.prctl(15, b"pt_nccl_watchdg", 0, 0, 0)  # PR_SET_NAME
    threading.Event().wait()

def train():
    for _ in range(times):
        kernel(seconds)

for _ in range(8):
    kernel(0.02)
    select.select([], [], [], 0.4)
if kind == "nccl":
    threading.Thread(target=watchdog, daemon=True).start()
if first and rank == 0:
    train()
    os.close(os.open(folder + "/fifo", os.O_RDWR | os.O_NONBLOCK))
elif first:
    open(folder + "/fifo").read()
"""
KERNEL = r"""
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
void kernel(double seconds) { for (double end = now() + seconds; now() < end;) ; }
"""
SILENT = """driver 580.159.04
count 1
gpu 0 name "NVIDIA H100 80GB HBM3" busid 00000000:1B:00.0 uuid GPU-1 rate 0 0 busy 100
"""


def start(job, kind, ranks, kernels, seconds, *options):
    """The first rank waits for so many kernels, of so many seconds each, and the second one for the first."""
    for name, text in (("train.py", WORKER), ("kernel.c", KERNEL)):
        (job.tmp / name).write_text(text)
    os.mkfifo(job.tmp / "fifo")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", job.tmp / "kernel.so", job.tmp / "kernel.c"], check=True)
    return job.agent("a", "--standalone", f"--nproc-per-node={ranks}", "--max-restarts=1", *options, job.tmp / "train.py", job.tmp,
                     kind, seconds, kernels, env=nvml_env(job.tmp, SILENT))


@pytest.mark.parametrize("kind, ranks", [("nccl", 1), ("gloo", 2)])
def test_long_kernels_are_no_hang(job, kind, ranks):
    """They use no links, also if each returns before the next one begins: only --hang-timeout limits them."""
    agent = start(job, kind, ranks, 4, 6.4, "--hang-still=5", "--hang-timeout=600", "--hang-report=14")
    code, _, said = agent.finish(120 * SLOWER)
    assert code == 0 and "the job hangs" not in said, said
    assert re.search(r"seems to wait for its GPU in train \(train.py:\d+\), still for \d+ s", said), said


def test_an_endless_kernel_is_reported_at_the_time_out(job):
    """The words do not claim that a thread that uses a whole core does nothing."""
    agent = start(job, "gloo", 1, 1, 10000, "--hang-still=5", "--hang-timeout=18")
    agent.wait_said("what each rank did is in", 120 * SLOWER)
    said = agent.said()
    assert re.search(r"the job hangs: the only worker seems to have waited for its GPU for (1[89]|2\d) s \(--hang-timeout\); "
                     r"the only rank \(node \S+, pid \d+\): seems to wait for its GPU in train \(train.py:\d+\), "
                     r"still for \d+ s; nothing is stopped", said), said
    assert "ms of CPU" not in said


def test_a_kernel_of_nccl_that_waits_is_found(job):
    """Its links are silent, so nothing moves; the rank that runs all the time is named as one that waits."""
    agent = start(job, "nccl", 2, 1, 10000, "--hang-still=5", "--hang-timeout=600")
    code, _, said = agent.finish(120 * SLOWER)
    assert code == 0, said
    assert re.search(r"the job hangs: nothing has moved for \d+ s \(--hang-still\): rank 0 seems to wait for its GPU, whose "
                     r"links are silent; .*restart 1 of 1", said), said
    assert "ms of CPU" not in said
