#include "launcher/node/node_discovery_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/process/helper_call.h"
#include "launcher/node/snapshot_codec.h"
#include "nccl_env/facts/facts_io.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/sysfs/kfd_io.h"

struct waiter {
    node_discovery_fn *fn;
    void *arg;
};

/* What owns nothing, and is sent as it is. */
struct plain_parts {
    struct route_found route;
    char no_route[ERR_TEXT_MAX]; /* "": found */
    struct rocm_gpu rocm[TOPO_GPUS_MAX];
    uint32_t n_rocm;
};

struct node_discovery {
    struct loop *loop;
    struct node_discovery_config config;
    struct helper_call *call; /* NULL: it has ended */
    bool ended, doomed, call_due;
    bool routed;                /* a route was asked for */
    char failure[ERR_TEXT_MAX]; /* "" none */
    struct topology topology;
    struct nccl_facts facts;
    struct plain_parts parts;
    struct waiter waiters[NODE_DISCOVERY_WAITERS_MAX];
    uint32_t n_waiters;
};

/* ---- in the helper ---- */

/* The first byte of what is sent says what follows. */
enum answer { ANSWER_FOUND = 'F', ANSWER_NOT = 'N' };

static int look(int fd, void *arg) {
    const struct node_discovery_config *config = arg;
    struct discovery_config what = {
        .what = config->what, .sysroot = config->sysroot, .nvml_library = config->nvml_library};
    struct topology t = {0};
    struct nccl_facts facts = {0};
    struct plain_parts parts = {0};
    struct strbuf out = {0};
    struct err err = {0};
    int r = topology_discover(&what, &t, &err);
    if (r == 0 && config->facts)
        nccl_facts_read(&(struct nccl_facts_config){.sysroot = config->sysroot,
                                                    .envp = config->envp,
                                                    .set = config->set,
                                                    .python = config->python},
                        &facts);
    if (r == 0 && config->rocm)
        parts.n_rocm = kfd_list_gpus(config->sysroot, parts.rocm, TOPO_GPUS_MAX);
    if (r == 0 && config->route_to != NULL && route_find(config->route_to, &parts.route, &err) < 0)
        memcpy(parts.no_route, err.text, sizeof parts.no_route);
    strbuf_add_char(&out, r < 0 ? ANSWER_NOT : ANSWER_FOUND);
    if (r < 0) {
        strbuf_add(&out, err.text[0] != '\0' ? err.text : strerror(-r));
    } else {
        strbuf_add_bytes(&out, &parts, sizeof parts);
        snapshot_encode(&t, &facts, &out);
    }
    return helper_send(fd, out.data, out.len) ? 0 : 1;
}

/* ---- in the agent ---- */

static void release(struct node_discovery *l) {
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

static void fail(struct node_discovery *l, const char *why) {
    (void)snprintf(l->failure, sizeof l->failure, "%s", why);
}

static void take(struct node_discovery *l, const struct helper_answer *a) {
    const size_t head = 1 + sizeof l->parts;
    if (a->len == 0 || (a->data[0] == ANSWER_NOT && a->len == 1))
        fail(l, "the process that examines it died");
    else if (a->data[0] == ANSWER_NOT)
        fail(l, a->data + 1);
    else if (a->len < head ||
             snapshot_decode(a->data + head, a->len - head, &l->topology, &l->facts) < 0)
        fail(l, "the process that examines it did not finish");
    else
        memcpy(&l->parts, a->data + 1, sizeof l->parts);
}

static void on_answer(void *arg, const struct helper_answer *answer) {
    struct node_discovery *l = arg;
    l->call = NULL;
    l->ended = true;
    if (answer->code == -ETIMEDOUT)
        (void)snprintf(l->failure, sizeof l->failure, "it took longer than %.3g s",
                       (double)l->config.deadline_ns / (double)NS_PER_S);
    else
        take(l, answer);
    call_soon(l);
}

int node_discovery_new(struct loop *loop, const struct node_discovery_config *config,
                       struct node_discovery **ret, struct err *err) {
    struct node_discovery *l = xcalloc(1, sizeof *l);
    *l = (struct node_discovery){.loop = loop, .config = *config};
    if (l->config.deadline_ns == 0)
        l->config.deadline_ns = NODE_DISCOVERY_NS;
    l->routed = config->route_to != NULL;
    struct helper_call_config call = {
        .name = "muster-look",
        .run = look,
        .arg = &l->config,
        .timeout_ns = l->config.deadline_ns,
        .max_bytes = SNAPSHOT_MAX,
        .may_linger = true, /* NVML may hang below it */
    };
    int r = helper_call_new(loop, &call, on_answer, l, &l->call);
    l->config.route_to = NULL;
    if (r < 0) {
        release(l);
        return err_set(err, r, "can't start a process that examines this node: %s", strerror(-r));
    }
    *ret = l;
    return 0;
}

void node_discovery_free(struct node_discovery *l) {
    if (l == NULL)
        return;
    helper_call_free(TAKE_PTR(l->call)); /* now: the reaper may be gone when the rest is freed */
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
    if (known && l->parts.no_route[0] != '\0' && ret_why != NULL)
        *ret_why = l->parts.no_route;
    return known && l->parts.no_route[0] == '\0' ? &l->parts.route : NULL;
}

uint32_t node_discovery_rocm(const struct node_discovery *l, const struct rocm_gpu **ret) {
    *ret = l->parts.rocm;
    return l->parts.n_rocm;
}

const char *node_discovery_failure(const struct node_discovery *l) {
    return l->ended && l->failure[0] != '\0' ? l->failure : NULL;
}
