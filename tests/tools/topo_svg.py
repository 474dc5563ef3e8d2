#!/usr/bin/python3
"""README's picture of a node: what `muster topo --svg` draws of a recorded machine, a Lenovo SD665-N V3 with four H200
(test/topologies/turin-4gpu-nvml.xml of openpmix/prrte, BSD-3-Clause).

    topo_svg.py MUSTER docs/topo.svg          MUSTER_SHARED or ../shared has the recorded machines
"""
import os
import pathlib
import subprocess
import sys

SHARED = pathlib.Path(os.environ.get("MUSTER_SHARED") or pathlib.Path(__file__).resolve().parents[2].parent / "shared")
MACHINE = SHARED / "topologies/hwloc/prrte-turin-4xH200-nvml.xml"


def picture(muster):
    return subprocess.run([muster, "topo", "--from", MACHINE, "--svg=-"], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(picture(sys.argv[1]))
