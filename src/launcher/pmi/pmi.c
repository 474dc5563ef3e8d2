#include "launcher/pmi/pmi.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define SEPARATOR ','

void pmi_card_write(const char *host, const char *key, char ret[PMI_CARD_MAX]) {
    const int n = snprintf(ret, PMI_CARD_MAX, "%.*s", PMI_CARD_MAX - PMI_KEY_TEXT_MAX - 1, host);
    for (char *c = ret; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || *c == SEPARATOR)
            *c = '_';
    if (key != NULL)
        (void)snprintf(ret + n, (size_t)(PMI_CARD_MAX - n), "%c%s", SEPARATOR, key);
}

const char *pmi_card_key(const char *card) {
    const char *comma = strchr(card, SEPARATOR);
    return comma != NULL ? comma + 1 : NULL;
}

static int check_card(const char *card, uint32_t rank, struct err *err) {
    bool is_good = card[0] != '\0' && card[0] != SEPARATOR && strlen(card) < PMI_CARD_MAX;
    for (const char *c = card; *c != '\0'; c++)
        is_good &= (unsigned char)*c > ' ' && *c != 0x7f;
    return is_good ? 0
                   : err_set(err, -EPROTO,
                             "task %u published a value that is not a host name; all tasks must "
                             "run the same version of muster",
                             rank);
}

struct task_host {
    const char *card;
    size_t len; /* of the host's name in it */
    uint32_t rank;
};

static int compare_names(const struct task_host *a, const struct task_host *b) {
    const int order = memcmp(a->card, b->card, MIN2(a->len, b->len));
    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

static int compare(const void *a, const void *b) {
    const struct task_host *x = a, *y = b;
    const int order = compare_names(x, y);
    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* The items are sorted by host, and those of a host by rank. Two passes: a node's number is that of
 * the nodes whose first rank is lower. */
static void count_nodes(const struct task_host *items, uint32_t n, uint32_t rank,
                        struct place *ret) {
    uint32_t own_first = 0;
    ret->n_nodes = ret->node_id = ret->most_tasks = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t first = 0, end; first < n; first = end) {
            const struct task_host *node = &items[first];
            for (end = first; end < n && compare_names(node, &items[end]) == 0; end++)
                if (items[end].rank == rank) {
                    own_first = node->rank;
                    ret->local_id = end - first;
                }
            if (own_first == node->rank)
                ret->node_tasks = end - first;
            ret->most_tasks = MAX2(ret->most_tasks, end - first);
            ret->n_nodes += (uint32_t)pass;
            ret->node_id += pass == 1 && node->rank < own_first;
        }
}

int pmi_tasks_read(const struct pmi_tasks *tasks, struct place *ret, char **ret_run_id,
                   struct err *err) {
    _cleanup_(freep) struct task_host *items = xcalloc(tasks->n, sizeof *items);
    for (uint32_t i = 0; i < tasks->n; i++) {
        const char *card = tasks->cards[i];
        const int r = check_card(card, i, err);
        if (r < 0)
            return r;
        items[i] = (struct task_host){.card = card, .len = strcspn(card, ","), .rank = i};
    }
    ret->n_tasks = tasks->n;
    ret->proc_id = tasks->rank;
    ret->first_host = xstrndup(items[0].card, items[0].len);
    if (tasks->run_id != NULL)
        *ret_run_id = xasprintf("%.80s.%08x", tasks->run_id,
                                (unsigned)(hash_text(HASH_BEGIN, tasks->cards[0]) & UINT32_MAX));
    qsort(items, tasks->n, sizeof *items, compare);
    count_nodes(items, tasks->n, tasks->rank, ret);
    return 0;
}

void pmi_tasks_fini(struct pmi_tasks *tasks) {
    for (uint32_t i = 0; tasks->cards != NULL && i < tasks->n; i++) {
        if (tasks->cards[i] != NULL)
            explicit_bzero(tasks->cards[i], strlen(tasks->cards[i]));
        free(tasks->cards[i]);
    }
    free(tasks->cards);
    free(tasks->run_id);
    explicit_bzero(tasks, sizeof *tasks);
}
