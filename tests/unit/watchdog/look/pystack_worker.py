"""Blocks in a read of standard input, in a way that its argument names. On SIGUSR1, CPython's own faulthandler writes
all stacks to standard error: what pystack must read from outside. Runs on Python 3.9 and later, alone."""
import faulthandler
import functools
import os
import signal
import sys
import threading


def block():
    os.write(1, b"ready\n")
    os.read(0, 1)


def nested(n=5):
    if n == 0:
        block()
    else:
        nested(n - 1)


def generators():
    def inner():
        yield 1
        block()
        yield 2

    def outer():
        yield from inner()

    for _ in outer():
        pass


def comprehension():
    return [
        (block(), x)[1]
        for x in range(2)
        if x >= 0
    ]


def dictionary():
    return {k: v for k, v in ((block(), 1) for _ in range(1))}


class Loader:
    def __init__(self):
        self.n = 3

    @property
    def value(self):
        return self.fetch(
            self.n,
            key=1,
        )

    @staticmethod
    def idle():
        block()

    def fetch(self, n, key):
        try:
            raise ValueError(n)
        except ValueError:
            with threading.Lock():
                self.idle()

    def __getattr__(self, name):
        return self.value

    def __lt__(self, other):
        self.missing
        return True


def methods():
    return Loader().missing


def by_c():
    sorted([3, 1], key=lambda x: functools.reduce(lambda a, b: [block() for _ in "a"], [1, 2, 3]))


def operator():
    return sorted([Loader(), Loader()])


def threads():
    held = threading.Lock()
    held.acquire()
    begun = [threading.Event() for _ in range(3)]

    def waits(event):
        event.set()
        held.acquire()

    def sleeps(event):
        event.set()
        threading.Event().wait()

    for target, event in zip((waits, sleeps, waits), begun):
        threading.Thread(target=target, args=(event,), daemon=True).start()
    for event in begun:
        event.wait()
    block()


def coroutines():
    import asyncio

    async def leaf():
        block()

    async def middle():
        async with asyncio.Lock():
            await leaf()

    async def top():
        await asyncio.gather(middle())

    asyncio.run(top())


def deep():
    sys.setrecursionlimit(5000)
    nested(1000)


def executed():
    body = "def f():\n" + "    x = 1\n" * 700 + "\n" * 300 + "    g(\n        1,\n\n        block())\n"
    names = {"block": block, "g": print}
    exec(compile(body, "/a/" + "long/" * 60 + "name.py", "exec"), names)
    names["f"]()


def class_body():
    class Inner:
        x = 1
        block()
    return Inner


def selecting():
    import select
    os.write(1, b"ready\n")
    select.select(
        [0], [],
        [])


def collecting():
    import gc

    class Circle:
        def __del__(self):
            block()

    circle = Circle()
    circle.itself = circle
    del circle
    gc.collect()


def library(file, source):
    """What this source defines, as if it were in that file."""
    names = {"os": os}
    exec(compile(source, file, "exec"), names)
    return names


def baton():
    names = library("/torch/utils/file_baton.py", """class FileBaton:
    def __init__(self, path):
        self.seconds = 0.1
        self.path = path

    def wait(self):
        warned = False
        os.write(1, b"ready\\n")
        os.read(0, 1)
""")
    names["FileBaton"]("/some/where/lock").wait()


def filelock():
    library("/filelock/_api.py", """def acquire(path):
    attempts, names, lock_file = 1, [], path
    os.write(1, b"ready\\n")
    os.read(0, 1)
""")["acquire"]("/a/local.lock")


def other_loop():
    """Not at a standstill: stacks of all depths, objects that come and go."""
    def churn(n, junk):
        if n > 0:
            return churn(n - 1, [junk, str(n), {n: junk}][n % 3])
        names = {}
        exec(compile("def f%d(a):\n\n    return [str(a) for _ in range(3)]\n" % (id(junk) % 997), "<made>", "exec"), names)
        return [f(1) for name, f in names.items() if name[0] == "f"]

    def more():
        i = 0
        while True:
            i += 1
            churn(i % 90, i)
            if i % 50 == 0:
                t = threading.Thread(target=churn, args=(3, 4))
                t.start()
                t.join()

    threading.Thread(target=more, daemon=True).start()
    os.write(1, b"ready\n")
    more()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: pystack_worker.py NAME")
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    globals()[sys.argv[1]]()
