"""A trainer of `muster profile`'s tests, which knows nothing of it: DDP on gloo, whose layers sleep as if they waited for a
device. SLOW="rank:what" makes a rank slow, what: data, forward or backward. It ends when STOP exists. STEPS: where rank 0 writes the
time of each step."""
import os
import struct
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

RANK = int(os.environ["RANK"])
WHO, _, WHAT = os.environ.get("SLOW", "").partition(":")
IS_SLOW = {what: WHO == str(RANK) and WHAT == what for what in ("data", "forward", "backward")}
STEP = 0.06
torch.set_num_threads(1)


class Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(STEP / 3 * (3 if IS_SLOW["forward"] else 1))
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(STEP * 2 / 3 * (2 if IS_SLOW["backward"] else 1))
        return grad


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return Work.apply(self.linear(x))


class Data(Dataset):
    def __len__(self):
        return 10 ** 6

    def __getitem__(self, i):
        if IS_SLOW["data"]:
            time.sleep(0.02)
        return torch.ones(64)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(Layer(), Layer()))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    stop = torch.zeros(1)
    steps = open(os.environ["STEPS"], "wb", buffering=0) if RANK == 0 and "STEPS" in os.environ else None
    for n, batch in enumerate(DataLoader(Data(), batch_size=8)):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if steps is not None:
            steps.write(struct.pack("=d", time.time()))
        if n == 3:
            with open(os.environ["E2E_EVENTS"], "a") as events:
                events.write(f"trains rank={RANK} pid={os.getpid()}\n")
        if n % 10 == 9:
            stop[0] = os.path.exists(os.environ["STOP"])
            dist.broadcast(stop, 0)
            if stop.item():
                break
    dist.destroy_process_group()


main()
