"""All-reduces over gloo, one after the other, until the test opens the go FIFO; a rank whose peer is gone fails."""
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, generation = dist.get_rank(), os.environ["MUSTER_GENERATION"]
with open(os.environ["E2E_EVENTS"], "w") as events:
    events.write(f"ringed tag={os.environ['E2E_TAG']} gen={generation} rank={rank} pid={os.getpid()}\n")
gate = os.open(os.environ["E2E_GO"], os.O_RDONLY | os.O_NONBLOCK)
over = torch.zeros(1)
while over[0] == 0:
    try:
        told = os.read(gate, 1) == b"" and 0
    except BlockingIOError:  # the test has it open for writing
        told = 1
    over[0] = told
    dist.all_reduce(over)
dist.destroy_process_group()
