#include "base/json/json.h"

#include "watchdog/judge/suspects_priv.h"

#define RANGES_MAX 4096

static void write_seconds(struct json_writer *w, const char *key, uint64_t ns) {
    json_write_double(w, key, (double)(ns / NS_PER_MS) / 1000);
}

static void write_stack(struct json_writer *w, const struct evidence *e,
                        const struct evidence_thread *t) {
    const struct evidence_stack *stack = suspects_stack(e, t);
    json_write_array_begin(w, "stack");
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++) {
        json_write_object_begin(w, NULL);
        json_write_string(w, "function", stack->frames[i].function);
        json_write_string(w, "file", stack->frames[i].file);
        json_write_u64(w, "line", stack->frames[i].line);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_group(struct json_writer *w, const struct suspects_input *in,
                        const struct suspects *s, uint32_t group, uint32_t *ranks) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct suspects_group *g = &s->groups[group];
    const struct evidence_thread *t = suspects_main(s, g->first);
    uint32_t n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        if (s->group_of[r] == group)
            ranks[n++] = r;
    suspects_ranges(ranks, n, RANGES_MAX, &text);
    json_write_object_begin(w, NULL);
    json_write_string(w, "ranks", strbuf_text(&text));
    json_write_u64(w, "count", n);
    json_write_bool(w, "waits", s->majority && group == 0);
    json_write_string(w, "where", g->where);
    json_write_string(w, "state", (const char[]){t->state != 0 ? t->state : '?', '\0'});
    json_write_string(w, "wchan", t->wchan);
    json_write_string(w, "syscall", t->syscall);
    write_stack(w, suspects_evidence(in, g->first), t);
    json_write_object_end(w);
}

static void write_suspects(struct json_writer *w, const struct suspects_input *in,
                           const struct suspects *s) {
    json_write_u64(w, "suspects_count", s->n_all);
    json_write_array_begin(w, "suspects");
    for (uint32_t i = 0; i < s->n_suspects; i++) {
        const struct suspect *one = &s->suspects[i];
        json_write_object_begin(w, NULL);
        json_write_u64(w, "rank", one->rank);
        json_write_string(w, "node", in->nodes[one->node].name);
        if (one->pid > 0)
            json_write_i64(w, "pid", one->pid);
        else
            json_write_null(w, "pid");
        json_write_string(w, "reason", suspect_reason_name(one->reason));
        json_write_string(w, "text", one->text);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

/* The evidence of each node. What is over the limit of the whole is left out, and counted. */
static void write_nodes(struct json_writer *w, const struct suspects_input *in) {
    uint32_t left_out = 0;
    json_write_array_begin(w, "nodes");
    for (uint32_t i = 0; i < in->n_nodes; i++) {
        const struct suspects_node *node = &in->nodes[i];
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        if (node->evidence != NULL && left_out == 0)
            evidence_write(node->evidence, &text);
        bool room = w->out->len + text.len <= SUSPECTS_JSON_MAX;
        left_out += node->evidence != NULL && (left_out > 0 || !room);
        json_write_object_begin(w, NULL);
        json_write_string(w, "node", node->name);
        if (node->evidence == NULL)
            json_write_string(w, "missing",
                              node->missing != NULL ? node->missing : "it did not answer in time");
        else if (left_out == 0)
            json_write_raw(w, "evidence", strbuf_text(&text));
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_u64(w, "nodes_left_out", left_out);
}

#define GROUPS_MAX 256

void suspects_json(const struct suspects_input *in, const struct suspects *s, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    _cleanup_(freep) uint32_t *ranks = xcalloc(in->n_ranks + (size_t)1, sizeof *ranks);
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    struct json_writer w = json_writer_of(&out);
    suspects_line(in, s, &line);
    json_write_object_begin(&w, NULL);
    if (in->what != NULL)
        json_write_string(&w, "verdict", in->what);
    else
        json_write_null(&w, "verdict");
    json_write_string(&w, "line", strbuf_text(&line));
    if (in->quiet_ns != 0)
        write_seconds(&w, "quiet_s", in->quiet_ns);
    else
        json_write_null(&w, "quiet_s");
    json_write_u64(&w, "ranks", in->n_ranks);
    if (in->waited != NULL)
        json_write_u64(&w, "failed_rank", in->failed);
    json_write_bool(&w, "majority", s->majority);
    json_write_u64(&w, "groups_count", s->n_groups);
    json_write_array_begin(&w, "groups");
    for (uint32_t g = 0; g < MIN2(s->n_groups, GROUPS_MAX); g++)
        write_group(&w, in, s, g, ranks);
    json_write_array_end(&w);
    write_suspects(&w, in, s);
    write_nodes(&w, in);
    json_write_object_end(&w);
    strbuf_add_bytes(ret, strbuf_text(&out), out.len);
}
