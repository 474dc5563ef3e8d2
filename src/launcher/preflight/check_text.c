#include "launcher/preflight/check_text.h"

#include <string.h>

#include "base/json/json_table.h"

void check_write_node(const struct node_summary *d, const char *host, struct strbuf *to) {
    size_t wide = 4;
    if (host != NULL)
        strbuf_printf(to, "node %s\n", host);
    for (uint32_t i = 0; i < d->n_findings; i++)
        wide = MAX2(wide, strlen(d->findings[i].code));
    for (enum node_summary_level l = NODE_SUMMARY_OK; l <= NODE_SUMMARY_FAIL; l++)
        for (uint32_t i = 0; i < d->n_findings; i++)
            if (d->findings[i].level == l)
                strbuf_printf(to, "%-4s  %-*s  %s\n", node_summary_level_name(l), (int)wide,
                              d->findings[i].code, d->findings[i].text);
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

/* ---- many nodes ---- */

void check_write_nodes(const struct node_summary_comparison *c, struct strbuf *to) {
    int hosts = 0, codes = 0;
    if (c->n == 0)
        strbuf_printf(to, "the %u nodes are alike\n", c->n_nodes);
    node_summary_comparison_table(c, to);
    for (uint32_t i = 0; i < c->n_failures; i++) {
        hosts = MAX2(hosts, (int)strlen(c->failures[i].host));
        codes = MAX2(codes, (int)strlen(c->failures[i].finding->code));
    }
    for (uint32_t i = 0; i < c->n_failures; i++)
        strbuf_printf(to, "fail  %-*s  %-*s  %s\n", hosts, c->failures[i].host, codes,
                      c->failures[i].finding->code, c->failures[i].finding->text);
    if (c->n_failures_left_out > 0)
        strbuf_printf(to, "… and %u more\n", c->n_failures_left_out);
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

void check_write_nodes_json(const struct node_summary_comparison *c, struct strbuf *to) {
    struct json_writer w = json_writer_of(to);
    json_write_object_begin(&w, NULL);
    json_write_u64(&w, "nodes", c->n_nodes);
    write_differences(c, &w);
    json_write_array_begin(&w, "failures");
    for (uint32_t i = 0; i < c->n_failures; i++) {
        json_write_object_begin(&w, NULL);
        json_write_string(&w, "node", c->failures[i].host);
        json_write_string(&w, "code", c->failures[i].finding->code);
        json_write_string(&w, "text", c->failures[i].finding->text);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add(to, "\n");
}

static bool same_code(const struct node_summary_comparison *c, uint32_t a, uint32_t b) {
    return strcmp(c->failures[a].finding->code, c->failures[b].finding->code) == 0;
}

/* Writes the nodes with one code, each once. */
static void write_code(const struct node_summary_comparison *c, uint32_t first, struct strbuf *to) {
    uint32_t n = 0;
    strbuf_printf(to, "%s: ", c->failures[first].finding->code);
    for (uint32_t i = first; i < c->n_failures; i++) {
        bool before = false;
        for (uint32_t k = first; k < i && !before; k++)
            before =
                same_code(c, k, first) && strcmp(c->failures[k].host, c->failures[i].host) == 0;
        if (before || !same_code(c, i, first))
            continue;
        if (n++ < NODE_SUMMARY_NAMES_MAX)
            strbuf_printf(to, "%s%s", n > 1 ? ", " : "", c->failures[i].host);
    }
    if (n > NODE_SUMMARY_NAMES_MAX)
        strbuf_printf(to, " and %u more", n - NODE_SUMMARY_NAMES_MAX);
}

void check_write_verdict(const struct node_summary_comparison *c, struct strbuf *to) {
    if (c->matters)
        node_summary_comparison_line(c, to);
    for (uint32_t i = 0; i < c->n_failures; i++) {
        bool before = false;
        for (uint32_t k = 0; k < i && !before; k++)
            before = same_code(c, k, i);
        if (before)
            continue;
        strbuf_add(to, to->len > 0 ? "; " : "");
        write_code(c, i, to);
    }
}
