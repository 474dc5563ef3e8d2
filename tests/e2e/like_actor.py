"""A worker that does its words in order, and tells $E2E_EVENTS what happens to it:

    start            says that it runs: rank, restart, pid
    rank=N           does the next word only on this rank; restart=N: only after so many restarts
    first=NAME       does the next word only in the worker that is the first to ask under this name
    out=TEXT         writes TEXT and a newline; raw=TEXT: without one; err=TEXT: to standard error (\\r, \\n, \\xNN)
    lines=N          writes N numbered lines; bytes=N: one of so many bytes
    read             says what standard input gave; sees: what the terminal is
    on=NAME          says that it got this signal, and goes on; end=NAME: says so and ends with 0; ignore=NAME
    leave            starts a program in a session of its own that outlives it; child: one in its own session
    error=TEXT       writes an error file, as torch's `record` does; file=TEXT: one that is exactly this text
    exit=N           kill=NAME: ends so
    go, wait         waits until the test says go, or for ever; tells that it waits and how that ended
    gate=NAME        waits until the test opens this FIFO of the job's folder
    call W...        runs the rest as a command; ends as that does
"""
import json
import os
import signal
import subprocess
import sys
import time

RANK, RESTART = os.environ.get("RANK", "?"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "?")
SLEEPER = ["sleep", "600"]
FOLDER = os.path.dirname(os.environ["E2E_EVENTS"])


def tell(kind, **fields):
    words = [kind, f"rank={RANK}", f"restart={RESTART}", *(f"{k}={v}" for k, v in fields.items())]
    fd = os.open(os.environ["E2E_EVENTS"], os.O_WRONLY)
    os.write(fd, (" ".join(words) + "\n").encode())
    os.close(fd)


def first(name):
    try:
        os.close(os.open(f"{FOLDER}/first-{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


CONDITIONS = {"rank": lambda value: value == RANK, "restart": lambda value: value == RESTART, "first": first}


def text(value):
    return value.encode().decode("unicode_escape").encode("latin-1")


def put(fd, data):
    while data:
        data = data[os.write(fd, data):]


def on(name, then):
    def got(number, frame):
        tell("signal", name=name)
        if then == "end":
            raise SystemExit(0)

    signal.signal(getattr(signal, name), signal.SIG_IGN if then == "ignore" else got)


def go():
    os.close(os.open(os.environ["E2E_GO"], os.O_RDONLY))


def wait(until):
    try:
        tell("waits")
        until()
        tell("went")
    except KeyboardInterrupt:
        tell("keyboard")
        raise
    finally:
        tell("finally")


def for_ever():
    while True:
        signal.pause()


def sees():
    def size(fd):
        try:
            return "x".join(map(str, os.get_terminal_size(fd)))
        except OSError:
            return "none"

    tell("sees", **{f"fd{n}": f"{os.isatty(n)},{size(n)}" for n in (0, 1, 2)})


def background(session):
    child = subprocess.Popen(SLEEPER, start_new_session=session, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    tell("left", pid=child.pid)


def error(message):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
        json.dump({"message": {"message": message, "extraInfo": {"py_callstack": "the stack", "timestamp": str(int(time.time()))}}},
                  f)


def do(name, value):
    if name == "start":
        tell("start", pid=os.getpid())
    elif name in ("out", "raw", "err"):
        put(2 if name == "err" else 1, text(value) + (b"" if name == "raw" else b"\n"))
    elif name == "lines":
        put(1, b"".join(b"rank %s line %d of the lines that a worker writes\n" % (RANK.encode(), n) for n in range(int(value))))
    elif name == "bytes":
        put(1, b"x" * int(value) + b"\n")
    elif name == "read":
        tell("read", data=os.read(0, 1000).hex())
    elif name == "sees":
        sees()
    elif name in ("on", "end", "ignore"):
        on(value, name)
    elif name in ("leave", "child"):
        background(name == "leave")
    elif name == "error":
        error(value)
    elif name == "file":
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
            f.write(value)
    elif name == "exit":
        sys.exit(int(value))
    elif name == "kill":
        os.kill(os.getpid(), getattr(signal, value))
        signal.pause()
    elif name == "go":
        wait(go)
    elif name == "gate":
        os.close(os.open(f"{FOLDER}/{value}", os.O_RDONLY))
    elif name == "wait":
        wait(for_ever)
    else:
        sys.exit(f"like_actor.py: unknown word {name}")


def main(words):
    while words:
        name, _, value = words.pop(0).partition("=")
        if name == "call":
            sys.exit(subprocess.run(words).returncode)
        if name in CONDITIONS:
            if not CONDITIONS[name](value):
                while words.pop(0).partition("=")[0] in CONDITIONS:
                    pass
            continue
        do(name, value)


main(sys.argv[1:])
