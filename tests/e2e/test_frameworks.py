"""Trainers as the users of eight libraries write them, unchanged, with two agents of two workers each: every rank ends
with the same numbers under muster and under torchrun.

Needs MUSTER_TEST_FRAMEWORKS, a Python with those libraries and torchrun beside it (tests/run.sh --slow makes one). A
library that is not installed there is skipped by name. The trainers are in frameworks/.
"""
import os
import re
import shutil
import subprocess

import pytest
from harness import HERE, free_port

PYTHON = os.environ.get("MUSTER_TEST_FRAMEWORKS", "")
TORCHRUN = os.path.join(os.path.dirname(PYTHON), "torchrun")
ENV = {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": PYTHON, "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu",
       "TRANSFORMERS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu"}
pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="no Python in MUSTER_TEST_FRAMEWORKS")]
LIBRARIES = {"accelerate": "accelerate", "transformers": "transformers", "lightning": "lightning",
             "fabric": "lightning.fabric", "deepspeed": "deepspeed", "powersgd": "torch", "jax": "jax"}


def has(library):
    return subprocess.run([PYTHON, "-c", f"import {library}"], capture_output=True).returncode == 0


# PyTorch 2.13 aborts so now and then when a process that used a hook of DDP ends: of six jobs with PowerSGD one under
# muster, and one under torchrun.
ABORTED_AT_ITS_END = "terminate called without an active exception"
ATTEMPTS = 4


def results(job, script, *args, nodes=2, program=None, attempt=1, before=lambda: None):
    """The RESULT lines of all ranks, in order. `nodes` agents of two workers each; each must end with success. before()
    is called first, and again before another attempt."""
    before()
    endpoint = f"127.0.0.1:{free_port()}"
    agents = [job.agent(f"n{n}", f"--nnodes={nodes}", "--nproc-per-node=2", "--rdzv-backend=c10d",
                        f"--rdzv-endpoint={endpoint}", "--rdzv-id=frameworks", HERE / "frameworks" / script, *args,
                        env=ENV, program=program) for n in range(nodes)]
    ended = [agent.finish(300) for agent in agents]
    if any(ABORTED_AT_ITS_END in err for _, _, err in ended) and attempt < ATTEMPTS:
        return results(job, script, *args, nodes=nodes, program=program, attempt=attempt + 1, before=before)
    for code, _, err in ended:
        assert code == 0, f"{script}: status {code}\n{err[-4000:]}"
    said = "".join(out for _, out, _ in ended)
    # torchrun's workers write to the same pipe: lines of two ranks may follow each other without an end of line
    found = sorted("RESULT" + line.split("\n")[0] for line in said.split("RESULT")[1:])
    assert len(found) == 2 * nodes, said[-4000:]
    return found


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_trains_as_under_torchrun(job, name):
    if not has(LIBRARIES[name]):
        pytest.skip(f"{LIBRARIES[name]} is not installed in MUSTER_TEST_FRAMEWORKS")

    def run(program=None):
        return results(job, f"train_{name}.py", *([str(free_port())] if name == "jax" else []), program=program)

    ours = run()
    assert ours == run([TORCHRUN])
    assert all(f"rank={n} world=4 " in line and "processes=4" in line for n, line in enumerate(ours))
    assert len({re.search(r"value=(\S+)", line).group(1) for line in ours}) == 1


def test_fsdp2_continues_at_another_size(job, tmp_path):
    """Two nodes save a distributed checkpoint; one node, and then two again, continue from it."""
    seen = {}
    for who, program in (("muster", None), ("torchrun", [TORCHRUN])):
        folder, saved = tmp_path / who, tmp_path / f"{who}.saved"
        folder.mkdir()

        def as_saved():
            """A run that has aborted at its end has saved already."""
            shutil.rmtree(folder)
            shutil.copytree(saved, folder)

        seen[who] = []
        for nodes in (2, 1, 2):
            shutil.rmtree(saved, ignore_errors=True)
            shutil.copytree(folder, saved)
            seen[who].append(results(job, "train_fsdp2.py", folder, nodes=nodes, program=program, before=as_saved))
    assert seen["muster"] == seen["torchrun"]
    firsts = [re.search(r"first=(\d+) last=(\d+)", run[0]).groups() for run in seen["muster"]]
    assert firsts == [("0", "4"), ("4", "8"), ("8", "12")]
