"""The CPUs to which torch's own code (torch/numa/binding.py) binds workers on a machine that is only a folder.

    PYTHON_WITH_TORCH torch_numa.py < CASES > RESULTS

CASES: JSON, [{"tree": FOLDER, "allowed": [CPU...] or null, "visible": [GPU...] or null}]; RESULTS: for each case {MODE:
[RESULT of each visible GPU]}. A result is {"cpus": [...]}, or {"error": TEXT} if torch fails; for "socket" with
"left_out": the result without the nodes because of which it fails. The module runs unchanged: its calls of CUDA are
answered from the tree, its files are opened below it, and the allowed CPUs are those of the case.
"""
import builtins
import json
import os
import pathlib
import sys
import types

from torch.numa import binding

MODES = ("node", "socket", "exclusive", "core-complex")


def gpus_of(tree):
    """PCI addresses of NVIDIA's GPUs, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    found = []
    for folder in pathlib.Path(tree, "proc/driver/nvidia/gpus").glob("*"):
        domain, bus, rest = folder.name.split(":")
        slot, function = rest.split(".")
        found.append((int(domain, 16), int(bus, 16), int(slot, 16), int(function, 16)))
    return sorted(found)


def all_cpus(tree):
    return binding._get_set_of_int_from_ranges_str(pathlib.Path(tree, "sys/devices/system/cpu/online").read_text())


def stand_on(tree, allowed, gpus):
    """From here on the module reads the tree instead of the machine."""
    def below(path):
        return tree + path if str(path).startswith("/sys/") else path

    binding.open = lambda path, *args, **more: builtins.open(below(path), *args, **more)
    binding.os = types.SimpleNamespace(listdir=lambda path: os.listdir(below(path)), path=os.path,
                                       sched_getaffinity=lambda pid: set(allowed))
    binding.shutil = types.SimpleNamespace(which=lambda name: f"/usr/bin/{name}")
    properties = [types.SimpleNamespace(pci_domain_id=g[0], pci_bus_id=g[1], pci_device_id=g[2]) for g in gpus]
    binding.torch = types.SimpleNamespace(cuda=types.SimpleNamespace(
        device_count=lambda: len(properties), get_device_properties=lambda index: properties[index]))


POSSIBLE = binding._get_systemwide_numa_node_indices


def usable_nodes():
    nodes = set()
    for node in POSSIBLE():
        try:
            if binding._get_allowed_logical_cpu_indices_for_numa_node(numa_node_index=node):
                nodes.add(node)
        except RuntimeError:
            pass
    return nodes


def ask(mode, gpu):
    options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
    return sorted(binding._get_validated_logical_cpus_to_bind_to(gpu_index=gpu, numa_options=options))


def result(mode, gpu):
    try:
        return {"cpus": ask(mode, gpu)}
    except Exception as e:  # whatever it dies of
        answer = {"error": f"{type(e).__name__}: {e}"}
    if mode == "socket":
        binding._get_systemwide_numa_node_indices = usable_nodes
        try:
            answer["left_out"] = ask(mode, gpu)
        except Exception as e:
            answer["left_out_error"] = f"{type(e).__name__}: {e}"
        binding._get_systemwide_numa_node_indices = POSSIBLE
    return answer


def main():
    results = []
    for case in json.load(sys.stdin):
        tree = case["tree"]
        gpus = gpus_of(tree)
        if case["visible"] is not None:
            gpus = [gpus[i] for i in case["visible"]]
        stand_on(tree, case["allowed"] if case["allowed"] is not None else all_cpus(tree), gpus)
        results.append({mode: [result(mode, i) for i in range(len(gpus))] for mode in MODES})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
