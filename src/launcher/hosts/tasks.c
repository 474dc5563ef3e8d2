#include "launcher/hosts/tasks.h"

#include <errno.h>
#include <string.h>

#include "launcher/hosts/hostlist.h"

/* What is read, for errors. */
struct source {
    const char *text;
    struct err *err;
};

#define BAD(src, code, at, ...)                                       \
    unreadable((src)->err, code, "counts for each node", (src)->text, \
               (size_t)((at) - (src)->text), __VA_ARGS__)

static int read_number(const struct source *src, const char **at, uint32_t max, uint32_t *ret) {
    const char *p = *at;
    if (*p < '0' || *p > '9')
        return BAD(src, -EINVAL, p, "there should be a number, as in 2(x3),1");
    uint32_t v = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        v = v * 10 + (uint32_t)(*p - '0');
        if (v > max)
            return BAD(src, -ERANGE, *at, "is a number above %u", max);
    }
    *at = p;
    *ret = v;
    return 0;
}

/* Reads "2(x3)" or "2" at *at; *at is then at what follows. */
static int read_run(const struct source *src, const char **at, uint32_t *ret_count,
                    uint32_t *ret_nodes) {
    uint32_t nodes = 1;
    int r = read_number(src, at, TASKS_COUNT_MAX, ret_count);
    if (r < 0)
        return r;
    if (strncmp(*at, "(x", 2) == 0) {
        *at += 2;
        const char *begin = *at;
        r = read_number(src, at, TASKS_NODES_MAX, &nodes);
        if (r < 0)
            return r;
        if (nodes == 0)
            return BAD(src, -EINVAL, begin, "is a count for no node");
        if (**at != ')')
            return BAD(src, -EINVAL, *at, "there should be \")\", as in 2(x3),1");
        (*at)++;
    }
    if (**at != ',' && **at != '\0')
        return BAD(src, -EINVAL, *at, "there should be \",\" or \"(x\", as in 2(x3),1");
    *ret_nodes = nodes;
    return 0;
}

/* Reads all of the text, and into *ret_count the count of one node if the text has that node. */
static int read_all(const struct source *src, uint32_t node, struct tasks *ret,
                    uint32_t *ret_count) {
    struct tasks t = {.least = UINT32_MAX};
    for (const char *p = src->text;; p++) {
        uint32_t count = 0, nodes = 0;
        const char *begin = p;
        int r = read_run(src, &p, &count, &nodes);
        if (r < 0)
            return r;
        if (nodes > TASKS_NODES_MAX - t.nodes)
            return BAD(src, -ERANGE, begin, "there are more than %u nodes", TASKS_NODES_MAX);
        if (node >= t.nodes) /* the last run of which this holds has the node */
            *ret_count = count;
        t.nodes += nodes;
        t.least = MIN2(t.least, count);
        t.most = MAX2(t.most, count);
        if (*p == '\0')
            break;
    }
    *ret = t;
    return 0;
}

int tasks_read(const char *text, struct tasks *ret, struct err *err) {
    uint32_t ignored;
    return read_all(&(struct source){text, err}, 0, ret, &ignored);
}

int tasks_of_node(const char *text, uint32_t node, uint32_t *ret, struct err *err) {
    struct tasks t;
    uint32_t count = 0;
    int r = read_all(&(struct source){text, err}, node, &t, &count);
    if (r < 0)
        return r;
    if (node >= t.nodes)
        return err_set(err, -ERANGE, "the counts \"%.80s\" are for %u nodes: there is no node %u",
                       text, t.nodes, node);
    *ret = count;
    return 0;
}
