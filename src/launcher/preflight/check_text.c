#include "launcher/preflight/check_text.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"

void check_write_node(const struct node_summary *d, struct strbuf *to) {
    size_t wide = 4;
    for (uint32_t i = 0; i < d->n_findings; i++)
        wide = MAX2(wide, strlen(d->findings[i].code));
    for (enum node_summary_level l = NODE_SUMMARY_OK; l <= NODE_SUMMARY_FAIL; l++)
        for (uint32_t i = 0; i < d->n_findings; i++)
            if (d->findings[i].level == l)
                strbuf_printf(to, "%-4s  %-*s  %s\n", node_summary_level_name(l), (int)wide,
                              d->findings[i].code, d->findings[i].text);
}

void check_write_node_of(const struct node_summary *d, const char *host, struct strbuf *to) {
    strbuf_printf(to, "node %s\n", host);
    check_write_node(d, to);
}

static const struct json_field node_fields[] = {
    {JSON_LIST(node_summary, "checks", findings, n_findings, node_summary_finding)},
    {.key = "facts", .kind = JSON_FIELD_OBJECT, .table = &node_summary_facts},
};
static const struct json_table node_table = JSON_TABLE(node_summary, node_fields);

void check_write_node_json(const struct node_summary *d, const char *host, struct strbuf *to) {
    struct json_writer w = json_writer_of(to);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "host", host);
    json_write_string(&w, "level", node_summary_level_name(node_summary_worst(d)));
    json_table_write(&w, &node_table, d);
    json_write_object_end(&w);
    strbuf_add(to, "\n");
}

/* ---- what failed on which node ---- */

void check_failures_fini(struct check_failures *f) {
    free(f->all);
    *f = (struct check_failures){0};
}

void check_failures_drop(struct check_failures *f, uint64_t node) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (f->all[i].node != node)
            f->all[n++] = f->all[i];
    f->n = n;
}

static struct check_failure *add(struct check_failures *f) {
    if (f->n == CHECK_FAILURES_MAX) {
        f->n_left_out++;
        return NULL;
    }
    f->all = xgrow(f->all, f->n, sizeof *f->all);
    return &f->all[f->n++];
}

void check_failures_put(struct check_failures *f, uint64_t node, const char *host,
                        const struct node_summary *d) {
    check_failures_drop(f, node);
    for (uint32_t i = 0; i < d->n_findings; i++) {
        struct check_failure *new = d->findings[i].level == NODE_SUMMARY_FAIL ? add(f) : NULL;
        if (new == NULL)
            continue;
        *new = (struct check_failure){.node = node, .finding = d->findings[i]};
        (void)snprintf(new->host, sizeof new->host, "%s", host);
    }
}

/* ---- many nodes ---- */

void check_write_nodes(const struct node_summary_comparison *c, const struct check_failures *f,
                       struct strbuf *to) {
    int hosts = 0, codes = 0;
    if (c->n == 0)
        strbuf_printf(to, "the %u nodes are alike\n", c->n_nodes);
    node_summary_comparison_table(c, to);
    for (uint32_t i = 0; i < f->n; i++) {
        hosts = MAX2(hosts, (int)strlen(f->all[i].host));
        codes = MAX2(codes, (int)strlen(f->all[i].finding.code));
    }
    for (uint32_t i = 0; i < f->n; i++)
        strbuf_printf(to, "fail  %-*s  %-*s  %s\n", hosts, f->all[i].host, codes,
                      f->all[i].finding.code, f->all[i].finding.text);
    if (f->n_left_out > 0)
        strbuf_printf(to, "… and %u more\n", f->n_left_out);
}

static void write_differences(const struct node_summary_comparison *c, struct json_writer *w) {
    json_write_array_begin(w, "differences");
    for (uint32_t i = 0; i < c->n; i++) {
        const struct node_summary_row *r = &c->rows[i];
        json_write_object_begin(w, NULL);
        json_write_string(w, "code", r->code);
        json_write_string(w, "what", r->what);
        json_write_string(w, "nodes", r->nodes);
        json_write_u64(w, "n_nodes", r->n_nodes);
        json_write_string(w, "value", r->value);
        json_write_string(w, "others", r->others);
        json_write_u64(w, "n_others", r->n_others);
        json_write_bool(w, "matters", r->matters);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

void check_write_nodes_json(const struct node_summary_comparison *c, const struct check_failures *f,
                            struct strbuf *to) {
    struct json_writer w = json_writer_of(to);
    json_write_object_begin(&w, NULL);
    json_write_u64(&w, "nodes", c->n_nodes);
    write_differences(c, &w);
    json_write_array_begin(&w, "failures");
    for (uint32_t i = 0; i < f->n; i++) {
        json_write_object_begin(&w, NULL);
        json_write_string(&w, "node", f->all[i].host);
        json_write_string(&w, "code", f->all[i].finding.code);
        json_write_string(&w, "text", f->all[i].finding.text);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add(to, "\n");
}

static bool same_code(const struct check_failures *f, uint32_t a, uint32_t b) {
    return strcmp(f->all[a].finding.code, f->all[b].finding.code) == 0;
}

/* Writes the nodes with one code, each once. */
static void write_code(const struct check_failures *f, uint32_t first, struct strbuf *to) {
    uint32_t n = 0;
    strbuf_printf(to, "%s: ", f->all[first].finding.code);
    for (uint32_t i = first; i < f->n; i++) {
        bool before = false;
        for (uint32_t k = first; k < i && !before; k++)
            before = same_code(f, k, first) && strcmp(f->all[k].host, f->all[i].host) == 0;
        if (before || !same_code(f, i, first))
            continue;
        if (n++ < NODE_SUMMARY_NAMES_MAX)
            strbuf_printf(to, "%s%s", n > 1 ? ", " : "", f->all[i].host);
    }
    if (n > NODE_SUMMARY_NAMES_MAX)
        strbuf_printf(to, " and %u more", n - NODE_SUMMARY_NAMES_MAX);
}

void check_write_verdict(const struct node_summary_comparison *c, const struct check_failures *f,
                         struct strbuf *to) {
    if (c->matters)
        node_summary_comparison_line(c, true, to);
    for (uint32_t i = 0; i < f->n; i++) {
        bool before = false;
        for (uint32_t k = 0; k < i && !before; k++)
            before = same_code(f, k, i);
        if (before)
            continue;
        strbuf_add(to, to->len > 0 ? "; " : "");
        write_code(f, i, to);
    }
}
