/* An operator asks a job's agents: finds the leader, sends one COMMAND, collects the answer. For
 * "muster status" and its like; runs the loop until it is done.
 *
 *     struct operator_question q = {.host = "node1", .port = 29400, .timeout_ns = 5 * NS_PER_S,
 *                                   .command = {.kind = COMMAND_STATUS}};
 *     r = operator_ask(loop, &q, &reply, &err);
 *     … reply.overview, reply.nodes
 *     operator_reply_fini(&reply);
 *
 * Each address in turn is connected to; its HELLO must be of our protocol version, and of the run
 * that is asked for. A REDIRECT is followed, but not by COMMAND_LEAVE, which is for the agent that
 * was named. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "rendezvous/protocol/messages.h"

#define OPERATOR_HOPS_MAX 4 /* REDIRECTs that are followed */
#define OPERATOR_TIMEOUT_NS (5 * NS_PER_S)
#define OPERATOR_TIMEOUT_MAX_NS (3600 * NS_PER_S)

struct operator_question {
    const char *host; /* a name, or literal addresses separated by commas */
    uint16_t port;
    const char *run_id; /* NULL: whichever job it is */
    struct command command;
    uint64_t timeout_ns; /* of each address, and of a name's look-up */
};

struct operator_reply {
    char run_id[RDZV_RUN_ID_MAX]; /* of the agent that answered */
    char from[RDZV_ADDR_MAX];     /* its literal address, and port: where to ask again */
    uint16_t from_port;
    bool has_overview; /* to COMMAND_STATUS; else there is `answer` */
    struct overview overview;
    struct overview_node *nodes; /* owned */
    uint32_t n_nodes;
    struct answer answer;
};

/* 0: *ret is filled, operator_reply_fini() frees it. Or, with a sentence: -ECONNREFUSED: no agent
 * listens at any address; -EHOSTUNREACH: no agent answered; -ESRCH: they are of another run;
 * -EPROTO: another version, or not an agent; or another negative errno. */
_must_use_ int operator_ask(struct loop *loop, const struct operator_question *q,
                            struct operator_reply *ret, struct err *err);
void operator_reply_fini(struct operator_reply *reply);
