/* What "muster ps" shows: a row for each agent of this machine, and for each head whose job has no
 * agent here, for people and as JSON (keys: muster-ps(1), they do not change). Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "rendezvous/protocol/messages.h"

struct ps_row {
    char run_id[RDZV_RUN_ID_MAX];
    char user[40]; /* a name, or a number */
    char host[RDZV_HOST_MAX];
    char addr[RDZV_ADDRS_MAX]; /* of the agent's listener */
    uint16_t port;
    uint32_t head_nodes; /* of a head: how many nodes its job has, elsewhere; 0: an agent */
    int32_t pid;         /* of the agent */
    uint32_t uid;        /* whose it is */
    char *command;       /* owned; its command line; NULL: not known */
    char since[24];      /* local time, for people: "12:03", "Nov 21" */
    char since_utc[32];  /* "2026-11-21T12:03:04Z" */
    uint64_t running_ns; /* since it was started */
    bool refused;        /* the agent that leads the job did not admit us */
    bool answered;       /* the job answered: the rest is set */
    struct overview overview;
    bool has_node; /* the job knows this node */
    struct overview_node node;
};

/* columns: of the terminal, at which the command is cut; 0: it is not. With `wide` it is never cut,
 * and there are further columns. n is at least 1. */
void ps_text(const struct ps_row *rows, size_t n, bool wide, uint32_t columns, struct strbuf *out);
void ps_json(const struct ps_row *rows, size_t n, struct strbuf *out);
