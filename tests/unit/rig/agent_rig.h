/* An agent in a test of nodes that meet: its listener and its client, and a launcher that the test plays. Its "workers"
 * are a flag.
 *
 *     .ops = {.prepare = on_prepare, .start = …, .stop = on_stop, .fence = on_fence, …}, .arg = &agent */
#pragma once

#include "io/clock.h"
#include "io/net/listen.h"
#include "rendezvous/client/client_io.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/server/server_io.h"
#include "rig/unit.h"

struct agent {
    uint64_t incarnation;
    struct rdzv_listener *listener;
    uint16_t listener_port;
    struct rdzv_client *client;
    bool running;       /* the imagined workers */
    bool hold_prepared; /* does not answer PREPARE */
    struct generation prepared, started;
    struct form form;
    unsigned starts, stops, fences, leases, ends;
    uint64_t started_ns, lease_end_ns;
    char stop_reason[RDZV_REASON_MAX];
    bool stop_had_failure;
    struct member_end end;
    /* of an agent that asks its test */
    unsigned statuses, joins;
    struct rdzv_status status;
    char waiting[1024];
    bool speechless; /* it does not know yet what it says of itself */
    /* of an agent that can lead */
    struct rdzv_server *server;
    struct rdzv_peer self;
    struct addr own;
    struct group_config lead;
    struct handover lead_handover;
};

static inline void on_prepare(void *arg, struct generation g, const struct form *form) {
    struct agent *a = arg;
    a->prepared = g;
    a->form = *form;
    if (!a->hold_prepared)
        rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_PREPARED, .generation = g});
}

/* The test has checked that no other group runs. */
static inline void agent_starts(struct agent *a, struct generation g) {
    a->running = true;
    a->starts++;
    a->started = g;
    a->started_ns = clock_now_ns();
}

static inline void all_gone(struct agent *a) {
    a->running = false;
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_ALL_GONE});
}

static inline void on_stop(void *arg, uint64_t grace_ns, const char *reason, const struct desired *cause) {
    struct agent *a = arg;
    a->stops++;
    (void)snprintf(a->stop_reason, sizeof a->stop_reason, "%s", reason);
    a->stop_had_failure = cause != NULL && cause->has_failure;
    all_gone(a);
}

static inline void on_fence(void *arg) {
    struct agent *a = arg;
    a->fences++;
    all_gone(a);
}

static inline void on_lease_end(void *arg, uint64_t end_ns) {
    struct agent *a = arg;
    a->lease_end_ns = end_ns;
    a->leases++;
}

static inline void on_end(void *arg, const struct member_end *end) {
    struct agent *a = arg;
    a->ends++;
    a->end = *end;
}

/* Listens at a free port of an address. */
static inline int listen_at(const char *host, struct addr *ret) {
    struct addr at;
    int fd;
    cr_assert_eq(addr_from_literal(host, 0, &at), 0);
    cr_assert_eq(listen_socket(&at, 512, &fd, NULL), 0);
    cr_assert_eq(addr_of_socket(fd, ret), 0);
    return fd;
}

/* Of a node that the test plays without a client. */
static inline struct wire_message join_of(uint64_t incarnation) {
    return (struct wire_message){
        .kind = WIRE_JOIN,
        .join = {.version = WIRE_VERSION,
                 .run_id = "run",
                 .min_nodes = 1,
                 .max_nodes = 8,
                 .info = {.incarnation = incarnation,
                          .listener_port = 1,
                          .nproc = 1,
                          .node_rank = -1,
                          .pid = 5,
                          .host = "raw",
                          .role = "default"},
                 .report = {.state = NODE_JOINED}},
    };
}

static const struct wire_message call_message = {.kind = WIRE_CALL, .call = {.version = WIRE_VERSION}};

static inline void send_message(int fd, const struct wire_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    wire_add_frame(m, &frame);
    cr_assert_eq(send(fd, frame.data, frame.len, MSG_NOSIGNAL), (ssize_t)frame.len);
}
