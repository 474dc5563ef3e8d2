#include "launcher/worker/notify.h"

#include <string.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "base/util.h"

#define NUMBER_MAX 32 /* of its digits, with a NUL */

/* The value of a line that sets this variable; NULL: another one. */
static const char *value_of(const char *line, size_t n, const char *variable, size_t *ret_len) {
    size_t len = strlen(variable);
    if (n <= len || memcmp(line, variable, len) != 0 || line[len] != '=')
        return NULL;
    *ret_len = n - len - 1;
    return line + len + 1;
}

static bool is_set(const char *line, size_t n, const char *variable) {
    size_t len;
    const char *value = value_of(line, n, variable, &len);
    return value != NULL && len == 1 && value[0] == '1';
}

static bool number(const char *line, size_t n, const char *variable, uint64_t *ret) {
    char text[NUMBER_MAX];
    size_t len;
    const char *value = value_of(line, n, variable, &len);
    if (value == NULL || len >= sizeof text)
        return false;
    memcpy(text, value, len);
    text[len] = '\0';
    return parse_u64(text, ret) == 0;
}

static void take_line(struct notify_message *m, const char *line, size_t n) {
    uint64_t v;
    size_t len;
    const char *status = value_of(line, n, "STATUS", &len);
    m->safe_point = m->safe_point || is_set(line, n, "MUSTER_SAFE_POINT");
    m->ready = m->ready || is_set(line, n, "READY");
    m->alive = m->alive || is_set(line, n, "WATCHDOG");
    if (number(line, n, "MUSTER_STEP", &v)) {
        m->has_step = true;
        m->step = v;
    } else if (number(line, n, "WATCHDOG_USEC", &v) && v <= UINT64_MAX / NS_PER_US) {
        m->has_limit = true;
        m->limit_ns = v * NS_PER_US;
    } else if (status != NULL) {
        char text[NOTIFY_STATUS_MAX];
        size_t keep = MIN2(len, sizeof text - 1);
        memcpy(text, status, keep);
        text[keep] = '\0';
        m->has_status = true;
        utf8_copy_line(m->status, sizeof m->status, text);
    }
    m->any = m->safe_point || m->ready || m->alive || m->has_step || m->has_limit || m->has_status;
}

struct notify_message notify_parse(const char *data, size_t len) {
    struct notify_message message = {0};
    if (len > NOTIFY_BYTES_MAX || memchr(data, '\0', len) != NULL)
        return message;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(data + at, '\n', len - at);
        size_t n = end != NULL ? (size_t)(end - data) - at : len - at;
        take_line(&message, data + at, n);
        at += n + 1;
    }
    return message;
}

static void take_step(struct announced *a, uint64_t step, uint64_t now_ns) {
    if (step == a->step && a->step_at_ns != 0)
        return;
    if (a->step_at_ns != 0 && step > a->step)
        a->took_ns[a->n_steps++ % ANNOUNCED_STEPS] = now_ns - a->step_at_ns;
    a->step = step;
    a->step_at_ns = now_ns;
    a->alive_ns = now_ns;
}

void announced_take(struct announced *a, const struct notify_message *m, uint64_t now_ns) {
    a->ready = a->ready || m->ready;
    if (m->has_limit)
        a->limit_ns = m->limit_ns;
    if (m->has_limit || m->alive)
        a->alive_ns = now_ns;
    if (m->has_step)
        take_step(a, m->step, now_ns);
    if (m->has_status)
        memcpy(a->status, m->status, sizeof a->status);
}

bool announced_limit(const struct announced *a, uint64_t now_ns, uint64_t *ret_limit_ns,
                     uint64_t *ret_since_ns) {
    uint64_t longest = 0;
    for (uint64_t i = 0; i < MIN2(a->n_steps, (uint64_t)ANNOUNCED_STEPS); i++)
        longest = MAX2(longest, a->took_ns[i]);
    if (a->limit_ns != 0)
        *ret_limit_ns = a->limit_ns;
    else if (a->n_steps >= ANNOUNCED_STEPS_KNOWN)
        *ret_limit_ns =
            MAX2(longest < UINT64_MAX / ANNOUNCED_STEP_TIMES ? longest * ANNOUNCED_STEP_TIMES
                                                             : UINT64_MAX,
                 ANNOUNCED_STEP_MIN_NS);
    else
        return false;
    *ret_since_ns = now_ns - a->alive_ns;
    return true;
}
