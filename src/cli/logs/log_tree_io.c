#include "cli/logs/log_tree_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/output/log_times_io.h"
#include "launcher/output/logdir_io.h"

#define TORCHRUN_PREFIX "attempt_"

/* How much all files together read ahead, and the bounds for one. */
#define AHEAD_BYTES ((size_t)64 * 1024 * 1024)
#define READ_MIN ((size_t)4 * 1024)
#define READ_MAX ((size_t)256 * 1024)
#define BACK_BYTES ((size_t)64 * 1024)

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

/* ---- what is in a file ---- */

/* Anything can be in a folder. A device could be read for ever. */
static int open_file(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
        file_close(&fd);
    return fd;
}

bool log_file_read(struct log_file *f, size_t n_files) {
    size_t size = AHEAD_BYTES / MAX2(n_files, (size_t)1);
    size = MIN2(MAX2(size, READ_MIN), READ_MAX);
    int fd = open_file(f->path);
    struct stat st;
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_size < f->offset) { /* it was emptied or replaced */
        log_source_fini(&f->source);
        f->offset = f->times_at = 0;
        f->n_stamps = f->used_stamps = 0;
    }
    struct strbuf *text = &f->source.text;
    ssize_t n = pread(fd, strbuf_room(text, size), size, (off_t)f->offset);
    file_close(&fd);
    if (n <= 0)
        return false;
    text->len += (size_t)n;
    text->data[text->len] = '\0';
    f->offset += (uint64_t)n;
    f->read_ns = clock_now_ns();
    return true;
}

bool log_file_read_stamp(struct log_file *f, struct log_stamp *ret) {
    if (f->used_stamps == f->n_stamps) {
        uint8_t bytes[ARRAY_SIZE(f->stamps) * LOG_STAMP_BYTES];
        int fd = open_file(f->times_path);
        ssize_t n = fd < 0 ? 0 : pread(fd, bytes, sizeof bytes, (off_t)f->times_at);
        file_close(&fd);
        f->n_stamps = n > 0 ? (size_t)n / LOG_STAMP_BYTES : 0;
        f->used_stamps = 0;
        f->times_at += f->n_stamps * LOG_STAMP_BYTES;
        for (size_t i = 0; i < f->n_stamps; i++)
            f->stamps[i] = log_stamp_decode(bytes + i * LOG_STAMP_BYTES);
    }
    if (f->used_stamps == f->n_stamps)
        return false;
    *ret = f->stamps[f->used_stamps++];
    return true;
}

/* Where the last `lines` lines begin. */
static uint64_t find_lines(int fd, uint64_t size, uint64_t lines, uint64_t *ret_n) {
    _cleanup_(freep) char *block = xmalloc(BACK_BYTES);
    uint64_t end = size, found = 0; /* newlines, without the one at the end */
    *ret_n = 0;
    while (end > 0) {
        uint64_t from = end > BACK_BYTES ? end - BACK_BYTES : 0;
        ssize_t got = pread(fd, block, (size_t)(end - from), (off_t)from);
        if (got <= 0)
            break;
        for (size_t left = (size_t)got; left > 0;) {
            const char *nl = memrchr(block, '\n', left);
            if (nl == NULL)
                break;
            left = (size_t)(nl - block);
            if (from + left + 1 == size)
                continue;
            if (++found == lines) {
                *ret_n = lines;
                return from + left + 1;
            }
        }
        end = from;
    }
    *ret_n = size > 0 ? found + 1 : 0;
    return 0;
}

static bool read_stamp_at(int fd, uint64_t at, struct log_stamp *ret) {
    uint8_t bytes[LOG_STAMP_BYTES];
    if (pread(fd, bytes, sizeof bytes, (off_t)at) != (ssize_t)sizeof bytes)
        return false;
    *ret = log_stamp_decode(bytes);
    return true;
}

/* The last stamp for a byte up to the offset: stamps are sorted by their offsets. */
static uint64_t find_stamp(const char *path, uint64_t offset) {
    int fd = open_file(path);
    struct stat st;
    uint64_t low = 0, high = 0;
    if (fd >= 0 && fstat(fd, &st) == 0)
        high = (uint64_t)st.st_size / LOG_STAMP_BYTES;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        struct log_stamp stamp;
        if (read_stamp_at(fd, middle * LOG_STAMP_BYTES, &stamp) && stamp.at <= offset)
            low = middle;
        else
            high = middle;
    }
    file_close(&fd);
    return low * LOG_STAMP_BYTES;
}

uint64_t log_file_seek_end(struct log_file *f, uint64_t lines) {
    uint64_t n = 0;
    int fd = open_file(f->path);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        f->offset =
            lines == 0 ? (uint64_t)st.st_size : find_lines(fd, (uint64_t)st.st_size, lines, &n);
        f->source.at = f->offset;
        f->times_at = find_stamp(f->times_path, f->offset);
    }
    file_close(&fd);
    return n;
}
