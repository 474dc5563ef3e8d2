#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/idmap.h"
#include "launcher/preflight/node_summary.h"

/* A value of one fact, shared by all nodes that have it. */
struct value {
    uint64_t key;  /* in the map */
    uint32_t refs; /* how many nodes of the book have it */
    char *text;    /* owned */
    /* for the current comparison: */
    uint32_t count;
    struct value *next; /* the next value found, in the order of the nodes */
    uint32_t row;       /* the row that names its nodes; NODE_SUMMARY_ROWS_MAX: none */
    uint32_t workers;   /* of all its nodes */
};

struct summary_node {
    char *host;                                    /* owned */
    struct value *values[NODE_SUMMARY_FACT_COUNT]; /* NULL: not known */
    bool has_clock;
    int64_t clock_ns;
    struct node_summary_finding *failed; /* owned */
    uint32_t n_failed;
};

struct summary_index {
    struct idmap nodes;  /* id → struct summary_node */
    struct idmap values; /* key → struct value */
};

struct summary_index *summary_index_new(uint64_t seed) {
    struct summary_index *b = xcalloc(1, sizeof *b);
    b->nodes.seed = b->values.seed = seed;
    return b;
}

/* ---- values ---- */

static uint64_t key_of(enum node_summary_fact f, const char *text) {
    uint64_t h = hash_text(hash_text(HASH_BEGIN, node_summary_fact_name(f)), text);
    return h == 0 ? 1 : h;
}

/* NULL: another value has the same hash; then the fact counts as not known. */
static struct value *value_take(struct summary_index *b, enum node_summary_fact f,
                                const char *text) {
    uint64_t key = key_of(f, text);
    struct value *v = idmap_get(&b->values, key);
    if (v != NULL && strcmp(v->text, text) != 0)
        return NULL;
    if (v == NULL) {
        v = xcalloc(1, sizeof *v);
        *v = (struct value){.key = key, .text = xstrdup(text)};
        idmap_put(&b->values, key, v);
    }
    v->refs++;
    return v;
}

static void value_drop(struct summary_index *b, struct value *v) {
    if (v == NULL || --v->refs > 0)
        return;
    idmap_remove(&b->values, v->key);
    free(v->text);
    free(v);
}

size_t summary_index_values(const struct summary_index *b) { return b->values.len; }

size_t summary_index_nodes(const struct summary_index *b) { return b->nodes.len; }

static void node_free(struct summary_index *b, struct summary_node *n) {
    for (uint32_t f = 0; f < NODE_SUMMARY_FACT_COUNT; f++)
        value_drop(b, n->values[f]);
    free(n->host);
    free(n->failed);
    free(n);
}

void summary_index_put(struct summary_index *b, uint64_t id, const char *host,
                       const struct node_summary *d) {
    struct summary_node *n = xcalloc(1, sizeof *n);
    n->host = xstrndup(host, NODE_SUMMARY_HOST_MAX - 1);
    for (uint32_t f = 0; f < NODE_SUMMARY_FACT_COUNT; f++)
        if (d->values[f][0] != '\0' && node_summary_fact_kept((enum node_summary_fact)f))
            n->values[f] = value_take(b, (enum node_summary_fact)f, d->values[f]);
    n->has_clock = d->has_clock;
    n->clock_ns = d->clock_ns;
    for (uint32_t i = 0; i < d->n_findings; i++)
        if (d->findings[i].level == NODE_SUMMARY_FAIL) {
            n->failed = xgrow(n->failed, n->n_failed, sizeof *n->failed);
            n->failed[n->n_failed++] = d->findings[i];
        }
    struct summary_node *before = idmap_get(&b->nodes, id);
    idmap_put(&b->nodes, id, n);
    if (before != NULL)
        node_free(b, before);
}

void summary_index_drop(struct summary_index *b, uint64_t id) {
    struct summary_node *n = idmap_get(&b->nodes, id);
    if (n == NULL)
        return;
    idmap_remove(&b->nodes, id);
    node_free(b, n);
}

bool summary_index_has(const struct summary_index *b, uint64_t id) {
    return idmap_get(&b->nodes, id) != NULL;
}

void summary_index_free(struct summary_index *b) {
    if (b == NULL)
        return;
    for (size_t i = 0; i < b->nodes.cap; i++)
        if (b->nodes.slots[i].id != 0)
            node_free(b, b->nodes.slots[i].value);
    idmap_fini(&b->nodes);
    idmap_fini(&b->values);
    free(b);
}

/* ---- comparing ---- */

struct comparing {
    struct summary_node **nodes; /* the nodes of the ids, if they are in the book */
    const struct node_summary_clock **clocks;
    size_t n;
    struct node_summary_comparison *ret;
    struct strbuf names[NODE_SUMMARY_ROWS_MAX];
};

static uint32_t add_row(struct comparing *c, const char *what, const char *code, bool matters) {
    c->ret->matters = c->ret->matters || matters;
    if (c->ret->n == NODE_SUMMARY_ROWS_MAX) {
        c->ret->n_left_out++;
        return NODE_SUMMARY_ROWS_MAX;
    }
    c->ret->rows[c->ret->n] =
        (struct node_summary_row){.what = what, .code = code, .matters = matters};
    return c->ret->n++;
}

static void add_name(struct comparing *c, uint32_t row, const char *host) {
    if (row == NODE_SUMMARY_ROWS_MAX)
        return;
    uint32_t n = c->ret->rows[row].n_nodes++;
    if (n < NODE_SUMMARY_NAMES_MAX) {
        strbuf_add(&c->names[row], n == 0 ? "" : ", ");
        strbuf_add(&c->names[row], host);
    }
}

/* The distinct values of one fact among the nodes, each with its count, in the order of nodes. */
static struct value *count_values(struct comparing *c, enum node_summary_fact f) {
    struct value *head = NULL, **tail = &head;
    for (size_t i = 0; i < c->n; i++) {
        struct value *v = c->nodes[i]->values[f];
        if (v != NULL && v->count++ == 0) {
            v->next = NULL;
            *tail = v;
            tail = &v->next;
        }
    }
    return head;
}

static void compare_fact(struct comparing *c, enum node_summary_fact f) {
    struct value *head = count_values(c, f), *usual = head;
    for (struct value *v = head; v != NULL; v = v->next)
        usual = v->count > usual->count ? v : usual;
    for (struct value *v = head; v != NULL; v = v->next) {
        v->row = NODE_SUMMARY_ROWS_MAX;
        if (v == usual)
            continue;
        v->row = add_row(c, node_summary_fact_name(f), node_summary_fact_code(f),
                         node_summary_fact_matters(f));
        if (v->row == NODE_SUMMARY_ROWS_MAX)
            continue;
        struct node_summary_row *row = &c->ret->rows[v->row];
        row->value = xstrdup(v->text);
        row->others = xstrdup(usual->text);
        row->n_others = usual->count;
    }
    for (size_t i = 0; i < c->n && head != NULL && head->next != NULL; i++)
        if (c->nodes[i]->values[f] != NULL)
            add_name(c, c->nodes[i]->values[f]->row, c->nodes[i]->host);
    for (struct value *v = head; v != NULL; v = v->next)
        v->count = 0;
}

/* ---- NVLink domains ---- */

#define STACK_WORKERS_MAX 36 /* of one domain (NVIDIA/nccl#2186) */

static const char *value_of(const struct summary_node *n, enum node_summary_fact f) {
    return n->values[f] != NULL ? n->values[f]->text : "";
}

#define add_sentence(c, what, code, matters, value, ...) \
    add_sentence_text(c, what, code, matters, value, xasprintf(__VA_ARGS__))
static uint32_t add_sentence_text(struct comparing *c, const char *what, const char *code,
                                  bool matters, const char *value, char *text) {
    uint32_t row = add_row(c, what, code, matters);
    if (row < NODE_SUMMARY_ROWS_MAX) {
        c->ret->rows[row].value = xstrdup(value);
        c->ret->rows[row].others = TAKE_PTR(text);
    }
    free(text);
    return row;
}

/* "nvl-UUID" of "nvl-UUID.CLIQUE" */
static size_t fabric_length(const struct value *v) {
    const char *dot = strrchr(v->text, '.');
    return dot != NULL ? (size_t)(dot - v->text) : strlen(v->text);
}

static int by_domain(const void *a, const void *b) {
    return strcmp((*(struct value *const *)a)->text, (*(struct value *const *)b)->text);
}

/* A fabric with several cliques: those with fewer nodes than another get a row each. */
static void find_cliques(struct comparing *c, struct value **domains, size_t n) {
    for (size_t i = 0, end; i < n; i = end) {
        size_t len = fabric_length(domains[i]), most = i;
        for (end = i + 1; end < n && fabric_length(domains[end]) == len &&
                          memcmp(domains[end]->text, domains[i]->text, len) == 0;
             end++)
            most = domains[end]->count > domains[most]->count ? end : most;
        for (size_t k = i; k < end; k++)
            if (k != most)
                domains[k]->row =
                    add_sentence(c, "NVLink clique", "DOMAIN-SPLIT", false,
                                 domains[k]->text + len + (domains[k]->text[len] == '.'),
                                 "%u nodes of the same rack are in clique %s: no NVLink between "
                                 "them (partitions of the fabric)",
                                 domains[most]->count,
                                 domains[most]->text + len + (domains[most]->text[len] == '.'));
    }
}

struct domain_rows {
    uint32_t imex, stack, unequal; /* 0: none yet, or the row + 1 */
    uint32_t fewest, most;         /* nodes of one domain; equal if a node has no domain */
};

static void judge_node(struct comparing *c, const struct summary_node *n, struct domain_rows *r) {
    const struct value *domain = n->values[NODE_SUMMARY_DOMAIN];
    const char *imex = value_of(n, NODE_SUMMARY_IMEX);
    if (domain->row != NODE_SUMMARY_ROWS_MAX)
        add_name(c, domain->row, n->host);
    if (domain->count > 1 && strncmp(imex, "missing", 7) == 0) {
        if (r->imex == 0)
            r->imex = 1 + add_sentence(c, "IMEX channel", "IMEX-MISSING", true, imex,
                                       "NCCL needs it for NVLink between nodes: %s, or use "
                                       "the network with NCCL_MNNVL_ENABLE=0",
                                       strcmp(imex, "missing") == 0
                                           ? "load nvidia.ko with NVreg_CreateImexChannel0=1"
                                           : "give the pod a ComputeDomain, or load nvidia.ko "
                                             "with NVreg_CreateImexChannel0=1");
        add_name(c, r->imex - 1, n->host);
    }
    if (domain->workers > STACK_WORKERS_MAX &&
        strcmp(value_of(n, NODE_SUMMARY_STACK), "unlimited") == 0) {
        if (r->stack == 0)
            r->stack = 1 + add_sentence(c, "stack limit", "STACK-UNLIMITED", true, "unlimited",
                                        "NCCL can crash with more than %d ranks in one domain, "
                                        "here %u (NVIDIA/nccl#2186): ulimit -s 8192",
                                        STACK_WORKERS_MAX, domain->workers);
        add_name(c, r->stack - 1, n->host);
    }
    if (domain->count < r->most && domain->count == r->fewest) {
        char fewest[16];
        (void)snprintf(fewest, sizeof fewest, "%u", r->fewest);
        if (r->unequal == 0)
            r->unequal =
                1 + add_sentence(c, "nodes in its NVLink domain", "DOMAIN-UNEQUAL", false, fewest,
                                 "%u in another: NCCL's groups for send and receive become smaller",
                                 r->most);
        add_name(c, r->unequal - 1, n->host);
    }
}

/* What matters only among nodes of one NVLink domain, or between domains. */
static void compare_domains(struct comparing *c) {
    struct value *head = count_values(c, NODE_SUMMARY_DOMAIN);
    struct domain_rows rows = {.fewest = UINT32_MAX};
    _cleanup_(freep) struct value **domains = xcalloc(c->n + 1, sizeof *domains);
    size_t n = 0, n_nodes = 0;
    for (struct value *v = head; v != NULL; v = v->next) {
        v->row = NODE_SUMMARY_ROWS_MAX;
        v->workers = 0;
        n_nodes += v->count;
        rows.fewest = MIN2(rows.fewest, v->count);
        rows.most = MAX2(rows.most, v->count);
        domains[n++] = v;
    }
    if (n_nodes < c->n)
        rows.fewest = rows.most;
    for (size_t i = 0; i < c->n; i++)
        if (c->nodes[i]->values[NODE_SUMMARY_DOMAIN] != NULL)
            c->nodes[i]->values[NODE_SUMMARY_DOMAIN]->workers +=
                (uint32_t)MIN2(strtoul(value_of(c->nodes[i], NODE_SUMMARY_WORKERS), NULL, 10),
                               (unsigned long)UINT16_MAX);
    if (n > 0)
        qsort(domains, n, sizeof *domains, by_domain);
    find_cliques(c, domains, n);
    for (size_t i = 0; i < c->n; i++)
        if (c->nodes[i]->values[NODE_SUMMARY_DOMAIN] != NULL)
            judge_node(c, c->nodes[i], &rows);
    for (struct value *v = head; v != NULL; v = v->next)
        v->count = 0;
}

static int by_size(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* How far node i's wall clock is from the leader's; false: one of the two is not known. */
static bool skew_of(const struct comparing *c, size_t i, int64_t leader_clock_ns, int64_t *ret) {
    const struct node_summary_clock *k = c->clocks[i];
    if (!c->nodes[i]->has_clock || k == NULL || !k->known)
        return false;
    if (__builtin_sub_overflow(c->nodes[i]->clock_ns, k->offset_ns, ret) ||
        __builtin_sub_overflow(*ret, leader_clock_ns, ret))
        *ret = INT64_MAX;
    return true;
}

/* Compares with the median, so if only the leader's clock is wrong, the others are not reported. */
static void compare_clocks(struct comparing *c, int64_t leader_clock_ns) {
    int64_t *skews = xcalloc(c->n + 1, sizeof *skews), skew;
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (skew_of(c, i, leader_clock_ns, &skew))
            skews[n++] = skew;
    int64_t middle = skews[0];
    if (n > 2) {
        qsort(skews, n, sizeof *skews, by_size);
        middle = skews[n / 2];
    }
    uint32_t n_fine = 0, before = c->ret->n;
    for (size_t i = 0; i < c->n; i++) {
        if (!skew_of(c, i, leader_clock_ns, &skew))
            continue;
        double off = (double)skew - (double)middle;
        double limit = (double)NODE_SUMMARY_CLOCK_MAX_NS + (double)c->clocks[i]->error_ns;
        if (off < limit && off > -limit) {
            n_fine++;
            continue;
        }
        uint32_t row = add_row(c, "clock", "CLOCK-OFFSET", true);
        add_name(c, row, c->nodes[i]->host);
        if (row < NODE_SUMMARY_ROWS_MAX)
            c->ret->rows[row].value = xasprintf("%+.1f s", off / (double)NS_PER_S);
    }
    for (uint32_t i = before; i < c->ret->n; i++) {
        c->ret->rows[i].others = xstrdup("within 1 s");
        c->ret->rows[i].n_others = n_fine;
    }
    free(skews);
}

static void end_names(struct comparing *c) {
    for (uint32_t i = 0; i < c->ret->n; i++) {
        struct node_summary_row *row = &c->ret->rows[i];
        if (row->n_nodes > NODE_SUMMARY_NAMES_MAX)
            strbuf_printf(&c->names[i], " and %u more", row->n_nodes - NODE_SUMMARY_NAMES_MAX);
        row->nodes = strbuf_take(&c->names[i]);
    }
}

void summary_index_compare(struct summary_index *b, const uint64_t *ids, size_t n,
                           const struct node_summary_clock *clocks, int64_t leader_clock_ns,
                           struct node_summary_comparison *ret) {
    *ret =
        (struct node_summary_comparison){.rows = xcalloc(NODE_SUMMARY_ROWS_MAX, sizeof *ret->rows)};
    struct comparing c = {.nodes = xcalloc(n + 1, sizeof *c.nodes),
                          .clocks = xcalloc(n + 1, sizeof *c.clocks),
                          .ret = ret};
    for (size_t i = 0; i < n; i++) {
        struct summary_node *node = idmap_get(&b->nodes, ids[i]);
        if (node == NULL)
            continue;
        c.nodes[c.n] = node;
        c.clocks[c.n++] = clocks == NULL ? NULL : &clocks[i];
    }
    ret->n_nodes = (uint32_t)c.n;
    for (uint32_t f = 0; f < NODE_SUMMARY_FACT_COUNT; f++)
        if (node_summary_fact_code((enum node_summary_fact)f)[0] != '\0')
            compare_fact(&c, (enum node_summary_fact)f);
    compare_domains(&c);
    if (clocks != NULL)
        compare_clocks(&c, leader_clock_ns);
    end_names(&c);
    for (size_t i = 0; i < c.n; i++)
        for (uint32_t k = 0; k < c.nodes[i]->n_failed; k++)
            node_summary_comparison_fail(ret, c.nodes[i]->host, &c.nodes[i]->failed[k]);
    free(c.nodes);
    free(c.clocks);
}

void node_summary_comparison_fail(struct node_summary_comparison *c, const char *host,
                                  const struct node_summary_finding *finding) {
    if (c->n_failures == NODE_SUMMARY_FAILURES_MAX) {
        c->n_failures_left_out++;
        return;
    }
    c->failures = xgrow(c->failures, c->n_failures, sizeof *c->failures);
    c->failures[c->n_failures++] = (struct node_summary_failure){host, finding};
}

void node_summary_comparison_fini(struct node_summary_comparison *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        free(c->rows[i].nodes);
        free(c->rows[i].value);
        free(c->rows[i].others);
    }
    free(c->rows);
    free(c->failures);
    *c = (struct node_summary_comparison){0};
}

/* ---- texts ---- */

static void add_others(const struct node_summary_row *r, struct strbuf *to) {
    if (r->n_others == 0)
        strbuf_printf(to, "%s", r->others);
    else if (r->n_others == 1)
        strbuf_printf(to, "the other one: %s", r->others);
    else
        strbuf_printf(to, "the other %u: %s", r->n_others, r->others);
}

void node_summary_comparison_table(const struct node_summary_comparison *c, struct strbuf *to) {
    size_t wide[3] = {4, 4, 3};
    if (c->n == 0)
        return;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct node_summary_row *r = &c->rows[i];
        wide[0] = MAX2(wide[0], MIN2(strlen(r->nodes), (size_t)32));
        wide[1] = MAX2(wide[1], strlen(r->what));
        wide[2] = MAX2(wide[2], MIN2(strlen(r->value), (size_t)32));
    }
    strbuf_printf(to, "%-*s  %-*s  %-*s  %s\n", (int)wide[0], "node", (int)wide[1], "what",
                  (int)wide[2], "has", "others");
    for (uint32_t i = 0; i < c->n; i++) {
        const struct node_summary_row *r = &c->rows[i];
        strbuf_printf(to, "%-*s  %-*s  %-*s  ", (int)wide[0], r->nodes, (int)wide[1], r->what,
                      (int)wide[2], r->value);
        add_others(r, to);
        strbuf_printf(to, "  [%s]\n", r->code);
    }
    if (c->n_left_out > 0)
        strbuf_printf(to, "… and %u more\n", c->n_left_out);
}

void node_summary_comparison_line(const struct node_summary_comparison *c, struct strbuf *to) {
    bool any = false;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct node_summary_row *r = &c->rows[i];
        if (!r->matters)
            continue;
        strbuf_printf(to, "%s%s: %s has %s %s, ", any ? "; " : "", r->code, r->nodes, r->what,
                      r->value);
        add_others(r, to);
        any = true;
    }
    if (c->n_left_out > 0)
        strbuf_printf(to, "; and %u more", c->n_left_out);
}
