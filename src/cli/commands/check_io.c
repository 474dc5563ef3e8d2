#include "cli/commands/check_io.h"

#include "io/net/resolver.h"

struct check_request {
    struct loop *loop;
    struct node_summary *ret;
    bool *ret_whole;
};

static void on_node_summary(void *arg, const struct node_summary *d, bool whole) {
    struct check_request *w = arg;
    *w->ret = *d;
    *w->ret_whole = whole;
    loop_quit(w->loop);
}

int check_this_node(const struct node_summary_config *config, struct node_summary *ret,
                    bool *ret_whole) {
    _cleanup_(loop_freep) struct loop *loop = NULL;
    struct node_summary_gathering *gathering;
    int r = loop_new(&loop);
    struct check_request w = {.loop = loop, .ret = ret, .ret_whole = ret_whole};
    if (r == 0)
        r = node_summary_start(loop, config, on_node_summary, &w, &gathering);
    return r < 0 ? r : loop_run(loop);
}

void check_host_name(char *out, size_t size) { resolve_own_name(out, size); }
