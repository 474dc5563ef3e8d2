/* Who may use the workers' store. A client of this machine is judged by the kernel (peer_gate); one
 * of another machine by the agent at its address. Meanwhile nothing is read of it.
 *
 *     guard = store_guard_new(loop, &config);
 *     store_guard_apply(guard, true);                    the job is authenticated
 *     store_guard_take(guard, fd, &peer, let_in, me);    let_in(me, fd), or it closes fd
 *         config.ask(…, id, …)    and later    store_guard_answer(guard, id, &owner)
 *     store_guard_forget(guard, me);                     before `me` is freed
 *
 * A refused client is closed without an answer, counted, and logged once for each address and
 * reason. PyTorch's client connects again until its own timeout. Only clients that come from a
 * node's address wait; of too many, or of more than a quarter of this process's descriptors, the
 * oldest is refused of the address that has most. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "io/peer/peer_gate.h"

#define STORE_GUARD_WAITING_MAX 16384
#define STORE_GUARD_TOLD_MAX 32
#define STORE_GUARD_ANSWER_NS (3 * NS_PER_S)

struct store_guard;

struct store_guard_config {
    enum store_check check;
    struct peer_gate *gate; /* borrowed; NULL: everybody of this machine may connect */
    uint64_t answer_ns;     /* 0: STORE_GUARD_ANSWER_NS */
    enum peer_source (*find)(void *arg, const struct addr *client);
    /* `store`: where it was accepted. store_guard_answer() is called later, or never. */
    void (*ask)(void *arg, uint32_t id, const struct addr *client, const struct addr *store);
    void (*log)(void *arg, const char *line); /* one line, without newline. May be NULL */
    void *arg;
};

/* The client may be served. Takes ownership of fd. */
typedef void store_guard_fn(void *arg, int fd);

_must_use_ struct store_guard *store_guard_new(struct loop *loop,
                                               const struct store_guard_config *config);
/* Closes those that wait. NULL is fine. */
void store_guard_free(struct store_guard *g);
/* Whether clients of other machines are judged at all; at first they are not. */
void store_guard_apply(struct store_guard *g, bool authenticated);
/* Takes ownership of fd, unread. Calls fn at once or later, or closes fd. */
void store_guard_take(struct store_guard *g, int fd, const struct addr *peer, store_guard_fn *fn,
                      void *arg);
/* Does nothing if that client no longer waits. */
void store_guard_answer(void *store_guard, uint32_t id, const struct peer_owner *owner);
/* fn is not called for this arg any more; who waits for it is closed in time. */
void store_guard_forget(struct store_guard *g, const void *arg);
size_t store_guard_waiting(const struct store_guard *g);
/* How many of other machines were refused. */
uint64_t store_guard_refused(const struct store_guard *g);
