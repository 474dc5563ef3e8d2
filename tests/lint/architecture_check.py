#!/usr/bin/python3
"""What docs/ARCHITECTURE.md names exists.

    architecture_check.py SOURCE_ROOT

In the page: each file in backquotes ("*" and "{a,b}" are patterns; a name without a folder may be in any), each folder of
src/, each `function()`, each `struct name`. In a row of a walk: its functions are in one of its files. A file without a
folder is in that of the file before it.
"""
import fnmatch
import pathlib
import re
import subprocess
import sys

PAGE = "docs/ARCHITECTURE.md"


def patterns(name):
    """wire{,_table}.c: wire.c and wire_table.c"""
    if m := re.search(r"\{(.*?)\}", name):
        return [p for word in m[1].split(",") for p in patterns(name[:m.start()] + word + name[m.end():])]
    return [name]


def faults(root):
    files = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    sources = {f: (root / f).read_text() for f in files if re.match(r"(src|include|tests)/.*\.(c|h|py)$", f) and
               (root / f).exists()}
    source = "\n".join(sources.values())
    called = set(re.findall(r"\b(\w+)\(", source))
    structs = set(re.findall(r"struct (\w+) \{", source))
    for number, line in enumerate((root / PAGE).read_text().splitlines(), 1):
        folder, cited = "", []
        for name in re.findall(r"`([\w/.{},*-]+\.(?:c|h|py|md|[1-8]))`", line):
            for pattern in patterns(name):
                if not any(fnmatch.fnmatch("/" + f, "*/" + pattern) for f in files):
                    yield number, f"no file {pattern}"
            folder = str(pathlib.PurePath(name).parent) if "/" in name else folder
            cited.append(name if "/" in name else f"{folder}/{name}")
        for name in re.findall(r"`(src/[\w/]+)/?`", line):
            if not (root / name).is_dir():
                yield number, f"no folder {name}"
        for name in re.findall(r"`struct (\w+)`", line):
            if name not in structs:
                yield number, f"no struct {name}"
        functions = re.findall(r"`(\w+)\(\)`", line)
        row = re.match(r"\| \d+ \|(.*?)\|(.*?)\|", line)
        for name in functions:
            if name not in called:
                yield number, f"no function {name}()"
            elif row and f"`{name}()`" in row[2] and not any(
                    re.search(rf"\b{name}\(", sources.get(f, "")) for f in cited):
                yield number, f"{name}() is not in {', '.join(cited)}"


def main():
    root = pathlib.Path(sys.argv[1])
    found = list(faults(root))
    for number, fault in found:
        print(f"{PAGE}:{number}: {fault}")
    return 1 if found else 0


sys.exit(main())
