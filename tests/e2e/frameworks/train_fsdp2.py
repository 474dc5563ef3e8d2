"""FSDP2 with a distributed checkpoint: train_fsdp2.py FOLDER trains, saves, and goes on from what is there, with any
number of ranks."""
import os
import sys

import common
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def main():
    folder = sys.argv[1]
    dist.init_process_group("gloo")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    net = common.model()
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    steps = 0
    if os.path.exists(os.path.join(folder, ".metadata")):
        model_state, optimizer_state = get_state_dict(net, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "steps": 0}
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        steps = state["steps"]
    first = steps
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    for _ in range(common.STEPS):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(net(x), y).backward()
        optimizer.step()
        steps += 1
    model_state, optimizer_state = get_state_dict(net, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state, "steps": steps}, checkpoint_id=folder)
    common.told(common.weight(p.full_tensor() for p in net.parameters()), processes=dist.get_world_size(),
                first=first, last=steps)
    dist.destroy_process_group()


main()
