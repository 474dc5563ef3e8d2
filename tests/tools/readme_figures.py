#!/usr/bin/python3
"""README's figures, out of the tables of docs/benchmarks.md.

    readme_figures.py                  prints them
    readme_figures.py --check README   fails if README has others
    readme_figures.py --write README   puts them there
"""
import pathlib
import re
import sys
import textwrap

import page_section

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "docs/benchmarks.md"


def row(begin):
    """The cells of the row whose name begins so: torchrun's, and muster's, up to the first remark in brackets."""
    found = re.findall(rf"^\| ({re.escape(begin)}[^|]*) \| ([^|]*) \| ([^|]*) \|$", BENCHMARKS.read_text(), re.M)
    if len(found) != 1:
        sys.exit(f"{BENCHMARKS}: {len(found)} rows begin with {begin!r}")
    return [re.sub(r" \(.*", "", cell) for cell in found[0][1:]]


def figures():
    worker, step, start, memory = row("a worker is killed"), row("2x2: a rank"), row("start to exit"), row("peak memory")
    items = [
        f"**Faster restarts.** A worker is killed, and all four workers of two nodes run again after {worker[1]} (torchrun 2.13: {worker[0]}). "
        f"With `--warm`, the first training step follows after {step[1]} (torchrun: {step[0]}).",
        f"**One small program.** C, no Python in the launcher, no daemon and no root. It starts eight `/bin/true` and ends in {start[1]} "
        f"(torchrun: {start[0]}), with {memory[1]} of memory (torchrun: {memory[0]}).",
    ]
    return "".join(textwrap.fill(item, 128, initial_indent="- ", subsequent_indent="  ") + "\n" for item in items)


if __name__ == "__main__":
    page_section.run(sys.argv[1:], "figures", "readme_figures.py", figures)
