"""Checks of the store with genuine torch.distributed.TCPStore clients; test_store.py runs it with a Python that has
torch.

Reads lines "NAME PORT" on standard input, runs check_NAME(PORT) against the empty store there, and answers each with
one line of JSON: null, or the traceback. It checks the behaviour that upstream's test_store.py requires of a TCPStore,
without its text.
"""
import datetime
import json
import signal
import sys
import threading
import time
import traceback

import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore

SECOND = datetime.timedelta(seconds=1)


def client(port, **more):
    more.setdefault("timeout", 20 * SECOND)
    return TCPStore("127.0.0.1", port, is_master=False, **more)


def raises(kind, call, *args):
    try:
        call(*args)
    except kind as e:
        return str(e)
    raise AssertionError(f"{call} raised nothing")


def in_thread(call):
    """Runs call(); .result() gives its value or raises what it raised."""
    box = {}

    def run():
        try:
            box["value"] = call()
        except BaseException as e:  # noqa: BLE001
            box["error"] = e
    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join(30)
        assert not thread.is_alive(), "still waiting after 30 s"
        if "error" in box:
            raise box["error"]
        return box["value"]
    return result


def until_told(store, key, count=1):
    """Waits until `count` others have pushed something under key."""
    for _ in range(count):
        store.queue_pop(key)


def later(store, seconds):
    """Waits this long for something that never comes."""
    raises(dist.DistStoreError, store.wait, ["never"], seconds * SECOND)


def check_set_get_check(port):
    s = client(port, world_size=1)
    assert s.num_keys() == 1  # init/
    s.add("a", 1), s.add("a", 2), s.add("a", 3)
    assert s.add("b", 20) == 20 and s.add("b", 1) == 21
    s.set("c", "x"), s.set("d", "y"), s.set("e", "z")
    assert s.get("a") == b"6" and s.get("b") == b"21" and s.get("c") == b"x"
    assert s.num_keys() == 6
    assert s.check(["c", "d", "e"]) and not s.check(["c", "nothing"])
    assert s.delete_key("c") and not s.delete_key("c") and not s.check(["c"])
    assert s.num_keys() == 5


def check_values_are_bytes(port):
    s = client(port)
    everything = bytes(range(256)) * 40
    s.set("k", everything)
    s.set("empty", b"")
    s.set("", "the empty key")
    assert s.get("k") == everything and s.get("") == b"the empty key"
    took = []
    for _ in range(20):
        begin = time.monotonic()
        assert s.get("empty") == b""
        took.append(time.monotonic() - begin)
    assert min(took) < 0.03, "an empty value comes late"  # a delayed acknowledgement takes 40 ms


def check_large_values(port):
    s = client(port)
    big = bytes(i * 7 % 256 for i in range(65536)) * 128
    assert len(big) == 8 << 20
    s.set("big", big)
    assert s.get("big") == big
    s.set("k" * 8191, "long key")  # 8192 with torch's slash
    assert s.get("k" * 8191) == b"long key"


def refused(port, *calls):
    """The connection ends at the last of the calls; the store continues."""
    s = client(port)

    def provoke():
        for call in calls:
            call(s)
        for _ in range(1000):
            s.add("n", 1)
    raises(dist.DistError, provoke)
    assert client(port).add("others", 1) > 0


def check_beyond_the_limits(port):
    refused(port, lambda s: s.set("k" * 8192, "v"))
    refused(port, lambda s: s.set("k", b"v" * ((8 << 20) + 1)))
    refused(port, lambda s: s.set("j", "junk"), lambda s: s.add("j", 1))
    assert client(port).get("j") == b"junk"


def check_many_keys(port):
    s = client(port)
    names = [f"key{i}" for i in range(131072)]
    s.multi_set(names, ["v"] * len(names))
    assert s.check(names)
    s.wait(names)
    assert s.num_keys() == len(names)
    assert s.multi_get(names[::2]) == [b"v"] * (len(names) // 2)
    assert sorted(s.list_keys()) == sorted(names)
    refused(port, lambda c: c.check(names + ["one more"]))


def check_compare_set(port):
    s = client(port)
    assert s.compare_set("k", "expected", "new") == b"expected"
    assert not s.check(["k"])
    assert s.compare_set("k", "", "first") == b"first"
    assert s.compare_set("k", "wrong", "second") == b"first"
    assert s.compare_set("k", "", "second") == b"first"
    assert s.compare_set("k", "first", "second") == b"second"
    assert s.get("k") == b"second"


def check_compare_set_wakes(port):
    s, other = client(port), client(port)
    get = in_thread(lambda: (other.queue_push("here", ""), other.get("k"))[1])
    until_told(s, "here")
    s.compare_set("k", "", "value")
    assert get() == b"value"


def check_wait_times_out_and_the_connection_lives(port):
    s = client(port)
    begin = time.monotonic()
    raises(dist.DistStoreError, s.wait, ["missing"], 0.25 * SECOND)
    assert 0.2 < time.monotonic() - begin < 5
    s.set("missing", "now")
    s.wait(["missing"], 5 * SECOND)
    assert s.get("missing") == b"now"


def check_get_times_out_and_the_client_is_not_broken(port):
    s = client(port, timeout=0.1 * SECOND)
    for _ in range(5):
        raises(dist.DistStoreError, s.get, "missing")
        s.set("k", "v")
        assert s.get("k") == b"v"
    s.set_timeout(10 * SECOND)
    assert s.timeout == 10 * SECOND


def check_timeouts_that_cross_the_answer(port):
    s, other = client(port), client(port)
    for i in range(60):
        setter = in_thread(lambda i=i: (later(other, 0.01 + i % 5 * 0.0002), other.set(f"k{i}", "v")))
        try:
            s.wait([f"k{i}"], 0.01 * SECOND)
        except dist.DistStoreError:
            pass
        setter()
        assert s.get(f"k{i}") == b"v"
        assert s.add("rounds", 1) == i + 1


def check_waiters_are_woken(port):
    waiting = [client(port) for _ in range(8)]
    s = client(port)
    results = [in_thread(lambda w=w: (w.queue_push("here", ""), w.wait(["a", "b", "a"]), w.get("b"))[2])
               for w in waiting]
    until_told(s, "here", 8)
    s.set("a", "")
    s.set("b", "done")
    assert [r() for r in results] == [b"done"] * 8


def check_append(port):
    s = client(port)
    s.append("k", "one ")
    s.append("k", "two ")
    s.set("m", "start ")
    s.append("m", "end")
    assert s.get("k") == b"one two " and s.get("m") == b"start end"


def check_multi(port):
    s = client(port)
    s.multi_set(["a", "b", "c"], ["1", "", "3"])
    assert s.multi_get(["c", "a", "b", "c"]) == [b"3", b"1", b"", b"3"]
    assert s.multi_get([]) == []


def check_clone_and_prefixes(port):
    s = client(port)
    copy = s.clone()
    s.set("k", "v")
    assert copy.get("k") == b"v"
    p, q = PrefixStore("p", s), PrefixStore("outer", PrefixStore("inner", copy))
    p.set("k", "in p")
    q.set("k", "in both")
    assert s.get("k") == b"v" and p.get("k") == b"in p" and s.get("p/k") == b"in p"
    assert s.get("inner/outer/k") == b"in both"
    assert p.add("n", 3) == 3 and p.check(["n"]) and p.delete_key("n") and not p.check(["n"])
    assert q.compare_set("k", "in both", "new") == b"new"


def check_keys_come_and_go(port):
    s = client(port, world_size=1)
    assert s.num_keys() == 1
    s.set("a", "1"), s.add("b", 1)
    assert s.num_keys() == 3
    assert s.delete_key("a") and s.num_keys() == 2
    s.set_timeout(0.2 * SECOND)
    raises(dist.DistStoreError, s.get, "a")


def check_queues(port):
    s = client(port)
    for v in ("1", "2", ""):
        s.queue_push("q", v)
    assert s.queue_len("q") == 3 and s.queue_len("other") == 0
    assert s.check(["q"]) and not s.check(["other"])
    s.wait(["q"])
    assert [s.queue_pop("q") for _ in range(3)] == [b"1", b"2", b""]
    assert not s.check(["q"])
    raises(dist.QueueEmptyError, lambda: s.queue_pop("q", False))
    s.set_timeout(0.1 * SECOND)
    raises(dist.DistStoreError, s.queue_pop, "q")
    assert s.num_keys() == 0


def check_queues_between_two(port):
    a, b = client(port), client(port)

    def answer():
        for _ in range(50):
            b.queue_push("back", b"<" + b.queue_pop("there") + b">")
    done = in_thread(answer)
    for i in range(50):
        a.queue_push("there", str(i))
        assert a.queue_pop("back") == f"<{i}>".encode()
    done()


def check_one_push_frees_one_waiter(port):
    s, a, b = client(port), client(port), client(port)

    def take(c):
        while True:  # wait and pop are two requests: the other client can come in between
            c.wait(["q"])
            try:
                c.queue_pop("q", False)
                break
            except dist.QueueEmptyError:
                continue
        c.queue_push("woken", "")

    woken = [in_thread(lambda c=c: take(c)) for c in (a, b)]
    s.queue_push("q", "x")
    until_told(s, "woken")
    s.queue_push("q", "y")
    until_told(s, "woken")
    for w in woken:
        w()


def check_several_workers(port):
    def work(rank):
        s = client(port, world_size=4)
        s.set(f"from{rank}", str(rank))
        assert s.compare_set(f"own{rank}", "", "mine") == b"mine"
        assert [s.get(f"from{i}") for i in range(4)] == [str(i).encode() for i in range(4)]
        return s.add("sum", rank)
    for result in [in_thread(lambda r=r: work(r)) for r in range(4)]:
        result()
    s = client(port)
    assert s.add("sum", 0) == 6 and s.num_keys() == 1 + 4 + 4 + 1


def check_a_signal_does_not_break_a_wait(port):
    s, other = client(port), client(port)
    caught = []
    before = signal.signal(signal.SIGALRM, lambda *_: caught.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        setter = in_thread(lambda: (later(other, 0.3), other.set("k", "v")))
        assert s.get("k") == b"v"
        setter()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught


def check_barrier(port):
    clients = [client(port) for _ in range(3)]
    if not hasattr(clients[0], "barrier"):
        return
    results = [in_thread(lambda c=c: c.barrier("b", 3)) for c in clients]
    for r in results:
        r()
    assert clients[0].get("b") == b"3"
    raises(dist.DistStoreError, lambda: clients[1].barrier("late", 2, 0.1 * SECOND))
    assert clients[1].get("late") == b"1"


def check_store_based_barrier_of_counters(port):
    def work():
        s = client(port)
        if s.add("arrived", 1) == 5:
            s.set("arrived/last", "1")
        s.wait(["arrived/last"])
    for r in [in_thread(work) for _ in range(5)]:
        r()


def check_both_families_and_names(port):
    for host in ("127.0.0.1", "localhost", "::1"):
        s = TCPStore(host, port, is_master=False, timeout=10 * SECOND)
        assert s.add("n", 1) > 0


def main():
    print(json.dumps(None), flush=True)  # torch is imported
    for line in sys.stdin:
        name, port = line.split()
        said = None
        try:
            globals()["check_" + name](int(port))
        except BaseException:  # noqa: BLE001
            said = traceback.format_exc()
        print(json.dumps(said), flush=True)


main()
