/* The event log of a job with --warm: the line of a start says how many workers were warm, which
 * the nodes tell only after it. It is held back until all have, for EVENTS_START_WAIT_NS at most,
 * and never past the line of something that happened later. Its time is that of the start.
 *
 *     s = events_starts_new(loop, events, warm);
 *     events_starts_write(s, entry);        in place of events_write()
 *     events_starts_free(s); */
#pragma once

#include "io/loop.h"
#include "launcher/report/events.h"

#define EVENTS_START_WAIT_NS (2 * NS_PER_S)

struct events_starts;

/* events: borrowed, may be NULL. warm: the job has --warm; else nothing is held back. */
_must_use_ struct events_starts *events_starts_new(struct loop *loop, struct events *events,
                                                   bool warm);
void events_starts_write(struct events_starts *s, const struct timeline_entry *entry);
/* Writes what is held back. Takes NULL. */
void events_starts_free(struct events_starts *s);
