/* Any bytes as JSON: accepted or refused within the limits. What was accepted is written and read again, with the same
 * result and the same text. */
#include <string.h>

#include "base/json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Numbers are printed with fewer digits than a double has, so two rounds are compared, not the input. */
static void print_of(const char *text, size_t len, struct strbuf *ret) {
    struct json_limits limits = JSON_LIMITS_DEFAULT;
    limits.max_bytes *= 16; /* escapes and numbers can become longer */
    struct err err = {0};
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse(text, len, &limits, &doc, &err);
    if (r != 0)
        abort();
    struct json_writer w = json_writer_of(ret);
    if (json_write_value(&w, NULL, doc) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json_limits limits = {.max_bytes = 65536, .max_depth = 6, .max_values = 4096};
    struct err err = {0};
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse((const char *)data, size, &limits, &doc, &err);
    if (r != 0) {
        if (doc != NULL || err.code != r || err.text[0] == '\0')
            abort();
        return 0;
    }
    uint64_t v;
    const char *text;
    for (const struct json *m = json_first(doc); m != NULL; m = json_next(m)) {
        if (json_key(m) != NULL && json_member(doc, json_key(m)) != m)
            abort();
        if (json_key(m) != NULL && json_get_id(doc, json_key(m), &v, NULL) == 0 &&
            json_get_string(doc, json_key(m), 20, &text, NULL) != 0)
            abort();
    }
    _cleanup_(strbuf_fini) struct strbuf first = {0}, second = {0};
    struct json_writer w = json_writer_of(&first);
    if (json_write_value(&w, NULL, doc) != 0)
        abort();
    if (strstr(strbuf_text(&first), "null") != NULL)
        return 0; /* cJSON prints numbers that no double holds (1e999) as null */
    print_of(first.data, first.len, &second);
    if (strcmp(strbuf_text(&first), strbuf_text(&second)) != 0)
        abort();
    return 0;
}
