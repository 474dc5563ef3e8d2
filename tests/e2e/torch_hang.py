"""A gloo job in which rank 2 does FAULT after some steps, in the first group: torch_hang.py FAULT [OPTION ...]

    logs         each rank has a thread that writes to a file, five times a second
    steps=N      so many steps before the fault (15); a later group ends after five

FAULT is a function below, or "none". Everything that happens is told through E2E_EVENTS:

    begun rank pid count ns      the first instruction
    step rank step count ns      after each collective
    fault rank pid ns            rank 2 is about to do it
    done rank count
"""
import os
import sys
import time


def say(kind, **fields):
    fields = {"rank": os.environ["RANK"], **fields, "ns": time.monotonic_ns()}
    text = " ".join([kind, *(f"{name}={value}" for name, value in fields.items())])
    with open(os.environ["E2E_EVENTS"], "w") as events:
        events.write(text + "\n")


COUNT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
say("begun", pid=os.getpid(), count=COUNT)

import atexit        # noqa: E402
import ctypes        # noqa: E402
import datetime      # noqa: E402
import itertools     # noqa: E402
import signal        # noqa: E402
import struct        # noqa: E402
import threading     # noqa: E402

import torch                               # noqa: E402
import torch.distributed as dist           # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FAULT, OPTIONS = sys.argv[1], dict(word.partition("=")[::2] for word in sys.argv[2:])
STEPS = int(OPTIONS.get("steps", 15))
ODD = COUNT == "0" and RANK == 2  # the rank that does it
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
FUSE_INIT = 26
libc = ctypes.CDLL(None, use_errno=True)


def collective():
    x = torch.full((1000,), float(RANK))
    dist.all_reduce(x)
    assert x[0].item() == WORLD * (WORLD - 1) / 2, x[0].item()


# ---- the faults: what rank 2 does in place of a collective ----

def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
    collective()


def loop():
    n = 0
    while True:
        n += 1


def sleep():
    time.sleep(100000)


def fifo():
    path = os.path.join(os.environ["HANG_FOLDER"], f"fifo.{os.getpid()}")
    os.mkfifo(path)
    open(path, "rb").read()


def fuse_mount():
    """A mount, for this process alone, whose server has answered nothing but the greeting: it is this process, and
    it ends with it."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    where = os.path.join(os.environ["HANG_FOLDER"], f"fuse.{os.getpid()}")
    os.mkdir(where)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if (libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
            or libc.mount(b"dead", where.encode(), b"fuse.dead", 0, options)):
        raise OSError(ctypes.get_errno(), "a FUSE file system cannot be mounted")
    _, opcode, unique = struct.unpack_from("=IIQ", os.read(fd, 1 << 17))
    assert opcode == FUSE_INIT, opcode
    answer = struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, *[0] * 8)  # fuse_init_out
    os.write(fd, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
    return where


def fuse():
    open(os.path.join(fuse_mount(), "data"), "rb").read()


def elsewhere():
    dist.barrier(group=PAIR)


def key():
    STORE.get("nobody/sets/this")


def other():
    dist.broadcast(torch.zeros(1000), src=0)


def locks():
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def take(a, b):
        with a:
            both.wait()
            with b:
                pass

    threading.Thread(target=take, args=(second, first), daemon=True).start()
    take(first, second)


def gil_asleep():
    ctypes.PyDLL(None).sleep(100000)


def gil_spins():
    sum(itertools.repeat(0))


def polls():
    import fcntl
    import filelock
    path = os.path.join(os.environ["HANG_FOLDER"], "polls.lock")
    fcntl.flock(os.open(path, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
    filelock.FileLock(path).acquire()


def baton():
    from torch.utils.file_baton import FileBaton
    path = os.path.join(os.environ["HANG_FOLDER"], "baton.lock")
    open(path, "w").close()
    FileBaton(path).wait()


def polls_fast():
    while not os.path.exists("/nobody/makes/this"):
        time.sleep(0.02)


def timed():
    import queue
    while True:
        try:
            return queue.Queue().get(timeout=0.02)
        except queue.Empty:
            pass


def at_exit():
    atexit.register(time.sleep, 100000)


def at_exit_hook():
    """A function of the program's own, as of a logger or of an uploader."""
    @atexit.register
    def flush_metrics():
        time.sleep(100000)


def at_exit_thread():
    threading.Thread(target=time.sleep, args=(100000,)).start()


def at_exit_group():
    def destroy_process_group():
        time.sleep(100000)
    dist.destroy_process_group = destroy_process_group


def exits():
    os._exit(0)


def exits_waited():
    """The others wait for a word of it, not in a collective: no connection tells them."""
    os._exit(0)


# ---- the job ----

class Samples(Dataset):
    def __len__(self):
        return 1000000

    def __getitem__(self, i):
        if FAULT == "loader" and ODD and i == STEPS * 4 + 1:
            say("fault", pid=os.getpid())
            time.sleep(100000)
        return torch.full((8,), float(i))


def telemetry():
    path = os.path.join(os.environ["HANG_FOLDER"], f"telemetry.{RANK}.{COUNT}")
    with open(path, "w") as out:
        for n in itertools.count():
            out.write(f'{{"rank": {RANK}, "n": {n}, "loss": 0.5, "time": {time.time()}}}\n')
            out.flush()
            time.sleep(0.2)


def work():
    """Some milliseconds of a core."""
    x = torch.ones(128, 128)
    for _ in range(20):
        x = x @ x / 128


torch.set_num_threads(1)
if "logs" in OPTIONS:
    threading.Thread(target=telemetry, name="telemetry", daemon=True).start()
if FAULT == "no_init" and ODD:
    say("fault", pid=os.getpid())
    time.sleep(100000)
dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
PAIR = dist.new_group([2, 3], timeout=datetime.timedelta(hours=1))
STORE = dist.distributed_c10d._get_default_store()
STORE.set_timeout(datetime.timedelta(hours=1))
samples = iter(DataLoader(Samples(), batch_size=4, num_workers=2)) if FAULT == "loader" else None
for step in range(1, 1000000 if COUNT == "0" else 6):
    work()
    time.sleep(0.05)
    if samples is not None:
        next(samples)
    ends = step == STEPS + 1 and COUNT == "0" and FAULT.startswith("at_exit")
    if step == STEPS + 1 and ODD and FAULT not in ("none", "loader"):
        say("fault", pid=os.getpid())
        globals()[FAULT]()
    elif step == STEPS + 1 and COUNT == "0" and FAULT == "exits_waited":
        STORE.get("a word of rank 2")
    elif not ends:
        collective()
    say("step", step=step, count=COUNT)
    if ends:
        break
say("done", count=COUNT)
dist.destroy_process_group()
