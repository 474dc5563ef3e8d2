#include "launcher/worker/error_file.h"

#include <errno.h>
#include <string.h>

#include "base/json/json.h"

static const struct json_limits limits = {
    .max_bytes = ERROR_FILE_MAX_BYTES, .max_depth = JSON_DEPTH_MAX - 1, .max_values = 65536};

static bool is_surrogate(const char *p, char first, char last) {
    char c = p[3] >= 'A' && p[3] <= 'F' ? (char)(p[3] - 'A' + 'a') : p[3];
    return p[0] == '\\' && p[1] == 'u' && (p[2] == 'd' || p[2] == 'D') && c >= first && c <= last;
}

/* Python writes bytes that are not UTF-8 as half of a surrogate pair ("\udcff"), and NUL as \u0000:
 * both become \ufffd, which has the same length. */
static char *mend(const char *text, size_t len) {
    char *copy = xstrndup(text, len);
    size_t n = strlen(copy);
    for (char *p = copy; (p = strchr(p, '\\')) != NULL;) {
        size_t left = n - (size_t)(p - copy);
        if (left < 6 || p[1] != 'u') {
            p += MIN2(left, (size_t)2);
            continue;
        }
        bool high = is_surrogate(p, '8', 'b');
        if (high && left >= 12 && is_surrogate(p + 6, 'c', 'f')) {
            p += 12;
            continue;
        }
        if (high || is_surrogate(p, 'c', 'f') || strncmp(p, "\\u0000", 6) == 0)
            memcpy(p, "\\ufffd", 6);
        p += 6;
    }
    return copy;
}

static int parse(const char *text, size_t len, struct json **ret, struct err *err) {
    if (len > ERROR_FILE_MAX_BYTES)
        return err_set(err, -E2BIG, "error file of more than %zu bytes", ERROR_FILE_MAX_BYTES);
    if (memchr(text, '\0', len) != NULL)
        return err_set(err, -EINVAL, "not JSON: it has a NUL in it");
    _cleanup_(freep) char *mended = mend(text, len);
    return json_parse(mended, strlen(mended), &limits, ret, err);
}

static int lacks_message(struct err *err) {
    return err_set(err, -EINVAL, "error file without a \"message\"");
}

int error_file_parse(const char *text, size_t len, char **ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = parse(text, len, &doc, err);
    if (r != 0)
        return r;
    const struct json *message = json_member(doc, "message");
    const char *stack = json_string(json_member(json_member(message, "extraInfo"), "py_callstack"));
    const char *inner = json_string(json_member(message, "message"));
    const char *shown = stack != NULL ? stack : inner != NULL ? inner : json_string(message);
    if (shown == NULL)
        return lacks_message(err);
    *ret = xstrdup(shown);
    return 0;
}

int error_file_for_parent(const char *text, size_t len, int exit_code, struct strbuf *ret,
                          struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = parse(text, len, &doc, err);
    if (r != 0)
        return r;
    const struct json *message = json_member(doc, "message");
    if (message == NULL)
        return lacks_message(err);
    if (json_kind_of(message) == JSON_OBJECT && exit_code != 0)
        json_set_i64(message, "errorCode", exit_code);
    struct json_writer w = json_writer_of(ret);
    strbuf_clear(ret);
    return json_write_value(&w, NULL, doc);
}
