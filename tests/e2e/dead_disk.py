"""Makes a folder a disk that is dead, until its standard input ends: dead_disk.py FOLDER

It is a FUSE file system whose server reads all requests, and answers nothing but the greeting: who touches the folder
waits, and not even SIGKILL ends that. It says "dead" when it is there.
"""
import ctypes
import os
import select
import struct
import sys

FUSE_INIT = 26
REQUEST_MAX = 1 << 17


def mount(where, server):
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"dead", where.encode(), b"fuse.dead", 0, options):
        sys.exit(f"a FUSE file system cannot be mounted: {os.strerror(ctypes.get_errno())}")


def greet(server):
    _, opcode, unique = struct.unpack_from("=IIQ", os.read(server, REQUEST_MAX))
    assert opcode == FUSE_INIT, opcode
    answer = struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, *[0] * 8)  # fuse_init_out
    os.write(server, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)


device = os.open("/dev/fuse", os.O_RDWR)
mount(sys.argv[1], device)
greet(device)
print("dead", flush=True)
while True:
    ready, _, _ = select.select([device, 0], [], [])
    if 0 in ready:
        break
    os.read(device, REQUEST_MAX)
