"""`muster run --warm`: what the go brings, which threads may be forked, and further reasons for a cold start."""
import os
import re
import select
import signal
import subprocess
import sys

import pytest

from harness import TORCH_PYTHON, VALGRIND, kill
from test_bind import may_mount
from test_warm import FLAG, FORMS, GATE, IDLE, SEE, Warm, job, packages, sees_the_same  # noqa: F401

pytestmark = pytest.mark.skipif(VALGRIND, reason="the agent's own second for an answer is not enough there")


# A gate that gets the go for what is on its standard input, and then shows what has changed.
GO = """import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("warm_gate", sys.argv[1])
gate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gate)
import socket
standby = gate.Standby(os.getppid(), socket.socketpair()[0].detach(), -1, set())
standby.stamps = standby.stat_all()
go = {"kind": "go", "set": {"A": "1"}, "unset": ["B"], "marker": "1.2.ab", "cwd": sys.argv[2], "umask": int(sys.argv[3])}
fds = [os.open(sys.argv[4], os.O_RDONLY), os.dup(1), os.dup(2)]
print(standby.begin(go, fds))
mask = os.umask(0)
print(os.getcwd(), mask, sys.stdin.read(), os.environ["A"], "B" in os.environ)
"""


def test_the_go_brings_folder_umask_and_standard_input(tmp_path):
    (tmp_path / "in").write_text("what is read")
    done = subprocess.run([sys.executable, "-c", GO, GATE, tmp_path, str(0o27), tmp_path / "in"], stdin=subprocess.DEVNULL, text=True,
                          env={**os.environ, "B": "2", "MUSTER_WORKER_ID": "-" * 64}, cwd="/", capture_output=True, check=True)
    assert done.stdout == f"None\n{tmp_path} {0o27} what is read 1 False\n"


def test_a_go_to_a_folder_that_is_gone_is_refused(tmp_path):
    done = subprocess.run([sys.executable, "-c", GO, GATE, tmp_path / "gone", "0", "/dev/null"], text=True, capture_output=True,
                          env={**os.environ, "MUSTER_WORKER_ID": "-" * 64}, check=False)
    assert "No such file or directory" in done.stderr and "None" not in done.stdout


@pytest.mark.slow
def test_importing_that_takes_too_long_is_cold(job):
    """Two minutes."""
    os.mkfifo(job.tmp / "wait")
    lib = packages(job, "slow", "import os, sys\nif not hasattr(sys, 'is_worker'):\n    os.read(os.open('wait', os.O_RDONLY), 1)\n")
    warm = Warm(job, "fork", "import sys\nsys.is_worker = True\nimport slow\n" + IDLE, env={"PYTHONPATH": lib}, after="3")
    pids = warm.begun(0)
    with open(job.tmp / "wait", "wb", buffering=0) as writer:  # as soon as the template reads
        (job.tmp / "wait").rename(job.tmp / "gone")
        killed = select.poll()
        killed.register(writer, select.POLLERR)
        assert killed.poll(200_000), "it still imports"
    kill(pids[0])
    warm.begun(1)
    warm.said("0 of 2 workers start warm; cold because importing has taken more than 120 s")


@pytest.mark.parametrize("what,does", [("the working directory", "os.chdir('/')"), ("the umask", "os.umask(0o77)")])
@pytest.mark.parametrize("form", FORMS)
def test_an_import_that_changes_what_the_go_sets_is_cold(job, form, what, does):
    lib = packages(job, "moves", f"import os\nif os.path.exists('{job.tmp}/flag'): {does}\n")
    warm = Warm(job, form, "import moves\n" + IDLE.replace("signal.pause()", FLAG.replace("'flag'", f"'{job.tmp}/flag'")),
                env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.said(f"workers start cold from now on: importing changes {what}")
    kill(pids[0])
    warm.begun(1)
    warm.said(f"0 of 2 workers start warm; cold because importing changes {what}")


# Also what PyTorch and numpy can see in the second generation, which is compared. Loaders start processes in two ways.
SEE_TORCH = SEE.replace("import atexit,", "import numpy, torch, torch.nn.parallel, torch.optim, torch.utils.data, atexit,") \
    .replace("def see():", """class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.tensor([i * i, torch.get_num_threads()])
def load(how):
    loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context=how)
    return torch.cat(list(loader)).tolist()
def see_torch():
    a = numpy.arange(40000.).reshape(200, 200) % 101
    model = torch.nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.fill_(1)
    loss = (model(torch.ones(2, 3)) - model.bias).sum()
    loss.backward()
    return {"loaders": [load(how) for how in ("fork", "spawn")], "blas": float((a @ a).sum()),
            "torch": float((torch.from_numpy(a) @ torch.from_numpy(a)).sum()), "grad": model.weight.grad.tolist(),
            "threads_of_torch": [torch.get_num_threads(), torch.get_num_interop_threads()], "cuda": torch.cuda.is_available(),
            "config": torch.__config__.parallel_info(), "default": str(torch.get_default_dtype())}
def see():""").replace("    seen = see()\n", "    seen = dict(see(), **(see_torch() if os.environ['TORCHELASTIC_RESTART_COUNT'] == '1' else {}))\n")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("module", [False, True], ids=["script", "module"])
def test_pytorch_sees_the_same_cold_forked_and_as_a_standby(tmp_path, module):
    sees_the_same(tmp_path, SEE_TORCH, module, TORCH_PYTHON)


# Further interpreters, with colons between them.
PYTHONS = [python for python in os.environ.get("MUSTER_TEST_PYTHONS", "").split(":") if python]


@pytest.mark.skipif(not PYTHONS, reason="no other interpreters in MUSTER_TEST_PYTHONS")
@pytest.mark.parametrize("module", [False, True], ids=["script", "module"])
@pytest.mark.parametrize("python", PYTHONS)
def test_other_interpreters_see_the_same(tmp_path, python, module):
    sees_the_same(tmp_path, SEE, module, python)


# Integers of 53 bits at most: the sums are exact in every order.
MATMUL = """import os, numpy
def tasks():
    return len(os.listdir("/proc/self/task"))
def right():
    a = numpy.arange(600 * 600).reshape(600, 600) % 1009
    return bool(((a.astype("f8") @ a.T.astype("f8")).astype("i8") == a @ a.T).all())
before = tasks()
""" + IDLE.replace("signal.pause()", """os.write(1, f"blas {os.environ['TORCHELASTIC_RESTART_COUNT']} {before} {right()} {tasks()}\\n".encode())
signal.pause()""")


def has_blas_threads():
    text = "import numpy, os; print(len(os.listdir('/proc/self/task')), 'openblas' in open('/proc/self/maps').read())"
    return TORCH_PYTHON and subprocess.run([TORCH_PYTHON, "-c", text], env={**os.environ, "OMP_NUM_THREADS": "2"},
                                           capture_output=True, text=True, check=False).stdout == "2 True\n"


@pytest.mark.parametrize("form", FORMS)
def test_openblas_is_forked_with_its_threads(job, form):
    """numpy has one thread more since it was imported. A fork ends it; the first product makes it again, and is right."""
    if not has_blas_threads():
        pytest.skip("MUSTER_TEST_PYTHON has no numpy with OpenBLAS")
    warm = Warm(job, form, MATMUL, env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "2"})
    for generation in range(3):
        pids = warm.begun(generation)
        found = warm.agent.out.until(lambda: re.findall(rf"blas {generation} (\d) (\w+) (\d)\n", warm.agent.output())[1:] and
                                     re.findall(rf"blas {generation} (\d) (\w+) (\d)\n", warm.agent.output()))
        assert found == [("1" if form == "fork" and generation else "2", "True", "2")] * 2
        warm.waiting(generation + 1)
        if generation:
            warm.said("all 2 workers start warm", generation)
        kill(pids[1])
    assert "not forked" not in warm.agent.said()


def test_another_thread_beside_openblas_is_not_forked(job):
    if not has_blas_threads():
        pytest.skip("MUSTER_TEST_PYTHON has no numpy with OpenBLAS")
    lib = packages(job, "threads", "import _thread, time\n_thread.start_new_thread(time.sleep, (1000,))\n")
    warm = Warm(job, "fork", "import threads, numpy\n" + IDLE,
                env={"PYTHONPATH": lib, "PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "2"})
    warm.not_forked("importing leaves threads: python")


# Opens what has the name of a GPU's file, in a mount namespace of its own; only in a standby.
DEVICE = """import ctypes, os
if os.path.exists({flag!r}):
    libc = ctypes.CDLL(None)
    assert libc.unshare(0x20000) == 0  # CLONE_NEWNS
    assert libc.mount(b"none", b"/", None, 0x44000, None) == 0  # MS_REC | MS_PRIVATE
    assert libc.mount(b"none", b"/dev", b"tmpfs", 0, None) == 0
    open("/dev/nvidia7", "w").close()
    held = os.open("/dev/nvidia7", os.O_RDONLY)
"""


@pytest.mark.parametrize("form", FORMS)
def test_an_import_that_opens_a_gpu_is_cold(job, form):
    if not may_mount():
        pytest.skip("needs mount namespaces")
    flag = f"{job.tmp}/flag"
    lib = packages(job, "opens", DEVICE.format(flag=flag))
    warm = Warm(job, form, "import opens\n" + IDLE.replace("signal.pause()", FLAG.replace("'flag'", repr(flag))), env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.said("workers start cold from now on: importing opens /dev/nvidia7")
    kill(pids[0])
    assert not warm.helpers(warm.begun(1))
    warm.said("0 of 2 workers start warm; cold because importing opens /dev/nvidia7")


def test_bound_workers_without_omp_num_threads_are_not_forked(job):
    """Importing counts the CPUs, and the template has all."""
    warm = Warm(job, "fork", nproc=1, words=["--bind=core"], env={"OMP_NUM_THREADS": "\0unset"})
    warm.not_forked("workers are bound to CPUs, which imports count, and OMP_NUM_THREADS is not set")


@pytest.mark.parametrize("how", ["unset PYTHONPATH; exec {python} \"$@\"", "exec env -i PATH=\"$PATH\" RANK=$RANK "
                                 "TORCHELASTIC_RESTART_COUNT=$TORCHELASTIC_RESTART_COUNT {python} \"$@\"",
                                 "exec {python} -E \"$@\"", "exec {python} -S \"$@\"", "{python} \"$@\""],
                         ids=["drops_path", "empties_environment", "E", "S", "runs_it_below"])
@pytest.mark.parametrize("form", FORMS)
def test_a_wrapper_that_passes_by_the_gate_is_cold(job, form, how):
    """Never does a second copy of the script run."""
    wrapper = job.tmp / "python"
    wrapper.write_text("#!/bin/sh\n" + how.format(python=sys.executable) + "\n")
    wrapper.chmod(0o755)
    warm = Warm(job, form, IDLE, env={"PYTHON_EXEC": wrapper})
    warm.begun(0)
    warm.said("workers can't be warm: the Python of local rank 0 did not load muster's sitecustomize", seconds=40)
    kill(warm.begun(0)[0])
    warm.said("0 of 2 workers start warm; cold because the Python of local rank 0 did not load muster's sitecustomize")
    warm.begun(1)
    assert len(re.findall(r"begin \d \d ", warm.agent.output())) == 4
