/* The event log: one JSON line for each thing that happened to the group, so that an incident reads
 * as a timeline. Only the agent that leads writes. events.c builds the lines (pure), events_io.c
 * writes them.
 *
 *     r = events_new(spec->event_log, run_id, host, console, &events, &err);   NULL path: NULL
 *     events_begin_with(events, logs, fill, me);   with the log folders, and a first line
 *     events_write(events, effect->note);     for each GROUP_EFFECT_TIMELINE
 *     events_free(events);
 *
 * A line: {"time":"2026-11-21T16:02:45.123Z","monotonic_ns":"81234…","event":"started",
 * "run_id":…,"host":…,"generation":"2.3","epoch":2, and the event's own fields:
 * "node","incarnation", "cause","outcome","nodes","world_size","warm","cold_because", durations
 * "…_ms"}. 64-bit numbers are texts. */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "rendezvous/leader/group.h"

#define EVENTS_NAME "events.jsonl"
#define EVENTS_HELD_MAX ((size_t)1 << 20) /* bytes that wait for the log folder */
#define EVENTS_INCIDENT_MAX 2048 /* bytes of a line `incident`, however long names and texts are */

struct console;

/* Appends one line with its newline. run_id, host: of the writer. wall_ns: the note's time, since
 * 1970; `lost`: how many lines could not be written just before this one. */
void events_line(const char *run_id, const char *host, const struct timeline_entry *entry,
                 uint64_t wall_ns, uint64_t lost, struct strbuf *out);

/* The first line of an agent, `begins`. Texts are borrowed; "": not known (yet). Nothing of the
 * environment, and no values of the script's options, which can be secrets. */
struct events_begin {
    const char *command, *folder, *driver, *nccl, *torch;
};
void events_begin_line(const char *run_id, const char *host, const struct events_begin *begin,
                       uint64_t now_ns, uint64_t wall_ns, struct strbuf *out);

struct events; /* events_io.c */
struct worker_logs;

/* Opens `path` for appending, as own_path_open() does; a new file gets this mode. "-" is standard
 * error, through the console (borrowed; it must not be NULL then). "": EVENTS_NAME in the run's log
 * folder, through the log writer; lines wait until it is known. Texts are copied. path NULL:
 * *ret is NULL, which the calls below accept. Returns 0 or a negative errno with a sentence. */
_must_use_ int events_new(const char *path, uint32_t mode, const char *run_id, const char *host,
                          struct console *console, struct events **ret, struct err *err);
/* Where the log folders are made, and what fills in the first line when it is written. Borrowed. */
void events_begin_with(struct events *e, struct worker_logs *logs,
                       void (*fill)(void *arg, struct events_begin *ret), void *arg);
/* Writes one line, and never waits: what can't be written at once (a full disk, a pipe that is not
 * read) is lost, reported once, and counted in the next line that can be written. */
void events_write(struct events *e, const struct timeline_entry *entry);
/* Reports how many lines were lost. Takes NULL. */
void events_free(struct events *e);
uint64_t events_lost(const struct events *e); /* in total, so far */

/* The event log of a job with --warm: the line of a start says how many workers were warm, which
 * the nodes tell only after it. It is held back until all have, for EVENTS_START_WAIT_NS at most,
 * and never past the line of something that happened later. Its time is that of the start.
 *
 *     s = events_starts_new(loop, events, warm);
 *     events_starts_write(s, entry);        in place of events_write()
 *     events_starts_free(s); */
struct loop;

#define EVENTS_START_WAIT_NS (2 * NS_PER_S)

struct events_starts;

/* events: borrowed, may be NULL. warm: the job has --warm; else nothing is held back. */
_must_use_ struct events_starts *events_starts_new(struct loop *loop, struct events *events,
                                                   bool warm);
void events_starts_write(struct events_starts *s, const struct timeline_entry *entry);
/* Writes what is held back. Takes NULL. */
void events_starts_free(struct events_starts *s);
