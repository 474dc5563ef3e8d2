/* The event log: one JSON line for each thing that happened to the group (man/muster-files.5). Only
 * the agent that leads writes. events.c builds the lines (pure), events_io.c writes them. */
#pragma once

#include "base/err.h"
#include "base/json/json.h"
#include "rendezvous/leader/group.h"

#define EVENTS_NAME "events.jsonl"
#define EVENTS_HELD_MAX ((size_t)1 << 20) /* bytes that wait for the log folder */
#define EVENTS_START_WAIT_NS (2 * NS_PER_S)
#define EVENTS_INCIDENT_MAX 2048 /* bytes of a line `incident`, however long its cause is */

struct console;
struct loop;
struct worker_logs;

/* All is borrowed. */
struct events_config {
    /* Opened for appending by own_path_open(); a new file gets this mode. "-": standard error, by
     * the console (not NULL then). "": EVENTS_NAME in the run's log folder; lines wait for that */
    const char *path;
    uint32_t mode;
    struct console *console;
    struct worker_logs *logs;
    const char *run_id, *host;
    /* Adds fields to an agent's first line, `begins`: nothing of the environment, and no values of
     * the script's options, which can be secrets. NULL: no such line */
    void (*fill)(void *arg, struct json_writer *w);
    void *arg;
    /* With --warm, else NULL: the line of a start waits until all nodes have reported their warm
     * workers, or something happens, or for EVENTS_START_WAIT_NS */
    struct loop *loop;
};

/* Appends one line with its newline. run_id, host: of the writer. wall_ns: the note's time, since
 * 1970; `lost`: how many lines could not be written just before this one. */
void events_line(const char *run_id, const char *host, const struct timeline_entry *entry,
                 uint64_t wall_ns, uint64_t lost, struct strbuf *out);

void events_begin_line(const struct events_config *config, uint64_t now_ns, uint64_t wall_ns,
                       struct strbuf *out);

struct events; /* events_io.c */

/* path NULL: *ret is NULL, which is accepted below. 0, or a negative errno with a sentence. */
_must_use_ int events_new(const struct events_config *config, struct events **ret, struct err *err);
/* Writes one line, and never waits: what can't be written at once (a full disk, a pipe that is not
 * read) is lost, reported once, and counted in the next line that can be written. */
void events_write(struct events *e, const struct timeline_entry *entry);
/* Writes what is held back, and reports how many lines were lost. Takes NULL. */
void events_free(struct events *e);
