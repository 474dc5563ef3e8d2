#include "cli/logs/logs_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/idmap.h"
#include "base/text/log.h"
#include "base/text/parse.h"
#include "cli/options/commands.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/output/log_times_io.h"
#include "launcher/output/logdir_io.h"
#include "rendezvous/operate/recent_runs_io.h"
#include "rendezvous/operate/registry_io.h"

#define LOG_TREE_FILES_MAX 65536 /* of one generation; further ones are not shown */

struct log_file {
    char *path, *times_path;
    uint32_t rank;
    int stream; /* 0 standard output, 1 standard error */
    /* the next line: */
    struct strbuf text; /* bytes from `used` on are still to be shown */
    size_t used;
    uint64_t at; /* offset in the log of the first of these */
    uint64_t ns; /* when it was written; 0: not known */
    bool inside; /* it began in an earlier piece */
    size_t len;  /* of the piece that is shown next; whether a newline ends it: */
    bool ended;
    /* what is read: */
    uint64_t read_ns;             /* when bytes were read last (CLOCK_MONOTONIC) */
    uint64_t offset;              /* of the bytes that are read next */
    uint64_t times_at;            /* the same, in the file of times */
    struct log_stamp stamps[32];  /* that were read from there, */
    size_t n_stamps, used_stamps; /* and those of them that count already */
    bool no_stamp;                /* there was none when it was last asked for */
};

struct log_generation {
    char *name;              /* "2.3" */
    struct log_file **files; /* owned; by rank and stream */
    size_t n;
    struct idmap known; /* the hash of a path → its file */
};

struct show {
    const struct logs_view *view;
    struct log_generation *list; /* owned; the oldest first */
    size_t n;
    bool too_many; /* files */
    bool others;   /* the choice left files out */
    bool prefixed;
    const struct log_file *open;             /* its line has no newline yet; NULL: none */
    const struct log_generation *generation; /* whose lines are merged now */
    bool last;                               /* and nothing more will come */
    const char *shown;                       /* of which a line was shown last; NULL: none */
    uint64_t skip;                           /* lines that are not shown */
    bool skipping;                           /* this line */
    int left; /* EPIPE: the reader has gone; another errno: output failed; 0: neither */
};

/* How much all files together read ahead, and the bounds for one. */
#define AHEAD_BYTES ((size_t)64 * 1024 * 1024)
#define READ_MIN ((size_t)4 * 1024)
#define READ_MAX ((size_t)256 * 1024)
#define BACK_BYTES ((size_t)64 * 1024)

/* ---- folders ---- */

/* Calls fn for each folder in dir, no links. 1: it returned false, and no more are seen. */
typedef bool log_folder_fn(void *arg, const char *path, const char *name);
static int each_folder(const char *dir, log_folder_fn *fn, void *arg) {
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
    return !more;
}

bool log_is_generation(const char *name) {
    size_t n = strspn(name, "0123456789");
    return n > 0 && name[n] == '.' && name[n + 1] != '\0' &&
           name[n + 1 + strspn(name + n + 1, "0123456789")] == '\0';
}

static bool is_no_generation(void *arg, const char *path, const char *name) {
    return !log_is_generation(name);
}

static bool is_no_run(void *arg, const char *path, const char *name) {
    return each_folder(path, is_no_generation, NULL) <= 0;
}

enum log_folder { LOG_FOLDER_NONE, LOG_FOLDER_RUN, LOG_FOLDER_GENERATION, LOG_FOLDER_BASE };
/* What a folder is: of a run, of one of its generations, or one that has runs; by what is in it. */
static enum log_folder folder_kind(const char *dir) {
    if (!is_no_run(NULL, dir, NULL))
        return LOG_FOLDER_RUN;
    if (log_is_generation(path_name(dir)))
        return LOG_FOLDER_GENERATION;
    return each_folder(dir, is_no_run, NULL) > 0 ? LOG_FOLDER_BASE : LOG_FOLDER_NONE;
}

struct scan {
    struct show *show;
    struct log_generation *generation;
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
    if (!s->show->view->streams[stream]) {
        s->show->others = true;
        return;
    }
    if (g->n == LOG_TREE_FILES_MAX) {
        s->show->too_many = true;
        return;
    }
    struct log_file *f = xcalloc(1, sizeof *f);
    f->times_path = log_times_path(path);
    f->path = TAKE_PTR(path);
    f->rank = rank;
    f->stream = stream;
    g->files = xgrow(g->files, g->n, sizeof *g->files);
    g->files[g->n++] = f;
    idmap_put(&g->known, key, f);
    s->added = true;
}

static bool scan_rank(void *arg, const char *path, const char *name) {
    struct scan *s = arg;
    uint32_t rank;
    if (parse_u32(name, &rank) != 0)
        return true;
    if (!rank_set_has(&s->show->view->ranks, rank)) {
        s->show->others = true;
        return true;
    }
    add_file(s, path, rank, 0);
    add_file(s, path, rank, 1);
    return true;
}

static bool scan_node(void *arg, const char *path, const char *name) {
    (void)!each_folder(path, scan_rank, arg);
    return true;
}

static bool note_generation(void *arg, const char *path, const char *name) {
    struct show *s = arg;
    const char *wanted = s->view->generation;
    bool any = strcmp(wanted, "all") == 0 || strcmp(wanted, "latest") == 0;
    size_t at = s->n;
    if (!log_is_generation(name) || (!any && strcmp(wanted, name) != 0))
        return true;
    while (at > 0 && natural_compare(s->list[at - 1].name, name) > 0)
        at--;
    if (at > 0 && strcmp(s->list[at - 1].name, name) == 0)
        return true;
    s->list = xgrow(s->list, s->n, sizeof *s->list);
    memmove(&s->list[at + 1], &s->list[at], (s->n++ - at) * sizeof *s->list);
    s->list[at] = (struct log_generation){.name = xstrdup(name)};
    return true;
}

/* Adds what is not known yet. from: older generations are not looked at again. */
static void scan(struct show *show, size_t from) {
    const struct logs_view *view = show->view;
    for (size_t i = 0; i < view->n_dirs; i++)
        (void)!each_folder(view->dirs[i], note_generation, show);
    if (strcmp(view->generation, "latest") == 0 && from == 0 && show->n > 1)
        from = show->n - 1;
    for (size_t i = from; i < show->n; i++) {
        struct log_generation *g = &show->list[i];
        struct scan s = {.show = show, .generation = g};
        for (size_t k = 0; k < view->n_dirs; k++) {
            _cleanup_(freep) char *dir = xasprintf("%s/%s", view->dirs[k], g->name);
            (void)!each_folder(dir, scan_node, &s);
        }
        if (s.added)
            qsort(g->files, g->n, sizeof *g->files, by_rank);
    }
}

static void show_fini(struct show *show) {
    for (size_t i = 0; i < show->n; i++) {
        struct log_generation *g = &show->list[i];
        for (size_t k = 0; k < g->n; k++) {
            strbuf_fini(&g->files[k]->text);
            free(g->files[k]->path);
            free(g->files[k]->times_path);
            free(g->files[k]);
        }
        idmap_fini(&g->known);
        free(g->files);
        free(g->name);
    }
    free(show->list);
}

/* Anything can be in a folder. A device could be read for ever. */
static int open_file(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
        file_close(&fd);
    return fd;
}

static void seek_stamp(struct log_file *f, uint64_t i) {
    f->times_at = i * LOG_STAMP_BYTES;
    f->n_stamps = f->used_stamps = 0;
    f->no_stamp = false;
}

/* Adds bytes to the text, fewer with many files, or empties it. False: there are no more now. */
static bool file_read(struct log_file *f, size_t n_files) {
    size_t size = AHEAD_BYTES / MAX2(n_files, (size_t)1);
    size = MIN2(MAX2(size, READ_MIN), READ_MAX);
    _cleanup_(file_close) int fd = open_file(f->path);
    struct stat st;
    if (fd < 0)
        return false;
    bool again = fstat(fd, &st) == 0 && (uint64_t)st.st_size < f->offset;
    if (again) { /* it was emptied or replaced */
        strbuf_clear(&f->text);
        f->used = 0;
        f->offset = f->at = f->ns = 0;
        f->inside = false;
        seek_stamp(f, 0);
    }
    struct strbuf *text = &f->text;
    ssize_t n = pread(fd, strbuf_room(text, size), size, (off_t)f->offset);
    if (n <= 0)
        return again;
    text->len += (size_t)n;
    text->data[text->len] = '\0';
    f->offset += (uint64_t)n;
    f->no_stamp = false; /* stamps are written before the bytes */
    f->read_ns = clock_now_ns();
    return true;
}

/* The next stamp, which stays the next one; NULL: there is none now. */
static const struct log_stamp *next_stamp(struct log_file *f) {
    if (f->used_stamps == f->n_stamps && !f->no_stamp) {
        uint8_t bytes[ARRAY_SIZE(f->stamps) * LOG_STAMP_BYTES];
        _cleanup_(file_close) int fd = open_file(f->times_path);
        ssize_t n = fd < 0 ? 0 : pread(fd, bytes, sizeof bytes, (off_t)f->times_at);
        f->n_stamps = n > 0 ? (size_t)n / LOG_STAMP_BYTES : 0;
        f->used_stamps = 0;
        f->no_stamp = f->n_stamps == 0;
        f->times_at += f->n_stamps * LOG_STAMP_BYTES;
        for (size_t i = 0; i < f->n_stamps; i++)
            f->stamps[i] = log_stamp_decode(bytes + i * LOG_STAMP_BYTES);
    }
    return f->used_stamps < f->n_stamps ? &f->stamps[f->used_stamps] : NULL;
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

/* Goes to the last stamp for a byte up to f->at: stamps are sorted by their offsets. */
static void find_stamp(struct log_file *f) {
    struct stat st;
    uint64_t low = 0, high = 0;
    if (stat(f->times_path, &st) == 0)
        high = (uint64_t)st.st_size / LOG_STAMP_BYTES;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        seek_stamp(f, middle);
        const struct log_stamp *stamp = next_stamp(f);
        if (stamp != NULL && stamp->at <= f->at)
            low = middle;
        else
            high = middle;
    }
    seek_stamp(f, low);
}

/* Moves on to the last `lines` lines. Returns how many there are, at most `lines`. */
static uint64_t file_seek_end(struct log_file *f, uint64_t lines) {
    uint64_t n = 0;
    _cleanup_(file_close) int fd = open_file(f->path);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        f->offset =
            lines == 0 ? (uint64_t)st.st_size : find_lines(fd, (uint64_t)st.st_size, lines, &n);
        f->at = f->offset;
        find_stamp(f);
    }
    return n;
}

void logs_found_fini(struct logs_found *f) {
    words_free(f->others);
    free(f->dir);
    free(f->generation);
    free(f->run_id);
    *f = (struct logs_found){0};
}

/* Whether an agent of the run lives on this machine. run_id: NULL: false. */
static bool run_lives(const char *run_id) {
    _cleanup_(freep) struct registry_entry *entries = NULL;
    size_t n = 0;
    struct err err = {0};
    if (run_id == NULL || registry_list(&entries, &n, &err) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!entries[i].foreign && strcmp(entries[i].run_id, run_id) == 0)
            return true;
    return false;
}

static void add_other(struct logs_found *f, const char *name) {
    for (size_t i = 0; i < f->n_others; i++)
        if (strcmp(f->others[i], name) == 0)
            return;
    words_add(&f->others, &f->n_others, xstrdup(name));
}

struct newest {
    const char *name; /* which runs count: those whose name begins so; NULL: all */
    struct logs_found *found;
    struct timespec at;
    bool closed; /* there is a folder of that name that this user can't read */
};

static bool look_at_run(void *arg, const char *path, const char *name) {
    struct newest *s = arg;
    struct stat st;
    if (s->name != NULL && strncmp(name, s->name, strlen(s->name)) != 0)
        return true;
    s->closed = s->closed || (access(path, R_OK | X_OK) < 0 && errno == EACCES);
    if (folder_kind(path) != LOG_FOLDER_RUN || stat(path, &st) < 0)
        return true;
    add_other(s->found, name);
    bool newer = st.st_mtim.tv_sec != s->at.tv_sec ? st.st_mtim.tv_sec > s->at.tv_sec
                                                   : st.st_mtim.tv_nsec > s->at.tv_nsec;
    if (s->found->dir != NULL && !newer)
        return true;
    free(s->found->dir);
    s->found->dir = xstrdup(path);
    s->at = st.st_mtim;
    return true;
}

/* A run in a folder with several, by its name or the beginning of it; NULL: the newest. */
static int find_in(const char *dir, const char *run, struct logs_found *ret, struct err *err) {
    char name[LOGDIR_NAME_MAX + 1] = "";
    struct newest s = {.name = run != NULL ? name : NULL, .found = ret};
    if (run != NULL)
        logdir_sanitise(run, name);
    _cleanup_(freep) char *path = xasprintf("%s/%s", dir, name);
    if (run != NULL && folder_kind(path) == LOG_FOLDER_RUN) {
        ret->dir = TAKE_PTR(path);
        return 0;
    }
    int r = each_folder(dir, look_at_run, &s);
    if (r < 0)
        return err_set(err, r, "can't read the folder %.2000s: %s", dir, strerror(-r));
    if (run != NULL && ret->n_others > 1)
        return err_set(err, -EEXIST,
                       "several jobs in %.2000s begin with '%.200s'; choose one:", dir, run);
    if (ret->dir != NULL)
        return 0;
    const char *quote = run != NULL ? "\"" : "";
    return err_set(err, -ENOENT, "%.2000s holds no logs of a run%s%s%.200s%s%s", dir,
                   run != NULL ? " " : "", quote, run != NULL ? run : "", quote,
                   s.closed
                       ? " that you may read; muster run --log-mode=0644 lets other users read them"
                       : "");
}

static int find_folder(const char *path, struct logs_found *ret, struct err *err) {
    _cleanup_(freep) char *dir = realpath(path, NULL); /* "latest" is a link to a generation */
    struct stat st;
    int r = dir == NULL || stat(dir, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    if (r < 0)
        return err_set(err, r, "can't read the folder %.2000s: %s", path, strerror(-r));
    switch (folder_kind(dir)) {
    case LOG_FOLDER_RUN: ret->dir = TAKE_PTR(dir); return 0;
    case LOG_FOLDER_GENERATION:
        ret->generation = xstrdup(path_name(dir));
        dir[path_name(dir) - dir - 1] = '\0';
        ret->dir = TAKE_PTR(dir);
        return 0;
    case LOG_FOLDER_BASE: return find_in(dir, NULL, ret, err);
    case LOG_FOLDER_NONE: break;
    }
    return err_set(err, -ENOENT, "%.2000s holds no logs of a run", path);
}

/* The job's number in "cluster.JOB.STEP" or "JOB.STEP", a run of Slurm (place.h). 0: it is none. */
static int slurm_number(const char *run_id, const char **ret) {
    const char *dot = strchr(run_id, '.');
    *ret = dot != NULL && run_id[strspn(run_id, "0123456789")] != '.' ? dot + 1 : run_id;
    size_t n = strspn(*ret, "0123456789");
    return dot != NULL && ((*ret)[n] == '.' || (*ret)[n] == '\0') ? (int)n : 0;
}

static bool ran_here(const struct recent_run *run) {
    return run->ended_wall_ns != run->since_wall_ns;
}

static int take(const struct recent_run *run, struct logs_found *ret, struct err *err) {
    struct stat st;
    const char *job;
    int digits = slurm_number(run->run_id, &job);
    ret->run_id = xstrdup(run->run_id);
    if (!ran_here(run))
        return err_set(err, -ENODATA, "no worker of the run '%.100s' ran on this machine",
                       run->run_id);
    if (run->log_dir[0] == '\0' && digits > 0)
        return err_set(err, -ENODATA,
                       "the run '%.100s' keeps no logs of its own; if it is a batch job of Slurm, "
                       "its output is in slurm-%.*s.out, or where sbatch --output put it",
                       run->run_id, digits, job);
    if (run->log_dir[0] == '\0')
        return err_set(err, -ENODATA,
                       "the run '%.100s' keeps no logs: start it with --log-dir=DIR and -r 3 "
                       "(output to files) or -t 3 (to files and the terminal)",
                       run->run_id);
    if (stat(run->log_dir, &st) < 0)
        return err_set(err, -ENOENT, "the logs of the run '%.100s' can't be read: %.2000s: %s",
                       run->run_id, run->log_dir, strerror(errno));
    ret->dir = xstrdup(run->log_dir);
    return 0;
}

static int find_recorded(const char *name, struct logs_found *ret, struct err *err) {
    _cleanup_(freep) struct recent_run *runs = NULL;
    size_t n;
    int r = recent_runs_list(&runs, &n, err);
    if (r < 0)
        return r;
    size_t newest = 0;
    while (newest < n && !ran_here(&runs[newest]))
        newest++;
    if (name == NULL)
        return newest < n ? take(&runs[newest], ret, err)
                          : err_set(err, -ENOENT,
                                    "no job of yours is known on this machine; name the folder of "
                                    "its logs: muster logs DIR");
    ssize_t found = recent_runs_find(runs, n, name);
    if (found >= 0)
        return take(&runs[found], ret, err);
    if (found == -ENOENT)
        return err_set(err, -ENOENT,
                       "no job '%.100s' is known on this machine; give the --log-dir of "
                       "the job, or its folder: muster logs DIR/%.100s",
                       name, name);
    for (size_t i = 0; i < n; i++)
        if (run_id_begins(runs[i].run_id, name))
            add_other(ret, runs[i].run_id);
    return err_set(err, -EEXIST,
                   "several jobs have an id that begins with '%.100s'; choose one:", name);
}

/* The id of the run whose folder was named, if it was started on this machine. */
static void recall_run_id(struct logs_found *f) {
    _cleanup_(freep) struct recent_run *runs = NULL;
    _cleanup_(freep) char *real = f->dir != NULL ? realpath(f->dir, NULL) : NULL;
    size_t n = 0;
    if (real == NULL || recent_runs_list(&runs, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n && f->run_id == NULL; i++) {
        _cleanup_(freep) char *its = realpath(runs[i].log_dir, NULL);
        if (its != NULL && strcmp(its, real) == 0)
            f->run_id = xstrdup(runs[i].run_id);
    }
}

static int find(const char *run, const char *log_dir, struct logs_found *ret, struct err *err) {
    if (log_dir != NULL)
        return run == NULL ? find_folder(log_dir, ret, err) : find_in(log_dir, run, ret, err);
    if (run != NULL &&
        (strchr(run, '/') != NULL || strcmp(run, ".") == 0 || strcmp(run, "..") == 0))
        return find_folder(run, ret, err);
    int r = find_recorded(run, ret, err);
    struct stat st;
    if (r == -ENOENT && run != NULL && ret->run_id == NULL && stat(run, &st) == 0 &&
        S_ISDIR(st.st_mode)) {
        logs_found_fini(ret);
        return find_folder(run, ret, err);
    }
    return r;
}

int logs_find(const char *run, const char *log_dir, struct logs_found *ret, struct err *err) {
    *ret = (struct logs_found){0};
    int r = find(run, log_dir, ret, err);
    if (r == 0 && ret->run_id == NULL)
        recall_run_id(ret);
    return r;
}

/* ---- showing it ---- */

#define OUTPUT_BYTES ((size_t)256 * 1024)
/* While it follows: how often it looks for more; at least as long as LOOK_TIMES looks take. */
#define LOOK_MS 200
#define LOOK_TIMES 5
#define QUIET_NS (1 * NS_PER_S) /* then what is there of a line is shown */

static void print_time(uint64_t ns) {
    struct tm tm;
    char text[32] = "-";
    time_t s = (time_t)(ns / NS_PER_S);
    if (ns > 0 && gmtime_r(&s, &tm) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (ns > 0)
        printf("%s.%06uZ ", text, (unsigned)(ns % NS_PER_S / NS_PER_US));
    else
        printf("%-27s ", text);
}

/* That of muster run, unless the line has it: from PyTorch. */
static void print_prefix(uint32_t rank, const char *line, size_t len) {
    char prefix[32];
    int n = snprintf(prefix, sizeof prefix, "[rank%u]: ", rank);
    if (len < (size_t)n - 1 || memcmp(line, prefix, (size_t)n - 1) != 0)
        (void)fputs(prefix, stdout);
}

static void end_line(struct show *show) {
    if (show->open != NULL && show->prefixed)
        (void)putchar('\n');
    show->open = NULL;
}

/* Its first line comes after a line that names it, except the very first. */
static void begin_generation(struct show *show) {
    const char *name = show->generation->name;
    if (show->shown != NULL && show->shown != name && show->prefixed) {
        end_line(show);
        printf("-- %s --\n", name);
    }
    show->shown = name;
}

/* Shows the next piece of the file's line. */
static void show_piece(struct show *show, const struct log_file *f) {
    const char *data = f->text.data + f->used;
    if (!f->inside) {
        show->skipping = show->skip > 0;
        show->skip -= show->skipping;
    }
    if (show->skipping)
        return;
    begin_generation(show);
    if (show->open != NULL && (show->open != f || !f->inside)) {
        (void)putchar('\n');
        show->open = NULL;
    }
    if (show->open == NULL && show->view->timestamps)
        print_time(f->ns);
    if (show->open == NULL && show->prefixed)
        print_prefix(f->rank, data, f->len);
    (void)fwrite(data, 1, f->len, stdout);
    if (f->ended)
        (void)putchar('\n');
    show->open = f->ended ? NULL : f;
    if (ferror(stdout))
        show->left = errno;
}

/* ---- merging the lines of several logs in the order of their times ----
 *
 * A line's time is that of the batch in which its first byte was written (log_times_io.h). The
 * lines of one log keep their order, even if its clock stepped back. Lines of the same time come in
 * the order of the files. A log without times comes first. */

/* A longer line is shown in pieces, so that memory is bounded. */
#define PIECE_MAX ((size_t)64 * 1024)

/* Moves the rest to the beginning, and reads more. */
static bool refill(const struct show *show, struct log_file *f) {
    size_t rest = f->text.len - f->used;
    if (f->used > 0) {
        memmove(f->text.data, f->text.data + f->used, rest);
        f->text.len = rest;
        f->used = 0;
    }
    return file_read(f, show->generation->n);
}

/* Finds the next piece. False: there is nothing to show now. A prompt or a progress bar has no
 * newline: it is shown if nothing follows it for a while. */
static bool find_piece(const struct show *show, struct log_file *f) {
    for (;;) {
        size_t rest = f->text.len - f->used;
        const char *from = rest > 0 ? f->text.data + f->used : "";
        const char *end = rest > 0 ? memchr(from, '\n', MIN2(rest, PIECE_MAX)) : NULL;
        bool whole = end != NULL || rest >= PIECE_MAX;
        if (!whole && refill(show, f))
            continue;
        if (!whole && (rest == 0 || !(show->last || clock_now_ns() - f->read_ns >= QUIET_NS)))
            return false;
        f->len = end != NULL ? (size_t)(end - from) : MIN2(rest, PIECE_MAX);
        f->ended = end != NULL;
        for (const struct log_stamp *stamp;
             !f->inside && (stamp = next_stamp(f)) != NULL && stamp->at <= f->at; f->used_stamps++)
            f->ns = stamp->ns;
        return true;
    }
}

static bool is_before(struct log_file *const *a, struct log_file *const *b) {
    return (*a)->ns != (*b)->ns ? (*a)->ns < (*b)->ns : by_rank(a, b) < 0;
}

/* heap: the smallest first. */
static void sift_down(struct log_file **heap, size_t n, size_t i) {
    for (;;) {
        size_t least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < n; k++)
            if (is_before(&heap[k], &heap[least]))
                least = k;
        if (least == i)
            return;
        struct log_file *other = heap[least];
        heap[least] = heap[i];
        heap[i] = other;
        i = least;
    }
}

/* Shows the file's line, to its end or as far as it is there. Returns whether another follows. */
static bool show_line(struct show *show, struct log_file *f) {
    bool more;
    do {
        show_piece(show, f);
        f->used += f->len + f->ended;
        f->at += f->len + f->ended;
        f->inside = !f->ended;
        more = find_piece(show, f);
    } while (more && show->left == 0 && f->inside);
    return more;
}

static void show_generation(struct show *show, const struct log_generation *g, bool last) {
    _cleanup_(freep) struct log_file **heap = xcalloc(MAX2(g->n, (size_t)1), sizeof *heap);
    size_t n = 0;
    show->generation = g;
    show->last = last;
    for (size_t i = 0; i < g->n; i++)
        if (find_piece(show, g->files[i]))
            heap[n++] = g->files[i];
    for (size_t i = n; i-- > 0;)
        sift_down(heap, n, i);
    while (show->left == 0 && n > 0) {
        if (!show_line(show, heap[0]))
            heap[0] = heap[--n];
        sift_down(heap, n, 0);
    }
}

/* Leaves out all but the last lines. Returns the first generation that has some. */
static size_t skip_lines(struct show *show) {
    uint64_t wanted = show->view->lines, n = 0;
    size_t first = show->n;
    while (wanted != UINT64_MAX && first > 0 && (n < wanted || first == show->n)) {
        const struct log_generation *g = &show->list[--first];
        for (size_t i = 0; i < g->n; i++)
            n += file_seek_end(g->files[i], wanted);
    }
    show->skip = wanted != UINT64_MAX && n > wanted ? n - wanted : 0;
    return wanted == UINT64_MAX ? 0 : first;
}

/* Waits, and notices a reader that leaves. */
static void wait_for_more(struct show *show, uint64_t began_ns) {
    uint64_t took_ms = (clock_now_ns() - began_ns) / NS_PER_MS;
    struct pollfd reader = {.fd = STDOUT_FILENO};
    if (poll(&reader, 1, (int)MAX2(LOOK_TIMES * took_ms, (uint64_t)LOOK_MS)) > 0)
        show->left = EPIPE;
}

/* Prints the lines that are in the files now. */
static void show_all(struct show *show, size_t first, bool last) {
    for (size_t i = first; show->left == 0 && i < show->n; i++)
        show_generation(show, &show->list[i], last || i + 1 < show->n);
    if (show->left == 0 && fflush(stdout) != 0)
        show->left = errno;
}

static bool has_files(const struct show *show) {
    for (size_t i = 0; i < show->n; i++)
        if (show->list[i].n > 0)
            return true;
    return false;
}

static int no_files(const struct show *show) {
    if (show->others)
        log_error("no log in %s is of the ranks and streams that were asked for",
                  show->view->dirs[0]);
    else
        log_error("%s holds no output of workers; it is written there with -r 3 (only to files) or "
                  "-t 3 (also to the terminal)",
                  show->view->dirs[0]);
    return EXIT_JOB_FAILED;
}

static int end(struct show *show) {
    end_line(show);
    if (show->left == 0 && fflush(stdout) != 0)
        show->left = errno;
    if (show->too_many)
        log_warning("more than %d log files: not all are shown", LOG_TREE_FILES_MAX);
    if (show->left == 0 || show->left == EPIPE)
        return 0;
    log_error("can't write to standard output: %s", strerror(show->left));
    return EXIT_JOB_FAILED;
}

/* Nothing more is to be awaited. */
static bool is_over(const struct logs_view *view) {
    bool ended = true;
    for (size_t i = 0; i < view->n_dirs; i++)
        ended = ended && logdir_has_ended(view->dirs[i]);
    return !view->follow || ended || (view->run_id != NULL && !run_lives(view->run_id));
}

int show_logs(const struct logs_view *view) {
    _cleanup_(show_fini) struct show show = {.view = view};
    (void)setvbuf(stdout, NULL, _IOFBF, OUTPUT_BYTES);
    (void)signal(SIGPIPE, SIG_IGN);
    show.prefixed = view->prefix == LOGS_PREFIX_ALWAYS ||
                    (view->prefix == LOGS_PREFIX_AUTO && !rank_set_is_one(&view->ranks));
    bool over = is_over(view);
    scan(&show, 0);
    size_t first = skip_lines(&show);
    for (;;) {
        uint64_t began_ns = clock_now_ns();
        show_all(&show, first, over);
        if (over || show.left != 0)
            break;
        first = show.n > 2 ? MAX2(first, show.n - 2) : first;
        wait_for_more(&show, began_ns);
        if (show.left != 0)
            break;
        over = is_over(view);
        scan(&show, first);
    }
    return show.left == 0 && !has_files(&show) ? no_files(&show) : end(&show);
}
