/* What env_resolve() chose, as text and as JSON. */
#include <string.h>

#include "base/json/json.h"
#include "base/text/strbuf.h"
#include "nccl_env/rules/resolve.h"

void env_write_plain(const struct env_result *r, struct strbuf *to) {
    for (uint32_t i = 0; i < r->n; i++) {
        const struct env_choice *c = &r->choices[i];
        if (c->action == ENV_SET || c->action == ENV_ASKED)
            strbuf_printf(to, "%s%s=%s\n", c->at_start ? "# " : "", c->name, c->value);
    }
}

#define NAME_INDENT 2
#define TEXT_INDENT 6

/* Writes one paragraph; the lines after the first are indented by TEXT_INDENT. */
static void write_wrapped(const char *text, uint32_t first, uint32_t width, struct strbuf *to) {
    strbuf_printf(to, "%*s", (int)first, "");
    (void)strbuf_add_wrapped(to, text, first, TEXT_INDENT, width);
    strbuf_add_char(to, '\n');
}

static bool is_alike(const struct env_choice *a, const struct env_choice *b) {
    return a->action == b->action && strcmp(a->reason, b->reason) == 0;
}

/* Choices of the same reason: names, reason, sources. Returns the first of the others. */
static uint32_t write_alike(const struct env_result *r, uint32_t first, uint32_t width,
                            struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf sources = {0};
    const char *last = NULL;
    uint32_t i = first;
    for (; i < r->n && is_alike(&r->choices[first], &r->choices[i]); i++) {
        const struct env_choice *c = &r->choices[i];
        strbuf_printf(to, "%*s%s%s%s\n", NAME_INDENT, "", c->name, c->value != NULL ? "=" : "",
                      c->value != NULL ? c->value : "");
        if (c->source != NULL && c->action != ENV_KEPT &&
            (last == NULL || strcmp(c->source, last) != 0))
            strbuf_printf(&sources, "%s%s", last != NULL ? "; " : "[", c->source);
        last = c->source;
    }
    write_wrapped(r->choices[first].reason, TEXT_INDENT, width, to);
    if (sources.len > 0) {
        strbuf_add_char(&sources, ']');
        write_wrapped(strbuf_text(&sources), TEXT_INDENT, width, to);
    }
    return i;
}

static void write_section(const struct env_result *r, enum env_action action, const char *title,
                          const char *nothing, uint32_t width, struct strbuf *to) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n;) {
        if (r->choices[i].action != action) {
            i++;
            continue;
        }
        if (n++ == 0)
            strbuf_printf(to, "%s%s\n", to->len > 0 ? "\n" : "", title);
        i = write_alike(r, i, width, to);
    }
    if (n == 0 && nothing != NULL)
        strbuf_printf(to, "%s%s\n%*s%s\n", to->len > 0 ? "\n" : "", title, NAME_INDENT, "",
                      nothing);
}

void env_write_explained(const struct env_result *r, uint32_t width, struct strbuf *to) {
    write_section(r, ENV_SET, "Set by muster", "nothing", width, to);
    write_section(r, ENV_ASKED, "Set because you requested it", NULL, width, to);
    write_section(r, ENV_KEPT, "Left as it is", NULL, width, to);
    write_section(r, ENV_REFUSED, "Not set", NULL, width, to);
    for (uint32_t i = 0; i < r->n_warnings; i++) {
        if (i == 0)
            strbuf_printf(to, "%sWorth a look\n", to->len > 0 ? "\n" : "");
        write_wrapped(r->warnings[i], NAME_INDENT, width, to);
    }
}

static const char *action_name(enum env_action a) {
    switch (a) {
    case ENV_SET: return "set";
    case ENV_KEPT: return "kept";
    case ENV_REFUSED: return "refused";
    case ENV_ASKED: return "asked";
    }
    assert_not_reached();
}

static void write_choice(struct json_writer *w, const struct env_choice *c) {
    json_write_object_begin(w, NULL);
    json_write_string(w, "name", c->name);
    json_write_string(w, "value", c->value);
    json_write_string(w, "action", action_name(c->action));
    json_write_string(w, "reason", c->reason);
    json_write_string(w, "source", c->source);
    json_write_object_end(w);
}

void env_write_json(const struct env_result *r, uint32_t rank, uint32_t local_rank,
                    struct strbuf *to) {
    struct json_writer w = json_writer_of(to);
    json_write_object_begin(&w, NULL);
    json_write_u64(&w, "rank", rank);
    json_write_u64(&w, "local_rank", local_rank);
    json_write_array_begin(&w, "variables");
    for (uint32_t i = 0; i < r->n; i++)
        write_choice(&w, &r->choices[i]);
    json_write_array_end(&w);
    json_write_array_begin(&w, "warnings");
    for (uint32_t i = 0; i < r->n_warnings; i++)
        json_write_string(&w, NULL, r->warnings[i]);
    json_write_array_end(&w);
    json_write_object_end(&w);
}
