/* The answer to COMMAND_STACKS, received in pieces from an agent that is not trusted. Pure. */
#pragma once

#include "base/err.h"
#include "rendezvous/protocol/wire.h"

#define OPERATOR_STACKS_MAX ((size_t)256 << 20) /* bytes of evidence in all */

struct operator_stacks_node {
    struct rdzv_stacks head;
    char *evidence; /* JSON (watchdog/evidence/evidence.h); owned; NULL: head.missing says why */
    size_t len;
};

struct operator_stacks {
    struct operator_stacks_node *nodes; /* owned; in the order of their ranks */
    uint32_t n;
    size_t bytes;
    bool open; /* pieces of the last node are still to come */
};

/* STACKS or EVIDENCE. 1: that was all; 0: more will come; -EPROTO: it does not fit what came
 * before, -E2BIG, with a sentence. */
_must_use_ int operator_stacks_take(struct operator_stacks *s, const struct wire_message *m,
                                    struct err *err);
void operator_stacks_fini(struct operator_stacks *s);
