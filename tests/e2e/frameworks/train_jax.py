"""JAX on CPUs, no PyTorch's process group: train_jax.py PORT. The coordinator is rank 0 at that port."""
import os
import sys

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{sys.argv[1]}", num_processes=world, process_id=rank)

from jax.experimental import multihost_utils  # noqa: E402

total = multihost_utils.process_allgather(jax.numpy.array([rank + 1.0])).sum()
print(f"RESULT rank={rank} world={world} value={float(total).hex()} processes={jax.process_count()}", flush=True)
jax.distributed.shutdown()
