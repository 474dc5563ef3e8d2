/* The log writer: the process that reads what the workers write, and writes it to log files and to
 * the terminal. What may hang or never ends (a dead file system, a stopped terminal, a worker that
 * writes as fast as it can) is met there, and not in the loop that holds the leases.
 *
 *     writer_new(loop, console, &spec, host, &writer);     no process yet
 *     writer_add(writer, &user); writer_send(writer, …);   a process is started when first needed
 *     writer_finish(writer, deadline_ns);                  all is out, or the deadline has passed
 *     writer_free(writer);
 *
 * It is a copy of the agent (io/process/helper.h) with one socket, standard output and standard
 * error, and it dies with the agent. From its start on the agent's own lines go through it too, so
 * that they keep their place among the workers' lines; before, and while there is none, the agent's
 * console writes itself. A line into a plain file starts it: that file's disk may hang.
 *
 * The agent keeps the read ends of all pipes, so a writer that dies costs no worker's life: a new
 * one is started and gets the pipes again (on_lost), and what the old one had read and not yet
 * written is missing, which is said. One that stands still for WRITER_PATIENCE_NS is said too;
 * where somebody waits for its answer it is given up: killed, let go, and replaced. As long as
 * nobody waits the workers do, as with a file of their own on a dead file system. Where none can be
 * started, who waits for an answer does without after that time, too.
 *
 * What can't be killed, since the kernel waits for a disk, is spared by all sweeps (the guardian's
 * too), and does not keep a node from being gone. It ends when the kernel lets go of it. Until then
 * it holds the pipes' read ends, a log file, and our standard output and error: who reads these
 * through a pipe sees the agent's end, but not yet theirs. */
#pragma once

#include <stdbool.h>

#include "base/list.h"
#include "io/loop.h"
#include "launcher/job/job.h"
#include "launcher/logs/console_io.h"
#include "launcher/logs/writer_wire_io.h"

#define WRITER_NAME "muster-logs" /* as ps shows it */
#define WRITER_PATIENCE_NS (5 * NS_PER_S)
#define WRITER_RESTART_NS (1 * NS_PER_S) /* between starts, but for the first two */
/* Own lines that wait for the writer; more are dropped, and counted. */
#define WRITER_QUEUE_MAX ((size_t)256 * 1024)

struct writer;

/* Whom its messages go to. Owned by the caller, who must not move it. */
struct writer_user {
    struct list link;
    uint32_t id; /* set by writer_add(); in each message of and to this user */
    /* fds of the packet are the callee's. May free the user. */
    void (*on_message)(void *arg, struct writer_packet *packet);
    /* The writer is gone with all that was asked of it; another one takes messages from now on.
     * hung: it was given up. Frees no user. */
    void (*on_lost)(void *arg, bool hung);
    void *arg;
};

/* All are borrowed. on_pid (may be NULL): a writer with this pid runs from now on. */
_must_use_ int writer_new(struct loop *loop, struct console *console, const struct job_spec *spec,
                          void (*on_pid)(void *arg, pid_t pid), void *arg, struct writer **ret);
/* Ends it, at once. NULL is fine. */
void writer_free(struct writer *w);

void writer_add(struct writer *w, struct writer_user *user);
/* Harmless for one that is not there. */
void writer_remove(struct writer *w, struct writer_user *user);

/* Starts a process where there is none. False: there can be none now; it is tried again, and
 * messages wait. */
bool writer_start(struct writer *w);
/* Was one started, and is it still wanted? Then descriptors had better be handed over at once. */
bool writer_runs(const struct writer *w);
/* Never waits, never fails: what can't be sent now is queued. fds are borrowed; NULL: none. */
void writer_send(struct writer *w, const struct writer_user *user, const struct writer_message *m,
                 const char *text, size_t len, const int fds[2]);
/* The user waits for an answer (+1), or no longer (-1): see above. */
void writer_await(struct writer *w, int by);

/* Not from the loop: waits until all that was sent is written, or for long as console_flush(). */
void writer_finish(struct writer *w, uint64_t deadline_ns);
