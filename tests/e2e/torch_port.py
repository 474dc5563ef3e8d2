"""torch_port.py HOW PORT: a gloo job at a port that the script itself knows: by init_method=tcp:// or by its own
MASTER_PORT. Prints the sum of rank+1."""
import os
import sys

import torch
import torch.distributed as dist

how, port = sys.argv[1:]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if how == "tcp":
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
else:
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo")
x = torch.tensor([rank + 1.0])
dist.all_reduce(x)
print(f"sum {x.item():g}", flush=True)
dist.destroy_process_group()
