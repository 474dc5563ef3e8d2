"""What the trainers share: small data that every rank can make by itself, a model, and how a rank tells its result.

The scripts are what users of these libraries write: none of them knows which launcher started it."""
import os

import torch

STEPS = 4
FEATURES = 8


def data(count=64):
    """The same rows and labels on every rank."""
    g = torch.Generator().manual_seed(7)
    x = torch.randn(count, FEATURES, generator=g)
    return x, (x.sum(dim=1, keepdim=True) > 0).float()


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def share(rank, world):
    """This rank's part of the rows."""
    x, y = data()
    return x[rank::world], y[rank::world]


def weight(parameters):
    """One number for all parameters: ranks and launchers that trained alike agree in every bit."""
    return float(sum(p.detach().double().abs().sum() for p in parameters))


def nodes():
    """For libraries that want this number in the script."""
    return int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"])


def told(value, **more):
    """The result of this rank, for the test."""
    words = " ".join(f"{k}={v}" for k, v in more.items())
    print(f"RESULT rank={os.environ['RANK']} world={os.environ['WORLD_SIZE']} value={float(value).hex()} {words}".strip(),
          flush=True)
