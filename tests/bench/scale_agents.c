/* Many nodes in one process, for bench_scale.py: each has the product's member machine and client, a
 * listener that answers probes, and sockets of its own; only the workers are left out: they are
 * ready, running and gone at once.
 *
 *     scale_agents agents PORT COUNT FIRST MIN MAX RUN_ID   nodes FIRST … FIRST+COUNT-1 of the leader
 *                                                           at 127.0.0.1:PORT
 *     scale_agents worker FILE                              the leader's own worker: appends
 *                                                           "start generation=G ns=NS", waits for SIGTERM
 *
 * Listens to its standard input, and tells what happens; all times are CLOCK_MONOTONIC in ns:
 *
 *     ready                         all listeners are made
 *     < go NS                       all nodes begin to connect at that time
 *     connecting FIRST_NS LAST_NS   when the first and the last did
 *     started G N FIRST_NS LAST_NS  all nodes that are left have START of generation G
 *     probed N                      the leader has reached every listener
 *     < drop                        one node goes like a killed process
 *     dropped NS
 *     < gap                         ask for:
 *     gap NS                        the longest time that a node was without a new lease since it was
 *                                   last asked
 *     end REASON                    a node's part is over, unasked */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/net/listen.h"
#include "rendezvous/client/client_io.h"
#include "rendezvous/protocol/conn_io.h"

#define BACKLOG 8
/* Below the ports that the kernel chooses itself: with thousands in use, its search for a free one would cost a
 * millisecond each. A port that is in use is skipped. */
#define FIRST_PORT 10000

struct agent {
    struct driver *driver;
    uint32_t index; /* among all nodes of the job */
    struct node_info info;
    struct listener *listener;
    struct rdzv_client *client;
    struct generation started;
    uint64_t leased_ns; /* when it had its newest lease; 0: it has none */
    bool probed;
};

struct driver {
    struct loop *loop;
    struct loop_watch *input;
    struct loop_timer *timer; /* for the time when they begin, then for the end of the start */
    struct addr leader;
    uint32_t min_nodes, max_nodes;
    const char *run_id;
    struct agent *agents;
    size_t n, alive, n_probed;
    uint16_t next_port;
    uint64_t first_connect_ns;
    bool begun;
    struct generation newest; /* of START; counted: */
    size_t n_started;
    uint64_t first_start_ns, last_start_ns;
    uint64_t gap_ns; /* between two leases of one node */
    char line[64];
    size_t line_len;
};

static void die(const char *what, int code) {
    fprintf(stderr, "scale_agents: %s: %s\n", what, strerror(code));
    exit(1);
}

/* ---- the listener: the first word, which answers probes ---- */

static void probe_message(void *arg, struct conn *c, const struct wire_message *m) {
    (void)arg;
    (void)m;
    conn_finish(c); /* HELLO is on its way */
}

static void probe_closed(void *arg, struct conn *c, int code, const char *text) {
    (void)arg;
    (void)code;
    (void)text;
    conn_free(c);
}

static void on_accept(void *arg, int fd, const struct addr *peer) {
    (void)peer;
    static const struct conn_ops ops = {.on_message = probe_message, .on_closed = probe_closed};
    struct agent *a = arg;
    struct driver *d = a->driver;
    struct conn *c = conn_new(d->loop, fd, NULL, &ops, a);
    struct wire_message m = {.kind = WIRE_HELLO,
                             .hello = {.version = WIRE_VERSION, .incarnation = a->info.incarnation}};
    (void)snprintf(m.hello.run_id, sizeof m.hello.run_id, "%s", d->run_id);
    conn_send(c, &m);
    if (a->probed)
        return;
    a->probed = true;
    if (++d->n_probed == d->n)
        printf("probed %zu\n", d->n);
}

static int listen_on_next_port(struct driver *d, struct err *err) {
    struct addr at;
    int fd, r;
    do {
        r = addr_from_literal("127.0.0.1", d->next_port++, &at);
        if (r == 0)
            r = listen_socket(&at, BACKLOG, &fd, err);
    } while (r == -EADDRINUSE && d->next_port != 0);
    return r < 0 ? r : fd;
}

static void make_listener(struct agent *a) {
    struct addr at;
    struct err err = {0};
    int r = listen_on_next_port(a->driver, &err);
    if (r >= 0)
        a->listener = listener_new(a->driver->loop, r, on_accept, a);
    if (r >= 0)
        r = listener_addr(a->listener, &at);
    if (r < 0)
        die(err.text[0] != '\0' ? err.text : "a listener", -r);
    a->info.listener_port = addr_port(&at);
}

/* ---- in place of a launcher ---- */

static void prepare(void *arg, struct generation g, const struct form *form) {
    (void)form;
    struct agent *a = arg;
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_PREPARED, .generation = g});
}

static void start(void *arg, struct generation g, uint32_t ways) {
    (void)ways;
    struct agent *a = arg;
    struct driver *d = a->driver;
    uint64_t now = clock_now_ns();
    a->started = g;
    if (generation_compare(g, d->newest) > 0) {
        d->newest = g;
        d->n_started = 0;
        d->first_start_ns = now;
    }
    if (generation_compare(g, d->newest) != 0)
        return;
    d->last_start_ns = now;
    if (++d->n_started == d->alive)
        printf("started %" PRIu32 ".%" PRIu32 " %zu %" PRIu64 " %" PRIu64 "\n", g.epoch, g.counter, d->n_started,
               d->first_start_ns, d->last_start_ns);
}

static void all_gone(struct agent *a) {
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_ALL_GONE, .generation = a->started});
}

static void stop(void *arg, uint64_t grace_ns, const char *reason, const struct desired *cause) {
    (void)grace_ns;
    (void)reason;
    (void)cause;
    all_gone(arg);
}

static void fence(void *arg) { all_gone(arg); }

static void note_gap(struct agent *a, uint64_t now) {
    if (a->leased_ns != 0)
        a->driver->gap_ns = MAX2(a->driver->gap_ns, now - a->leased_ns);
}

static void lease_end(void *arg, uint64_t end_ns) {
    struct agent *a = arg;
    uint64_t now = clock_now_ns();
    note_gap(a, now);
    a->leased_ns = end_ns != TIME_NEVER && end_ns > now ? now : 0;
}

static void status(void *arg, const struct rdzv_status *s) {
    (void)arg;
    (void)s;
}

static void waiting(void *arg, enum rdzv_wait why, const char *text) {
    (void)why;
    (void)arg;
    log_debug("%s", text);
}

static void on_end(void *arg, const struct member_end *end) {
    struct agent *a = arg;
    printf("end node %" PRIu32 ": %s\n", a->index, end->reason);
}

static void connect_agent(struct agent *a) {
    struct driver *d = a->driver;
    struct member_config member;
    member_config_default(&member);
    member.rdzv.min_nodes = d->min_nodes;
    member.rdzv.max_nodes = d->max_nodes;
    member.incarnation = a->info.incarnation;
    struct rdzv_client_config config = {
        .info = a->info,
        .addr = d->leader,
        .ops = {.prepare = prepare,
                .start = start,
                .stop = stop,
                .fence = fence,
                .lease_end = lease_end,
                .status = status,
                .waiting = waiting,
                .end = on_end},
        .arg = a,
    };
    (void)snprintf(config.run_id, sizeof config.run_id, "%s", d->run_id);
    int r = rdzv_client_new(d->loop, &member, &config, &a->client);
    if (r < 0)
        die("a client", -r);
}

/* ---- commands of the script ---- */

/* First all are created; each connects in the next turn. The timer that is set last fires last. */
static void on_timer(void *arg) {
    struct driver *d = arg;
    if (d->begun) {
        printf("connecting %" PRIu64 " %" PRIu64 "\n", d->first_connect_ns, clock_now_ns());
        return;
    }
    d->begun = true;
    d->first_connect_ns = clock_now_ns();
    for (size_t i = 0; i < d->n; i++)
        connect_agent(&d->agents[i]);
    loop_timer_set(d->timer, clock_now_ns());
}

static void drop(struct driver *d) {
    struct agent *a = &d->agents[d->n / 2];
    if (a->client == NULL)
        return;
    uint64_t now = clock_now_ns();
    listener_free(TAKE_PTR(a->listener));
    rdzv_client_free(TAKE_PTR(a->client));
    d->alive--;
    printf("dropped %" PRIu64 "\n", now);
}

static void tell_gap(struct driver *d) {
    uint64_t now = clock_now_ns();
    for (size_t i = 0; i < d->n; i++)
        if (d->agents[i].client != NULL)
            note_gap(&d->agents[i], now); /* what lasts */
    printf("gap %" PRIu64 "\n", d->gap_ns);
    d->gap_ns = 0;
}

static void obey(struct driver *d, const char *line) {
    uint64_t at;
    if (sscanf(line, "go %" SCNu64, &at) == 1 && !d->begun)
        loop_timer_set(d->timer, at);
    else if (strcmp(line, "drop") == 0)
        drop(d);
    else if (strcmp(line, "gap") == 0)
        tell_gap(d);
    else
        die(line, EINVAL);
}

static void on_input(void *arg, int fd, unsigned events) {
    (void)events;
    struct driver *d = arg;
    ssize_t got = read(fd, d->line + d->line_len, sizeof d->line - d->line_len);
    if (got <= 0)
        exit(0); /* the script has ended, so all the nodes end */
    d->line_len += (size_t)got;
    char *end;
    while ((end = memchr(d->line, '\n', d->line_len)) != NULL) {
        *end = '\0';
        obey(d, d->line);
        d->line_len -= (size_t)(end + 1 - d->line);
        memmove(d->line, end + 1, d->line_len);
    }
    if (d->line_len == sizeof d->line)
        die("standard input", E2BIG);
}

static uint32_t number(const char *text) {
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (*end != '\0' || v > RDZV_NODES_MAX)
        die(text, EINVAL);
    return (uint32_t)v;
}

static int run_agents(char **words) {
    struct driver d = {
        .n = number(words[1]), .min_nodes = number(words[3]), .max_nodes = number(words[4]), .run_id = words[5]};
    uint32_t first = number(words[2]);
    struct rlimit files;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    int r = addr_from_literal("127.0.0.1", (uint16_t)number(words[0]), &d.leader);
    if (r == 0)
        r = loop_new(&d.loop);
    d.timer = loop_timer_new(d.loop, on_timer, &d);
    if (r == 0)
        d.input = loop_watch_new(d.loop, STDIN_FILENO, LOOP_READ, LOOP_PRIO_BULK, on_input, &d);
    if (r < 0)
        die("the loop", -r);
    d.alive = d.n;
    d.next_port = (uint16_t)(FIRST_PORT + first);
    d.agents = xcalloc(d.n, sizeof *d.agents);
    for (size_t i = 0; i < d.n; i++) {
        struct agent *a = &d.agents[i];
        a->driver = &d;
        a->index = first + (uint32_t)i;
        a->info =
            (struct node_info){.incarnation = random_u64() | 1, .nproc = 1, .node_rank = -1, .pid = (int32_t)getpid()};
        (void)snprintf(a->info.host, sizeof a->info.host, "node%" PRIu32, a->index);
        (void)snprintf(a->info.role, sizeof a->info.role, "default");
        make_listener(a);
    }
    printf("ready\n");
    r = loop_run(d.loop);
    die("the loop", -r);
    return 1;
}

static int run_worker(const char *path) {
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &term, NULL);
    FILE *f = fopen(path, "ae");
    const char *g = getenv("MUSTER_GENERATION");
    if (f == NULL || fprintf(f, "start generation=%s ns=%" PRIu64 "\n", g == NULL ? "?" : g, clock_now_ns()) < 0 ||
        fclose(f) != 0)
        die(path, errno);
    int signo;
    (void)sigwait(&term, &signo);
    return 0;
}

int main(int argc, char **argv) {
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 8 && strcmp(argv[1], "agents") == 0)
        return run_agents(argv + 2);
    if (argc == 3 && strcmp(argv[1], "worker") == 0)
        return run_worker(argv[2]);
    fprintf(stderr, "usage: scale_agents agents PORT COUNT FIRST MIN MAX RUN_ID | worker FILE\n");
    return 2;
}
