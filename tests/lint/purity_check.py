#!/usr/bin/python3
"""A _core archive reaches for nothing outside: no clock, socket, process, environment or event loop.

    purity_check.py NM ARCHIVE
"""
import re
import subprocess
import sys

FORBIDDEN = re.compile(
    r"^(clock_gettime|clock_nanosleep|gettimeofday|time|times|nanosleep|usleep|sleep|timer_.*|timerfd_.*"
    r"|socket|socketpair|bind|listen|accept4?|connect|send|sendto|sendmsg|recv|recvfrom|recvmsg|getaddrinfo|getnameinfo"
    r"|read|write|readv|writev|pread|pwrite|open|open64|openat|openat64|fopen|fopen64|close|pipe2?|dup[23]?|poll|ppoll"
    r"|select|epoll_.*|ioctl|mmap|mmap64|fcntl|fcntl64|opendir|readdir|stat|stat64|unlink|mkdir"
    r"|fork|vfork|clone|exec[vl].*|posix_spawn.*|waitpid|waitid|wait|kill|killpg|signal|sigaction|prctl|syscall|system"
    r"|getpid|getppid|gethostname|getenv|secure_getenv|setenv|putenv|unsetenv"
    r"|rand|rand_r|random|srand|srandom|drand48|arc4random.*|getrandom|getentropy"
    r"|event_.*|evbuffer_.*|bufferevent_.*|evutil_.*|evhttp_.*|SSL_.*|BIO_.*|EVP_.*|RAND_.*|hwloc_.*|pthread_create)$")


def main():
    nm, archive = sys.argv[1:3]
    out = subprocess.run([nm, "--undefined-only", "--no-demangle", archive], check=True, capture_output=True,
                         text=True).stdout
    faults, member, members = [], "?", 0
    for line in out.splitlines():
        if line.endswith(":"):
            member = line[:-1]
            members += 1
            continue
        fields = line.split()
        symbol = fields[-1].split("@")[0] if fields else ""
        if FORBIDDEN.match(symbol.removeprefix("__isoc99_").removeprefix("__").removesuffix("_chk")):
            faults.append(f"{archive}({member}) uses {symbol}: a pure file may not")
    if members == 0:
        sys.exit(f"{archive}: {nm} listed no members")
    print("\n".join(faults) or f"{archive}: {members} members, pure")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
