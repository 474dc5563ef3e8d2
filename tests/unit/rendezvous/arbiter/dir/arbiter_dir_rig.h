/* Tests of the arbiter over a directory: a directory of its own for each test, and requests that are waited for. */
#pragma once

#include "io/loop.h"
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#define RIG_DOOMSDAY_NS (30 * NS_PER_S)
#define RIG_RUN_ID "job 7"
#define RIG_FOLDER "muster-job%207"

extern struct loop *rig_loop;
extern char rig_dir[80];

void rig_begin(void);
void rig_begin_in_memory(void); /* where a flush costs nothing, for thousands of claims */
void rig_finish(void);          /* removes the directory */

/* One over the rig's directory. timeout_ns 0: the default. */
struct arbiter *rig_arbiter(uint64_t timeout_ns);

/* Asks, and runs the loop until the answer is there. */
struct arbiter_answer rig_ask(struct arbiter *a, const struct arbiter_request *q);
struct arbiter_answer rig_read(struct arbiter *a);
struct arbiter_answer rig_claim(struct arbiter *a, uint32_t epoch, uint64_t who);
struct arbiter_answer rig_beat(struct arbiter *a, uint32_t epoch, uint64_t who);
struct arbiter_answer rig_close(struct arbiter *a, uint32_t epoch, uint64_t who, enum outcome outcome);
struct arbiter_request rig_request(enum arbiter_kind kind, uint32_t epoch, uint64_t who);

/* The path of a file in the job's folder; valid until the fourth call after it. */
const char *rig_path(const char *file);
bool rig_there(const char *file);
void rig_write(const char *file, const char *text);
char *rig_file_text(const char *file); /* malloc'ed; fails the test if it is not there */

/* Until the process has ended; fails the test at doomsday. */
void rig_wait_end(int pidfd);
int rig_pidfd(int pid);
