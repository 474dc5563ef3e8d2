"""Work, and a hang, in a thread for which the main thread waits, with PyTorch."""
import re

import pytest

from harness import HERE, TORCH_PYTHON, free_port

pytestmark = pytest.mark.torch


def test_a_rank_that_hangs_in_a_thread_is_named(job):
    endpoint = f"127.0.0.1:{free_port()}"
    agents = [job.agent(tag, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                        f"--rdzv-conf=is_host={int(tag == 'a')}", "--max-restarts=1", "--hang-report=5", "--hang-still=12",
                        "--evidence-timeout=60", "--log-dir", job.tmp / "logs", HERE / "torch_async.py",
                        env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"}) for tag in "ab"]
    said = agents[0].wait_said(r"the job hangs: ([^\n]*)", 180)[1]
    assert [a.finish(180)[0] for a in agents] == [0, 0], agents[0].said()
    assert re.search(r"ranks 0-1,3 wait in \S+ \(\S+:\d+\); rank 2 \(node \S+, pid \d+\): no thread of it waits in torch.distributed "
                     r"as those of others do; its thread \d+: clock_nanosleep\(\) in load \(torch_async.py:\d+\)", said), said


def test_a_job_that_trains_in_a_thread_is_left_alone(job):
    agent = job.agent("a", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "--hang-report=0", "--hang-still=12",
                      "--hang-timeout=12", HERE / "torch_thread.py", "28", env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"})
    assert agent.finish(180)[0] == 0 and "hangs" not in agent.said(), agent.said()
