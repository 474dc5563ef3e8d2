"""DDP with the PowerSGD hook, which keeps state from step to step."""
import common
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd


def main():
    dist.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(common.model())
    state = powersgd.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2,
                                   min_compression_rate=0.5)
    net.register_comm_hook(state, powersgd.powerSGD_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    for _ in range(3 * common.STEPS):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(net(x), y).backward()
        optimizer.step()
    common.told(common.weight(net.parameters()), processes=dist.get_world_size())
    dist.destroy_process_group()


main()
