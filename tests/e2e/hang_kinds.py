"""A program that is well for SECONDS, and mostly waits: hang_kinds.py KIND SECONDS. No kind may be ended as a hang.

Each is a function below; KINDS has its ranks, and whether it looks like a job that waits for work, which is reported.
It tells E2E_EVENTS: begun rank; done rank.
"""
import collections
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import zlib

Kind = collections.namedtuple("Kind", "what ranks idles", defaults=(2, False))
KINDS = {
    "prints": Kind("prints a line each second, and sleeps"),
    "prints_slowly": Kind("prints a line every three seconds, and sleeps"),
    "writes": Kind("writes a byte into a file each second, and sleeps"),
    "c_program": Kind("computes in a thread of a C program"),
    "c_pool": Kind("computes in eight threads of a C program, 2 % of a core each"),
    "c_thread": Kind("computes in C, in a thread of Python"),
    "py_thread": Kind("computes in a thread of Python"),
    "executor": Kind("computes in a pool of threads of Python"),
    "child": Kind("waits for a program that it has started"),
    "shell": Kind("is a shell that waits for its program"),
    "lock": Kind("waits for a lock for a while, with filelock"),
    "token": Kind("waits for the file of another for a while, with FileBaton"),
    "steps": Kind("computes for 20 ms each second"),
    "pulls": Kind("reads 100 KB a second from a socket"),
    "queue": Kind("waits for work in a queue", 1, True),
    "socket": Kind("waits for work from a socket", 1, True),
    "server": Kind("serves no client, in an event loop", 1, True),
    "drivers": Kind("two ranks wait for work in queues", 2, True),
    "sleeper": Kind("sleeps for long", 2, True),
    "lock_held": Kind("both ranks poll for a lock that another process holds", 2, True),
}
C = r"""
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static double end; static int busy_us, idle_us;
static void *work(void *p) {
    volatile double x = 1;
    while (now() < end) {
        double until = now() + busy_us / 1e6;
        while (now() < until) for (int i = 0; i < 1000; i++) x *= 1.0000001;
        usleep(idle_us);
    }
    return p;
}
int main(int n, char **args) {
    pthread_t t[64];
    int threads = atoi(args[2]);
    (void)n;
    end = now() + atof(args[1]); busy_us = atoi(args[3]); idle_us = atoi(args[4]);
    for (int i = 0; i < threads; i++) pthread_create(&t[i], 0, work, 0);
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    return 0;
}
"""


def say(kind):
    with open(os.environ["E2E_EVENTS"], "w") as events:
        events.write(f"{kind} rank={os.environ['RANK']}\n")


def folder(name):
    return os.path.join(os.environ["HANG_FOLDER"], name)


def prints(seconds, every=1):
    for i in range(int(seconds / every)):
        print("line", i, flush=True)
        time.sleep(every)


def prints_slowly(seconds):
    prints(seconds, 3)


def writes(seconds):
    with open(folder(f"writes.{os.environ['RANK']}"), "wb", buffering=0) as out:
        for _ in range(int(seconds)):
            out.write(b"x")
            time.sleep(1)


def run_c(*words):
    program = folder(f"c.{os.getpid()}")
    subprocess.run(["cc", "-O1", "-xc", "-", "-o", program, "-lpthread"], input=C.encode(), check=True)
    os.execv(program, [program, *map(str, words)])


def c_program(seconds):
    run_c(seconds, 1, 20000, 20000)


def c_pool(seconds):
    run_c(seconds, 8, 2000, 98000)


def in_thread(fn, *args):
    t = threading.Thread(target=fn, args=args)
    t.start()
    t.join()


def c_thread(seconds):
    def work():
        end, data = time.monotonic() + seconds, os.urandom(1 << 20)
        while time.monotonic() < end:
            zlib.compress(data)
            time.sleep(0.05)
    in_thread(work)


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(20000))
        time.sleep(0.005)


def py_thread(seconds):
    in_thread(compute, seconds)


def executor(seconds):
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(compute, [seconds] * 4))


def child(seconds):
    subprocess.run([sys.executable, __file__, "work", str(seconds)], check=True)


def shell(seconds):
    os.execv("/bin/sh", ["sh", "-c", f"{sys.executable} {__file__} work {seconds}; true"])


def lock(seconds):
    import filelock
    with filelock.FileLock(folder("well.lock")):
        time.sleep(8)
        say("held")
    prints(seconds - 8)


def token(seconds):
    path = folder("well.token")
    if os.environ["RANK"] == "0":
        open(path, "w").close()
        while not os.path.exists(path + ".awaited"):
            compute(0.1)
        compute(8)
        os.unlink(path)
    else:
        from torch.utils.file_baton import FileBaton
        while not os.path.exists(path):
            time.sleep(0.1)
        open(path + ".awaited", "w").close()
        FileBaton(path).wait()
    prints(seconds - 8)


def steps(seconds):
    for _ in range(int(seconds)):
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
        time.sleep(1)


def pulls(seconds):
    ours, other = socket.socketpair()

    def write():
        for _ in range(int(seconds)):
            other.sendall(bytes(100000))
            time.sleep(1)
        other.close()

    threading.Thread(target=write).start()
    while ours.recv(65536):
        pass


def later(seconds, fn):
    t = threading.Timer(seconds, fn)
    t.daemon = True
    t.start()


def get(seconds):
    q = queue.Queue()
    later(seconds, lambda: q.put(1))
    compute(4)
    q.get()


drivers = get


def listen(seconds):
    server = socket.create_server(("127.0.0.1", 0))
    later(seconds, lambda: socket.create_connection(server.getsockname()))
    compute(4)
    server.accept()


def serve(seconds):
    import asyncio

    async def run():
        await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        compute(4)
        await asyncio.sleep(seconds)
    asyncio.run(run())


def sleeper(seconds):
    compute(4)
    time.sleep(seconds)


def lock_held(seconds):
    import fcntl
    import filelock
    path = folder("held.lock")
    holder = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    compute(4)
    later(seconds, lambda: os._exit(0))
    filelock.FileLock(path).acquire()


def main():
    kind, seconds = sys.argv[1], float(sys.argv[2])
    if kind == "work":
        compute(seconds)
        return
    say("begun")
    {"queue": get, "socket": listen, "server": serve}.get(kind, globals().get(kind))(seconds)
    say("done")


if __name__ == "__main__":
    main()
