#include "cli/logs/log_tree_io.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/text/parse.h"
#include "launcher/output/logdir_io.h"

#define TORCHRUN_PREFIX "attempt_"

/* ---- folders ---- */

int log_each_folder(const char *dir, log_folder_fn *fn, void *arg) {
    DIR *d = opendir(dir);
    if (d == NULL)
        return -errno;
    bool more = true;
    for (struct dirent *e; more && (e = readdir(d)) != NULL;) {
        struct stat st;
        if (e->d_name[0] == '.' || (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN))
            continue;
        _cleanup_(freep) char *path = xasprintf("%s/%s", dir, e->d_name);
        if (e->d_type == DT_DIR || (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)))
            more = fn(arg, path, e->d_name);
    }
    (void)closedir(d);
    return 0;
}

bool log_is_generation(const char *name) {
    size_t n = strspn(name, "0123456789");
    if (strncmp(name, TORCHRUN_PREFIX, strlen(TORCHRUN_PREFIX)) == 0) {
        name += strlen(TORCHRUN_PREFIX);
        return name[0] != '\0' && name[strspn(name, "0123456789")] == '\0';
    }
    return n > 0 && name[n] == '.' && name[n + 1] != '\0' &&
           name[n + 1 + strspn(name + n + 1, "0123456789")] == '\0';
}

static bool find_generation(void *arg, const char *path, const char *name) {
    bool *found = arg;
    (void)path;
    *found = log_is_generation(name);
    return !*found;
}

static bool has_generations(const char *dir) {
    bool found = false;
    (void)!log_each_folder(dir, find_generation, &found);
    return found;
}

static bool find_run(void *arg, const char *path, const char *name) {
    bool *found = arg;
    (void)name;
    *found = has_generations(path);
    return !*found;
}

enum log_folder log_folder_kind(const char *dir) {
    bool found = false;
    if (has_generations(dir))
        return LOG_FOLDER_RUN;
    if (log_is_generation(path_name(dir)))
        return LOG_FOLDER_GENERATION;
    (void)!log_each_folder(dir, find_run, &found);
    return found ? LOG_FOLDER_BASE : LOG_FOLDER_NONE;
}

/* ---- files ---- */

struct scan {
    struct log_tree *tree;
    const struct log_choice *choice;
    struct log_generation *generation;
    size_t from;
    bool added;
};

static int by_rank(const void *a, const void *b) {
    const struct log_file *x = *(struct log_file *const *)a, *y = *(struct log_file *const *)b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->stream != y->stream ? x->stream - y->stream : strcmp(x->path, y->path);
}

static void add_file(struct scan *s, const char *dir, uint32_t rank, int stream) {
    struct log_generation *g = s->generation;
    _cleanup_(freep) char *path = logdir_log_path(dir, stream);
    uint64_t key = hash_text(HASH_BEGIN, path) | 1;
    struct stat st;
    if (idmap_get(&g->known, key) != NULL || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    if (!s->choice->streams[stream]) {
        s->tree->others = true;
        return;
    }
    if (g->n == LOG_TREE_FILES_MAX) {
        s->tree->too_many = true;
        return;
    }
    struct log_file *f = xcalloc(1, sizeof *f);
    f->times_path = log_times_path(path);
    f->path = TAKE_PTR(path);
    f->rank = rank;
    f->stream = stream;
    g->files = xrealloc(g->files, (g->n + 1) * sizeof *g->files);
    g->files[g->n++] = f;
    idmap_put(&g->known, key, f);
    s->added = true;
}

static bool scan_rank(void *arg, const char *path, const char *name) {
    struct scan *s = arg;
    uint32_t rank;
    if (parse_u32(name, &rank) != 0)
        return true;
    if (!rank_set_has(&s->choice->ranks, rank)) {
        s->tree->others = true;
        return true;
    }
    add_file(s, path, rank, 0);
    add_file(s, path, rank, 1);
    return true;
}

/* A rank's folder, as torchrun has it; or a node's, whose name can be a number, too. */
static bool scan_node(void *arg, const char *path, const char *name) {
    size_t before = ((struct scan *)arg)->generation->n;
    uint32_t rank;
    if (parse_u32(name, &rank) == 0)
        (void)scan_rank(arg, path, name);
    if (((struct scan *)arg)->generation->n == before)
        (void)!log_each_folder(path, scan_rank, arg);
    return true;
}

static struct log_generation *generation_of(struct log_tree *t, const char *name) {
    size_t at = t->n;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->list[i].name, name) == 0)
            return &t->list[i];
    while (at > 0 && natural_compare(t->list[at - 1].name, name) > 0)
        at--;
    t->list = xrealloc(t->list, (t->n + 1) * sizeof *t->list);
    memmove(&t->list[at + 1], &t->list[at], (t->n - at) * sizeof *t->list);
    t->list[at] = (struct log_generation){.name = xstrdup(name)};
    t->n++;
    return &t->list[at];
}

static bool note_generation(void *arg, const char *path, const char *name) {
    struct scan *s = arg;
    (void)path;
    const char *wanted = s->choice->generation;
    bool any = strcmp(wanted, "all") == 0 || strcmp(wanted, "latest") == 0;
    if (log_is_generation(name) && (any || strcmp(wanted, name) == 0))
        (void)generation_of(s->tree, name);
    return true;
}

void log_tree_scan(struct log_tree *t, const struct log_choice *choice, size_t from) {
    struct scan s = {.tree = t, .choice = choice};
    for (size_t i = 0; i < t->n_dirs; i++)
        (void)!log_each_folder(t->dirs[i], note_generation, &s);
    if (strcmp(choice->generation, "latest") == 0 && from == 0 && t->n > 1)
        from = t->n - 1;
    for (size_t i = from; i < t->n; i++) {
        s.generation = &t->list[i];
        s.added = false;
        for (size_t k = 0; k < t->n_dirs; k++) {
            _cleanup_(freep) char *dir = xasprintf("%s/%s", t->dirs[k], t->list[i].name);
            (void)!log_each_folder(dir, scan_node, &s);
        }
        if (s.added)
            qsort(t->list[i].files, t->list[i].n, sizeof(struct log_file *), by_rank);
    }
}

void log_tree_fini(struct log_tree *t) {
    for (size_t i = 0; i < t->n; i++) {
        struct log_generation *g = &t->list[i];
        for (size_t k = 0; k < g->n; k++) {
            log_source_fini(&g->files[k]->source);
            free(g->files[k]->path);
            free(g->files[k]->times_path);
            free(g->files[k]);
        }
        idmap_fini(&g->known);
        free(g->files);
        free(g->name);
    }
    free(t->list);
    *t = (struct log_tree){.dirs = t->dirs, .n_dirs = t->n_dirs};
}
