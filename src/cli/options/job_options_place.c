#include <errno.h>
#include <string.h>

#include "cli/options/job_options_priv.h"

/* Fills in *ret, which must be RDZV_PLACE_INIT. */
static int read_place(struct job_reading *j, enum rdzv_place_kind kind, const char *example,
                      struct rdzv_place *ret) {
    int r = rdzv_place_parse_as(kind, job_text(j, RUN_RDZV_ENDPOINT), ret, j->err);
    const char *name = kind == RDZV_PLACE_DIR ? "dir" : "etcd";
    if (r == -ENODATA)
        return err_set(j->err, -EINVAL,
                       "--rdzv-backend=%s needs an --rdzv-endpoint, the same on all nodes: %s",
                       name, example);
    if (r == 0 && !j->spec->run_id_given)
        return err_set(j->err, -EINVAL,
                       "nodes that meet by %s need an --rdzv-id, the same on all nodes of the job "
                       "and of no other job",
                       name);
    return r;
}

/* Takes over place->dir. */
static int take_dir(struct job_reading *j, struct rdzv_place *place) {
    if (place->dir[0] != '/') {
        _cleanup_(freep) char *cwd = j->probes->cwd(j->probes->arg);
        if (cwd == NULL)
            return err_set(j->err, -ENOENT,
                           "endpoint \"dir:%s\": the working directory is not known; give an "
                           "absolute path",
                           place->dir);
        rdzv_place_absolute(place, cwd);
    }
    j->spec->arbiter_dir = TAKE_PTR(place->dir);
    return 0;
}

int job_read_dir(struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    int r = read_place(j, RDZV_PLACE_DIR, "dir:/shared/path", &place);
    return r < 0 ? r : take_dir(j, &place);
}

/* torchrun's nodes meet in a file, whose name is the endpoint; ours in a directory beside it. The
 * run id can be left out, as with torchrun: the file's name stands for the job. */
int job_read_file(struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    int r = rdzv_place_parse_as(RDZV_PLACE_DIR, job_text(j, RUN_RDZV_ENDPOINT), &place, j->err);
    if (r < 0)
        return r;
    char *dir = xasprintf("%s.muster", place.dir);
    free(place.dir);
    place.dir = dir;
    strbuf_printf(
        j->warnings,
        "--rdzv-conf: store_type=file: the nodes meet in the directory %s; choose another "
        "one with --rdzv-endpoint=dir:PATH\n",
        place.dir);
    return take_dir(j, &place);
}

static char *copy(const char *text) { return text != NULL ? xstrdup(text) : NULL; }

static int read_tls(struct job_reading *j, const struct rdzv_conf *conf,
                    const struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    if (place->etcd_tls && conf->etcd_tls == 0)
        return err_set(j->err, -EINVAL,
                       "--rdzv-conf: protocol=http contradicts the endpoint, which asks for TLS");
    spec->etcd_tls = place->etcd_tls || conf->etcd_tls == 1;
    if (!spec->etcd_tls) {
        if (conf->etcd_cacert != NULL || conf->etcd_cert != NULL || conf->etcd_key != NULL)
            return err_set(j->err, -EINVAL,
                           "--rdzv-conf: cacert, ssl_cert and ssl_cert_key are for TLS; add "
                           "protocol=https, or write etcds:// in the endpoint");
        return 0;
    }
    if (conf->etcd_key != NULL && conf->etcd_cert == NULL)
        return err_set(j->err, -EINVAL,
                       "--rdzv-conf: ssl_cert_key=%s needs its certificate: ssl_cert",
                       conf->etcd_key);
    spec->etcd_cacert = copy(conf->etcd_cacert);
    spec->etcd_cert = copy(conf->etcd_cert);
    /* One file can have both, as with torchrun. */
    spec->etcd_key = copy(conf->etcd_key != NULL ? conf->etcd_key : conf->etcd_cert);
    return 0;
}

/* Other users can't see an environment, but they can see a command line. */
static void warn_visible(struct job_reading *j, enum run_option row) {
    if (!job_value(j, row)->from_env)
        strbuf_printf(j->warnings,
                      "the password in --%s is visible to all users of this host (ps); use "
                      "--rdzv-conf etcd_password_file=FILE or MUSTER_ETCD_PASSWORD\n",
                      run_options.defs[option_row(&run_options, row)].name);
}

static int read_password(struct job_reading *j, const struct rdzv_conf *conf,
                         struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    if (place->password != NULL)
        warn_visible(j, RUN_RDZV_ENDPOINT);
    if (conf->etcd_password != NULL)
        warn_visible(j, RUN_RDZV_CONF);
    if (conf->etcd_password_file != NULL) {
        int r = j->probes->read_secret(j->probes->arg, conf->etcd_password_file,
                                       &spec->etcd_password, j->err);
        if (r < 0)
            err_prefix(j->err, "--rdzv-conf: etcd_password_file");
        return r;
    }
    const char *env = j->etcd_password_env;
    spec->etcd_password = conf->etcd_password != NULL     ? xstrdup(conf->etcd_password)
                          : place->password != NULL       ? TAKE_PTR(place->password)
                          : env != NULL && env[0] != '\0' ? xstrdup(env)
                                                          : NULL;
    return 0;
}

static int read_user(struct job_reading *j, const struct rdzv_conf *conf,
                     struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    const char *env = j->etcd_user_env;
    spec->etcd_user = conf->etcd_user != NULL         ? xstrdup(conf->etcd_user)
                      : place->user != NULL           ? TAKE_PTR(place->user)
                      : env != NULL && env[0] != '\0' ? xstrdup(env)
                                                      : NULL;
    int r = read_password(j, conf, place);
    if (r == 0 && spec->etcd_user != NULL && spec->etcd_password == NULL)
        return err_set(j->err, -EINVAL,
                       "etcd user \"%.100s\" has no password; give --rdzv-conf "
                       "etcd_password_file=FILE or MUSTER_ETCD_PASSWORD",
                       spec->etcd_user);
    if (r == 0 && spec->etcd_user == NULL && spec->etcd_password != NULL)
        return err_set(j->err, -EINVAL,
                       "there is a password for etcd, and no user; give --rdzv-conf "
                       "etcd_user=NAME or MUSTER_ETCD_USER");
    if (r == 0 && spec->etcd_password != NULL && !spec->etcd_tls)
        strbuf_add(j->warnings, "the password for etcd goes over the network unencrypted; use "
                                "etcds:// (TLS)\n");
    return r;
}

int job_read_etcd(struct job_reading *j, const struct rdzv_conf *conf) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    struct job_spec *spec = j->spec;
    int r = read_place(j, RDZV_PLACE_ETCD, "etcd://HOST:PORT,HOST:PORT", &place);
    if (r < 0)
        return r;
    if (conf->etcd_prefix != NULL) {
        free(place.etcd_prefix);
        place.etcd_prefix = rdzv_prefix_normal(conf->etcd_prefix, strlen(conf->etcd_prefix));
        if (place.etcd_prefix == NULL)
            return err_set(j->err, -EINVAL,
                           "--rdzv-conf: etcd_prefix must have no ? or #, no control characters "
                           "and at most %d bytes",
                           RDZV_PATH_MAX);
    }
    spec->etcd_prefix =
        place.etcd_prefix != NULL ? TAKE_PTR(place.etcd_prefix) : xstrdup(RDZV_ETCD_PREFIX);
    spec->etcd_endpoints = TAKE_PTR(place.etcd_endpoints);
    r = read_tls(j, conf, &place);
    return r < 0 ? r : read_user(j, conf, &place);
}

void job_warn_etcd_conf(struct job_reading *j, const struct rdzv_conf *conf) {
    if (j->spec->backend == JOB_BACKEND_ETCD)
        return;
    if (conf->etcd_tls >= 0 || conf->etcd_prefix != NULL || conf->etcd_cacert != NULL ||
        conf->etcd_cert != NULL || conf->etcd_key != NULL || conf->etcd_user != NULL ||
        conf->etcd_password != NULL || conf->etcd_password_file != NULL)
        strbuf_add(j->warnings, "--rdzv-conf: keys about etcd have no effect without etcd\n");
}
