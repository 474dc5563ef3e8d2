#!/usr/bin/python3
"""The program was built so that a mistake with memory ends it, and is not an entrance. And no start loads libm.

    hardening_check.py READELF PROGRAM --fortified|--not-fortified [--without-libm]
"""
import re
import subprocess
import sys


def main():
    readelf, program, fortified = sys.argv[1:4]
    out = subprocess.run([readelf, "--wide", "--file-header", "--program-headers", "--dynamic", "--dyn-syms", program],
                         check=True, capture_output=True, text=True).stdout
    imported = set(re.findall(r" UND (\w+)", out))
    stack = re.search(r"^\s*GNU_STACK .*$", out, re.M)
    wanted = {
        "is no PIE: -Db_pie=true": re.search(r"Type:\s+DYN", out) and re.search(r"FLAGS_1\).*\bPIE\b", out),
        "has no RELRO: -z relro": re.search(r"^\s*GNU_RELRO ", out, re.M),
        "binds symbols late: -z now": re.search(r"BIND_NOW|FLAGS_1\).*\bNOW\b", out),
        "has a stack that can be executed: -z noexecstack": stack and not re.search(r" R?W?E ", stack[0]),
        "has no stack protector: -fstack-protector-strong": "__stack_chk_fail" in imported,
        "has no checked functions: -D_FORTIFY_SOURCE=2":
            fortified != "--fortified" or {s for s in imported if s.endswith("_chk")} - {"__stack_chk_fail"},
        "needs libm, 0.2 ms of each start: nm -D shows for what": "--without-libm" not in sys.argv or "[libm." not in out,
    }
    faults = [f"{program} {what}" for what, fine in wanted.items() if not fine]
    print("\n".join(faults) or f"{program}: " + ", ".join(sorted(s for s in imported if s.endswith("_chk"))))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
