#include "rendezvous/leader/parts/node_clock.h"

/* The error of an offset is at least this: scheduling alone can cause as much. */
#define CLOCK_ERROR_MIN_NS (2 * NS_PER_MS)
/* The error before the first measured round trip. */
#define CLOCK_ERROR_UNKNOWN_NS (100 * NS_PER_MS)
/* Clocks drift apart by less than one part in this many, so the error of an old measurement
 * grows. */
#define CLOCK_DRIFT_PART UINT64_C(2000)

/* A round trip ends when the node has the LEASE. Its next RENEW has the duration, and names the
 * LEASE. The leader's clock was read at some time within the round trip; the middle is used. (A
 * RENEW alone is not enough: it may have waited in a socket while the leader slept.) */
void node_clock_renew(struct node_clock *c, const struct renew *renew, uint64_t now_ns) {
    if (renew->rtt_ns != 0 && renew->leader_clock_ns != 0 &&
        renew->leader_clock_ns == c->answered_ns) {
        uint64_t error = MAX2(renew->rtt_ns / 2, CLOCK_ERROR_MIN_NS);
        uint64_t aged = c->error_ns + (now_ns - c->measured_ns) / CLOCK_DRIFT_PART;
        if (!c->known || error <= aged + aged / 4) {
            c->offset_ns =
                (int64_t)c->answered_ns - (int64_t)c->asked_ns - (int64_t)(renew->rtt_ns / 2);
            c->error_ns = error;
            c->measured_ns = now_ns;
            c->known = true;
        }
    } else if (!c->known) {
        /* a rough value until the first round trip */
        c->offset_ns = (int64_t)now_ns - (int64_t)renew->clock_ns;
    }
    c->asked_ns = renew->clock_ns;
    c->answered_ns = now_ns;
}

int64_t node_clock_ours(const struct node_clock *c, uint64_t its_ns, uint64_t *ret_error_ns) {
    *ret_error_ns = c->known ? c->error_ns : CLOCK_ERROR_UNKNOWN_NS;
    return (int64_t)its_ns + c->offset_ns;
}
