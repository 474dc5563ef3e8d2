#!/usr/bin/python3
"""The table LIMITS of muster-protocol(7) has the numbers of the headers, and each limit of those that are only about
peers.

    limits_man_check.py SOURCE_ROOT

Before a row of the table a comment names its number: a macro, or store_limits.FIELD.
"""
import pathlib
import re
import sys

# Each limit of these is in the table: macros whose names end so.
WHOLE = ["src/rendezvous/server/server_io.h", "src/rendezvous/store/store_door_io.h", "src/rendezvous/protocol/conn_io.h"]
IS_LIMIT = re.compile(r"_(MAX|NS|BURST)$")
# Of these, what the table names.
ALSO = ["src/rendezvous/store/store_guard_io.h",
        "src/rendezvous/protocol/wire.h", "src/rendezvous/protocol/messages.h", "src/rendezvous/protocol/settings.h",
        "src/rendezvous/server/server_operators_io.c", "src/rendezvous/arbiter/arbiter_record.h",
        "src/rendezvous/arbiter/dir/arbiter_folder_io.h", "src/rendezvous/arbiter/etcd/arbiter_etcd.h",
        "src/watchdog/act/hang_evidence_io.h", "src/launcher/starter/starter_io.h", "src/launcher/starter/starter.h",
        "src/launcher/ssh/ssh_boot.h", "src/base/json/json.h"]
STORE = "src/rendezvous/store/store.h"
NOT_OF_ALL = {"connections": "0, which means RLIMIT_NOFILE"}

UNITS = {"ms": 10**6, "s": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def value_of(expression):
    """The number that a C expression of constants has."""
    text = re.sub(r"/\*.*", "", expression)
    text = re.sub(r"\(size_t\)|UINT64_C|\\$", "", text)
    text = re.sub(r"\bNS_PER_MS\b", "1000000", re.sub(r"\bNS_PER_S\b", "1000000000", text))
    text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text).strip()
    return eval(text) if re.fullmatch(r"[\d\s()*+<-]+", text) else None  # only numbers and signs


def macros(path):
    found = {}
    for name, expression in re.findall(r"^#define ([A-Z][A-Z0-9_]*) (.*)$", path.read_text(), re.M):
        value = value_of(expression)
        if value is not None:
            found[name] = value
    return found


def limits_of_store(path):
    table = re.search(r"#define STORE_LIMITS_DEFAULT(.*?)\}\)", path.read_text().replace("\\\n", ""), re.S)[1]
    fields = re.search(r"^struct store_limits \{(.*?)^\};", path.read_text(), re.M | re.S)[1]
    found = {name: 0 for name in re.findall(r"uint\d+_t (\w+);", fields)}
    found.update({name: value_of(text) for name, text in re.findall(r"\.(\w+) = ([^,}]*)", table)})
    return {f"store_limits.{name}": value for name, value in found.items() if name not in NOT_OF_ALL}


def rows_of(page):
    section = re.search(r"^\.Sh LIMITS$(.*?)^\.Sh ", page, re.M | re.S)
    return re.findall(r"^\.\\\" ([\w.]+)\n\.It (.*?) Ta (\d+(?: (?:ms|s|[KMG]iB))?)(?: Ta|$)", section[1], re.M)


def number(text):
    digits, _, unit = text.partition(" ")
    return int(digits) * (UNITS[unit] if unit else 1)


def main():
    root = pathlib.Path(sys.argv[1])
    known, needed = limits_of_store(root / STORE), set()
    needed |= set(known)
    for name in WHOLE:
        found = macros(root / name)
        needed |= {limit for limit in found if IS_LIMIT.search(limit)}
        known |= found
    for name in ALSO:
        known |= macros(root / name)
    rows = rows_of((root / "man" / "muster-protocol.7").read_text())
    problems = [f"{what}: no {name} in the headers" for name, what, _ in rows if name not in known]
    problems += [f"{what}: {text}, but {name} is {known[name]}" for name, what, text in rows
                 if name in known and number(text) != known[name]]
    problems += [f"no row for {name}" for name in sorted(needed - {name for name, _, _ in rows})]
    if len(rows) < 30:
        problems.append(f"only {len(rows)} rows: is this check blind?")
    print("\n".join(problems) or f"{len(rows)} limits agree")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
