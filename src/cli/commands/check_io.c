#include "cli/commands/check_io.h"

#include <unistd.h>

#include "io/clock.h"
#include "io/net/resolver.h"

struct check_request {
    struct loop *loop;
    struct node_summary_config config;
    struct node_summary *ret;
    bool *ret_whole;
    int r;
};

static void on_node_summary(void *arg, const struct node_summary *d, bool whole) {
    struct check_request *w = arg;
    *w->ret = *d;
    *w->ret_whole = whole;
    loop_quit(w->loop);
}

static void on_discovered(void *arg) {
    struct check_request *w = arg;
    struct node_summary_gathering *gathering;
    w->r = node_summary_start(w->loop, &w->config, on_node_summary, w, &gathering);
    if (w->r < 0)
        loop_quit(w->loop);
}

int check_this_node(const struct node_summary_config *config, const char *python,
                    struct node_summary *ret, bool *ret_whole) {
    _cleanup_(loop_freep) struct loop *loop = NULL;
    struct node_discovery *discovery = NULL;
    struct node_discovery_config what = {.what = node_summary_needs(discover_has_gpus()),
                                         .netifs_first = true,
                                         .nvml = true,
                                         .facts = true,
                                         .deadline_ns = NODE_SUMMARY_DISCOVERY_NS,
                                         .envp = environ,
                                         .python = python};
    uint64_t begun_ns = clock_now_ns();
    int r = loop_new(&loop);
    if (r == 0)
        r = node_discovery_new(loop, &what, &discovery, NULL);
    struct check_request w = {.loop = loop, .config = *config, .ret = ret, .ret_whole = ret_whole};
    w.config.discovery = discovery;
    w.config.begun_ns = begun_ns;
    if (r == 0) {
        node_discovery_wait(discovery, on_discovered, &w);
        r = loop_run(loop);
    }
    node_discovery_free(discovery);
    return r < 0 ? r : w.r;
}

void check_host_name(char *out, size_t size) { resolve_own_name(out, size); }
