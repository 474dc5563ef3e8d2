"""A gloo job that is well for SECONDS, though most of it often waits: torch_healthy.py KIND SECONDS

    noisy     each rank's steps take between a few milliseconds and four seconds
    first     before the first step each rank computes for a minute: a compiler
    evaluates rank 0 alone computes for half a minute, every minute and a half
    saves     rank 0 alone writes a checkpoint and flushes it
    uploads   rank 0 alone writes to a socket whose other end reads slowly
    sleeps    rank 0 alone sleeps for a minute, every two
    loaders   data loaders; a sample takes half a minute now and then

It tells E2E_EVENTS: begun rank count; done rank steps.
"""
import os
import random
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
KIND, SECONDS = sys.argv[1], float(sys.argv[2])
END = time.monotonic() + SECONDS
rng = random.Random(f"{os.environ['SEED']} {KIND} {RANK}")


def say(kind, **fields):
    with open(os.environ["E2E_EVENTS"], "w") as events:
        events.write(" ".join([kind, f"rank={RANK}", *(f"{k}={v}" for k, v in fields.items())]) + "\n")


def work(seconds):
    """Computes with one core for so long."""
    end, x = time.monotonic() + seconds, torch.ones(64, 64)
    while time.monotonic() < end:
        x = x @ x / 64


def save():
    path = os.path.join(os.environ["HANG_FOLDER"], f"checkpoint.{KIND}")
    with open(path, "wb") as out:
        for _ in range(64):
            out.write(os.urandom(1 << 20))
            time.sleep(0.3)
        out.flush()
        os.fsync(out.fileno())
    os.unlink(path)


def upload():
    ours, other = socket.socketpair()

    def read():
        while other.recv(65536):
            time.sleep(0.1)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        ours.sendall(bytes(65536))
    ours.close()
    reader.join()
    other.close()


# What rank 0 does alone, and every how many seconds.
ALONE = {"evaluates": (lambda: work(30), 90), "saves": (save, 60), "uploads": (upload, 60),
         "sleeps": (lambda: time.sleep(60), 120)}


class Samples(Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        time.sleep(30 if i % 1500 == 700 + 10 * RANK else 0.05)
        return torch.full((8,), float(i))


torch.set_num_threads(1)
say("begun", count=os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
samples = iter(DataLoader(Samples(), batch_size=4, num_workers=2)) if KIND == "loaders" else None
if KIND == "first":
    work(60)
alone, every = ALONE.get(KIND, (None, 0))
step, next_alone = 0, time.monotonic() + every
goes_on = torch.ones(1)
while goes_on.item():
    work(rng.uniform(0.005, 0.015))  # of a second: seven such jobs share the machine
    time.sleep(rng.choice([0.1, 0.3, 1.0, 4.0]) if KIND == "noisy" else 0.5)
    if samples is not None:
        next(samples)
    if alone is not None and RANK == 0 and time.monotonic() >= next_alone:
        alone()
        next_alone = time.monotonic() + every
    goes_on = torch.tensor([float(time.monotonic() < END)])
    dist.all_reduce(goes_on, op=dist.ReduceOp.MIN)
    step += 1
say("done", steps=step)
dist.destroy_process_group()
