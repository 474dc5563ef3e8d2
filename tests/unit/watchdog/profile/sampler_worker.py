"""Waits, in the way that its argument names, with a stack that the test of the sampler knows."""
import gc
import os
import sys
import threading


def block():
    os.write(1, b"ready\n")
    os.read(0, 1)


def futex():
    os.write(1, b"ready\n")
    threading.Event().wait()


class Circle:
    def __del__(self):
        block()


def collecting():
    circle = Circle()
    circle.itself = circle
    del circle
    gc.collect()


def loader():
    if os.fork() == 0:
        loads()
    os.read(0, 1)


def loads():
    block()


def _engine_run_backward(lock):
    os.write(1, b"ready\n")
    lock.acquire()


def spin():
    while True:
        pass


def helped():
    threading.Thread(target=spin, daemon=True).start()
    alone()


def alone():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    lock = threading.Lock()
    lock.acquire()
    _engine_run_backward(lock)


globals()[sys.argv[1]]()
