#!/usr/bin/python3
"""Runs the benchmarks and writes docs/benchmarks.md: a table with torchrun beside muster, then what each one printed.

    tests/bench/report.py BUILD [NAME ...]        all benchmarks of that build folder, or only these

With names, the other benchmarks' parts of the page stay as they are. The machine should do nothing else: nobody's
figures are good on a busy one. It takes about two hours with PyTorch in .venv/, most of it waiting for torchrun.
"""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
ORDER = ["start", "memory", "restart", "warm", "warm_trainer", "kills", "recovery", "scale", "store", "store_check",
         "flood", "tee", "look", "gpus", "hang", "hang_torch", "profile", "wire", "shake", "key", "slurm", "ssh"]
HEAD = """# Benchmarks

muster beside torchrun 2.13 in the same run, alternately, on one machine; medians. `make benchmarks` writes this page
again. What each row means, and how it is measured, is described at the top of its file in `tests/bench/`.
"""


def machine():
    """This machine in one line, without its name."""
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return (f"{os.cpu_count()} cores ({found.group(1) if found else platform.machine()}), "
            f"{int(memory.group(1)) / 2**20:.0f} GiB, Linux {platform.release().split('-')[0]}, "
            f"{datetime.date.today().isoformat()}")


def benchmarks(build):
    """name: (command, environment), as meson would run them."""
    listed = json.loads(subprocess.run(["meson", "introspect", "--benchmarks", build], check=True, text=True,
                                       capture_output=True).stdout)
    return {test["name"]: (test["cmd"], test["env"]) for test in listed}


def run(name, command, env):
    print(f"{name} ...", flush=True)
    done = subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode not in (0, 1):  # 1: a target was missed, which the page says
        sys.exit(f"{name} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    said = "".join(line for line in done.stdout.splitlines(True) if not line.startswith("run "))
    return f"## {name}\n\n{machine()}\n\n```\n{said.strip()}\n```\n"


def kept():
    """name: its part of the page as it is."""
    text = PAGE.read_text() if PAGE.exists() else ""
    return {part.split("\n", 1)[0]: "## " + part.strip() + "\n" for part in text.split("\n## ")[1:]}


def table(parts):
    rows = [line[len("row: "):].split(" | ") for part in parts for line in part.splitlines() if line.startswith("row: ")]
    return "| | torchrun 2.13 | muster |\n| --- | --- | --- |\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    known, parts = benchmarks(sys.argv[1]), kept()
    for name in sys.argv[2:] or [n for n in ORDER if n in known]:
        if name not in known:
            sys.exit(f"{name}: no such benchmark; there are {' '.join(sorted(known))}")
        parts[name] = run(name, *known[name])
    parts = [parts[name] for name in ORDER if name in parts]
    PAGE.write_text("\n".join([HEAD, table(parts), *parts]))
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
