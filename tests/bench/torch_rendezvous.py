"""torchrun's own rendezvous handlers for bench_scale.py: N processes, no workers.

    torch_rendezvous.py N SECONDS    prints "seconds S": from the moment when the last of them begins until all have
                                     their group; "seconds none" when that takes longer than SECONDS
"""
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback

from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

ANSWER = struct.Struct("=dd?")


def join(index, nodes, port, go, answers):
    """One node, in a process of its own: begins when `go` ends; writes the times when it began and when it had its
    group."""
    os.read(go, 1)
    began = time.monotonic()
    try:
        parameters = RendezvousParameters("c10d", f"127.0.0.1:{port}", "bench", nodes, nodes, local_addr="127.0.0.1",
                                          is_host=index == 0)
        backend, store = create_backend(parameters)
        handler = create_handler(store, backend, parameters)
        info = handler.next_rendezvous()
        ok = info.world_size == nodes
    except Exception:
        traceback.print_exc()
        ok = False
    os.write(answers, ANSWER.pack(began, time.monotonic(), ok))
    signal.pause()  # the keep-alive continues in its thread


def main():
    nodes, seconds = int(sys.argv[1]), float(sys.argv[2])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    go_r, go_w = os.pipe()
    answers_r, answers_w = os.pipe()
    children = []
    for index in range(nodes):
        pid = os.fork()
        if pid == 0:
            os.close(go_w)
            join(index, nodes, port, go_r, answers_w)
            os._exit(1)
        children.append(pid)
    os.close(go_w)
    deadline = time.monotonic() + seconds
    found = []
    while len(found) < nodes and select.select([answers_r], [], [], max(0.0, deadline - time.monotonic()))[0]:
        found.append(ANSWER.unpack(os.read(answers_r, ANSWER.size)))
    for pid in reversed(children):  # the first has the store; without it the others print many errors
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not all(ok for _, _, ok in found):
        sys.exit("a handler failed")
    print("seconds", max(end for _, end, _ in found) - max(began for began, _, _ in found)
          if len(found) == nodes else "none")


if __name__ == "__main__":
    main()
