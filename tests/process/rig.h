/* What the tests of supervision share: waiting for events with a deadline, and the FIFO that every
 * worker and descendant holds, so that its end of file proves that all are gone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RIG_DEADLINE_MS 10000

/* A NULL-terminated list of strings, as execve(2) wants it typed. */
#define ARGV(...) ((char *const *)(uintptr_t)(const char *const[]){__VA_ARGS__})

struct rig {
    char *worker; /* program of tests/process/worker.c */
    char dir[64];
    char hold[96], ready[96]; /* FIFOs: held for ever; said into when ready */
    int hold_fd, ready_fd;    /* read ends */
};

void rig_init(struct rig *rig);
void rig_fini(struct rig *rig);
/* Waits until n workers have said that they are ready; their pids, in any order. */
void rig_await_ready(struct rig *rig, unsigned n, pid_t *ret_pids);
/* True when nobody holds the FIFO now. */
bool rig_all_gone(struct rig *rig);
/* Waits for it; how long it took, in ns. Fails the test after RIG_DEADLINE_MS. */
uint64_t rig_await_gone(struct rig *rig);
/* Waits for the end of a child of ours; its wait status. */
int rig_await_exit(pid_t pid);
/* First child of a process. */
pid_t rig_first_child(pid_t pid);
