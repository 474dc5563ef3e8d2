"""A small run of the benchmark of thousands of nodes (tests/bench/bench_scale.py): it works, and so do its nodes."""
import os
import pathlib
import subprocess
import sys

import harness

BENCH = harness.HERE.parent / "bench" / "bench_scale.py"


def test_one_leader_and_256_nodes_form_a_group_and_form_it_again_after_a_loss():
    built = pathlib.Path(harness.MUSTER).resolve().parents[2]
    agents = os.environ.get("SCALE_AGENTS", str(built / "tests" / "bench" / "scale_agents"))
    said = subprocess.run([sys.executable, BENCH, "--quick"], env={**os.environ, "SCALE_AGENTS": agents},
                          capture_output=True, text=True, timeout=600)
    assert said.returncode == 0, said.stdout + said.stderr
    sizes = [line.split()[0] for line in said.stdout.splitlines() if line[:5].strip().isdigit()]
    assert sizes == ["16", "256"] * 2, said.stdout
