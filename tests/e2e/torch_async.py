"""A gloo job in whose event loops all main threads look alike: rank 2 of the first group hangs in a thread of its own."""
import asyncio
import datetime
import os
import threading
import time

import torch
import torch.distributed as dist

RANK, FIRST = int(os.environ["RANK"]), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


def load():
    time.sleep(100000)


def log():
    """Each rank is somewhere else in it."""
    while True:
        time.sleep(0.3 + RANK)


async def train():
    for step in range(10):
        await asyncio.to_thread(dist.all_reduce, torch.ones(4))
        await asyncio.sleep(0.2)
    if FIRST:
        print("waits now", flush=True)
        await asyncio.to_thread(*((load,) if RANK == 2 else (dist.all_reduce, torch.ones(4))))


torch.set_num_threads(1)
threading.Thread(target=log, daemon=True).start()
dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
asyncio.run(train())
dist.destroy_process_group()
