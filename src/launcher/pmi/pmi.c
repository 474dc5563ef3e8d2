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

/* ==== PMI-1 ==== */

/* What each state expects, and the word of the answer that counts; NULL: none does. */
static const struct {
    const char *answer, *word;
} states[] = {
    [PMI1_INIT] = {"response_to_init", NULL}, [PMI1_NAME] = {"my_kvsname", "kvsname"},
    [PMI1_PUT] = {"put_result", NULL},        [PMI1_BARRIER] = {"barrier_out", NULL},
    [PMI1_GET] = {"get_result", "value"},     [PMI1_FINALIZE] = {"finalize_ack", NULL},
};

/* The value of NAME in "cmd=a NAME=value rc=0"; NULL: it is not there. */
static const char *find(const char *line, const char *name, size_t *ret_len) {
    const size_t n = strlen(name);
    for (const char *at = line; *at != '\0'; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, name, n) == 0 && at[n] == '=') {
            *ret_len = strcspn(at + n + 1, " ");
            return at + n + 1;
        }
    }
    return NULL;
}

static bool is(const char *value, size_t len, const char *text) {
    return value != NULL && strlen(text) == len && memcmp(value, text, len) == 0;
}

static int bad_answer(const struct pmi1 *pmi, struct err *err) {
    return err_set(err, -EPROTO, "its answer is not \"%s\" of PMI-1 as expected",
                   states[pmi->state].answer);
}

/* Checks the answer, and copies its value into *ret, which stays NULL if the state expects none. */
static int read_answer(const struct pmi1 *pmi, char **ret, struct err *err) {
    const char *const word = states[pmi->state].word;
    size_t len, rc_len, value_len = 0;
    const char *const cmd = find(pmi->line, "cmd", &len),
                      *const rc = find(pmi->line, "rc", &rc_len),
                      *const value = word != NULL ? find(pmi->line, word, &value_len) : NULL;
    if (!is(cmd, len, states[pmi->state].answer) || (rc != NULL && !is(rc, rc_len, "0")))
        return bad_answer(pmi, err);
    if (word != NULL &&
        (value_len == 0 || value_len >= (pmi->state == PMI1_NAME ? PMI_RUN_ID_MAX : PMI_CARD_MAX)))
        return bad_answer(pmi, err);
    if (word != NULL)
        *ret = xstrndup(value, value_len);
    return 0;
}

static void get(const struct pmi1 *pmi, struct strbuf *out) {
    strbuf_printf(out, "cmd=get kvsname=%s key=muster-%u\n", pmi->tasks->run_id, pmi->next);
}

void pmi1_begin(struct pmi1 *pmi, struct pmi_tasks *tasks, struct strbuf *out) {
    *pmi = (struct pmi1){.state = PMI1_INIT, .tasks = tasks};
    strbuf_add(out, "cmd=init pmi_version=1 pmi_subversion=1\n");
}

/* value: owned. */
static void advance(struct pmi1 *pmi, char *value, struct strbuf *out) {
    struct pmi_tasks *const tasks = pmi->tasks;
    switch (pmi->state) {
    case PMI1_INIT:
        strbuf_add(out, "cmd=get_my_kvsname\n");
        pmi->state = PMI1_NAME;
        break;
    case PMI1_NAME:
        tasks->run_id = value;
        strbuf_printf(out, "cmd=put kvsname=%s key=muster-%u value=%s\n", value, tasks->rank,
                      tasks->own);
        pmi->state = PMI1_PUT;
        break;
    case PMI1_PUT:
        strbuf_add(out, "cmd=barrier_in\n");
        pmi->state = PMI1_BARRIER;
        break;
    case PMI1_BARRIER:
        tasks->cards = xcalloc(tasks->n, sizeof *tasks->cards);
        get(pmi, out);
        pmi->state = PMI1_GET;
        break;
    case PMI1_GET:
        tasks->cards[pmi->next++] = value;
        if (pmi->next < tasks->n) {
            get(pmi, out);
            break;
        }
        strbuf_add(out, "cmd=finalize\n");
        pmi->state = PMI1_FINALIZE;
        break;
    case PMI1_FINALIZE: pmi->state = PMI1_DONE; break;
    case PMI1_DONE: assert_not_reached();
    }
}

static int take_line(struct pmi1 *pmi, struct strbuf *out, struct err *err) {
    char *value = NULL;
    int r = read_answer(pmi, &value, err);
    if (r == 0)
        advance(pmi, value, out);
    return r;
}

int pmi1_receive(struct pmi1 *pmi, const char *bytes, size_t n, struct strbuf *out,
                 struct err *err) {
    int r = 0;
    for (size_t i = 0; i < n && r == 0 && pmi->state != PMI1_DONE; i++) {
        const bool is_end = bytes[i] == '\n';
        if (pmi->len == sizeof pmi->line || bytes[i] == '\0')
            return bad_answer(pmi, err);
        pmi->line[pmi->len++] = is_end ? '\0' : bytes[i];
        if (is_end) {
            r = take_line(pmi, out, err);
            pmi->len = 0;
        }
    }
    return r;
}
