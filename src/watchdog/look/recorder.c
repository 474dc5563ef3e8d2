#include "watchdog/look/recorder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"

#define GROUPS_MAX 1024
#define OPEN_MAX 16 /* entries that are shown */
#define WORD_MAX 64
#define SIZES_MAX 96

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

/* A text, or a number as text; "" if there is none. */
static void word_of(const struct json *v, char ret[WORD_MAX]) {
    const char *text = v != NULL ? json_string(v) : NULL;
    double number = 0;
    ret[0] = '\0';
    if (text != NULL)
        utf8_copy(ret, WORD_MAX, text);
    else if (v != NULL && json_number(v, &number))
        (void)snprintf(ret, WORD_MAX, "%.0f", number);
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
    return json_as_bool(json_member(v, key), key, &value, NULL) == 0 && value;
}

/* "Float [4,5], Int [3]", cut at SIZES_MAX bytes. */
static void add_sizes(const struct json *v, struct strbuf *to) {
    const struct json *size = first_of(v, "input_sizes");
    const struct json *type = first_of(v, "input_dtypes");
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    char cut[SIZES_MAX], number[WORD_MAX];
    for (; size != NULL && text.len < SIZES_MAX; size = json_next(size)) {
        const char *name = type != NULL ? json_string(type) : NULL;
        strbuf_printf(&text, "%s%s%s[", text.len > 0 ? ", " : "", name != NULL ? name : "",
                      name != NULL ? " " : "");
        for (const struct json *n = json_first(size); n != NULL && text.len < SIZES_MAX;
             n = json_next(n)) {
            word_of(n, number);
            strbuf_printf(&text, "%s%s", n != json_first(size) ? "," : "", number);
        }
        strbuf_add(&text, "]");
        type = type != NULL ? json_next(type) : NULL;
    }
    utf8_copy_line(cut, sizeof cut, strbuf_text(&text));
    strbuf_printf(to, "%s%s", cut[0] != '\0' ? ", " : "", cut);
}

/* The name of an entry's group: the second of ["0", "default_pg"]. "": it has none. */
static void group_of(const struct json *entry, char ret[WORD_MAX]) {
    const struct json *both = first_of(entry, "process_group");
    word_of(both != NULL ? json_next(both) : NULL, ret);
    if (strcmp(ret, "undefined") == 0)
        ret[0] = '\0';
}

static void add_entry(const struct json *v, const char *state, double wall_s, struct strbuf *to) {
    char what[WORD_MAX], group[WORD_MAX], id[WORD_MAX];
    int64_t number = number_of(json_member(v, is_true(v, "is_p2p") ? "p2p_seq_id" /* of these */
                                                                   : "collective_seq_id"));
    double created_ns = 0;
    const struct json *created = json_member(v, "time_created_ns");
    word_of(json_member(v, "profiling_name"), what);
    word_of(json_member(v, "pg_id"), id);
    group_of(v, group);
    strbuf_printf(to, "open: %s, ", what[0] != '\0' ? what : "a collective");
    if (number >= 0)
        strbuf_printf(to, "number %lld ", (long long)number);
    strbuf_printf(to, "of %s%s", group[0] != '\0' ? "" : "group ", group[0] != '\0' ? group : id);
    add_sizes(v, to);
    strbuf_printf(to, ", %s", state[0] != '\0' ? state : "not ended");
    bool known = created != NULL && json_number(created, &created_ns) && created_ns > 0;
    double age = wall_s - created_ns / 1e9;
    if (known && age >= 0 && age < 1e9)
        strbuf_printf(to, " %.0f s ago", age);
    strbuf_add(to, "\n");
}

/* Those that have not ended: the oldest. Returns how many entries there are. */
static uint32_t add_entries(const struct json *entries, double wall_s, struct strbuf *to) {
    uint32_t n = 0, n_open = 0;
    char state[WORD_MAX];
    for (const struct json *v = json_first(entries); v != NULL; v = json_next(v)) {
        if (json_kind_of(v) != JSON_OBJECT)
            continue;
        n++;
        word_of(json_member(v, "state"), state);
        if (!is_true(v, "retired") && strcmp(state, "completed") != 0 && n_open++ < OPEN_MAX)
            add_entry(v, state, wall_s, to);
    }
    if (n_open > OPEN_MAX)
        strbuf_printf(to, "%u more have not ended\n", n_open - OPEN_MAX);
    return n;
}

/* The name of the group with this id, by its entries, which may have left the ring. "": unknown. */
static void name_of(const struct json *entries, const char *id, char ret[WORD_MAX]) {
    uint64_t number;
    ret[0] = '\0';
    if (parse_u64(id, &number) < 0 || number > JSON_INTEGER_MAX)
        return;
    for (const struct json *v = json_first(entries); v != NULL && ret[0] == '\0'; v = json_next(v))
        if (number_of(json_member(v, "pg_id")) == (int64_t)number)
            group_of(v, ret);
}

/* Returns how many collectives the worker has enqueued in the default group: the first that a
 * program makes. */
static uint64_t add_groups(const struct json *groups, const struct json *entries,
                           struct strbuf *to) {
    uint64_t collectives = 0;
    bool named = false;
    for (const struct json *v = json_first(groups); v != NULL; v = json_next(v)) {
        char id[WORD_MAX], name[WORD_MAX];
        int64_t enqueued = MAX2(number_of(json_member(v, "last_enqueued_collective")), 0);
        int64_t started = number_of(json_member(v, "last_started_collective"));
        int64_t completed = MAX2(number_of(json_member(v, "last_completed_collective")), 0);
        utf8_copy_line(id, sizeof id, json_key(v));
        name_of(entries, id, name);
        if (!named && (strcmp(name, "default_pg") == 0 || strcmp(id, "0") == 0))
            collectives = (uint64_t)enqueued;
        named = named || strcmp(name, "default_pg") == 0;
        strbuf_printf(to, "%s%s: %lld enqueued", name[0] != '\0' ? "" : "group ",
                      name[0] != '\0' ? name : id, (long long)enqueued);
        if (started >= 0)
            strbuf_printf(to, ", %lld started", (long long)started);
        strbuf_printf(to, ", %lld completed\n", (long long)completed);
    }
    return collectives;
}

int recorder_read(const char *text, size_t len, double wall_s, struct strbuf *to,
                  uint64_t *ret_collectives, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    const struct json *entries = NULL, *groups;
    size_t begin = to->len;
    int r = json_parse(text, len, &limits, &doc, err);
    r = r == 0 ? json_as_object(doc, "the recorder", err) : r;
    r = r == 0 ? json_get_array(doc, "entries", limits.max_values, &entries, err) : r;
    groups = r == 0 ? json_member(doc, "pg_status") : NULL;
    r = groups != NULL ? json_as_object(groups, "pg_status", err) : r;
    if (r == 0 && groups != NULL && json_count(groups) > GROUPS_MAX)
        r = err_set(err, -E2BIG, "it has more than %d groups", GROUPS_MAX);
    if (r < 0)
        return r;
    uint32_t n = add_entries(entries, wall_s, to);
    *ret_collectives = groups == NULL ? 0 : add_groups(groups, entries, to);
    if (to->len == begin)
        strbuf_printf(to, "no collective in %u entries\n", n);
    strbuf_cut_lines(to, begin, RECORDER_SUMMARY_MAX);
    return 0;
}
