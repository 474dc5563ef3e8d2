/* What "muster status --watch" draws on a terminal: the job, how many nodes and ranks are in which
 * state, as many nodes as fit, and the last events. What changed lately stands out. Pure.
 *
 *     struct status_screen screen = {0};
 *     status_screen_update(&screen, &view, now_ns);          after each answer
 *     status_screen_draw(&screen, &view, NULL, &size, now_ns, &text);
 *     … text is one frame, to be written at once
 *     status_screen_fini(&screen); */
#pragma once

#include "cli/jobs/status_text.h"

#define STATUS_EVENTS_MAX 12             /* older ones are forgotten */
#define STATUS_CHANGED_NS (5 * NS_PER_S) /* for so long a change stands out */

struct screen_size {
    uint32_t rows, columns;
};

struct status_event_line {
    uint64_t at_ns;
    char text[RDZV_REASON_MAX / 4 + RDZV_HOST_MAX];
};

struct status_screen {
    struct status_seen *seen; /* owned; the nodes of the last update, by incarnation */
    uint32_t n_seen;
    struct status_event_line events[STATUS_EVENTS_MAX]; /* the newest first */
    uint32_t n_events;
    enum group_state state; /* 0: there was no update yet */
    uint64_t state_ns;      /* when the state changed; 0: it did not */
    struct generation generation;
    char incident[RDZV_REASON_MAX / 4];
};

/* Finds what is new since the last update. now_ns: CLOCK_MONOTONIC. */
void status_screen_update(struct status_screen *s, const struct status_view *v, uint64_t now_ns);
/* Adds one frame: from the home position, each line cleared to its end, no line end after the last.
 * Where not all nodes fit, those come first that need attention, and the rest is counted. trouble:
 * why v is old; NULL: it is not. v->columns does not matter. */
void status_screen_draw(const struct status_screen *s, const struct status_view *v,
                        const char *trouble, const struct screen_size *size, uint64_t now_ns,
                        struct strbuf *out);
void status_screen_fini(struct status_screen *s);
