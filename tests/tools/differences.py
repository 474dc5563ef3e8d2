#!/usr/bin/python3
"""The table of the differences from torchrun in docs/from-torchrun.md, out of tests/e2e/like_differences.py.

    differences.py                prints the table
    differences.py --check PAGE   fails if the page's table is another one
    differences.py --write PAGE   puts it there
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from like_differences import table  # noqa: E402

BEGIN, END = "<!-- differences: made by tests/tools/differences.py -->\n", "<!-- end of the differences -->\n"


def main(words):
    whole = "\n".join(table()) + "\n"
    if not words:
        print(whole, end="")
        return 0
    action, path = words[0], pathlib.Path(words[1])
    before, begin, rest = path.read_text().partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{path}: no section between {BEGIN!r} and {END!r}")
    if action == "--write":
        path.write_text(before + BEGIN + whole + END + after)
    elif old != whole:
        sys.exit(f"{path}: its differences are not those of tests/e2e/like_differences.py; run {sys.argv[0]} --write {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
