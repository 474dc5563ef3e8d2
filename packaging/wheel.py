#!/usr/bin/env python3
"""wheel.py VERSION PROGRAM DIR [LICENCES]: writes the wheels muster and muster-torchrun into DIR. PROGRAM is the portable file,
LICENCES those of all that is in it; the platform tag says the least glibc that it needs (PEP 600), but manylinux_2_17 at the least, which every pip knows.

The program is one of the wheel's scripts, which installers put beside the interpreter as they are."""
import base64
import hashlib
import os
import pathlib
import struct
import sys
import time
import zipfile

from needs import needs

HERE = pathlib.Path(__file__).resolve().parent
SUMMARY = "Launcher for distributed training that takes torchrun's options"


def timestamp():
    """Of every file: the same source gives the same wheel."""
    return time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), 315532800))[:6]


def write_wheel(path, dist, version, tag, files, metadata):
    """files: {name in the wheel: (content, mode)}; adds METADATA, WHEEL and RECORD."""
    info = f"{dist}-{version}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    files = {**files,
             f"{info}/METADATA": (metadata.encode(), 0o644),
             f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: muster\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode(), 0o644)}
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(name, content, mode):
            entry = zipfile.ZipInfo(name, timestamp())
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
        for name, (content, mode) in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
            add(name, content, mode)
        add(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]).encode(), 0o644)
    print(path)


def metadata(name, version, more):
    return (f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {SUMMARY}\nLicense: Apache-2.0\n"
            f"Requires-Python: >=3.8\n{more}")


def machine_of(program):
    """As platform.machine() of the machine that it is for: e_machine of elf(5)."""
    return {62: "x86_64", 183: "aarch64"}[struct.unpack_from("<H", program.read_bytes(), 18)[0]]


def main():
    version, program, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    least, strangers = needs(program)
    if strangers:
        sys.exit(f"wheel.py: {program} needs {', '.join(strangers)}; a wheel must not")
    major, minor = max(least, (2, 17))
    tag = f"py3-none-manylinux_{major}_{minor}_{machine_of(program)}"
    files = {}
    for path in sorted((HERE / "python/muster").glob("*.py")):
        content = path.read_text()
        if path.name == "__init__.py":
            content = content.replace('"0.0.0"  # written by packaging/wheel.py', f'"{version}"')
            assert version in content
        files[f"muster/{path.name}"] = (content.encode(), 0o644)
    files["muster.pth"] = ((HERE / "python/muster.pth").read_bytes(), 0o644)
    files[f"muster-{version}.data/scripts/muster"] = (program.read_bytes(), 0o755)
    for page in sorted((HERE.parent / "man").glob("*.[157]")):  # man looks beside the folders of PATH
        files[f"muster-{version}.data/data/share/man/man{page.name[-1]}/{page.name}"] = (page.read_bytes(), 0o644)
    licences = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else HERE.parent / "LICENSE"
    files[f"muster-{version}.dist-info/LICENSE"] = (licences.read_bytes(), 0o644)
    readme = (HERE.parent / "README.md").read_text()
    write_wheel(out / f"muster-{version}-{tag}.whl", "muster", version, tag, files,
                metadata("muster", version, f"Provides-Extra: torchrun\nRequires-Dist: muster-torchrun=={version}; extra == "
                         f"'torchrun'\nDescription-Content-Type: text/markdown\n\n{readme}"))
    script = (HERE / "python/torchrun.sh").read_bytes()
    write_wheel(out / f"muster_torchrun-{version}-py3-none-any.whl", "muster_torchrun", version, "py3-none-any",
                {f"muster_torchrun-{version}.data/scripts/torchrun": (script, 0o755)},
                metadata("muster-torchrun", version, f"Requires-Dist: muster=={version}\n\nThe command torchrun, by muster.\n"))


if __name__ == "__main__":
    main()
