/* A flood for a leader to bear: many connections of one process that take part in nothing.
 *
 *     flood_agents join PORT COUNT RUN_ID   nodes that JOIN at 127.0.0.1:PORT and never say another word;
 *                                           where they say that they can be probed, nobody listens
 *     flood_agents ask PORT COUNT RUN_ID    operators who ask for the status again as soon as they have it
 *
 * One that is disconnected comes again, a joiner under a new incarnation. Listens to its standard
 * input, and tells what happens:
 *
 *     all NS                      every joiner was welcomed, or every operator answered once
 *     < count
 *     count SERVED REFUSED ENDED  welcomes or answers, refusals, connections that ended: so far */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/frame.h"
#include "io/clock.h"
#include "io/net/stream.h"
#include "rendezvous/protocol/wire.h"

/* The limit of connections that are not served yet: more would wait in the kernel for a second, not at the leader. */
#define ON_THE_WAY_MAX 512
#define CLOSED_PORT 1
#define PAUSE_NS (20 * NS_PER_MS)

struct caller {
    struct flood *flood;
    struct list link; /* in flood.waiting */
    struct stream *stream;
    uint32_t index;
    uint64_t rows;   /* of the status, still to come */
    bool on_the_way; /* connected, and not served yet */
    bool served;     /* ever */
};

struct flood {
    struct loop *loop;
    struct loop_watch *input;
    struct loop_timer *timer;
    struct addr leader;
    bool asks;
    const char *run_id;
    struct list waiting; /* those without a connection */
    struct caller *join_policy;
    size_t n, n_on_the_way, n_served_once;
    uint64_t served, refused, ended;
};

static void die(const char *what, int code) {
    fprintf(stderr, "flood_agents: %s: %s\n", what, strerror(code));
    exit(1);
}

static void on_its_way(struct caller *c, bool yes) {
    c->flood->n_on_the_way += yes - c->on_the_way;
    c->on_the_way = yes;
}

/* It connects again when it is its turn. */
static void hang_up(struct caller *c) {
    struct flood *f = c->flood;
    stream_free(TAKE_PTR(c->stream));
    on_its_way(c, false);
    list_append(&f->waiting, &c->link);
    loop_timer_set(f->timer, clock_now_ns() + PAUSE_NS);
}

static void say(struct caller *c, const struct wire_message *m) {
    uint8_t head[FRAME_HEADER_BYTES];
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(m, &text);
    frame_header(text.len, head);
    stream_write(c->stream, head, sizeof head);
    stream_write(c->stream, strbuf_text(&text), text.len);
}

static void say_first_word(struct caller *c) {
    struct wire_message m = {.kind = c->flood->asks ? WIRE_COMMAND : WIRE_JOIN};
    const char *run_id = c->flood->run_id;
    if (c->flood->asks) {
        m.command.version = WIRE_VERSION;
        m.command.command.kind = COMMAND_STATUS;
        (void)snprintf(m.command.run_id, sizeof m.command.run_id, "%s", run_id);
    } else {
        m.join.version = WIRE_VERSION;
        m.join.min_nodes = m.join.max_nodes = 1;
        m.join.info = (struct node_info){
            .incarnation = random_u64() | 1, .listener_port = CLOSED_PORT, .nproc = 1, .node_rank = -1};
        (void)snprintf(m.join.info.host, sizeof m.join.info.host, "flood%" PRIu32, c->index);
        (void)snprintf(m.join.info.role, sizeof m.join.info.role, "default");
        m.join.report.state = NODE_JOINED;
        (void)snprintf(m.join.run_id, sizeof m.join.run_id, "%s", run_id);
    }
    say(c, &m);
}

static void connect_more(struct flood *f);

static void served(struct caller *c) {
    struct flood *f = c->flood;
    on_its_way(c, false);
    f->served++;
    if (!c->served && ++f->n_served_once == f->n)
        printf("all %" PRIu64 "\n", clock_now_ns());
    c->served = true;
    if (f->asks) {
        on_its_way(c, true);
        say_first_word(c);
    }
    connect_more(f);
}

static bool says(const char *text, const char *what) { return strstr(text, what) != NULL; }

/* Decodes only what it needs of a message: the leader should be busy, not this process. */
static void on_frame(struct caller *c, const char *text) {
    const char *n = strstr(text, "\"n_nodes\":");
    if (says(text, "\"kind\":\"WELCOME\"")) {
        served(c);
    } else if (says(text, "\"kind\":\"OVERVIEW\"") && n != NULL) {
        c->rows = strtoull(n + strlen("\"n_nodes\":"), NULL, 10);
    } else if (says(text, "\"kind\":\"NODES\"")) {
        c->rows -= MIN2(c->rows, (uint64_t)RDZV_OVERVIEW_CHUNK);
        if (c->rows == 0)
            served(c);
    } else if (says(text, "\"kind\":\"REFUSED\"") || says(text, "\"kind\":\"ANSWER\"")) {
        c->flood->refused++;
        hang_up(c);
    }
}

static void on_readable(void *arg, struct stream *s) {
    struct caller *c = arg;
    size_t bytes;
    char head[1024];
    const uint8_t *frame = stream_peek(s, FRAME_HEADER_BYTES);
    while (frame != NULL && frame_size(frame, FRAME_HEADER_BYTES, WIRE_MESSAGE_MAX, &bytes) == 0 &&
           (frame = stream_peek(s, bytes)) != NULL) {
        size_t n = MIN2(bytes - FRAME_HEADER_BYTES, sizeof head - 1);
        memcpy(head, frame + FRAME_HEADER_BYTES, n);
        head[n] = '\0';
        stream_drain(s, bytes);
        on_frame(c, head);
        if (c->stream != s)
            return;
        frame = stream_peek(s, FRAME_HEADER_BYTES);
    }
}

static void on_closed(void *arg, struct stream *s, int code) {
    (void)s;
    (void)code;
    struct caller *c = arg;
    c->flood->ended++;
    hang_up(c);
}

static void connect_more(struct flood *f) {
    static const struct stream_ops ops = {.on_readable = on_readable, .on_closed = on_closed};
    struct caller *c;
    size_t most = f->asks ? f->n : ON_THE_WAY_MAX;
    while (f->n_on_the_way < most && (c = LIST_FIRST(struct caller, &f->waiting, link)) != NULL) {
        int r = stream_connect(f->loop, NULL, &f->leader, &ops, c, &c->stream);
        if (r < 0) {
            loop_timer_set(f->timer, clock_now_ns() + PAUSE_NS);
            return;
        }
        list_remove(&c->link);
        on_its_way(c, true);
        say(c, &(struct wire_message){.kind = WIRE_CALL, .call = {.version = WIRE_VERSION}});
        say_first_word(c);
    }
}

static void on_timer(void *arg) { connect_more(arg); }

static void on_input(void *arg, int fd, unsigned events) {
    (void)events;
    const struct flood *f = arg;
    char text[64];
    ssize_t got = read(fd, text, sizeof text);
    if (got <= 0)
        exit(0); /* the script has ended */
    printf("count %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", f->served, f->refused, f->ended);
}

static uint32_t number(const char *text) {
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (*end != '\0' || v > RDZV_NODES_MAX)
        die(text, EINVAL);
    return (uint32_t)v;
}

int main(int argc, char **argv) {
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 5 || (strcmp(argv[1], "join") != 0 && strcmp(argv[1], "ask") != 0)) {
        fprintf(stderr, "usage: flood_agents join|ask PORT COUNT RUN_ID\n");
        return 2;
    }
    struct rlimit files;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    struct flood f = {.asks = argv[1][0] == 'a', .n = number(argv[3]), .run_id = argv[4]};
    list_init(&f.waiting);
    int r = addr_from_literal("127.0.0.1", (uint16_t)number(argv[2]), &f.leader);
    if (r == 0)
        r = loop_new(&f.loop);
    f.timer = loop_timer_new(f.loop, on_timer, &f);
    if (r == 0)
        f.input = loop_watch_new(f.loop, STDIN_FILENO, LOOP_READ, LOOP_PRIO_CHILD, on_input, &f);
    if (r < 0)
        die("the loop", -r);
    f.join_policy = xcalloc(f.n, sizeof *f.join_policy);
    for (size_t i = 0; i < f.n; i++) {
        f.join_policy[i] = (struct caller){.flood = &f, .index = (uint32_t)i};
        list_init(&f.join_policy[i].link);
        list_append(&f.waiting, &f.join_policy[i].link);
    }
    loop_timer_set(f.timer, clock_now_ns());
    r = loop_run(f.loop);
    die("the loop", -r);
    return 1;
}
