#include "cli/logs/find_logs_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/logs/log_tree_io.h"
#include "launcher/output/logdir_io.h"
#include "rendezvous/operate/registry_io.h"

void logs_found_fini(struct logs_found *f) {
    for (size_t i = 0; i < f->n_others; i++)
        free(f->others[i]);
    free(f->others);
    free(f->dir);
    free(f->generation);
    free(f->run_id);
    *f = (struct logs_found){0};
}

bool logs_run_lives(const char *run_id) {
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
    f->others = xrealloc(f->others, (f->n_others + 1) * sizeof *f->others);
    f->others[f->n_others++] = xstrdup(name);
}

/* ---- folders ---- */

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
    if (log_folder_kind(path) != LOG_FOLDER_RUN || stat(path, &st) < 0)
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

static const char *closed_text(const struct newest *s) {
    return s->closed ? " that you may read; muster run --log-mode=0644 lets other users read them"
                     : "";
}

/* The newest run in a folder with several. */
static int find_newest_in(const char *dir, struct logs_found *ret, struct err *err) {
    struct newest s = {.found = ret};
    int r = log_each_folder(dir, look_at_run, &s);
    if (r < 0)
        return err_set(err, r, "can't read the folder %.2000s: %s", dir, strerror(-r));
    if (ret->dir == NULL)
        return err_set(err, -ENOENT, "%.2000s holds no logs of a run%s", dir, closed_text(&s));
    return 0;
}

/* A run in a folder with several, by its name or the beginning of it. */
static int find_in(const char *dir, const char *run, struct logs_found *ret, struct err *err) {
    char name[LOGDIR_NAME_MAX + 1];
    logdir_sanitise(run, name);
    _cleanup_(freep) char *path = xasprintf("%s/%s", dir, name);
    if (log_folder_kind(path) == LOG_FOLDER_RUN) {
        ret->dir = TAKE_PTR(path);
        return 0;
    }
    struct newest s = {.name = name, .found = ret};
    int r = log_each_folder(dir, look_at_run, &s);
    if (r < 0)
        return err_set(err, r, "can't read the folder %.2000s: %s", dir, strerror(-r));
    if (ret->n_others > 1)
        return err_set(err, -EEXIST,
                       "several jobs in %.2000s begin with '%.200s'; choose one:", dir, run);
    return ret->dir != NULL ? 0
                            : err_set(err, -ENOENT, "%.2000s holds no logs of a run \"%.200s\"%s",
                                      dir, run, closed_text(&s));
}

static int find_folder(const char *path, struct logs_found *ret, struct err *err) {
    _cleanup_(freep) char *dir = realpath(path, NULL); /* "latest" is a link to a generation */
    struct stat st;
    int r = dir == NULL || stat(dir, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    if (r < 0)
        return err_set(err, r, "can't read the folder %.2000s: %s", path, strerror(-r));
    switch (log_folder_kind(dir)) {
    case LOG_FOLDER_RUN: ret->dir = TAKE_PTR(dir); return 0;
    case LOG_FOLDER_GENERATION:
        ret->generation = xstrdup(path_name(dir));
        dir[path_name(dir) - dir - 1] = '\0';
        ret->dir = TAKE_PTR(dir);
        return 0;
    case LOG_FOLDER_BASE: return find_newest_in(dir, ret, err);
    case LOG_FOLDER_NONE: break;
    }
    return err_set(err, -ENOENT, "%.2000s holds no logs of a run", path);
}

/* ---- what was recorded ---- */

/* The job's number in "cluster.JOB.STEP" or "JOB.STEP", the name of a run of Slurm (place.h). 0:
 * the name is another. */
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

static int find(const struct logs_place *place, struct logs_found *ret, struct err *err) {
    const char *run = place->run;
    if (place->log_dir != NULL)
        return run == NULL ? find_folder(place->log_dir, ret, err)
                           : find_in(place->log_dir, run, ret, err);
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

int logs_find(const struct logs_place *place, struct logs_found *ret, struct err *err) {
    *ret = (struct logs_found){0};
    int r = find(place, ret, err);
    if (r == 0 && ret->run_id == NULL)
        recall_run_id(ret);
    return r;
}
