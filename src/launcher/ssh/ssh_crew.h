/* Which hosts are called, and which take part: the order of a start over ssh. Pure.
 *
 *     ssh_crew_init(&c, n, min, meets);
 *     while (ssh_crew_next(&c, &i)) — CALL: start host i's ssh; LISTEN: its relay is to listen;
 *                                     BOOT: its agent; TOO_FEW: end
 *     … ssh_crew_hello(&c, i), ssh_crew_hangs(&c, i), ssh_crew_listens(&c, i),
 *     ssh_crew_gone(&c, i, failed), then ssh_crew_next() again
 *
 *     WAITING -> CALLED -> READY -> BOOTED -> ENDED        each host
 *         `---------`---------`--------`----> FAILED
 *
 * At most SSH_IN_FLIGHT hosts are called and have not answered: logging in costs CPU time here, and
 * sshd refuses some of many at once. One that hangs gives its slot to the next, but may still
 * answer. The first host that has not failed is node 0, at whose address all meet, if the head
 * arranges that. Nothing is booted before it listens, unless the caller passes it over: then node 0
 * is the first that has answered. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

#define SSH_IN_FLIGHT 64

enum ssh_crew_state {
    SSH_CREW_WAITING = 1,
    SSH_CREW_CALLED, /* its ssh was started */
    SSH_CREW_HANGS,  /* the same, and it takes long: it does not count as in flight */
    SSH_CREW_READY,  /* its relay has said HELLO */
    SSH_CREW_BOOTED, /* its agent was started */
    SSH_CREW_ENDED,  /* its agent has ended by itself */
    SSH_CREW_FAILED, /* it could not be reached or started, or was lost */
};

enum ssh_crew_do {
    SSH_CREW_DO_NOTHING = 0,
    SSH_CREW_DO_CALL,
    SSH_CREW_DO_LISTEN, /* the leader, before the first BOOT; again for the next if it fails */
    SSH_CREW_DO_BOOT,
    SSH_CREW_DO_TOO_FEW, /* once; afterwards nothing is called or booted */
};

/* Where the hosts meet. */
enum ssh_crew_meeting {
    SSH_CREW_MEETS_ELSEWHERE = 1, /* the user has arranged it */
    SSH_CREW_MEETS_UNASKED,       /* at the leader, which is to be asked to listen */
    SSH_CREW_MEETS_ASKED,
    SSH_CREW_MEETS_THERE, /* it listens */
};

struct ssh_crew {
    uint32_t n, min;
    enum ssh_crew_meeting meeting;
    uint8_t *states; /* owned: enum ssh_crew_state of each host */
    uint32_t *ready; /* owned: a stack of hosts in READY */
    uint32_t n_ready;
    uint32_t next;   /* the first that was not called */
    uint32_t leader; /* the first that has not failed, or been passed over; n: all have */
    uint32_t in_flight, n_hanging, n_failed, n_gone;
    bool closed; /* nothing more is called or booted */
};

/* meets: at the leader; else the user has arranged where. */
void ssh_crew_init(struct ssh_crew *c, uint32_t n, uint32_t min, bool meets);
void ssh_crew_fini(struct ssh_crew *c);

/* What is to be done next; *ret is the host. The state has changed as if it was done. */
enum ssh_crew_do ssh_crew_next(struct ssh_crew *c, uint32_t *ret);

/* The first host has not answered yet, but enough others have that the job can run. */
bool ssh_crew_can_pass_over(const struct ssh_crew *c);
/* Then it does, and so for others before the first that has answered: they hang. */
void ssh_crew_pass_over(struct ssh_crew *c);

/* Its login has not answered for long. */
void ssh_crew_hangs(struct ssh_crew *c, uint32_t host);
void ssh_crew_hello(struct ssh_crew *c, uint32_t host);
/* Its relay listens. False: it is not the leader that was asked. */
_must_use_ bool ssh_crew_listens(struct ssh_crew *c, uint32_t host);
/* Its ssh has ended. A host that was gone before does not count again. */
void ssh_crew_gone(struct ssh_crew *c, uint32_t host, bool failed);
/* Nothing more is called or booted. */
void ssh_crew_close(struct ssh_crew *c);

/* Its ssh was started, and has not answered. */
bool ssh_crew_is_called(const struct ssh_crew *c, uint32_t host);

static inline enum ssh_crew_state ssh_crew_state(const struct ssh_crew *c, uint32_t host) {
    return c->states[host];
}
/* Nobody is left who could still take part or end. */
bool ssh_crew_is_over(const struct ssh_crew *c);
