"""What others could learn of a job's secrets from processes of its machines.

    assert not shown(key, pids)                                  # on no command line, in no environment
"""
import pathlib


def shown(secret, pids):
    """Where it is: of which processes, by their titles, in which file. [] also of processes that have ended."""
    found = []
    for pid in pids:
        for name in "cmdline", "environ":
            try:
                if secret.encode() in pathlib.Path(f"/proc/{pid}/{name}").read_bytes():
                    title = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(f"{name} of {title}")
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found
