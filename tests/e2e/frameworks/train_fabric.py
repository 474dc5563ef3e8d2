"""Lightning Fabric: the same environment, the user's own loop."""
import common
import torch
from lightning.fabric import Fabric


def main():
    fabric = Fabric(accelerator="cpu", devices=2, num_nodes=common.nodes(), strategy="ddp")
    fabric.launch()
    net = common.model()
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    x, y = common.share(fabric.global_rank, fabric.world_size)
    for _ in range(common.STEPS):
        fabric.backward(torch.nn.functional.binary_cross_entropy_with_logits(net(x), y))
        optimizer.step()
        optimizer.zero_grad()
    common.told(common.weight(net.parameters()), processes=fabric.world_size)


main()
