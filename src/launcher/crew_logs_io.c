#include "launcher/crew_logs_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "launcher/logdir_io.h"

struct crew_logs {
    const struct job_spec *spec;
    const char *host;
    char *temp_dir;   /* where files go without --log-dir; NULL: not made yet, or not needed */
    char *run_dir;    /* of --log-dir; NULL: not made yet, or gone */
    bool keep;
    bool asked_for;   /* -r or -t want files */

    char generation[32];
    uint32_t first_rank;
    char *node_dir;   /* of the generation's files on this node, absolute; NULL: none */
    char **dirs;      /* [nproc] below it; NULL: of none, or of that one not */

    uint32_t n_starts, n_lacking; /* of those that want files */
    bool lacks;       /* this start is counted */
    bool said;        /* and since then each start lacked some */
};

static bool files_asked_for(const struct job_spec *spec) {
    for (uint32_t i = 0; i < spec->nproc; i++)
        if ((std_map_get(&spec->redirects, i) | std_map_get(&spec->tee, i)) != STD_NONE)
            return true;
    return false;
}

struct crew_logs *crew_logs_new(const struct job_spec *spec, const char *host) {
    struct crew_logs *l = xcalloc(1, sizeof *l);
    l->spec = spec;
    l->host = host;
    l->keep = l->asked_for = files_asked_for(spec);
    return l;
}

static void drop_dirs(struct crew_logs *l) {
    for (uint32_t i = 0; l->dirs != NULL && i < l->spec->nproc; i++)
        free(l->dirs[i]);
    free(l->dirs);
    l->dirs = NULL;
    free(l->node_dir);
    l->node_dir = NULL;
}

void crew_logs_free(struct crew_logs *l) {
    if (l == NULL)
        return;
    if (l->n_lacking > 0)
        log_warning("%u of %u starts had no log files here, or not all of them", l->n_lacking,
                    l->n_starts);
    if (l->temp_dir != NULL && !l->keep && logdir_remove_tree(l->temp_dir) < 0)
        log_info("the temporary folder %s could not be removed", l->temp_dir);
    drop_dirs(l);
    free(l->temp_dir);
    free(l->run_dir);
    free(l);
}

bool crew_logs_wanted(const struct crew_logs *l) {
    if (l->spec->log_dir != NULL)
        return !logdir_is_null(l->spec->log_dir);
    return l->asked_for;
}

void crew_logs_lack(struct crew_logs *l, const char *why) {
    if (!l->lacks)
        l->n_lacking++;
    l->lacks = true;
    if (!l->said)
        log_warning("%s; the job goes on without these files, and tries again at its next start",
                    why);
    l->said = true;
}

/* A private folder of its own holds the error files, and all else without --log-dir. */
static int need_temp_dir(struct crew_logs *l, struct err *err) {
    return l->temp_dir != NULL ? 0 : logdir_make_temp(&l->temp_dir, err);
}

static int make_run_dir(struct crew_logs *l, const struct form *form, struct err *err) {
    if (l->spec->log_dir == NULL)
        return need_temp_dir(l, err);
    if (l->run_dir != NULL)
        return 0;
    return logdir_claim_run(l->spec->log_dir, l->spec->run_id, form->log_nonce, &l->run_dir, err);
}

static int make_node_dir(struct crew_logs *l, const struct form *form, struct err *err) {
    char node[LOGDIR_NAME_MAX + 1];
    logdir_node_name(l->host, form->host_index, node);
    int r = make_run_dir(l, form, err);
    if (r < 0)
        return r;
    const char *run_dir = l->spec->log_dir == NULL ? l->temp_dir : l->run_dir;
    return logdir_make_generation(run_dir, l->generation, node, &l->node_dir, err);
}

static int make_all(struct crew_logs *l, const struct form *form, struct err *err) {
    int r = make_node_dir(l, form, err);
    if (r == -ENOENT && l->run_dir != NULL) { /* somebody has taken it away: once more, anew */
        free(TAKE_PTR(l->run_dir));
        r = make_node_dir(l, form, err);
    }
    if (r < 0)
        return r;
    l->dirs = xcalloc(l->spec->nproc, sizeof *l->dirs);
    int linked = l->run_dir != NULL ? logdir_set_latest(l->run_dir, l->generation) : 0;
    if (linked < 0) /* a convenience: the logs are there all the same */
        log_warning("can't set the link %s/latest: %s", l->run_dir, strerror(-linked));
    return 0;
}

int crew_logs_prepare(struct crew_logs *l, const char *generation, const struct form *form,
                      struct err *err) {
    struct err why = {0};
    bool first = l->n_starts == 0;
    drop_dirs(l);
    l->said = l->said && l->lacks;
    l->lacks = false;
    (void)snprintf(l->generation, sizeof l->generation, "%s", generation);
    l->first_rank = form->first_rank;
    if (l->spec->log_dir != NULL && logdir_is_null(l->spec->log_dir))
        return 0;
    int r = 0;
    if (crew_logs_wanted(l)) { /* for error files alone one folder does: a tree costs more */
        l->n_starts++;
        r = make_all(l, form, &why);
        if (r == -ENOTDIR && first)
            return err_set(err, r, "%s", why.text);
    }
    if (r < 0)
        crew_logs_lack(l, why.text);
    if (l->dirs == NULL && need_temp_dir(l, &why) < 0 && r == 0)
        log_warning("%s; workers have no error files", why.text);
    return 0;
}

void crew_logs_make(struct crew_logs *l, uint32_t index) {
    struct err err = {0};
    if (l->dirs == NULL || l->dirs[index] != NULL ||
        logdir_make_worker(l->node_dir, l->first_rank + index, &l->dirs[index], &err) == 0)
        return;
    crew_logs_lack(l, err.text);
    (void)!need_temp_dir(l, &err); /* for its error file */
}

const char *crew_logs_dir(const struct crew_logs *l, uint32_t index) {
    return l->dirs == NULL ? NULL : l->dirs[index];
}

const char *crew_logs_node_dir(const struct crew_logs *l) { return l->node_dir; }

char *crew_logs_error_file(const struct crew_logs *l, uint32_t index) {
    if (crew_logs_dir(l, index) != NULL)
        return xasprintf("%s/error.json", l->dirs[index]);
    if (l->temp_dir != NULL)
        return xasprintf("%s/%s-%u-error.json", l->temp_dir, l->generation, l->first_rank + index);
    return xstrdup("");
}

void crew_logs_keep(struct crew_logs *l) { l->keep = true; }

const char *crew_logs_kept(const struct crew_logs *l) {
    if (l->run_dir != NULL)
        return l->run_dir;
    return l->asked_for ? l->temp_dir : NULL;
}
