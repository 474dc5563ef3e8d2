#include "watchdog/judge/suspects_native.h"

#include <string.h>

#include "base/json/json.h"
#include "base/text/utf8.h"

static uint32_t n_gaps(const struct suspects_native *s) {
    return s->worker == NULL ? 0 : MIN2(s->worker->n_gaps, (uint32_t)EVIDENCE_GAPS_MAX);
}

static void add_lines(struct strbuf *ret, const char *text) {
    for (const char *line = text; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        strbuf_add(ret, "    ");
        strbuf_add_bytes(ret, line, len);
        strbuf_add_char(ret, '\n');
        line += len + (line[len] == '\n');
    }
}

void suspects_native_text(const struct suspects_native *list, uint32_t n, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_add(&text, "\nnative stacks, read before these were ended\n");
    for (uint32_t i = 0; i < MIN2(n, (uint32_t)SUSPECTS_NATIVE_MAX); i++) {
        const struct suspects_native *s = &list[i];
        strbuf_printf(&text, "\nrank %u (node %s", s->rank, s->node);
        if (s->worker != NULL)
            strbuf_printf(&text, ", pid %d", (int)s->worker->pid);
        strbuf_add(&text, ")\n");
        if (s->worker != NULL && s->worker->native_stack != NULL)
            add_lines(&text, s->worker->native_stack);
        for (uint32_t k = 0; k < n_gaps(s); k++)
            strbuf_printf(&text, "  missing: %s\n", s->worker->gaps[k]);
        if (s->missing != NULL)
            strbuf_printf(&text, "  missing: native stack: %s\n", s->missing);
    }
    if (n > SUSPECTS_NATIVE_MAX)
        strbuf_printf(&text, "\n%u more suspects are left out\n", n - SUSPECTS_NATIVE_MAX);
    utf8_clean(text.data, true);
    strbuf_add_bytes(ret, text.data, text.len);
}

static void write_one(struct json_writer *w, const struct suspects_native *s) {
    const char *stack = s->worker == NULL ? NULL : s->worker->native_stack;
    json_write_object_begin(w, NULL);
    json_write_u64(w, "rank", s->rank);
    json_write_string(w, "node", s->node);
    if (s->worker != NULL)
        json_write_i64(w, "pid", s->worker->pid);
    else
        json_write_null(w, "pid");
    if (stack != NULL)
        json_write_string(w, "stack", stack);
    else
        json_write_null(w, "stack");
    json_write_array_begin(w, "gaps");
    for (uint32_t k = 0; k < n_gaps(s); k++)
        json_write_string(w, NULL, s->worker->gaps[k]);
    if (s->missing != NULL)
        json_write_string(w, NULL, s->missing);
    json_write_array_end(w);
    json_write_object_end(w);
}

void suspects_native_json(const struct suspects_native *list, uint32_t n, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct json_writer w = json_writer_of(&text);
    json_write_object_begin(&w, NULL);
    json_write_array_begin(&w, "native_stacks");
    for (uint32_t i = 0; i < MIN2(n, (uint32_t)SUSPECTS_NATIVE_MAX); i++)
        write_one(&w, &list[i]);
    json_write_array_end(&w);
    json_write_u64(&w, "native_stacks_left_out",
                   n > SUSPECTS_NATIVE_MAX ? n - SUSPECTS_NATIVE_MAX : 0);
    json_write_object_end(&w);
    strbuf_add_char(ret, ',');
    strbuf_add_bytes(ret, strbuf_text(&text) + 1, text.len - 2); /* without its braces */
}
