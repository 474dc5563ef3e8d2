"""A gloo job with checkpoints and announced steps, which trains until the file "end" is there.

    torch_train.py FOLDER

Rank 0 announces each step with MUSTER_STEP and saves every tenth. A rank for which there is a file "exit.RANK" or
"crash.RANK" fails like this, once. With TRAIN_QUIET set no step is announced.
"""
import ctypes
import os
import pathlib
import select
import socket
import sys

folder = pathlib.Path(sys.argv[1])
rank, generation = int(os.environ["RANK"]), os.environ["MUSTER_GENERATION"]
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)


def say(text):
    with open(os.environ["E2E_EVENTS"], "w") as events:
        events.write(text + "\n")


def announce(step):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(f"MUSTER_STEP={step}".encode(), "\0" + os.environ["MUSTER_NOTIFY_SOCKET"][1:])


def asked(what):
    path = folder / f"{what}.{rank}"
    if not path.exists():
        return False
    path.unlink()
    return True


dist.init_process_group("gloo")
saved = folder / "step"
begin = step = int(saved.read_text()) if saved.exists() else 0
while True:
    step += 1
    ends = torch.tensor([int((folder / "end").exists())])
    dist.all_reduce(ends)
    if rank == 0 and "TRAIN_QUIET" not in os.environ:
        announce(step)
    if rank == 0 and step % 10 == 0:
        (folder / "new").write_text(str(step))
        (folder / "new").rename(saved)
    if step == begin + 13:  # three more than the last that was saved
        say(f"trains rank={rank} pid={os.getpid()} gen={generation} step={step} tag={os.environ['E2E_TAG']}")
    if ends.item() > 0:
        break
    if asked("exit"):
        sys.exit(1)
    if asked("crash"):
        ctypes.string_at(0)
    select.select([], [], [], 0.01)  # a step takes a while
dist.destroy_process_group()
