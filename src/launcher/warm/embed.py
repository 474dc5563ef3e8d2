#!/usr/bin/env python3
"""Writes a zip of one stored file as a C array: embed.py TEXT NAME ARRAY HEADER > C. It is the same for the same text."""
import io
import pathlib
import sys
import zipfile

text, name, array, header = sys.argv[1:]
zipped = io.BytesIO()
with zipfile.ZipFile(zipped, "w") as writer:
    writer.writestr(zipfile.ZipInfo(name), pathlib.Path(text).read_bytes())
data = zipped.getvalue()
print(f'#include "{header}"\n\nconst struct warm_zip {array} = {{{len(data)}, (const uint8_t[]){{')
for at in range(0, len(data), 20):
    print("    " + " ".join(f"{byte}," for byte in data[at:at + 20]))
print("}};")
