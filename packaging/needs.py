#!/usr/bin/env python3
"""needs.py FILE [--at-most X.Y]: what a program needs to run: prints the least glibc, such as 2.28, computed from the versions
of the symbols in its dynamic section. Fails if it needs a library that is not glibc's, or a later glibc than X.Y."""
import re
import subprocess
import sys

GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt|libresolv|libutil)\.so\.\d|ld-linux.*\.so\.\d")


def needs(path):
    """(the least glibc as two numbers, the libraries that are not glibc's)"""
    # readelf reads the programs of all processors.
    shown = subprocess.run(["readelf", "--wide", "--dynamic", "--version-info", path], check=True, capture_output=True, text=True).stdout
    strangers = [name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", shown) if not GLIBC.fullmatch(name)]
    versions = [tuple(map(int, v)) for v in re.findall(r"GLIBC_(\d+)\.(\d+)", shown)]
    return max(versions, default=(2, 5)), strangers


def main():
    path = sys.argv[1]
    least, strangers = needs(path)
    print(f"{least[0]}.{least[1]}")
    if strangers:
        sys.exit(f"{path} needs {', '.join(strangers)}")
    if sys.argv[2:3] == ["--at-most"] and least > tuple(map(int, sys.argv[3].split("."))):
        sys.exit(f"{path} needs glibc {least[0]}.{least[1]}; at most {sys.argv[3]} is wanted")


if __name__ == "__main__":
    main()
