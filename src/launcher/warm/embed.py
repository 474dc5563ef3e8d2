#!/usr/bin/env python3
"""Writes a text file as a C array: embed.py TEXT NAME HEADER > C. A string literal could be too long for a compiler."""
import pathlib
import sys

text, name, header = sys.argv[1:]
data = pathlib.Path(text).read_bytes() + b"\0"
print(f'#include "{header}"\n\nconst char {name}[] = {{')
for at in range(0, len(data), 20):
    print("    " + " ".join(f"{byte}," for byte in data[at:at + 20]))
print("};")
