"""A gloo job whose flight recorders can be asked, in which ranks hang in the first group: torch_recorder.py ODD HOW SERVER

After some steps the ranks in ODD, such as 2,3, do this in place of the collective of all, at the same line:

    pair        the same collective in a group of their own with a rank that does not come
    broadcast   another collective
    sleep       nothing

SERVER, by which the recorder is asked:

    main        PyTorch's own, by worker_main()
    none        there is none
    title       the same, and the odd ranks have written over their environment, as setproctitle does
    slow        of the odd ranks one that answers a byte a second; the others have PyTorch's
"""
import contextlib
import ctypes
import datetime
import os
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.control_plane import worker_main

RANK, STEPS = int(os.environ["RANK"]), 15
ODD, HOW, SERVER = [int(rank) for rank in sys.argv[1].split(",")], sys.argv[2], sys.argv[3]
FIRST = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


def tell(what):
    with open(os.environ["E2E_EVENTS"], "w") as events:
        events.write(f"{what} rank={RANK} wall={time.time()}\n")


def drip(connection):
    tell("asked")
    with contextlib.suppress(OSError):
        for byte in ANSWER + b" " * 1000:
            connection.send(bytes([byte]))
            time.sleep(1)


def serve_slowly():
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.environ["TORCH_WORKER_SERVER_SOCKET"])
    server.listen()
    while True:
        threading.Thread(target=drip, args=server.accept()[:1], daemon=True).start()


def write_over():
    """proc(5): env_start and env_end are fields 50 and 51."""
    with open("/proc/self/stat") as stat:
        begin, end = map(int, stat.read().rsplit(")", 1)[1].split()[47:49])
    ctypes.memset(begin, 0, end - begin)
    with open("/proc/self/environ", "rb") as environ:
        assert not environ.read().strip(b"\0")


def step(x, what, **more):
    what(x, **more)


def train():
    week = datetime.timedelta(days=7)
    dist.init_process_group("gloo", timeout=week)
    own = dist.new_group([1, *ODD], timeout=week)
    for n in range(STEPS):
        torch.ones(128, 128) @ torch.ones(128, 128)
        time.sleep(0.1)
        step(torch.ones(4, 5), dist.all_reduce)
    if not FIRST:
        return
    if SERVER == "title" and RANK in ODD:
        write_over()
    tell("waits")
    what, more = dist.all_reduce, {}
    if RANK in ODD:
        what = {"pair": dist.all_reduce, "broadcast": dist.broadcast, "sleep": lambda _: time.sleep(100000)}[HOW]
        more = {"pair": {"group": own}, "broadcast": {"src": 0}, "sleep": {}}[HOW]
    step(torch.ones(7, 3), what, **more)


torch.set_num_threads(1)
if SERVER == "slow" and RANK in ODD:
    threading.Thread(target=serve_slowly, daemon=True).start()
    train()
elif SERVER == "none":
    train()
else:
    with worker_main():
        train()
