"""DeepSpeed: its engine with ZeRO stage 1, on CPUs and gloo."""
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import common      # noqa: E402
import deepspeed   # noqa: E402
import torch       # noqa: E402


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    net = common.model()
    engine, *_ = deepspeed.initialize(
        model=net, optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1},
                "zero_allow_untested_optimizer": True, "bf16": {"enabled": False}})
    x, y = common.share(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    for _ in range(common.STEPS):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(engine(x), y)
        engine.backward(loss)
        engine.step()
    common.told(common.weight(net.parameters()), processes=deepspeed.comm.get_world_size())
    torch.distributed.destroy_process_group()


main()
