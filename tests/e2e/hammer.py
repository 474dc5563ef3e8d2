#!/usr/bin/env python3
"""A worker that uses the workers' store as fast as it can, for some seconds: hammer.py MODE SECONDS

    same    SETs of one small value, 30,000 in one write
    many    SETs of ever new keys
    large   SETs of 4 MiB
    ask     SET and GET of 1 MiB, pipelined

It uses the store's own protocol on a plain socket, so that muster is the busy process.
"""
import os
import socket
import struct
import sys
import time

VALIDATE, SET, GET, MAGIC = 0, 1, 3, 0x3C85F7CE


def text(data):
    return struct.pack("<Q", len(data)) + data


def main():
    mode, seconds = sys.argv[1], float(sys.argv[2])
    rank = os.environ["RANK"].encode()
    store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    store.sendall(struct.pack("<BI", VALIDATE, MAGIC))
    end = time.monotonic() + seconds
    set_key = bytes([SET]) + text(b"key" + rank)
    same, large = (set_key + text(b"v")) * 30000, set_key + text(b"v" * (4 << 20))
    ask, answer = set_key + text(b"v" * (1 << 20)) + bytes([GET]) + text(b"key" + rank), 8 + (1 << 20)
    n = 0
    while time.monotonic() < end:
        if mode == "many":
            store.sendall(b"".join(bytes([SET]) + text(b"%s-%d" % (rank, n + i)) + text(b"v") for i in range(5000)))
            n += 5000
        elif mode == "ask":
            store.sendall(ask * 2)
            left = 2 * answer
            while left > 0:
                left -= len(store.recv(min(left, 1 << 20)))
        else:
            store.sendall(same if mode == "same" else large)


main()
