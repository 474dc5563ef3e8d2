/* The messages between agents as JSON text, and back. Pure; specified in muster-protocol(7), which
 * must change with this file. messages.h has their meaning, wire.c their fields and limits.
 *
 *     struct wire_message m = {.kind = WIRE_RENEW, .renew = …};
 *     wire_encode(&m, &text);                        then a frame around it
 *     r = wire_decode(text, len, &m, &err);          -EINVAL: the peer breaks the protocol
 *
 * The decoder does not trust the peer: unknown kinds and unknown, missing or duplicate fields are
 * refused. 64-bit numbers travel as strings of decimal digits (JSON numbers are doubles),
 * incarnations as 16 hexadecimal digits, generations as "2.3". Bytes that are not UTF-8 are
 * replaced when a text is written. */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "rendezvous/auth/auth.h"
#include "rendezvous/protocol/messages.h"

#define WIRE_VERSION 10
/* Of a frame, either way. The longest valid message is below half of it (tested). */
#define WIRE_MESSAGE_MAX ((size_t)128 * 1024)
#define WIRE_HEARTBEAT_MIN_NS (1 * NS_PER_MS)
#define WIRE_TIME_MAX_NS (UINT64_C(1000000) * NS_PER_S) /* of a setting: 11 days */

enum wire_kind {
    WIRE_GREETING = 1, /* accepting side, in clear: how it knows its callers */
    WIRE_HELLO,        /* its first message to a caller that may talk to it */
    WIRE_JOIN,         /* node: asks to join; also after a reconnect */
    WIRE_WELCOME,      /* leader: the node has joined */
    WIRE_REFUSED,      /* JOIN or COMMAND is refused; the connection ends */
    WIRE_REPORT,       /* node: the state that it is in */
    WIRE_RENEW,        /* node: asks for a lease */
    WIRE_LEAVE,        /* node: it leaves; none of its processes is left */
    WIRE_DESIRED,      /* leader: the state that the node should be in */
    WIRE_LEASE,        /* leader */
    WIRE_STATUS,       /* leader: which nodes are present, for people */
    WIRE_NAMED,        /* leader: the successors; before FORM, and again when they change */
    WIRE_MEMBERS,      /* leader, to successors after NAMED: a part of the handover */
    WIRE_REDIRECT,     /* any agent: it does not lead, another does; the connection ends */
    WIRE_COMMAND,      /* an operator, in place of JOIN */
    WIRE_ANSWER,       /* to a COMMAND other than STATUS, or why STATUS can't be answered */
    WIRE_OVERVIEW,     /* to STATUS; then NODES */
    WIRE_NODES,        /* rows of the overview, until all are sent; another COMMAND may follow */
    WIRE_NODE_SUMMARY, /* node: what it is made of, to be compared with the others; after WELCOME */
    WIRE_WARM,         /* node: how its workers were started, with --warm; after WELCOME */
    WIRE_SIGNS,        /* node: signs of life of its workers, while one does not move */
    WIRE_ASK,          /* leader: what do the node's workers do? */
    WIRE_SUSPECTS,     /* leader: the workers that are ended first, because the job hangs */
    WIRE_PROCEED,      /* leader: the job is being ended; stop without waiting for evidence */
    WIRE_EVIDENCE,     /* node: the answer, in pieces; the same, leader to operator */
    WIRE_STACKS,       /* leader, to an operator: a node, whose evidence follows */
    WIRE_WHOSE,        /* leader: whose are these connections to the workers' store? */
    WIRE_OWNER,        /* node: the answer */
    WIRE_ECHO,         /* node: the first successor's answer to each LEASE, at once */
    WIRE_CALL,         /* connecting side: the first message, in clear */
    WIRE_KIND_COUNT,
};

struct echo {
    uint32_t epoch;           /* of the LEASE */
    uint64_t leader_clock_ns; /* its clock_ns */
};

/* The accepting side answers with GREETING, since PyTorch's clients use the same port. Sent once
 * more by a peer that needs HELLO before anything else: a probe, an operator, a node that looks for
 * its leader. */
struct call {
    uint32_t version;
};

struct wire_hello {
    uint32_t version;
    uint64_t incarnation;
    char run_id[RDZV_RUN_ID_MAX];
};

struct wire_join {
    uint32_t version;
    char run_id[RDZV_RUN_ID_MAX];
    struct node_info info;
    struct rdzv_program program;
    uint32_t min_nodes, max_nodes; /* as the node's user gave them: for diagnosis */
    struct report report;
    /* addresses from which its workers may come to the store; "": the leader is on the same
     * machine */
    char addrs[RDZV_OWN_ADDRS_MAX];
};

struct wire_welcome {
    uint32_t epoch;
    uint64_t leader;        /* incarnation */
    uint16_t listener_port; /* the leader's own listener, on the address of this connection */
    uint64_t heartbeat_ns, lease_ns, margin_ns;
    uint32_t min_nodes, max_nodes;
};

struct wire_refused {
    bool final; /* asking again is useless */
    char reason[RDZV_REASON_MAX];
};

/* The handover in parts, in order; the first has `first` 0. */
struct wire_members {
    struct handover handover; /* without its members: `members` is NULL */
    uint32_t first, n;        /* n <= RDZV_MEMBERS_CHUNK; 0 only in a handover without members */
    struct handover_member list[RDZV_MEMBERS_CHUNK];
};

struct wire_redirect {
    uint32_t epoch;
    struct rdzv_peer leader; /* incarnation 0: not known to the sender */
};

struct wire_command {
    uint32_t version;
    char run_id[RDZV_RUN_ID_MAX]; /* "": any job */
    struct command command;
};

struct wire_nodes {
    uint32_t first, n;
    struct overview_node list[RDZV_OVERVIEW_CHUNK];
};

/* Opaque here: the launcher's JSON (launcher/preflight/node_summary.h). */
struct wire_node_summary {
    char text[RDZV_NODE_SUMMARY_MAX];
};

struct wire_message {
    enum wire_kind kind;
    union {
        char body; /* where each of them begins */
        struct auth_greeting greeting;
        struct wire_hello hello;
        struct wire_join join;
        struct wire_welcome welcome;
        struct wire_refused refused;
        struct report report;
        struct renew renew;
        struct desired desired;
        struct lease lease;
        struct rdzv_status status;
        struct successors named;
        struct wire_members members;
        struct echo echo;
        struct call call;
        struct wire_redirect redirect;
        struct wire_command command;
        struct answer answer;
        struct overview overview;
        struct wire_nodes nodes;
        struct wire_node_summary node_summary;
        struct rdzv_warm warm;
        struct rdzv_signs signs;
        struct rdzv_ask ask;
        struct rdzv_suspects suspects;
        struct rdzv_evidence evidence;
        struct rdzv_stacks stacks;
        struct rdzv_whose whose;
        struct rdzv_owners owner;
    };
};

struct json_table;

/* Replaces *ret with the JSON text. The message is ours and valid. */
void wire_encode(const struct wire_message *m, struct strbuf *ret);

/* Of another protocol version: *ret has only kind and `version`, which all versions have. */
enum { WIRE_E_VERSION = 1 };

/* Appends a frame with the JSON text. */
void wire_add_frame(const struct wire_message *m, struct strbuf *to);

/* 0, WIRE_E_VERSION, -EINVAL with an *err for a debug line, or -ENOMEM: *ret is unspecified. */
_must_use_ int wire_decode(const char *text, size_t len, struct wire_message *ret, struct err *err);

const char *wire_kind_name(enum wire_kind kind); /* "JOIN" */
/* Its "version"; WIRE_VERSION if it has none. */
uint32_t wire_version_of(const struct wire_message *m);
/* A node that has joined may send it to its leader. */
bool wire_is_for_leader(enum wire_kind kind);
/* Its "epoch"; 0: it has none. */
uint32_t wire_epoch_of(const struct wire_message *m);
/* Its fields, from `body` on. */
const struct json_table *wire_table(enum wire_kind kind);
