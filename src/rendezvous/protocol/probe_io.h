/* A probe: connects to a node's listener, and waits for the HELLO with its incarnation. With keys
 * that includes the handshake of TLS.
 *
 *     refused                          PROBE_GONE   (the caller decides whether a refusal counts)
 *     HELLO of another incarnation     PROBE_GONE
 *     HELLO of the one looked for      PROBE_ALIVE
 *     silence, an end, anything else   PROBE_UNKNOWN
 *
 * The guardian holds the listening socket open until no process of the node is left. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "rendezvous/protocol/messages.h"

struct auth;
struct probe;

struct probe_answer {
    enum probe_result result;
    int code; /* why there was no answer: a negative errno; 0: the peer ended the connection */
    const char *why;      /* the same as a sentence, borrowed for the call; NULL: an answer came */
    uint64_t incarnation; /* of the HELLO that came; 0: none came */
    const char *run_id;   /* of that HELLO, borrowed for the call; NULL: none came */
    bool within_host;     /* both ends are of this machine, by their addresses */
};

/* For the agent `own`. A program that passes the probe on to that agent's own listener, which has
 * the key too, proves nothing. */
enum probe_result probe_result_for(const struct probe_answer *answer, uint64_t own);

/* The probe is over and frees itself after the call; its pointer is dead from then on. */
typedef void probe_fn(void *arg, const struct probe_answer *answer);

/* fn is called later, at the latest after timeout_ns. from, auth: as in conn_connect(). */
_must_use_ int probe_start(struct loop *loop, const struct addr *from, const struct addr *to,
                           struct auth *auth, uint64_t incarnation, uint64_t timeout_ns,
                           probe_fn *fn, void *arg, struct probe **ret);
/* Cancels the probe; its function is not called. NULL is fine. */
void probe_free(struct probe *p);
