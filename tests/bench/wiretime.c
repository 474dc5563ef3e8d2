/* What the messages cost that a leader of many nodes writes and reads all the time: the shortest of some rounds, in ns
 * for each message.
 *
 *     wiretime        prints "NAME encode NS decode NS", one line for each */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rendezvous/protocol/wire.h"

#define ROUNDS 100
#define MESSAGES 200

static uint64_t now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct wire_message message(enum wire_kind kind) {
    struct wire_message m = {.kind = kind};
    struct report report = {.state = NODE_RUNNING, .generation = {2, 17}, .epoch = 2, .restarts_used = 1};
    if (kind == WIRE_REPORT)
        m.report = report;
    if (kind == WIRE_RENEW)
        m.renew = (struct renew){812345678901234, 812345678801234, 345678, 2, 0, 0};
    if (kind == WIRE_LEASE)
        m.lease = (struct lease){2, {2, 17}, 812345678901234, 5 * NS_PER_S, 812345678901234};
    if (kind == WIRE_JOIN) {
        m.join = (struct wire_join){.version = WIRE_VERSION, .run_id = "run-4711", .min_nodes = 1, .max_nodes = 100};
        m.join.report = report;
        m.join.program = (struct rdzv_program){"train.py --epochs", 1, 2, 3};
        m.join.info = (struct node_info){.incarnation = 0xabcdef,
                                         .host = "node0815.cluster.example",
                                         .role = "default",
                                         .listener_port = 29400,
                                         .nproc = 8,
                                         .node_rank = -1,
                                         .pid = 4711,
                                         .nets = {{"eth0", "10.1.2.3"}, {"ib0", "10.2.2.3"}}};
    }
    if (kind == WIRE_DESIRED) {
        m.desired = (struct desired){.kind = DESIRED_FORM, .epoch = 2, .generation = {2, 17}};
        m.desired.form = (struct form){.n_nodes = 100,
                                       .world_size = 800,
                                       .role_world_size = 800,
                                       .store_host = "10.1.2.1",
                                       .store_port = 31001,
                                       .n_neighbours = 2};
        for (size_t i = 0; i < 2; i++)
            m.desired.form.neighbours[i] = (struct rdzv_neighbour){
                1, "node0815.cluster.example", {{"eth0", "10.1.2.3"}, {"ib0", "10.2.2.3"}}, 29400};
    }
    return m;
}

int main(void) {
    static const enum wire_kind kinds[] = {WIRE_REPORT, WIRE_RENEW, WIRE_LEASE, WIRE_JOIN, WIRE_DESIRED};
    for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
        static struct wire_message in, out;
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        uint64_t encode_ns = UINT64_MAX, decode_ns = UINT64_MAX;
        in = message(kinds[k]);
        for (size_t round = 0; round < ROUNDS; round++) {
            uint64_t began = now_ns();
            for (size_t i = 0; i < MESSAGES; i++)
                wire_encode(&in, &text);
            uint64_t encoded = now_ns();
            for (size_t i = 0; i < MESSAGES; i++)
                if (wire_decode(strbuf_text(&text), text.len, &out, NULL) != 0)
                    return 1;
            encode_ns = MIN2(encode_ns, encoded - began);
            decode_ns = MIN2(decode_ns, now_ns() - encoded);
        }
        printf("%-8s encode %6" PRIu64 "  decode %6" PRIu64 "\n", wire_kind_name(kinds[k]), encode_ns / MESSAGES,
               decode_ns / MESSAGES);
    }
    return 0;
}
