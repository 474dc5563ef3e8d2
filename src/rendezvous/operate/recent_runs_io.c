#include "rendezvous/operate/recent_runs_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json/json_table.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"
#include "rendezvous/operate/registry_io.h"

#define FILE_PREFIX "run-"
#define FILE_BYTES_MAX ((size_t)32 * 1024) /* a path in which each byte is escaped */
#define LOOKED_AT_MAX 4096

static const struct json_limits limits = {
    .max_bytes = FILE_BYTES_MAX, .max_depth = 2, .max_values = 16};

static const struct json_field fields[] = {
    {JSON_FIELD(recent_run, TEXT, "run_id", run_id)},
    {JSON_FIELD(recent_run, TEXT, "log_dir", log_dir)},
    {JSON_FIELD(recent_run, ID, "since_wall_ns", since_wall_ns)},
    {JSON_FIELD(recent_run, ID, "ended_wall_ns", ended_wall_ns), .when = JSON_OPTIONAL},
    {JSON_NAMED(recent_run, "outcome", outcome, outcome_names), .when = JSON_OPTIONAL},
    {JSON_FIELD(recent_run, TEXT, "reason", reason), .when = JSON_OPTIONAL},
};
static const struct json_table table = {JSON_ROWS(recent_run, fields), .open = true};

static int newest_first(const void *a, const void *b) {
    const struct recent_run *x = a, *y = b;
    if (x->since_wall_ns != y->since_wall_ns)
        return x->since_wall_ns > y->since_wall_ns ? -1 : 1;
    return strcmp(x->run_id, y->run_id);
}

/* The names of all files of a run begin like this. */
static void name_prefix(const char *run_id, char ret[RECENT_RUNS_FILE_MAX]) {
    (void)snprintf(ret, RECENT_RUNS_FILE_MAX, FILE_PREFIX "%016" PRIx64,
                   hash_text(HASH_BEGIN, run_id));
}

/* Agents of one run on one machine write the same file. */
static void set_file(struct recent_run *run) {
    name_prefix(run->run_id, run->file);
    size_t n = strlen(run->file);
    (void)snprintf(run->file + n, sizeof run->file - n, "-%016" PRIx64,
                   hash_text(HASH_BEGIN, run->log_dir));
}

/* -EBADMSG: it is no record, as after a power failure. */
static int read_run(int dir, const char *name, struct recent_run *ret) {
    _cleanup_(freep) char *text = xcalloc(FILE_BYTES_MAX + 1, 1);
    ssize_t n = file_read_head(dir, name, text, FILE_BYTES_MAX + 1);
    if (n < 0)
        return (int)n;
    return json_table_parse(text, (size_t)n, &limits, &table, ret, NULL) == 0 ? 0 : -EBADMSG;
}

struct listing {
    const char *prefix; /* of the files that are read */
    bool tidy;          /* a file that is not a record is removed */
    struct recent_run *runs;
    size_t n, looked_at;
};

/* A sweep_fn. */
static bool list_one(int dir, const char *name, void *arg) {
    struct listing *l = arg;
    struct recent_run run = {0};
    if (strncmp(name, l->prefix, strlen(l->prefix)) != 0 || l->looked_at++ >= LOOKED_AT_MAX)
        return false;
    int r = read_run(dir, name, &run);
    if (r == -EBADMSG && l->tidy)
        (void)unlinkat(dir, name, 0);
    if (r < 0)
        return true;
    (void)snprintf(run.file, sizeof run.file, "%.*s", RECENT_RUNS_FILE_MAX - 1, name);
    l->runs = xgrow(l->runs, l->n, sizeof *l->runs);
    l->runs[l->n++] = run;
    return true;
}

/* Takes ownership of dir. */
static void list_dir(int dir, struct listing *l) {
    sweep_dir(dir, UINT64_MAX, list_one, l);
    if (l->n > 0)
        qsort(l->runs, l->n, sizeof *l->runs, newest_first);
}

static int list(const char *prefix, struct recent_run **ret, size_t *ret_n, struct err *err) {
    char path[REGISTRY_PATH_MAX];
    struct listing l = {.prefix = prefix};
    int dir;
    int r = registry_dir_open(&dir, path, err);
    if (r == 0)
        list_dir(dir, &l);
    *ret = l.runs;
    *ret_n = l.n;
    return r;
}

int recent_runs_list(struct recent_run **ret, size_t *ret_n, struct err *err) {
    _cleanup_(freep) struct registry_entry *entries = NULL;
    size_t n_entries = 0;
    int r = list(FILE_PREFIX, ret, ret_n, err);
    if (r < 0 || registry_list(&entries, &n_entries, NULL) < 0)
        return r;
    for (size_t i = 0; i < *ret_n; i++)
        for (size_t k = 0; k < n_entries && !(*ret)[i].lives; k++)
            (*ret)[i].lives = strcmp(entries[k].run_id, (*ret)[i].run_id) == 0;
    return 0;
}

bool run_id_begins(const char *run_id, const char *name) {
    const char *dot = strchr(run_id, '.');
    size_t len = strlen(name);
    if (len == 0 || strpbrk(name, ":/") != NULL)
        return false;
    bool is_job = run_id_is_job(name) && dot != NULL && strncmp(dot + 1, name, len) == 0 &&
                  (dot[1 + len] == '.' || dot[1 + len] == '\0');
    return is_job || strncmp(run_id, name, len) == 0;
}

bool run_id_is_job(const char *name) {
    return name[0] != '\0' && name[strspn(name, "0123456789")] == '\0';
}

ssize_t recent_runs_find(const struct recent_run *runs, size_t n, const char *name) {
    ssize_t found = -ENOENT;
    for (size_t i = 0; i < n; i++) {
        const char *slash = strrchr(runs[i].log_dir, '/');
        if (strcmp(runs[i].run_id, name) == 0 || (slash != NULL && strcmp(slash + 1, name) == 0))
            return (ssize_t)i;
    }
    for (int pass = 0; pass < 2 && found == -ENOENT; pass++) {
        for (size_t i = 0; i < n; i++) {
            if (!run_id_begins(runs[i].run_id, name) || (pass == 0 && !runs[i].lives))
                continue;
            if (found >= 0 && strcmp(runs[i].run_id, runs[found].run_id) != 0)
                return -EEXIST;
            found = found < 0 ? (ssize_t)i : found;
        }
    }
    return found;
}

/* A sweep_fn. */
static bool count_one(int dir, const char *name, void *n) {
    *(size_t *)n += strncmp(name, FILE_PREFIX, strlen(FILE_PREFIX)) == 0;
    return false;
}

static void remove_old(int dir) {
    struct listing l = {.prefix = FILE_PREFIX, .tidy = true};
    size_t n = 0;
    sweep_dir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), UINT64_MAX, count_one, &n);
    if (n <= RECENT_RUNS_KEPT + RECENT_RUNS_KEPT / 4)
        return;
    list_dir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), &l);
    for (size_t i = RECENT_RUNS_KEPT; i < l.n; i++)
        (void)unlinkat(dir, l.runs[i].file, 0);
    free(l.runs);
}

/* Takes ownership of dir. */
static int write_run(int dir, const char *path, const struct recent_run *run, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    json_table_text(&table, run, &text);
    strbuf_add_char(&text, '\n');
    bool is_new = faccessat(dir, run->file, F_OK, 0) < 0;
    _cleanup_(file_close) int fd = file_put_locked(dir, run->file, strbuf_text(&text), text.len);
    if (fd >= 0 && is_new)
        remove_old(dir);
    (void)close(dir);
    return fd < 0 ? err_set(err, fd, "can't write %s/%s: %s", path, run->file, strerror(-fd)) : 0;
}

int recent_runs_add(const char *run_id, uint64_t age_ns, const char *log_dir, struct err *err) {
    char path[REGISTRY_PATH_MAX];
    uint64_t now_ns = clock_wall_ns();
    struct recent_run run = {.since_wall_ns = now_ns - MIN2(age_ns, now_ns)};
    utf8_copy(run.run_id, sizeof run.run_id, run_id);
    _cleanup_(freep) char *cwd =
        log_dir != NULL && log_dir[0] != '/' ? getcwd(NULL, 0) : NULL; /* NULL: it was removed */
    int n = snprintf(run.log_dir, sizeof run.log_dir, "%s%s%s", cwd != NULL ? cwd : "",
                     cwd != NULL ? "/" : "", log_dir != NULL ? log_dir : "");
    if (n < 0 || (size_t)n >= sizeof run.log_dir)
        return err_set(err, -ENAMETOOLONG, "the path of the logs is too long: %.100s…", log_dir);
    set_file(&run);
    int dir;
    int r = registry_dir_open(&dir, path, err);
    return r < 0 ? r : write_run(dir, path, &run, err);
}

int recent_runs_end(const char *run_id, enum outcome outcome, const char *reason, struct err *err) {
    char path[REGISTRY_PATH_MAX], prefix[RECENT_RUNS_FILE_MAX];
    _cleanup_(freep) struct recent_run *runs = NULL;
    size_t n, i = 0;
    int dir;
    uint64_t now_ns = clock_wall_ns();
    struct recent_run run = {.since_wall_ns = now_ns};
    utf8_copy(run.run_id, sizeof run.run_id, run_id);
    name_prefix(run.run_id, prefix);
    int r = list(prefix, &runs, &n, err);
    if (r == 0)
        r = registry_dir_open(&dir, path, err);
    if (r < 0)
        return r;
    while (i < n && strcmp(runs[i].run_id, run.run_id) != 0)
        i++;
    if (i < n)
        run = runs[i];
    else
        set_file(&run);
    run.ended_wall_ns = now_ns;
    run.outcome = outcome;
    utf8_copy(run.reason, sizeof run.reason, reason);
    return write_run(dir, path, &run, err);
}
