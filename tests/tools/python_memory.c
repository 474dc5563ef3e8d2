/* Records what pystack reads of a process's memory, for tests/unit/watchdog/look/memory and the corpus of
 * fuzz-pystack; memory_image.h describes the form. The process should stand still.
 *
 *     python3.12 tests/unit/watchdog/look/pystack_worker.py generators &
 *     build/tests/python-memory PID 3.12-generators     what it reads; its stacks to standard output */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "watchdog/look/pystack.h"

#define PIECE_MAX 65535

struct byte {
    uint64_t address;
    uint8_t value;
};

struct recording {
    pid_t pid;
    struct byte *bytes;
    size_t n, room;
};

static ssize_t record(void *arg, uint64_t address, void *buf, size_t n) {
    struct recording *r = arg;
    struct iovec to = {buf, n}, from = {(void *)(uintptr_t)address, n};
    ssize_t got = process_vm_readv(r->pid, &to, 1, &from, 1, 0);
    for (ssize_t i = 0; i < got; i++) {
        if (r->n == r->room) {
            r->room = 2 * r->room + 4096;
            r->bytes = xrealloc(r->bytes, r->room * sizeof *r->bytes);
        }
        r->bytes[r->n++] = (struct byte){address + (uint64_t)i, ((const uint8_t *)buf)[i]};
    }
    return got >= 0 ? got : -errno;
}

static int by_address(const void *a, const void *b) {
    uint64_t x = ((const struct byte *)a)->address, y = ((const struct byte *)b)->address;
    return x < y ? -1 : x > y;
}

static void put(FILE *f, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        (void)fputc((int)(v >> 8 * i & 0xff), f);
}

static void write_recording(FILE *f, struct recording *r, const struct pystack_found *found) {
    put(f, found->version, 4);
    put(f, (uint32_t)found->pid, 4);
    put(f, found->runtime, 8);
    put(f, found->code_type, 8);
    put(f, found->text_type, 8);
    put(f, found->bytes_type, 8);
    qsort(r->bytes, r->n, sizeof *r->bytes, by_address);
    size_t kept = 0;
    for (size_t i = 0; i < r->n; i++)
        if (kept == 0 || r->bytes[kept - 1].address != r->bytes[i].address)
            r->bytes[kept++] = r->bytes[i];
    for (size_t i = 0, n; i < kept; i += n) {
        for (n = 1; i + n < kept && n < PIECE_MAX && r->bytes[i + n].address == r->bytes[i].address + n;)
            n++;
        put(f, r->bytes[i].address, 8);
        put(f, n, 2);
        put(f, 0, 2);
        for (size_t k = 0; k < n; k++)
            (void)fputc(r->bytes[i + k].value, f);
    }
}

static void print_thread(void *arg, const struct pystack_thread *t) {
    (void)arg;
    printf("thread %d%s%s\n", t->tid, t->main ? " main" : "", t->cut ? " cut" : "");
    for (uint32_t i = 0; i < t->n; i++) {
        const char *name = strrchr(t->frames[i].file, '/');
        printf("%s:%u %s\n", name != NULL ? name + 1 : t->frames[i].file, t->frames[i].line, t->frames[i].function);
    }
}

int main(int argc, char **argv) {
    struct pystack_process p;
    struct err err = {0};
    struct recording r = {.pid = argc == 3 ? atoi(argv[1]) : 0};
    struct pystack_memory m = {record, &r};
    struct pystack_python python;
    if (argc != 3) {
        (void)fprintf(stderr, "usage: %s PID FILE\n", argv[0]);
        return 2;
    }
    if (pystack_process_find(r.pid, &p, &err) != 0 || pystack_open(&m, &p.python.found, &python, &err) != 0 ||
        pystack_read(&m, &python, print_thread, NULL) < 0) {
        (void)fprintf(stderr, "process %s can't be read: %s\n", argv[1], err.text);
        return 1;
    }
    FILE *f = fopen(argv[2], "wb");
    if (f == NULL) {
        (void)fprintf(stderr, "%s can't be written: %s\n", argv[2], strerror(errno));
        return 1;
    }
    write_recording(f, &r, &p.python.found);
    free(r.bytes);
    return fclose(f) != 0;
}
