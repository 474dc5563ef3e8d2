#include "launcher/node/node_discovery_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "io/process/helper_call.h"
#include "launcher/node/snapshot_codec.h"
#include "nccl_env/facts/facts_io.h"
#include "topology/discover/sysfs/sysfs_io.h"

#define NICE 10

struct waiter {
    node_discovery_fn *fn;
    void *arg;
    bool early;  /* the early answer is enough */
    bool called; /* or it will be */
};

/* The head of an answer. Data without pointers is sent unchanged. */
struct answer_head {
    size_t len;      /* of the whole answer */
    size_t nvml_len; /* 0: none */
    bool last;
    char failure[ERR_TEXT_MAX]; /* "": none */
    struct route_found route;
    char no_route[ERR_TEXT_MAX]; /* "": there is a route */
    struct rocm_gpu rocm[TOPO_GPUS_MAX];
    uint32_t n_rocm;
};

struct node_discovery {
    struct loop *loop;
    struct node_discovery_config config;
    struct helper_call *call; /* NULL: it has ended */
    bool ended;
    bool routed; /* a route was requested */
    struct topology topology;
    struct nccl_facts facts;
    struct answer_head head;
    size_t taken; /* bytes of answers that were read */
    bool has_early, has_last;
    struct topology early; /* only the interfaces */
    struct discovery_nvml *nvml;
    struct node_found found;
    struct waiter waiters[NODE_DISCOVERY_WAITERS_MAX];
    uint32_t n_waiters;
};

/* ---- in the helper ---- */

static bool send_answer(int fd, struct answer_head *head, const struct topology *t,
                        const struct nccl_facts *facts, const struct discovery_nvml *nvml) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    head->nvml_len = nvml == NULL  ? 0
                     : nvml->asked ? sizeof *nvml
                                   : offsetof(struct discovery_nvml, report);
    strbuf_add_bytes(&out, head, sizeof *head);
    if (nvml != NULL)
        strbuf_add_bytes(&out, nvml, head->nvml_len);
    snapshot_encode(t, facts, &out);
    head->len = out.len;
    memcpy(out.data, head, sizeof *head);
    return helper_send(fd, out.data, out.len);
}

static void find_route(const struct node_discovery_config *config, struct answer_head *head) {
    struct err err = {0};
    if (config->route_to != NULL && route_find(config->route_to, &head->route, &err) < 0)
        memcpy(head->no_route, err.text, sizeof head->no_route);
}

/* Sends interfaces and the route, for which JOIN waits, before anything that can take long. */
static bool look_early(int fd, const struct node_discovery_config *config,
                       struct answer_head *head) {
    struct discovery_config what = {.what = DISCOVER_NETIFS, .sysroot = config->sysroot};
    const struct nccl_facts none = {0};
    _cleanup_(topology_fini) struct topology t = {0};
    if (!config->netifs_first || topology_discover(&what, &t, NULL) < 0)
        return true; /* the whole answer has the reason */
    return send_answer(fd, head, &t, &none, NULL);
}

static int discover(int fd, void *arg) {
    const struct node_discovery_config *config = arg;
    struct discovery_config what = {
        .what = config->what, .sysroot = config->sysroot, .nvml_library = config->nvml_library};
    static struct answer_head head;
    _cleanup_(topology_fini) struct topology t = {0};
    _cleanup_(nccl_facts_fini) struct nccl_facts facts = {0};
    struct err err = {0};
    find_route(config, &head);
    if (!look_early(fd, config, &head))
        return 1;
    if (config->in_background)
        (void)setpriority(PRIO_PROCESS, 0, NICE);
    if (config->nvml)
        what.nvml = xcalloc(1, sizeof *what.nvml);
    int r = topology_discover(&what, &t, &err);
    head.last = true;
    if (r < 0)
        (void)snprintf(head.failure, sizeof head.failure, "%s",
                       err.text[0] != '\0' ? err.text : strerror(-r));
    if (r == 0 && config->facts)
        nccl_facts_read(&(struct nccl_facts_config){.sysroot = config->sysroot,
                                                    .envp = config->envp,
                                                    .set = config->set,
                                                    .python = config->python},
                        &facts);
    if (r == 0 && config->rocm)
        head.n_rocm = kfd_list_gpus(config->sysroot, head.rocm, TOPO_GPUS_MAX);
    bool sent = send_answer(fd, &head, &t, &facts, r == 0 ? what.nvml : NULL);
    free(what.nvml);
    return sent ? 0 : 1;
}

/* ---- in the agent ---- */

void node_discovery_free(struct node_discovery *l) {
    if (l == NULL)
        return;
    for (uint32_t i = 0; i < l->n_waiters; i++)
        loop_defer_drop(l->loop, l->waiters[i].fn, l->waiters[i].arg);
    helper_call_free(l->call);
    topology_fini(&l->topology);
    topology_fini(&l->early);
    nccl_facts_fini(&l->facts);
    free(l->nvml);
    free(l);
}

static void update_found(struct node_discovery *l) {
    const char *failure = l->ended && l->head.failure[0] != '\0' ? l->head.failure : NULL;
    const struct topology *t = l->ended && failure == NULL ? &l->topology : NULL;
    const struct topology *netifs = l->has_early ? &l->early : t;
    bool asked = netifs != NULL && l->routed, routed = l->head.no_route[0] == '\0';
    l->found = (struct node_found){.what = l->config.what,
                                   .has_netifs = l->ended || l->has_early,
                                   .ended = l->ended,
                                   .topology = t,
                                   .netifs = netifs,
                                   .nvml = t != NULL ? l->nvml : NULL,
                                   .facts = t != NULL && l->config.facts ? &l->facts : NULL,
                                   .route = asked && routed ? &l->head.route : NULL,
                                   .no_route = asked && !routed ? l->head.no_route : NULL,
                                   .rocm = l->head.rocm,
                                   .n_rocm = l->head.n_rocm,
                                   .failure = failure};
}

/* Calls those that wait only for what is known, from the loop. */
static void call_waiters(struct node_discovery *l) {
    update_found(l);
    for (uint32_t i = 0; i < l->n_waiters; i++) {
        struct waiter *w = &l->waiters[i];
        if (w->called || !(l->ended || (l->has_early && w->early)))
            continue;
        w->called = true;
        loop_defer(l->loop, LOOP_PRIO_LEASE, w->fn, w->arg);
    }
}

/* 1: an answer was read; 0: it is not complete yet; -EBADMSG. */
static int take_answer(struct node_discovery *l, const char *data, size_t len) {
    _cleanup_(nccl_facts_fini) struct nccl_facts none = {0};
    size_t at = sizeof l->head;
    if (len < sizeof l->head)
        return 0;
    memcpy(&l->head, data, sizeof l->head);
    if (l->head.nvml_len > sizeof *l->nvml || l->head.len < at + l->head.nvml_len ||
        l->head.len > SNAPSHOT_MAX)
        return -EBADMSG;
    if (len < l->head.len)
        return 0;
    if (l->head.nvml_len > 0) {
        free(l->nvml);
        l->nvml = xcalloc(1, sizeof *l->nvml);
        memcpy(l->nvml, data + at, l->head.nvml_len);
        at += l->head.nvml_len;
    }
    bool last = l->head.last;
    int r = snapshot_decode(data + at, l->head.len - at, last ? &l->topology : &l->early,
                            last ? &l->facts : &none);
    l->has_early |= r == 0 && !last;
    return r < 0 ? r : 1;
}

static int take(struct node_discovery *l, const char *data, size_t len) {
    int r = 0;
    while (!l->has_last && (r = take_answer(l, data + l->taken, len - l->taken)) > 0) {
        l->taken += l->head.len;
        l->has_last = l->head.last;
    }
    return r;
}

static void on_more(void *arg, const char *data, size_t len) {
    struct node_discovery *l = arg;
    (void)take(l, data, len); /* errors are reported at the end */
    call_waiters(l);
}

static void on_answer(void *arg, const struct helper_answer *answer) {
    struct node_discovery *l = arg;
    l->call = NULL;
    l->ended = true;
    int r = take(l, answer->data, answer->len);
    char *why = l->head.failure;
    if (answer->code == -ETIMEDOUT)
        (void)snprintf(why, ERR_TEXT_MAX, "it took longer than %.3g s",
                       (double)l->config.deadline_ns / (double)NS_PER_S);
    else if (r < 0 || !l->has_last)
        (void)snprintf(why, ERR_TEXT_MAX, "the process that examines it %s",
                       r < 0 || answer->len > l->taken ? "did not finish" : "died");
    call_waiters(l);
}

int node_discovery_new(struct loop *loop, const struct node_discovery_config *config,
                       struct node_discovery **ret, struct err *err) {
    struct node_discovery *l = xcalloc(1, sizeof *l);
    *l = (struct node_discovery){.loop = loop, .config = *config};
    if (l->config.deadline_ns == 0)
        l->config.deadline_ns = NODE_DISCOVERY_NS;
    l->routed = config->route_to != NULL;
    update_found(l);
    struct helper_call_config call = {
        .name = "muster-discover",
        .run = discover,
        .arg = &l->config,
        .timeout_ns = l->config.deadline_ns,
        .max_bytes = SNAPSHOT_MAX,
        .may_linger = true, /* NVML can hang below it */
        .on_more = on_more,
    };
    int r = helper_call_new(loop, &call, on_answer, l, &l->call);
    l->config.route_to = NULL;
    if (r < 0) {
        node_discovery_free(l);
        return err_set(err, r, "can't start a process that examines this node: %s", strerror(-r));
    }
    *ret = l;
    return 0;
}

static void add_waiter(struct node_discovery *l, node_discovery_fn *fn, void *arg, bool early) {
    assert(l->n_waiters < NODE_DISCOVERY_WAITERS_MAX);
    l->waiters[l->n_waiters++] = (struct waiter){.fn = fn, .arg = arg, .early = early};
    call_waiters(l);
}

void node_discovery_wait(struct node_discovery *l, node_discovery_fn *fn, void *arg) {
    add_waiter(l, fn, arg, false);
}

void node_discovery_wait_netifs(struct node_discovery *l, node_discovery_fn *fn, void *arg) {
    add_waiter(l, fn, arg, true);
}

const struct node_found *node_discovery_found(const struct node_discovery *l) {
    static const struct node_found nothing;
    return l != NULL ? &l->found : &nothing;
}
