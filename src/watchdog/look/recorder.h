/* What PyTorch's flight recorder of one worker says: the last collective of each group, and those
 * that have not ended. Pure; recorder_io.h asks for it.
 *
 *     _cleanup_(recorder_fini) struct recorder rec = {0};
 *     r = recorder_http_body(answer, len, &body, &body_len, &err);
 *     r = recorder_read(body, body_len, &rec, &err);
 *     recorder_summary(&rec, &text);
 *
 * The form is that of the handler fr_trace_json of PyTorch's worker server, measured with 2.13:
 * gloo's collectives stay "scheduled", and `retired` tells that one has ended; NCCL's become
 * "started" and "completed". (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp) */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define RECORDER_ANSWER_MAX (4u << 20) /* bytes; 2000 entries have about 1 MiB */
#define RECORDER_SUMMARY_MAX 8192      /* bytes that recorder_summary() adds at most */
#define RECORDER_GROUPS_MAX 1024
#define RECORDER_OPEN_MAX 16 /* entries that have not ended, the oldest */
#define RECORDER_WORD_MAX 64
#define RECORDER_SIZES_MAX 96

struct recorder_group {
    char id[RECORDER_WORD_MAX];           /* "0" */
    char name[RECORDER_WORD_MAX];         /* "default_pg"; "" not known */
    int64_t enqueued, started, completed; /* numbers of collectives, from 1; -1: none, not known */
};

struct recorder_entry {
    char what[RECORDER_WORD_MAX];   /* "gloo:all_reduce" */
    char group[RECORDER_WORD_MAX];  /* name of its group, or its id */
    char state[RECORDER_WORD_MAX];  /* "scheduled", "started" */
    char sizes[RECORDER_SIZES_MAX]; /* of its inputs: "Float [4,5]"; "" not known */
    int64_t number;                 /* of its group's collectives */
    bool p2p;                       /* a send or receive: `number` counts these */
    double created_s;               /* seconds since 1970; 0: not known */
};

struct recorder {
    char version[RECORDER_WORD_MAX];
    uint32_t n_entries;
    uint32_t n_groups;
    struct recorder_group *groups; /* owned */
    uint32_t n_open;               /* all that have not ended */
    struct recorder_entry open[RECORDER_OPEN_MAX];
};

/* The body of the answer to an HTTP request, borrowed. -EINVAL: no complete answer with status 200;
 * err has the status. */
_must_use_ int recorder_http_body(const char *answer, size_t len, const char **ret_body,
                                  size_t *ret_len, struct err *err);
/* -EINVAL: no recorder's JSON, -E2BIG: over a limit, -ENOMEM; *ret is empty then. */
_must_use_ int recorder_read(const char *text, size_t len, struct recorder *ret, struct err *err);
void recorder_fini(struct recorder *r); /* frees what it owns; *r is empty then */

/* How many collectives the worker has enqueued in the default group, by which ranks can be
 * compared: all of them are in it. 0: none, or not known. */
uint64_t recorder_collectives(const struct recorder *r);

/* Adds at most RECORDER_SUMMARY_MAX bytes, whole lines: "default_pg: 6 enqueued, 5 completed";
 * "open: gloo:all_reduce, number 6 of default_pg, Float [4,5], scheduled 31 s ago". wall_s: now, in
 * seconds since 1970. */
void recorder_summary(const struct recorder *r, double wall_s, struct strbuf *to);
