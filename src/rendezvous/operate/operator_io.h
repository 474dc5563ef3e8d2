/* Sends an operator's COMMAND to a job's leader, and collects the answer. Runs the loop meanwhile.
 *
 *     struct operator_question q = {.host = "node1", .port = 29400, .timeout_ns = 5 * NS_PER_S,
 *                                   .command = {.kind = COMMAND_STATUS}};
 *     r = operator_ask(loop, &q, &reply, &err);
 *     … reply.overview, reply.nodes
 *     operator_reply_fini(&reply);
 *
 * Connects to each address in turn; the HELLO must have our version and the run. Follows REDIRECTs,
 * except for COMMAND_LEAVE, which is for the agent that the operator named. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "rendezvous/operate/operator_stacks.h"
#include "rendezvous/protocol/messages.h"

#define OPERATOR_HOPS_MAX 4 /* REDIRECTs that are followed */
#define OPERATOR_TIMEOUT_NS (5 * NS_PER_S)
#define OPERATOR_TIMEOUT_MAX_NS (3600 * NS_PER_S)

struct auth;

struct operator_question {
    const char *host; /* a name, or literal addresses separated by commas */
    uint16_t port;
    const char *run_id; /* NULL: any job */
    struct command command;
    uint64_t timeout_ns; /* for each address, and for the look-up of a name */
    struct auth *auth;   /* borrowed; NULL: as AUTH_NONE */
};

struct operator_reply {
    char run_id[RDZV_RUN_ID_MAX]; /* of the agent that answered */
    char from[RDZV_ADDR_MAX];     /* its literal address, and its port, for further questions */
    uint16_t from_port;
    bool has_overview; /* the answer to COMMAND_STATUS; else it is in `answer` */
    struct overview overview;
    struct overview_node *nodes; /* owned */
    uint32_t n_nodes;
    struct operator_stacks stacks; /* the answer to COMMAND_STACKS; n 0: it is in `answer` */
    struct answer answer;
    uint64_t wall_ns; /* since 1970; when the answer was complete */
};

/* 0: free *ret with operator_reply_fini(). Or a negative errno and a sentence: -ECONNREFUSED: no
 * agent listens at any address; -EHOSTUNREACH: none answered; -ESRCH: agents of another run;
 * -EPROTO: another version, or not an agent; -EKEYREJECTED: the two may not talk to each other. */
_must_use_ int operator_ask(struct loop *loop, const struct operator_question *q,
                            struct operator_reply *ret, struct err *err);
void operator_reply_fini(struct operator_reply *reply);
