#!/usr/bin/python3
"""Every C file is as clang-format would write it, by .clang-format.

    format_check.py SOURCE_ROOT           says which files differ
    format_check.py SOURCE_ROOT --fix     rewrites them

Releases of clang-format format differently, so it is always the one of Debian 12. Without it: skipped (77).
"""
import pathlib
import re
import shutil
import subprocess
import sys

RELEASE = "14"


def program():
    """The name of the clang-format of the right release, or None."""
    for name in (f"clang-format-{RELEASE}", "clang-format"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], check=True, capture_output=True, text=True).stdout
            if re.search(rf"version {RELEASE}\.", said):
                return name
    return None


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = sorted(str(p) for top in ("src", "include", "tests", "examples") for p in (root / top).rglob("*.[ch]"))
    if len(files) < 10:
        sys.exit(f"{root}: only {len(files)} C files found; is this the source tree?")
    name = program()
    if name is None:
        print(f"clang-format {RELEASE} is not here")
        return 77
    if "--fix" in sys.argv:
        return subprocess.run([name, "-i", *files], check=False).returncode
    done = subprocess.run([name, "--dry-run", "-Werror", "--ferror-limit=1", *files], check=False, capture_output=True,
                          text=True)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error:", done.stderr, re.M)))
    for path in wrong:
        print(f"{pathlib.Path(path).relative_to(root)}: not as clang-format-{RELEASE} writes it")
    print(f"{len(files)} files, {len(wrong)} to mend with format_check.py . --fix" if wrong else f"{len(files)} files, no fault")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
