"""Hugging Face Transformers: its Trainer on a small BERT made here."""
import tempfile

import common
import torch
import transformers


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(5)
        self.ids = torch.randint(5, 60, (32, 12), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(12, dtype=torch.long), "labels": self.ids[i]}


def main():
    transformers.set_seed(1)
    config = transformers.BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                     intermediate_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    net = transformers.BertForMaskedLM(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(folder, use_cpu=True, max_steps=common.STEPS, report_to=[],
                                                   per_device_train_batch_size=2, save_strategy="no",
                                                   disable_tqdm=True, ddp_backend="gloo")
        trainer = transformers.Trainer(model=net, args=arguments, train_dataset=Rows())
        trainer.train()
    common.told(common.weight(net.parameters()), processes=arguments.world_size)


main()
