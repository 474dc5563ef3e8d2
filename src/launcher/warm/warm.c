#include "launcher/warm/warm.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"

/* ---- the gate ---- */

static const char *const role_names[] = {[WARM_RECORD] = "record",
                                         [WARM_STANDBY] = "standby",
                                         [WARM_TEMPLATE] = "template",
                                         [WARM_REACH] = "reach"};

void warm_gate_env(const struct warm_gate *g, struct envlist *env) {
    const char *path = envlist_get(env, "PYTHONPATH");
    envlist_setf(env, "MUSTER_WARM", "%s:%d:%d:%d:%d:%d:%s", role_names[g->role], (int)g->agent,
                 g->zip_fd, g->control_fd, g->record_fd, path != NULL,
                 g->skip != NULL ? g->skip : "");
    _cleanup_(freep) char *old = path != NULL && path[0] != '\0' ? xstrdup(path) : NULL;
    envlist_setf(env, "PYTHONPATH", "/proc/self/fd/%d%s%s", g->zip_fd, old != NULL ? ":" : "",
                 old != NULL ? old : "");
    if (g->role == WARM_RECORD)
        return;
    char room[WARM_MARKER_ROOM + 1];
    memset(room, '-', WARM_MARKER_ROOM);
    room[WARM_MARKER_ROOM] = '\0';
    envlist_set(env, "MUSTER_WORKER_ID", room);
}

bool warm_record_ok(const char *text, size_t n, char reason[WARM_REASON_MAX]) {
    const char *end = memchr(text, '\n', n); /* of the gate's own line */
    if (n == 0)
        (void)snprintf(
            reason, WARM_REASON_MAX,
            "the Python of local rank 0 did not load muster's sitecustomize (python -I, -E or -S, "
            "or a wrapper that drops PYTHONPATH)");
    else if (end == NULL || end + 1 == text + n)
        (void)snprintf(reason, WARM_REASON_MAX, "the script has imported no installed package");
    else
        return true;
    return false;
}

void warm_record_stop(const char *text, size_t n, char *ret, size_t size) {
    ret[0] = '\0';
    for (size_t i = 0; i + 1 < n; i++)
        if (text[i] == '\n' && text[i + 1] == '!') {
            const char *end = memchr(text + i + 2, '\n', n - i - 2);
            size_t len = end != NULL ? (size_t)(end - text) - i - 2 : n - i - 2;
            (void)snprintf(ret, size, "%.*s", (int)len, text + i + 2);
        }
}

/* ---- messages ---- */

static const char *const kind_names[] = {
    [WARM_READY] = "ready", [WARM_GOING] = "going", [WARM_COLD] = "cold"};

#define FIELD(what, name) JSON_FIELD(warm_message, what, #name, name)
#define OF(of_kind) JSON_OF_KINDS(warm_message, kind, UINT32_C(1) << (of_kind))
static const struct json_field fields[] = {
    {JSON_NAMED(warm_message, "kind", kind, kind_names), .min = 1},
    {FIELD(U32, pid), .min = 1, OF(WARM_READY)},
    {FIELD(DOUBLE, seconds), OF(WARM_READY)},
    {FIELD(U32, modules), OF(WARM_READY)},
    {FIELD(U32, failed), OF(WARM_READY)},
    {FIELD(LINE, threads), OF(WARM_READY)},
    {FIELD(LINE, devices), OF(WARM_READY)},
    {FIELD(LINE, read), OF(WARM_READY)},
    {FIELD(LINE, moved), OF(WARM_READY)},
    {FIELD(LINE, reason), OF(WARM_COLD)},
};
static const struct json_table table = JSON_TABLE(warm_message, fields);

int warm_read(const char *text, size_t n, struct warm_message *ret, struct err *err) {
    static const struct json_limits limits = {.max_bytes = 8192, .max_depth = 2, .max_values = 64};
    *ret = (struct warm_message){0};
    return json_table_parse(text, n, &limits, &table, ret, err);
}

/* Variables that muster changes between starts, beside job_worker_variables; their beginnings. */
static const char *const ours[] = {
    "MUSTER_", "NOTIFY_SOCKET=", "TORCH_WORKER_SERVER_SOCKET=",
    /* of --gpus-per-worker and --virtual-local-rank */
    "CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=",
    /* of --nccl-env, which depend on the group or are in its folder; read later than imports */
    "GLOO_", "NCCL_", "TORCH_FR_", "TORCH_NCCL_", "TP_SOCKET_IFNAME=", "UCX_NET_DEVICES="};

static bool is_ours(const char *item, size_t n) {
    for (const struct job_worker_variable *v = job_worker_variables; v->name != NULL; v++)
        if (v->changes && strlen(v->name) == n && memcmp(v->name, item, n) == 0)
            return true;
    return text_begins_with_any(item, ours, ARRAY_SIZE(ours));
}

/* Whether an import cannot have read this variable. */
static bool may_change(const char *item, char reason[WARM_REASON_MAX]) {
    size_t n = strcspn(item, "=");
    if (is_ours(item, n))
        return true;
    (void)snprintf(reason, WARM_REASON_MAX, "%.*s has changed since the modules were imported",
                   (int)MIN2(n, 200), item);
    return false;
}

/* The value that an environment has for the name of an item; NULL: none. Most of two environments
 * is the same, in the same order: so it looks first behind the one that it found last. */
static const char *value_in(char *const *env, char *const **at, const char *item) {
    size_t n = strcspn(item, "=");
    for (unsigned turn = 0; turn < 2; turn++, *at = env)
        for (char *const *e = *at; *e != NULL; e++)
            if (strncmp(*e, item, n) == 0 && (*e)[n] == '=') {
                *at = e + 1;
                return *e + n + 1;
            }
    return NULL;
}

static void write_named(struct json_writer *w, const char *item) {
    size_t n = strcspn(item, "=");
    _cleanup_(freep) char *name = xasprintf("%.*s", (int)n, item);
    json_write_string(w, name, item + n + 1);
}

/* Writes what differs, if there is a writer. */
static bool write_set(char *const *from, char *const *to, struct json_writer *w, char *reason) {
    char *const *at = from;
    for (char *const *e = to; *e != NULL; e++) {
        const char *old = value_in(from, &at, *e);
        if (old != NULL && strcmp(old, *e + strcspn(*e, "=") + 1) == 0)
            continue;
        if (!may_change(*e, reason))
            return false;
        if (w != NULL)
            write_named(w, *e);
    }
    return true;
}

static bool write_unset(char *const *from, char *const *to, struct json_writer *w, char *reason) {
    char *const *at = to;
    for (char *const *e = from; *e != NULL; e++) {
        if (value_in(to, &at, *e) != NULL)
            continue;
        if (!may_change(*e, reason))
            return false;
        _cleanup_(freep) char *name = xasprintf("%.*s", (int)strcspn(*e, "="), *e);
        if (w != NULL)
            json_write_string(w, NULL, name);
    }
    return true;
}

bool warm_may_go(char *const *from, char *const *to, char reason[WARM_REASON_MAX]) {
    return write_set(from, to, NULL, reason) && write_unset(from, to, NULL, reason);
}

bool warm_go(char *const *from, const struct warm_to *to, struct strbuf *out,
             char reason[WARM_REASON_MAX]) {
    struct json_writer w = json_writer_of(out);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "kind", "go");
    json_write_string(&w, "marker", to->marker);
    if (to->cwd != NULL)
        json_write_string(&w, "cwd", to->cwd);
    json_write_u64(&w, "umask", to->umask);
    json_write_object_begin(&w, "set");
    bool ok = write_set(from, to->envp, &w, reason);
    json_write_object_end(&w);
    json_write_array_begin(&w, "unset");
    ok = ok && write_unset(from, to->envp, &w, reason);
    json_write_array_end(&w);
    json_write_object_end(&w);
    return ok;
}

bool warm_refuses(enum warm_role role, const struct warm_message *message,
                  char reason[WARM_REASON_MAX]) {
    if (message->devices[0] != '\0')
        (void)snprintf(reason, WARM_REASON_MAX, "importing opens %.400s", message->devices);
    else if (message->moved[0] != '\0')
        (void)snprintf(reason, WARM_REASON_MAX, "importing changes %.400s", message->moved);
    else if (role == WARM_TEMPLATE && message->threads[0] != '\0')
        (void)snprintf(reason, WARM_REASON_MAX, "importing leaves threads: %.400s",
                       message->threads);
    else if (role == WARM_TEMPLATE && message->read[0] != '\0')
        (void)snprintf(reason, WARM_REASON_MAX,
                       "an import reads %.400s, which differs from rank to rank", message->read);
    else
        return false;
    return true;
}
