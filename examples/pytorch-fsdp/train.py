"""Learns to read handwritten digits with PyTorch's fully sharded data parallelism (FSDP2).

Runs unchanged under torchrun and muster run: the launcher's environment identifies this process. With GPUs it uses
NCCL, without them gloo. A checkpoint is written after each epoch; a run continues from it, with any number of ranks.
"""
import argparse
import os
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", type=pathlib.Path, default=HERE.parent / "data" / "digits.csv")
    p.add_argument("--checkpoint", type=pathlib.Path, help="written after each epoch; read at the start if it is there")
    p.add_argument("--epochs", type=int, default=15)
    p.add_argument("--batch", type=int, default=32, help="digits per step, over all ranks")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--losses", help="rank 0 writes each step's loss here, as hexadecimal floats")
    return p.parse_args()


def load_digits(path, device):
    """Pictures and labels for training, and for testing: every fifth line."""
    rows = torch.tensor([[int(v) for v in line.split(",")] for line in path.read_text().split()])
    pictures, labels = (rows[:, :64].float() / 16).to(device), rows[:, 64].to(device)
    test = torch.arange(len(rows), device=device) % 5 == 4
    return (pictures[~test], labels[~test]), (pictures[test], labels[test])


def batches(n, batch, seed, epoch):
    """The same shuffled batches on all ranks; samples that do not fill a batch are left for another epoch."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed * 1000003 + epoch))
    return order[: n // batch * batch].split(batch)


FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)  # gathered, so that any number of ranks can load it


def save(path, model, optimizer, epoch):
    """All ranks send their parts to rank 0. It writes a complete file or none: under another name, flushed, renamed."""
    parameters, momenta = get_state_dict(model, optimizer, options=FULL)
    if dist.get_rank() != 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as f:
        torch.save({"epoch": epoch, "model": parameters, "optimizer": momenta}, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def load(path, model, optimizer):
    """Each rank loads its part of the file; returns the epoch."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=FULL)
    return state["epoch"]


def train_epoch(model, optimizer, data, args, epoch, losses):
    rank, world, total, steps = dist.get_rank(), dist.get_world_size(), 0.0, 0
    pictures, labels = data
    for batch in batches(len(labels), args.batch, args.seed, epoch):
        mine = batch[rank::world].to(labels.device)
        # the mean over the whole batch, even if it is shared unevenly: FSDP divides by the number of ranks
        loss = F.cross_entropy(model(pictures[mine]), labels[mine], reduction="sum") * world / args.batch
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach() / world
        dist.all_reduce(loss)
        total, steps = total + loss.item(), steps + 1
        if losses:
            print(loss.item().hex(), file=losses, flush=True)
    return total / steps


def main():
    args = parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    train, (test_pictures, test_labels) = load_digits(args.data, device)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).to(device)
    mesh = init_device_mesh(device.type, (world,))
    for layer in (model[0], model[2], model):  # every rank holds a part of each parameter
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    done = load(args.checkpoint, model, optimizer) if args.checkpoint and args.checkpoint.exists() else 0
    if done and rank == 0:
        print(f"continuing from the checkpoint of epoch {done}", flush=True)
    dist.barrier()  # all ranks have read it before rank 0 replaces it
    losses = open(args.losses, "a") if args.losses and rank == 0 else None
    for epoch in range(done + 1, args.epochs + 1):
        loss = train_epoch(model, optimizer, train, args, epoch, losses)
        if args.checkpoint:
            save(args.checkpoint, model, optimizer, epoch)
        if rank == 0:
            print(f"epoch {epoch} of {args.epochs}: loss {loss:.4f}, world size {world}, restarts "
                  f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", flush=True)
    with torch.no_grad():  # on all ranks, because each layer is gathered for it
        right = (model(test_pictures).argmax(1) == test_labels).float().mean().item()
    if rank == 0:
        print(f"test accuracy: {100 * right:.1f} %", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
