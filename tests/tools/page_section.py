"""A section of a page that a script makes: printed, compared with the page, or written into it."""
import itertools
import pathlib
import sys


def run(words, name, script, make, stable=str.splitlines):
    """What `SCRIPT [--check PAGE | --write PAGE]` does. make() returns the text, and stable() the lines that must be equal."""
    begin, end = f"<!-- {name}: made by tests/tools/{script} -->\n", f"<!-- end of the {name} -->\n"
    new = make()
    if not words:
        print(new, end="")
        return
    action, path = words[0], pathlib.Path(words[1])
    before, found, rest = path.read_text().partition(begin)
    old, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{path}: no section between {begin!r} and {end!r}")
    if action == "--write":
        path.write_text(before + begin + new + end + after)
    elif wrong := [f"- {a}\n+ {b}" for a, b in itertools.zip_longest(stable(old), stable(new)) if a != b]:
        sys.exit("\n".join([f"{path}: its {name} are not those of now; run tests/tools/{script} --write {path}", *wrong]))
