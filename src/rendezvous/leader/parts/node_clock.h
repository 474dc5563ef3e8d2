/* A node's clock beside the leader's, by the exchange of RENEW and LEASE. */
#pragma once

#include "base/util.h"
#include "rendezvous/protocol/messages.h"

struct node_clock {
    uint64_t asked_ns, answered_ns; /* its newest RENEW by its clock, our LEASE by ours */
    bool known;
    uint64_t measured_ns;
    int64_t offset_ns;
    uint64_t error_ns;
};

/* The node's RENEW arrived, and is answered now. */
void node_clock_renew(struct node_clock *c, const struct renew *renew, uint64_t now_ns);
/* Converts a time of the node's clock to the leader's clock, give or take the error. */
int64_t node_clock_ours(const struct node_clock *c, uint64_t its_ns, uint64_t *ret_error_ns);
