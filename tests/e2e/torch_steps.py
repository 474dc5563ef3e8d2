"""A minimal gloo job: STEPS all-reduces, each checked; reports its progress to the test.

    torch_steps.py STEPS [tcp]

After each step, and before the process group is made, all ranks report it through E2E_EVENTS. With E2E_HOLD set (a FIFO
like E2E_GO), the first group of the job waits there after the step that E2E_HOLD_AT names, so that the test can kill
exactly there; "0" is before the first collective.
"""
import os
import sys


def say(text):
    with open(os.environ["E2E_EVENTS"], "w") as events:
        events.write(text + "\n")


def hold(step):
    if os.environ.get("E2E_HOLD_AT") == str(step) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        say(f"held rank={rank} pid={os.getpid()} step={step}")
        open(os.environ["E2E_GO"]).close()  # until the test continues, or for ever


rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
say(f"begun rank={rank} pid={os.getpid()} count={os.environ['TORCHELASTIC_RESTART_COUNT']}")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)
hold("imported")
if "tcp" in sys.argv:
    dist.init_process_group("gloo", init_method=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
                            rank=rank, world_size=world)
else:
    dist.init_process_group("gloo")
assert dist.is_torchelastic_launched() and dist.get_world_size() == world
hold(0)
for step in range(1, int(sys.argv[1]) + 1):
    x = torch.full((1000,), float(rank + step))
    dist.all_reduce(x)
    assert x[0].item() == world * step + world * (world - 1) / 2, (step, x[0].item())
    say(f"step rank={rank} step={step} count={os.environ['TORCHELASTIC_RESTART_COUNT']}")
    hold(step)
say(f"done rank={rank} count={os.environ['TORCHELASTIC_RESTART_COUNT']}")
dist.destroy_process_group()
