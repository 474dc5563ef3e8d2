#!/usr/bin/python3
"""Where CUDA's runtime and NCCL are, for meson.

    find.py NVCC [NCCL_ROOT]

Prints four lines: CUDA's include and library folder, NCCL's include folder and its library. NCCL is looked for in
NCCL_ROOT, or else in the system, in CUDA's folder, and beside the python of $MUSTER_TEST_PYTHON and on PATH (package
nvidia-nccl-cu13). Exit 1 with one line that names what is missing.
"""
import glob
import os
import pathlib
import re
import subprocess
import sys

LIBRARIES = ("lib64", "lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")


def cuda_root(nvcc):
    """nvcc can be a wrapper anywhere, but it reports its own folder."""
    p = subprocess.run([nvcc, "--dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False)
    top = re.search(r"^#\$ TOP=(.+)$", p.stderr, re.M)
    return pathlib.Path(top[1].strip()).resolve() if top else pathlib.Path(nvcc).resolve().parent.parent


def beside(python):
    """The folders nvidia/nccl of a Python's packages."""
    code = "import sys; print('\\n'.join(p for p in sys.path if p.endswith('-packages')))"
    try:
        out = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    return [pathlib.Path(p) / "nvidia" / "nccl" for p in out.splitlines()]


def find_nccl(root):
    libraries = sorted(p for d in LIBRARIES for p in glob.glob(str(root / d / "libnccl.so*")))
    return (root / "include", libraries[0]) if libraries and (root / "include" / "nccl.h").exists() else None


def main():
    nvcc, given = sys.argv[1], "".join(sys.argv[2:])
    cuda = cuda_root(nvcc)
    library = next((cuda / d for d in LIBRARIES if (cuda / d / "libcudart.so").exists()), None)
    if library is None or not (cuda / "include" / "cuda_runtime_api.h").exists():
        sys.exit(f"no CUDA runtime in {cuda}")
    if given:
        roots = [pathlib.Path(given).resolve()]
    else:
        roots = [pathlib.Path("/usr"), pathlib.Path("/usr/local"), cuda]
        for python in (os.environ.get("MUSTER_TEST_PYTHON"), "python3", "python"):
            roots += beside(python) if python else []
    nccl = next(filter(None, map(find_nccl, roots)), None)
    if nccl is None:
        sys.exit("no include/nccl.h with lib/libnccl.so* in " + ", ".join(map(str, dict.fromkeys(roots))))
    print(cuda / "include", library, *nccl, sep="\n")


if __name__ == "__main__":
    main()
