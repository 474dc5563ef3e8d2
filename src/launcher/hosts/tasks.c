#include "launcher/hosts/tasks.h"

#include <errno.h>
#include <string.h>

static int read_number(const char **at, uint32_t max, uint32_t *ret) {
    const char *p = *at;
    uint32_t v = 0;
    if (*p < '0' || *p > '9')
        return -EINVAL;
    for (; *p >= '0' && *p <= '9'; p++) {
        v = v * 10 + (uint32_t)(*p - '0');
        if (v > max)
            return -ERANGE;
    }
    *at = p;
    *ret = v;
    return 0;
}

/* Reads "2(x3)" or "2" at *at; *at is then at what follows. */
static int read_run(const char **at, uint32_t *ret_count, uint32_t *ret_nodes) {
    *ret_nodes = 1;
    int r = read_number(at, TASKS_COUNT_MAX, ret_count);
    if (r == 0 && strncmp(*at, "(x", 2) == 0) {
        *at += 2;
        r = read_number(at, TASKS_NODES_MAX, ret_nodes);
        if (r == 0 && (*ret_nodes == 0 || *(*at)++ != ')'))
            return -EINVAL;
    }
    return r == 0 && **at != ',' && **at != '\0' ? -EINVAL : r;
}

int tasks_read(const char *text, uint32_t node, struct tasks *ret) {
    struct tasks t = {.least = UINT32_MAX};
    for (const char *p = text;; p++) {
        uint32_t count, nodes;
        int r = read_run(&p, &count, &nodes);
        if (r < 0)
            return r;
        if (nodes > TASKS_NODES_MAX - t.nodes)
            return -ERANGE;
        if (node >= t.nodes) /* the last run of which this holds has the node */
            t.of_node = count;
        t.nodes += nodes;
        t.least = MIN2(t.least, count);
        t.most = MAX2(t.most, count);
        if (*p == '\0')
            break;
    }
    *ret = t;
    return 0;
}
