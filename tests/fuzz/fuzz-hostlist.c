/* Any bytes as a list of hosts: what is expanded keeps the limits, and is a list of the same names. And as counts for
 * each node: the counts of the nodes add up to the sum. */
#include <stdbool.h>
#include <string.h>

#include "base/text/strbuf.h"
#include "launcher/hosts/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds)
        abort();
}

static void check_names(const struct hostlist *hosts) {
    for (size_t i = 0; i < hosts->n; i++) {
        size_t len = strlen(hosts->names[i]);
        check(len >= 1 && len <= HOSTLIST_NAME_MAX && hosts->names[i][0] != '-');
        check(strspn(hosts->names[i], "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") == len);
    }
}

/* The names of a list, with commas between them, are a list of the same names. */
static void check_again(const struct hostlist *hosts) {
    struct hostlist again;
    _cleanup_(strbuf_fini) struct strbuf names = {0};
    for (size_t i = 0; i < hosts->n; i++)
        strbuf_printf(&names, "%s%s", i > 0 ? "," : "", hosts->names[i]);
    if (hosts->n == 0 || names.len > HOSTLIST_TEXT_MAX)
        return;
    check(hostlist_expand(strbuf_text(&names), &again, NULL) == 0 && again.n == hosts->n);
    for (size_t i = 0; i < hosts->n; i++)
        check(strcmp(hosts->names[i], again.names[i]) == 0);
    hostlist_fini(&again);
}

static void read_list(const char *text) {
    struct hostlist hosts = {0};
    struct err err = {0};
    int r = hostlist_expand(text, &hosts, &err);
    check((r == 0) == (err.text[0] == '\0'));
    check((r == 0) == (hosts.n > 0));
    check(hosts.n <= HOSTLIST_HOSTS_MAX);
    check_names(&hosts);
    check_again(&hosts);
    hostlist_fini(&hosts);
}

static void read_tasks(const char *text) {
    struct tasks t;
    uint32_t least = UINT32_MAX, most = 0;
    if (tasks_read(text, 0, &t) < 0)
        return;
    check(t.nodes >= 1 && t.nodes <= TASKS_NODES_MAX && t.least <= t.most && t.most <= TASKS_COUNT_MAX);
    if (t.nodes > 64)
        return;
    for (uint32_t i = 0; i < t.nodes; i++) {
        check(tasks_read(text, i, &t) == 0);
        least = MIN2(least, t.of_node);
        most = MAX2(most, t.of_node);
    }
    check(least == t.least && most == t.most);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 65536)
        return 0;
    char *text = xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    read_list(text);
    read_tasks(text);
    free(text);
    return 0;
}
