#include "launcher/output/worker_logs_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/file.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/tempdir_io.h"

struct files {
    char *dir;  /* NULL: none */
    int fds[2]; /* the streams that it writes to files itself; -1: it does not */
};

struct worker_logs {
    const struct job_spec *spec;
    const char *host;
    struct writer *writer;
    struct writer_user user;
    worker_logs_fn *on_prepared;
    void *arg;
    char *temp_dir;   /* where files go without --log-dir; NULL: not made yet, or not needed */
    int temp_claim;   /* while it is open, the folder is in use; -1: none */
    char *socket_dir; /* with --log-dir: for sockets, of which a shared file system may have none */
    int socket_claim;
    bool no_sockets; /* it was tried, and said no */
    char *run_dir;   /* of --log-dir; NULL: not made yet, or gone */
    bool keep;
    bool asked_for; /* -r or -t request files */

    char generation[32];
    uint32_t first_rank;
    /* the folder of the generation's files on this node, absolute; NULL: none */
    char *node_dir;
    struct files *files; /* [nproc] */
    bool awaited;        /* the writer's answer is awaited */

    uint32_t n_starts, n_lacking; /* of the starts that want files */
    bool lacks;                   /* this start is counted */
    bool said;                    /* it was reported, and since then each start lacked some */
    bool told_no_files;           /* that there are no error files */
};

bool worker_logs_asked_for(const struct job_spec *spec) {
    for (uint32_t i = 0; i < spec->nproc; i++)
        if ((std_map_get(&spec->redirects, i) | std_map_get(&spec->tee, i)) != STD_NONE)
            return true;
    return false;
}

/* Else it has only error files, and is kept if a report names one. */
static bool logs_in_temp_dir(const struct worker_logs *l) {
    return l->asked_for && l->spec->log_dir == NULL;
}

static void on_message(void *arg, struct writer_message *m);
static bool on_lost(void *arg, bool hung);

struct worker_logs *worker_logs_new(const struct job_spec *spec, const char *host,
                                    struct writer *writer, worker_logs_fn *on_ready, void *arg) {
    struct worker_logs *l = xcalloc(1, sizeof *l);
    l->spec = spec;
    l->host = host;
    l->writer = writer;
    l->user = (struct writer_user){.on_message = on_message, .on_lost = on_lost, .arg = l};
    l->on_prepared = on_ready;
    l->arg = arg;
    l->temp_claim = l->socket_claim = -1;
    l->asked_for = worker_logs_asked_for(spec);
    l->keep = logs_in_temp_dir(l);
    l->files = xcalloc(MAX2(spec->nproc, 1u), sizeof *l->files);
    for (uint32_t i = 0; i < spec->nproc; i++)
        l->files[i].fds[0] = l->files[i].fds[1] = -1;
    return l;
}

static void close_files(struct files *f) {
    file_close(&f->fds[0]);
    file_close(&f->fds[1]);
}

static void drop_files(struct worker_logs *l) {
    for (uint32_t i = 0; i < l->spec->nproc; i++) {
        close_files(&l->files[i]);
        free(TAKE_PTR(l->files[i].dir));
    }
}

static void await_answer(struct worker_logs *l, bool awaited) {
    if (l->awaited != awaited)
        writer_await(l->writer, awaited ? 1 : -1);
    l->awaited = awaited;
}

static void drop_dirs(struct worker_logs *l) {
    await_answer(l, false);
    writer_remove(l->writer, &l->user);
    drop_files(l);
    free(TAKE_PTR(l->node_dir));
}

void worker_logs_free(struct worker_logs *l) {
    if (l == NULL)
        return;
    if (l->n_lacking > 0)
        log_warning("%u of %u starts had no log files on this node, or not all of them",
                    l->n_lacking, l->n_starts);
    if (l->temp_dir != NULL && !l->keep && !tempdir_remove(l->temp_dir))
        log_info("the temporary folder %s could not be removed", l->temp_dir);
    file_close(&l->temp_claim);
    if (l->socket_dir != NULL)
        (void)tempdir_remove(l->socket_dir);
    file_close(&l->socket_claim);
    drop_dirs(l);
    free(l->socket_dir);
    free(l->files);
    free(l->temp_dir);
    free(l->run_dir);
    free(l);
}

bool worker_logs_wanted(const struct worker_logs *l) {
    if (l->spec->log_dir != NULL)
        return !logdir_is_null(l->spec->log_dir);
    return l->asked_for;
}

void worker_logs_lack(struct worker_logs *l, const char *why) {
    if (!l->lacks)
        l->n_lacking++;
    l->lacks = true;
    if (!l->said)
        log_warning(
            "%s; the job continues without these files, and tries again at the next start of "
            "workers",
            why);
    l->said = true;
}

/* A private folder holds the error files, and without --log-dir everything else, too. */
static int need_temp_dir(struct worker_logs *l, struct err *err) {
    if (l->temp_dir != NULL)
        return 0;
    enum tempdir_use use = logs_in_temp_dir(l) ? TEMPDIR_LARGE : TEMPDIR_SMALL;
    int r = tempdir_make(use, &l->temp_dir, &l->temp_claim, err);
    if (r == 0 && l->keep)
        tempdir_keep(l->temp_dir);
    return r;
}

/* A worker without a log folder can still have a folder for its error file. */
static void need_error_files(struct worker_logs *l) {
    struct err err = {0};
    if (l->node_dir != NULL || need_temp_dir(l, &err) == 0)
        return;
    if (!l->told_no_files)
        log_warning("%s; workers have no error files; set TMPDIR to a folder that can be written",
                    err.text);
    l->told_no_files = true;
}

static void ask(struct worker_logs *l, const struct form *form) {
    char node[LOGDIR_NAME_MAX + 1];
    logdir_node_name(l->host, form->host_index, node);
    writer_add(l->writer, &l->user);
    writer_send(l->writer, &l->user,
                &(struct writer_message){
                    .kind = WRITER_PREPARE,
                    .prepare = {.nonce = form->log_nonce,
                                .first_rank = form->first_rank,
                                .generation = l->generation,
                                .node = node,
                                .run_dir = l->spec->log_dir == NULL ? l->temp_dir : l->run_dir}});
    await_answer(l, true);
}

static void answered(struct worker_logs *l, const struct err *err) {
    await_answer(l, false);
    need_error_files(l);
    l->on_prepared(l->arg, err);
}

static void on_prepared(struct worker_logs *l, const struct writer_message *m) {
    int r = m->prepared.result;
    const char *run_dir = m->prepared.run_dir, *node_dir = m->prepared.node_dir;
    const char *why = m->prepared.why;
    struct err err = {0};
    if (l->spec->log_dir != NULL) {
        free(l->run_dir);
        l->run_dir = run_dir[0] == '\0' ? NULL : xstrdup(run_dir);
    }
    l->node_dir = node_dir[0] == '\0' ? NULL : xstrdup(node_dir);
    if (r == -ENOTDIR && l->n_starts == 1) {
        (void)err_set(&err, r, "%s", why);
        answered(l, &err);
        return;
    }
    if (r < 0)
        worker_logs_lack(l, why);
    answered(l, NULL);
}

static void on_message(void *arg, struct writer_message *m) {
    struct worker_logs *l = arg;
    if (m->kind == WRITER_NO_FILE)
        worker_logs_lack(l, m->no_file.why);
    if (m->kind == WRITER_FILES && m->index < l->spec->nproc) {
        struct files *f = &l->files[m->index];
        close_files(f);
        memcpy(f->fds, m->files.fds, sizeof f->fds);
        free(f->dir);
        f->dir = xstrdup(m->files.dir);
    } else if (m->kind == WRITER_PREPARED && l->awaited) {
        on_prepared(l, m);
    }
}

static bool on_lost(void *arg, bool hung) {
    struct worker_logs *l = arg;
    char why[4096 + 64];
    if (!l->awaited)
        return false;
    const char *dir = l->spec->log_dir == NULL ? l->temp_dir : l->spec->log_dir;
    (void)snprintf(why, sizeof why, "can't make the log folders below %s: %s", dir,
                   hung ? "its file system does not answer" : "the log writer died");
    drop_files(l);
    worker_logs_lack(l, why);
    answered(l, NULL);
    return false;
}

int worker_logs_prepare(struct worker_logs *l, const char *generation, const struct form *form) {
    struct err why = {0};
    drop_dirs(l);
    l->said = l->said && l->lacks;
    l->lacks = false;
    (void)snprintf(l->generation, sizeof l->generation, "%s", generation);
    l->first_rank = form->first_rank;
    if (l->spec->log_dir != NULL && logdir_is_null(l->spec->log_dir))
        return 0;
    /* for error files alone one folder is enough: a tree would take longer */
    if (!worker_logs_wanted(l)) {
        need_error_files(l);
        return 0;
    }
    l->n_starts++;
    if (l->spec->log_dir == NULL && need_temp_dir(l, &why) < 0) {
        worker_logs_lack(l, why.text);
        return 0;
    }
    ask(l, form);
    return WORKER_LOGS_E_LATER;
}

const char *worker_logs_dir(const struct worker_logs *l, uint32_t index) {
    return l->files[index].dir;
}

const char *worker_logs_node_dir(const struct worker_logs *l) { return l->node_dir; }

char *worker_logs_error_file(const struct worker_logs *l, uint32_t index) {
    if (worker_logs_dir(l, index) != NULL)
        return xasprintf("%s/error.json", l->files[index].dir);
    if (l->temp_dir != NULL)
        return xasprintf("%s/%s-%u-error.json", l->temp_dir, l->generation, l->first_rank + index);
    return xstrdup("");
}

/* A worker that can't listen where it is told to fails: so this process tries it first. */
static bool takes_sockets(const char *dir) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path, sizeof at.sun_path, "%s/try.socket", dir);
    _cleanup_(file_close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && n > 0 && (size_t)n < sizeof at.sun_path &&
           bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 && unlink(at.sun_path) == 0;
}

char *worker_logs_socket(struct worker_logs *l, uint32_t index) {
    struct err unused = {0};
    if (l->temp_dir == NULL && l->socket_dir == NULL && !l->no_sockets &&
        tempdir_make(TEMPDIR_SMALL, &l->socket_dir, &l->socket_claim, &unused) < 0)
        l->no_sockets = true;
    const char *dir = l->socket_dir != NULL ? l->socket_dir : l->temp_dir;
    if (l->no_sockets || dir == NULL || !takes_sockets(dir)) {
        l->no_sockets = true;
        return NULL;
    }
    _cleanup_(freep) char *path =
        xasprintf("%s/%s-%u.socket", dir, l->generation, l->first_rank + index);
    return strlen(path) < sizeof((struct sockaddr_un *)NULL)->sun_path ? TAKE_PTR(path) : NULL;
}

void worker_logs_take_fds(struct worker_logs *l, uint32_t index, int ret[2]) {
    int *fds = l->files[index].fds;
    memcpy(ret, fds, sizeof l->files[index].fds);
    fds[0] = fds[1] = -1;
}

void worker_logs_ended(struct worker_logs *l) {
    if (l->spec->log_dir == NULL || l->run_dir == NULL)
        return;
    writer_send(l->writer, &l->user,
                &(struct writer_message){.kind = WRITER_ENDED, .ended.run_dir = l->run_dir});
}

void worker_logs_event(struct worker_logs *l, const char *name, const char *line) {
    _cleanup_(freep) char *path = xasprintf("%s/%s", l->run_dir, name);
    writer_send(l->writer, &l->user,
                &(struct writer_message){.kind = WRITER_EVENT, .event = {path, line}});
}

void worker_logs_keep(struct worker_logs *l) {
    l->keep = true;
    if (l->temp_dir != NULL)
        tempdir_keep(l->temp_dir);
}

/* Without a run's folder each start has made the temporary one, or tried to, for error files. */
const char *worker_logs_hang_dir(const struct worker_logs *l) {
    return l->run_dir != NULL ? l->run_dir : l->temp_dir;
}

const char *worker_logs_kept(const struct worker_logs *l) {
    if (l->run_dir != NULL)
        return l->run_dir;
    return logs_in_temp_dir(l) ? l->temp_dir : NULL;
}
