"""A gloo job that trains for SECONDS in a thread, for which the main thread only waits: torch_thread.py SECONDS"""
import sys
import threading
import time

import torch
import torch.distributed as dist

END = time.monotonic() + float(sys.argv[1])


def train():
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(20)])
    goes_on = torch.ones(1)
    while goes_on.item():
        model(torch.ones(64, 256)).sum().backward()
        goes_on = torch.tensor([float(time.monotonic() < END)])
        dist.all_reduce(goes_on, op=dist.ReduceOp.MIN)


torch.set_num_threads(1)
dist.init_process_group("gloo")
thread = threading.Thread(target=train)
thread.start()
thread.join()
dist.destroy_process_group()
