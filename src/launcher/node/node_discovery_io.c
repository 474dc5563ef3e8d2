#include "launcher/node/node_discovery_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/process/helper.h"
#include "launcher/node/snapshot_codec.h"
#include "nccl_env/facts/facts_io.h"
#include "topology/discover/discovery_io.h"

#define HELPER_NAME "muster-look"
#define READ_BYTES ((size_t)64 << 10)

struct waiter {
    node_discovery_fn *fn;
    void *arg;
};

/* The route that was asked for. */
struct route_result {
    struct route_found found;
    char why_not[ERR_TEXT_MAX]; /* "": found */
};

struct node_discovery {
    struct loop *loop;
    struct node_discovery_config config;
    struct helper helper;
    struct loop_watch *watch;
    struct loop_timer *timer;
    int fd;              /* read end; -1 when it has ended */
    struct strbuf bytes; /* what has come */
    bool ended, doomed, call_due;
    bool routed;                /* a route was asked for */
    char failure[ERR_TEXT_MAX]; /* "" none */
    struct topology topology;
    struct nccl_facts facts;
    struct route_result way;
    struct waiter waiters[NODE_DISCOVERY_WAITERS_MAX];
    uint32_t n_waiters;
};

/* ---- in the helper ---- */

/* The first byte of what is sent says what follows. */
enum answer { ANSWER_FOUND = 'F', ANSWER_NOT = 'N' };

static int look(int fd, void *arg) {
    const struct node_discovery_config *config = arg;
    struct discovery_config parts = {
        .what = config->what, .sysroot = config->sysroot, .nvml_library = config->nvml_library};
    struct topology t = {0};
    struct nccl_facts facts = {0};
    struct route_result way = {0};
    struct strbuf out = {0};
    struct err err = {0};
    int r = topology_discover(&parts, &t, &err);
    if (r == 0 && config->facts)
        nccl_facts_read(&(struct nccl_facts_config){.sysroot = config->sysroot,
                                                    .envp = config->envp,
                                                    .set = config->set,
                                                    .python = config->python},
                        &facts);
    if (r == 0 && config->route_to != NULL && route_find(config->route_to, &way.found, &err) < 0)
        memcpy(way.why_not, err.text, sizeof way.why_not);
    strbuf_add_char(&out, r < 0 ? ANSWER_NOT : ANSWER_FOUND);
    if (r < 0) {
        strbuf_add(&out, err.text[0] != '\0' ? err.text : strerror(-r));
    } else {
        strbuf_add_bytes(&out, &way, sizeof way);
        snapshot_encode(&t, &facts, &out);
    }
    return helper_tell(fd, out.data, out.len) ? 0 : 1;
}

/* ---- in the agent ---- */

static void release(struct node_discovery *l) {
    loop_watch_free(l->watch);
    loop_timer_free(l->timer);
    if (l->fd >= 0)
        (void)close(l->fd);
    strbuf_fini(&l->bytes);
    topology_fini(&l->topology);
    nccl_facts_fini(&l->facts);
    free(l);
}

static void call_waiters(void *arg) {
    struct node_discovery *l = arg;
    while (l->n_waiters > 0 && !l->doomed) {
        struct waiter w = l->waiters[0];
        l->n_waiters--;
        memmove(l->waiters, l->waiters + 1, l->n_waiters * sizeof l->waiters[0]);
        w.fn(w.arg);
    }
    l->call_due = false; /* until here it was not freed, only doomed */
    if (l->doomed)
        release(l);
}

/* Everybody is called from the loop, and only then: a caller may free what it waits for. */
static void call_soon(struct node_discovery *l) {
    if (l->call_due || l->n_waiters == 0)
        return;
    l->call_due = true;
    loop_defer(l->loop, LOOP_PRIO_LEASE, call_waiters, l);
}

/* It has ended. why: a phrase, or NULL. A child that still runs is left alone: what it waits for
 * may hang in the kernel, and nobody waits for it any more. */
static void end(struct node_discovery *l, const char *why) {
    if (why != NULL)
        (void)snprintf(l->failure, sizeof l->failure, "%s", why);
    l->ended = true;
    loop_timer_set(l->timer, TIME_NEVER);
    loop_watch_free(l->watch);
    l->watch = NULL;
    (void)close(l->fd);
    l->fd = -1;
    strbuf_fini(&l->bytes);
    l->bytes = (struct strbuf){0};
    call_soon(l);
}

static void end_well(struct node_discovery *l) {
    memcpy(&l->way, l->bytes.data + 1, sizeof l->way);
    end(l, NULL);
}

static void take_answer(struct node_discovery *l) {
    const struct strbuf *b = &l->bytes;
    const size_t head = 1 + sizeof l->way;
    if (b->len == 0 || (b->data[0] == ANSWER_NOT && b->len == 1))
        end(l, "the process that looks at it died");
    else if (b->data[0] == ANSWER_NOT)
        end(l, b->data + 1);
    else if (b->len < head ||
             snapshot_decode(b->data + head, b->len - head, &l->topology, &l->facts) < 0)
        end(l, "the process that looks at it did not finish");
    else
        end_well(l);
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct node_discovery *l = arg;
    (void)events;
    char buf[READ_BYTES];
    ssize_t n = read(fd, buf, sizeof buf);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        strbuf_add_bytes(&l->bytes, buf, (size_t)n);
    if (n <= 0 || l->bytes.len > SNAPSHOT_MAX)
        take_answer(l);
}

static void on_timer(void *arg) {
    struct node_discovery *l = arg;
    char why[64];
    (void)snprintf(why, sizeof why, "it took longer than %.3g s",
                   (double)l->config.deadline_ns / (double)NS_PER_S);
    end(l, why);
}

static int start_helper(struct node_discovery *l) {
    int write_fd;
    int r = child_pipe(&l->fd, &write_fd);
    if (r < 0)
        return r;
    r = loop_watch_new(l->loop, l->fd, LOOP_READ, LOOP_PRIO_CHILD, on_readable, l, &l->watch);
    if (r == 0)
        r = helper_start(l->loop, HELPER_NAME, look, &l->config, write_fd, &l->helper);
    (void)close(write_fd);
    return r;
}

int node_discovery_new(struct loop *loop, const struct node_discovery_config *config,
                       struct node_discovery **ret, struct err *err) {
    struct node_discovery *l = xcalloc(1, sizeof *l);
    *l = (struct node_discovery){.loop = loop, .config = *config, .helper = HELPER_INIT, .fd = -1};
    if (l->config.deadline_ns == 0)
        l->config.deadline_ns = NODE_DISCOVERY_NS;
    l->routed = config->route_to != NULL;
    int r = loop_timer_new(loop, on_timer, l, &l->timer);
    if (r == 0)
        r = start_helper(l);
    l->config.route_to = NULL;
    if (r < 0) {
        release(l);
        return err_set(err, r, "can't make a process that looks at this node: %s", strerror(-r));
    }
    loop_timer_set(l->timer, clock_now_ns() + l->config.deadline_ns);
    *ret = l;
    return 0;
}

void node_discovery_free(struct node_discovery *l) {
    if (l == NULL)
        return;
    helper_end(&l->helper); /* now: the reaper may be gone when the rest is freed */
    l->doomed = true;
    if (!l->call_due)
        release(l);
}

void node_discovery_wait(struct node_discovery *l, node_discovery_fn *fn, void *arg) {
    assert(l->n_waiters < NODE_DISCOVERY_WAITERS_MAX);
    l->waiters[l->n_waiters++] = (struct waiter){fn, arg};
    if (l->ended)
        call_soon(l);
}

bool node_discovery_ended(const struct node_discovery *l) { return l->ended; }

unsigned node_discovery_what(const struct node_discovery *l) { return l->config.what; }

const struct topology *node_discovery_topology(const struct node_discovery *l) {
    return l->ended && l->failure[0] == '\0' ? &l->topology : NULL;
}

const struct nccl_facts *node_discovery_facts(const struct node_discovery *l) {
    return node_discovery_topology(l) != NULL && l->config.facts ? &l->facts : NULL;
}

const struct route_found *node_discovery_route(const struct node_discovery *l,
                                               const char **ret_why) {
    bool known = node_discovery_topology(l) != NULL && l->routed;
    if (known && l->way.why_not[0] != '\0' && ret_why != NULL)
        *ret_why = l->way.why_not;
    return known && l->way.why_not[0] == '\0' ? &l->way.found : NULL;
}

const char *node_discovery_failure(const struct node_discovery *l) {
    return l->ended && l->failure[0] != '\0' ? l->failure : NULL;
}
