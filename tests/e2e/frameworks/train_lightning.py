"""PyTorch Lightning: finds the ranks in the launcher's environment."""
import common
import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = common.model()

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    rows = torch.utils.data.TensorDataset(*common.data())
    module = Module()
    trainer = lightning.Trainer(accelerator="cpu", devices=2, num_nodes=common.nodes(), strategy="ddp",
                                max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(module, torch.utils.data.DataLoader(rows, batch_size=4))
    common.told(common.weight(module.parameters()), processes=trainer.world_size)


main()
