/* The owner of a connection: the process at its other end, as a kernel reports it
 * (io/peer/peer_gate.h), or the agent there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* "Here" is the machine whose kernel was asked. */
enum peer_owner_kind {
    PEER_OURS = 1,   /* here: this user or root owns it, and it is connected */
    PEER_OTHER_USER, /* here: another user owns it */
    PEER_CLOSED,     /* here: its socket is closed, so its owner is no longer known */
    PEER_ELSEWHERE,  /* not here: on another machine or network namespace, reset, translated */
    PEER_UNKNOWN,    /* the kernel does not report it */
    PEER_TRANSLATED, /* surely translated, so the owner stays unknown. Not sent to other agents */
    PEER_OWNER_KIND_COUNT,
};

struct peer_owner {
    enum peer_owner_kind kind;
    uint32_t uid; /* OTHER_USER */
};

/* Whether a listener of this machine may serve it. Only this machine's peers are judged here. */
static inline bool peer_owner_is_served(struct peer_owner owner) {
    return owner.kind == PEER_OURS || owner.kind == PEER_ELSEWHERE;
}

/* What the leader knows of an address from which clients of the workers' store come. */
enum peer_source {
    PEER_SOURCE_UNKNOWN = 1, /* no node's machine has it */
    PEER_SOURCE_MEMBER,      /* a node's machine has it; the agent there can be asked */
    PEER_SOURCE_DIRECT,      /* the same, and its node connects from there without translation */
    /* a node connects from there, but its machine lacks the address, which alone counts */
    PEER_SOURCE_TRANSLATED,
};

/* How clients of the workers' store on other machines are judged, in a job that is authenticated.
 * Those of this machine are judged by the gate with STORE_CHECK_UID, and otherwise admitted. */
enum store_check {
    STORE_CHECK_UID = 0, /* they belong to the job's user or to root, as their agent reports */
    STORE_CHECK_MEMBER,  /* they come from the address of a node */
    STORE_CHECK_NONE,    /* they are admitted */
};
