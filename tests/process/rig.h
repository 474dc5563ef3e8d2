/* What the tests of supervision share: waiting for events with a deadline, and the FIFO that every
 * worker and descendant holds, so that its end of file proves that all are gone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RIG_DEADLINE_MS 10000

/* A NULL-terminated list of strings, with the type that execve(2) needs. */
#define ARGV(...) ((char *const *)(uintptr_t)(const char *const[]){__VA_ARGS__})

struct rig {
    char *worker; /* program of tests/process/worker.c */
    char dir[64];
    char hold[96], say[96]; /* words of a worker that name FIFOs: held until the end; written when ready */
    int hold_fd, ready_fd;  /* read ends */
};

void rig_init(struct rig *rig);
void rig_fini(struct rig *rig);
/* The path in hold or say. */
const char *rig_path(const char *word);
/* Waits until n workers have reported that they are ready; stores their pids, in any order. */
void rig_await_ready(struct rig *rig, unsigned n, pid_t *ret_pids);
/* True if no process holds the FIFO now. */
bool rig_all_gone(struct rig *rig);
/* Waits for that, and returns how long it took, in ns. Fails the test after RIG_DEADLINE_MS. */
uint64_t rig_await_gone(struct rig *rig);
/* Waits for the end of a child of this process, and returns its wait status. */
int rig_await_exit(pid_t pid);
/* The first child of a process. */
pid_t rig_first_child(pid_t pid);
