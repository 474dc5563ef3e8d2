"""The workers of the kit's jobs: worker.py KIND [ARGUMENT]. Each prints "[time rRANK cRESTART] what".

With GPU_KIT_DEVICE=cpu they run without a GPU (gloo, and a kernel is a sleep), to find mistakes in them before there is
a GPU.
"""
import os
import signal
import subprocess
import sys
import time

RANK, RESTART = int(os.environ.get("RANK", "0")), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
DEVICE = os.environ.get("GPU_KIT_DEVICE", "cuda")
KIND, *ARGUMENTS = sys.argv[1:]


def report(*words):
    print(f"[{time.time():.3f} r{RANK} c{RESTART}]", *words, flush=True)


BEGAN = time.time()
if KIND == "opens":
    import gpukit_opens  # noqa: F401  (made by the kit: its import opens a GPU)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

CUDA = DEVICE == "cuda"


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def kernel(seconds):
    """Work for the GPU of about so many seconds."""
    if CUDA:
        torch.cuda._sleep(int(seconds * CYCLES))


def endless():
    """A kernel of minutes: the kit ends it, or it ends by itself."""
    if CUDA:
        torch.cuda._sleep(1 << 38)
    else:
        time.sleep(140)


def cycles_per_second():
    """How fast the counter of torch.cuda._sleep() counts."""
    torch.cuda._sleep(1000)
    synchronize()
    began = time.time()
    torch.cuda._sleep(200_000_000)
    synchronize()
    return 200_000_000 / (time.time() - began)


def free_mib():
    return torch.cuda.mem_get_info()[0] >> 20 if CUDA else 0


def some_steps(exchange=lambda: None):
    x = torch.ones(1, device=DEVICE)
    for _ in range(8):
        x += 1
        synchronize()
        exchange()
        time.sleep(0.3)
    return x


def step():
    """One step of training; the kit kills the first of them and measures until the second has done it."""
    model = torch.nn.Linear(256, 256).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(8, 256, device=DEVICE)).sum().backward()
    optimizer.step()
    synchronize()
    report("first step", f"pid {os.getpid()}")
    while RESTART == 0:
        signal.pause()


def sync():
    """Rank 1 waits for its kernel, rank 0 for rank 1."""
    dist.init_process_group("gloo")
    some_steps(lambda: dist.all_reduce(torch.ones(1)))
    if RESTART == 0 and RANK == 1:
        report("fault")
        endless()
        if CUDA:
            torch.cuda.current_stream().synchronize()
    dist.all_reduce(torch.ones(1))
    report("done")
    dist.destroy_process_group()


def item():
    x = some_steps()
    report("fault", f"pid {os.getpid()}")
    endless()
    report("done", x.item())


def nccl():
    if CUDA:
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if CUDA else "gloo")
    x = torch.ones(1 << 20, device=DEVICE)
    some_steps(lambda: dist.all_reduce(x))
    report("communicates", "NCCL", *(torch.cuda.nccl.version() if CUDA else "-"), f"pid {os.getpid()}")
    if RESTART == 0:
        report("fault")
        endless()
    dist.all_reduce(x)
    synchronize()
    report("done")
    dist.destroy_process_group()


def healthy():
    """Computes all the time, in kernels that last longer than --hang-report."""
    x, end, took = torch.ones(1, device=DEVICE), time.time() + float(ARGUMENTS[0]), []
    while time.time() < end:
        began = time.time()
        kernel(6)
        x += 1
        if not CUDA:
            sum(range(10_000_000))
        x.item()
        took.append(round(time.time() - began, 1))
    report("done", "kernels of", min(took), max(took), "s")


def killed():
    """Dies in a kernel, with half of the GPU's memory."""
    report("at start", free_mib(), "MiB free", f"pid {os.getpid()}")
    if RESTART == 0:
        if CUDA:
            large = torch.empty((free_mib() << 20) // 2, dtype=torch.uint8, device=DEVICE)
            large.fill_(1)
            synchronize()
        report("holds", free_mib(), "MiB free")
        endless()
        time.sleep(60)
    x = torch.ones(1, device=DEVICE) + 1
    report("works again", x.item())


CHILD = """
import os, signal, sys, time
import torch
def end(*_):
    time.sleep(2)
    print(f"[{time.time():.3f}] the leftover ends", file=sys.stderr, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
x = torch.ones(1 << 20, device=sys.argv[1])
if sys.argv[1] == "cpu":
    import socket
    s = socket.create_server(("127.0.0.1", 23456))
print("holds", flush=True)
time.sleep(100)
"""


def leftover():
    """Leaves a process that has a CUDA context, and takes 2 s to end."""
    torch.ones(1, device=DEVICE)
    if RESTART == 0:
        # pylint: disable=consider-using-with
        child = subprocess.Popen([sys.executable, "-u", "-c", CHILD, DEVICE], stdout=subprocess.PIPE, text=True)
        report("child", child.stdout.readline().strip(), child.pid)
        sys.exit(3)
    report("second group")


def places():
    """Waits for the GPU in each of these ways for a while; the kit looks at the main thread meanwhile."""
    if CUDA:
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if CUDA else "gloo")
    x = torch.ones(1 << 20, device=DEVICE)
    dist.all_reduce(x)
    model = torch.nn.Sequential(*[torch.nn.Linear(4096 if CUDA else 64, 4096 if CUDA else 64) for _ in range(24)]).to(DEVICE)
    data = torch.randn(8192 if CUDA else 8, 4096 if CUDA else 64, device=DEVICE)

    def event():
        kernel(0.3)
        done = torch.cuda.Event(blocking=True)
        done.record()
        done.synchronize()

    def backward():
        model(data).sum().backward()
        model[0].bias.grad.sum().item()

    def collective():
        kernel(0.3)
        dist.all_reduce(x)
        synchronize()

    ways = {"item": lambda: (kernel(0.3), x.sum().item()), "event": event if CUDA else lambda: time.sleep(0.01),
            "backward": backward, "nccl": collective}
    for name, once in ways.items():
        once()
        report("place", name, f"pid {os.getpid()}")
        end = time.time() + float(ARGUMENTS[0])
        while time.time() < end:
            once()
    report("done")
    dist.destroy_process_group()


CYCLES = cycles_per_second() if CUDA and KIND in ("healthy", "places") else 0
report("imported", f"{time.time() - BEGAN:.1f} s")
{"step": step, "opens": step, "sync": sync, "item": item, "nccl": nccl, "healthy": healthy, "killed": killed,
 "leftover": leftover, "places": places}[KIND]()
