"""Learns to read handwritten digits with PyTorch's DistributedDataParallel.

Runs unchanged under torchrun and muster run: the launcher's environment identifies this process. With GPUs it uses
NCCL, without them gloo. A checkpoint is written after each epoch; a run continues from it, with any number of ranks.
"""
import argparse
import os
import pathlib
import socket

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

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


def save(path, state):
    """Writes a complete file or none: writes it under another name, flushes it to the disk, and renames it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def report_safe_point():
    """Reports to muster that it may restart the job now, to add waiting nodes, because no work would be lost."""
    name = os.environ.get("MUSTER_NOTIFY_SOCKET", "")
    if not name.startswith("@"):
        return  # started by another launcher
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        try:
            s.sendto(b"MUSTER_SAFE_POINT=1", socket.MSG_DONTWAIT, "\0" + name[1:])
        except OSError as error:
            print(f"could not report the checkpoint to the launcher: {error}", flush=True)


def train_epoch(model, optimizer, data, args, epoch, losses):
    rank, world, total, steps = dist.get_rank(), dist.get_world_size(), 0.0, 0
    pictures, labels = data
    for batch in batches(len(labels), args.batch, args.seed, epoch):
        mine = batch[rank::world].to(labels.device)
        # the mean over the whole batch, even if it is shared unevenly: DDP divides by the number of ranks
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
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).to(device)
    model = DistributedDataParallel(net, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    done = 0
    if args.checkpoint and args.checkpoint.exists():
        state = torch.load(args.checkpoint, map_location=device, weights_only=True)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
        if rank == 0:
            print(f"continuing from the checkpoint of epoch {done}", flush=True)
    dist.barrier()  # all ranks have read it before rank 0 replaces it
    losses = open(args.losses, "a") if args.losses and rank == 0 else None
    for epoch in range(done + 1, args.epochs + 1):
        loss = train_epoch(model, optimizer, train, args, epoch, losses)
        if rank == 0:
            if args.checkpoint:
                save(args.checkpoint,
                     {"epoch": epoch, "model": net.state_dict(), "optimizer": optimizer.state_dict()})
                report_safe_point()
            print(f"epoch {epoch} of {args.epochs}: loss {loss:.4f}, world size {world}, restarts "
                  f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", flush=True)
    if rank == 0:
        with torch.no_grad():
            right = (net(test_pictures).argmax(1) == test_labels).float().mean().item()
        print(f"test accuracy: {100 * right:.1f} %", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
