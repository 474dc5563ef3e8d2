"""How long discovery of this machine takes, compared with hwloc's own load of it; each in a process of its own, in
turns."""
import os
import subprocess

import bench

KINDS = {"hwloc-cpus": "hwloc alone, CPUs", "cpus": "a look at the CPUs", "hwloc-pci": "hwloc alone, with PCI",
         "all": "a look at all but NVML"}


def took(kind):
    return int(subprocess.run([os.environ["LOOKTIME"], kind], check=True, capture_output=True).stdout) / 1e9


def main():
    samples = {kind: [] for kind in KINDS}
    for kind in list(KINDS) * (bench.RUNS + 1):
        samples[kind].append(took(kind))
    middle = {kind: bench.show(name, samples[kind][1:]) for kind, name in KINDS.items()}
    bench.target("the CPUs at most 50 ms beyond hwloc", middle["cpus"] - middle["hwloc-cpus"] <= 50)
    bench.target("all at most 50 ms beyond hwloc", middle["all"] - middle["hwloc-pci"] <= 50)
    bench.end()


if __name__ == "__main__":
    main()
