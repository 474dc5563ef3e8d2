"""A training loop that reports each step to the launcher, and how long it may be silent while it saves.

    muster run examples/heartbeat/heartbeat.py

Under another launcher nothing is reported.
"""
import os
import socket

name = os.environ.get("MUSTER_NOTIFY_SOCKET", "")
if name:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    agent.connect(name.replace("@", "\0", 1))


def notify(text):
    if name:
        agent.send(text.encode())


def main():
    for step in range(1, 11):
        loss = 1 / step  # the work
        notify(f"MUSTER_STEP={step}\nSTATUS=loss {loss:.2f}")
    notify("WATCHDOG_USEC=600000000")  # ten minutes for the checkpoint
    notify("MUSTER_SAFE_POINT=1\nWATCHDOG_USEC=0")
    print(f"{step} steps, loss {loss:.2f}", flush=True)


if __name__ == "__main__":
    main()
