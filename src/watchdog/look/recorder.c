#include "watchdog/look/recorder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"

/* An entry has about 45 keys and values, without the stacks that NCCL's recorder can have. */
static const struct json_limits limits = {
    .max_bytes = RECORDER_ANSWER_MAX, .max_depth = 8, .max_values = 262144};

/* The connection ends with the answer; if it is cut off, its JSON is. */
int recorder_http_body(const char *answer, size_t len, const char **ret_body, size_t *ret_len,
                       struct err *err) {
    const char *end = memmem(answer, len, "\r\n\r\n", 4);
    char line[100] = "";
    (void)snprintf(line, sizeof line, "%.*s", (int)MIN2(len, sizeof line), answer);
    line[strcspn(line, "\r")] = '\0';
    if (strncmp(line, "HTTP/1.", 7) != 0 || end == NULL)
        return err_set(err, -EINVAL, "not the answer of a web server");
    if (strncmp(line + 8, " 200", 4) != 0) {
        utf8_clean(line, false);
        return err_set(err, -EINVAL, "the answer is \"%.80s\"", line);
    }
    *ret_body = end + 4;
    *ret_len = len - (size_t)(*ret_body - answer);
    return 0;
}

void recorder_fini(struct recorder *r) {
    free(r->groups);
    *r = (struct recorder){0};
}

/* A text, or a number as text; "" if there is none. */
static void word_of(const struct json *v, char *ret, size_t size) {
    const char *text = v != NULL ? json_string(v) : NULL;
    double number = 0;
    ret[0] = '\0';
    if (text != NULL)
        utf8_copy(ret, size, text);
    else if (v != NULL && json_number(v, &number))
        (void)snprintf(ret, size, "%.0f", number);
    utf8_clean(ret, false);
}

/* A whole number, or one as text: PyTorch writes both. -1: none, as PyTorch writes it, too. */
static int64_t number_of(const struct json *v) {
    const char *text = v != NULL ? json_string(v) : NULL;
    double number = -1;
    uint64_t n = 0;
    if (text != NULL)
        return parse_u64(text, &n) == 0 && n <= JSON_INTEGER_MAX ? (int64_t)n : -1;
    if (v == NULL || !json_number(v, &number) || !(number >= 0) ||
        number > (double)JSON_INTEGER_MAX)
        return -1;
    return (int64_t)number;
}

/* The first element of a member; NULL: it does not exist, or has none. */
static const struct json *first_of(const struct json *v, const char *key) {
    const struct json *list = json_member(v, key);
    return list != NULL ? json_first(list) : NULL;
}

static bool is_true(const struct json *v, const char *key) {
    bool value = false;
    return json_get_bool(v, key, &value, NULL) == 0 && value;
}

static int read_groups(const struct json *doc, struct recorder *r, struct err *err) {
    const struct json *status = json_member(doc, "pg_status");
    if (status == NULL)
        return 0;
    int bad = json_as_object(status, "pg_status", err);
    uint32_t n = bad == 0 ? json_count(status) : 0;
    if (n > RECORDER_GROUPS_MAX)
        return err_set(err, -E2BIG, "it has more than %u groups", RECORDER_GROUPS_MAX);
    if (bad < 0 || n == 0)
        return bad;
    r->groups = xcalloc(n, sizeof *r->groups);
    for (const struct json *v = json_first(status); v != NULL; v = json_next(v)) {
        struct recorder_group *g = &r->groups[r->n_groups++];
        utf8_copy_line(g->id, sizeof g->id, json_key(v));
        g->enqueued = number_of(json_member(v, "last_enqueued_collective"));
        g->started = number_of(json_member(v, "last_started_collective"));
        g->completed = number_of(json_member(v, "last_completed_collective"));
    }
    return 0;
}

/* "Float [4,5], Int [3]", cut at the array's size. */
static void sizes_of(const struct json *v, char ret[RECORDER_SIZES_MAX]) {
    const struct json *size = first_of(v, "input_sizes");
    const struct json *type = first_of(v, "input_dtypes");
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (; size != NULL && text.len < RECORDER_SIZES_MAX; size = json_next(size)) {
        const char *name = type != NULL ? json_string(type) : NULL;
        strbuf_printf(&text, "%s%s%s[", text.len > 0 ? ", " : "", name != NULL ? name : "",
                      name != NULL ? " " : "");
        for (const struct json *n = json_first(size); n != NULL && text.len < RECORDER_SIZES_MAX;
             n = json_next(n)) {
            char number[RECORDER_WORD_MAX];
            word_of(n, number, sizeof number);
            strbuf_printf(&text, "%s%s", n != json_first(size) ? "," : "", number);
        }
        strbuf_add(&text, "]");
        type = type != NULL ? json_next(type) : NULL;
    }
    utf8_copy_line(ret, RECORDER_SIZES_MAX, strbuf_text(&text));
}

/* Its group: ["0", "default_pg"], of which the second names it. */
static void group_of(const struct json *v, struct recorder *r, char ret[RECORDER_WORD_MAX]) {
    char id[RECORDER_WORD_MAX], name[RECORDER_WORD_MAX];
    const struct json *both = first_of(v, "process_group");
    const struct json *second = both != NULL ? json_next(both) : NULL;
    word_of(json_member(v, "pg_id"), id, sizeof id);
    word_of(second, name, sizeof name);
    bool named = name[0] != '\0' && strcmp(name, "undefined") != 0;
    for (uint32_t i = 0; i < r->n_groups && named; i++) {
        struct recorder_group *g = &r->groups[i];
        if (strcmp(g->id, id) == 0 && g->name[0] == '\0')
            memcpy(g->name, name, sizeof g->name);
    }
    (void)snprintf(ret, RECORDER_WORD_MAX, "%s%.50s", named ? "" : "group ", named ? name : id);
}

static void read_entry(const struct json *v, struct recorder *r) {
    struct recorder_entry e = {0};
    word_of(json_member(v, "state"), e.state, sizeof e.state);
    group_of(v, r, e.group);
    r->n_entries++;
    if (is_true(v, "retired") || strcmp(e.state, "completed") == 0)
        return;
    if (r->n_open++ >= RECORDER_OPEN_MAX)
        return;
    word_of(json_member(v, "profiling_name"), e.what, sizeof e.what);
    sizes_of(v, e.sizes);
    e.p2p = is_true(v, "is_p2p");
    e.number = number_of(json_member(v, e.p2p ? "p2p_seq_id" : "collective_seq_id"));
    double created = 0;
    if (json_member(v, "time_created_ns") != NULL &&
        json_number(json_member(v, "time_created_ns"), &created) && created > 0)
        e.created_s = created / 1e9;
    r->open[r->n_open - 1] = e;
}

int recorder_read(const char *text, size_t len, struct recorder *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    const struct json *entries = NULL;
    *ret = (struct recorder){0};
    int r = json_parse(text, len, &limits, &doc, err);
    r = r == 0 ? json_as_object(doc, "the recorder", err) : r;
    r = r == 0 ? json_get_array(doc, "entries", limits.max_values, &entries, err) : r;
    r = r == 0 ? read_groups(doc, ret, err) : r;
    if (r < 0) {
        recorder_fini(ret);
        return r;
    }
    for (const struct json *v = json_first(entries); v != NULL; v = json_next(v))
        if (json_kind_of(v) == JSON_OBJECT)
            read_entry(v, ret);
    return 0;
}

static const struct recorder_group *default_group(const struct recorder *r) {
    for (uint32_t i = 0; i < r->n_groups; i++)
        if (strcmp(r->groups[i].name, "default_pg") == 0)
            return &r->groups[i];
    /* The first group that a program makes; its entries may have left the ring. */
    for (uint32_t i = 0; i < r->n_groups; i++)
        if (strcmp(r->groups[i].id, "0") == 0)
            return &r->groups[i];
    return NULL;
}

uint64_t recorder_collectives(const struct recorder *r) {
    const struct recorder_group *g = default_group(r);
    return g != NULL && g->enqueued > 0 ? (uint64_t)g->enqueued : 0;
}

static void add_group(const struct recorder_group *g, struct strbuf *line) {
    strbuf_printf(line, "%s%s: ", g->name[0] != '\0' ? "" : "group ",
                  g->name[0] != '\0' ? g->name : g->id);
    strbuf_printf(line, "%lld enqueued", (long long)MAX2(g->enqueued, (int64_t)0));
    if (g->started >= 0)
        strbuf_printf(line, ", %lld started", (long long)g->started);
    strbuf_printf(line, ", %lld completed\n", (long long)MAX2(g->completed, (int64_t)0));
}

static void add_entry(const struct recorder_entry *e, double wall_s, struct strbuf *line) {
    strbuf_printf(line, "open: %s", e->what[0] != '\0' ? e->what : "a collective");
    if (e->number >= 0)
        strbuf_printf(line, ", number %lld of %s", (long long)e->number, e->group);
    else
        strbuf_printf(line, ", of %s", e->group);
    if (e->sizes[0] != '\0')
        strbuf_printf(line, ", %s", e->sizes);
    strbuf_printf(line, ", %s", e->state[0] != '\0' ? e->state : "not ended");
    double age = wall_s - e->created_s;
    if (e->created_s > 0 && age >= 0 && age < 1e9)
        strbuf_printf(line, " %.0f s ago", age);
    strbuf_add(line, "\n");
}

void recorder_summary(const struct recorder *r, double wall_s, struct strbuf *to) {
    uint32_t n_open = MIN2(r->n_open, (uint32_t)RECORDER_OPEN_MAX);
    size_t begin = to->len;
    for (uint32_t i = 0; i < n_open; i++)
        add_entry(&r->open[i], wall_s, to);
    if (r->n_open > n_open)
        strbuf_printf(to, "%u more have not ended\n", r->n_open - n_open);
    for (uint32_t i = 0; i < r->n_groups; i++)
        add_group(&r->groups[i], to);
    if (to->len == begin)
        strbuf_printf(to, "no collective in %u entries\n", r->n_entries);
    strbuf_cut_lines(to, begin, RECORDER_SUMMARY_MAX);
}
