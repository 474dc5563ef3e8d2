#!/usr/bin/python3
"""The table of the differences from torchrun in docs/from-torchrun.md, out of tests/e2e/like_differences.py.

    differences.py                prints the table
    differences.py --check PAGE   fails if the page's table is another one
    differences.py --write PAGE   puts it there
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import page_section  # noqa: E402
from like_differences import table  # noqa: E402


if __name__ == "__main__":
    page_section.run(sys.argv[1:], "differences", "differences.py", lambda: "\n".join(table()) + "\n")
