"""Hugging Face Accelerate: its own process group, a prepared model, gather of losses."""
import common
import torch
from accelerate import Accelerator


def main():
    accelerator = Accelerator(cpu=True)
    net = common.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rows = torch.utils.data.TensorDataset(*common.data())
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for x, y in loader:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses = accelerator.gather(loss.detach().reshape(1))
    common.told(common.weight(net.parameters()), processes=accelerator.num_processes, losses=len(losses),
                precision=accelerator.mixed_precision)
    accelerator.end_training()


main()
