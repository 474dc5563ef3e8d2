"""A worker of a gloo job: all ranks sum their numbers; prints "rank R of N: SUM"."""
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
half = dist.new_group([0, 1])
if dist.get_rank() < 2:
    dist.broadcast(x, 0, group=half)
dist.barrier()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.item():g}", flush=True)
dist.destroy_process_group()
