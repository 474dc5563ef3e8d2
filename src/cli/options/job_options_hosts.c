/* Hosts on which muster is started over ssh: which they are, and what their agents are to be told.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "cli/options/job_options_priv.h"
#include "launcher/hosts/hosts.h"
#include "launcher/place/place.h"
#include "launcher/ssh/ssh_command.h"
#include "launcher/ssh/ssh_env.h"

void job_host_text(const struct host *host, struct strbuf *out) {
    const bool v6 = strchr(host->name, ':') != NULL;
    if (host->user != NULL)
        strbuf_printf(out, "%s@", host->user);
    strbuf_printf(out, v6 ? "[%s]" : "%s", host->name);
    if (host->n_gpus == 0 && host->slots > 0)
        strbuf_printf(out, ":%u", host->slots);
    for (uint32_t i = 0; i < host->n_gpus; i++)
        strbuf_printf(out, "%s%u", i > 0 ? "," : " GPUs ", host->gpus[i]);
}

static bool says_hosts(const struct job_reading *j) {
    return job_given(j, RUN_HOST) || job_given(j, RUN_HOSTFILE) || job_given(j, RUN_INCLUDE) ||
           job_given(j, RUN_EXCLUDE);
}

bool job_wants_ssh(const struct job_reading *j) {
    if (place_has_starter(&j->spec->place) || j->spec->starter == JOB_STARTER_NONE)
        return false;
    return j->spec->starter == JOB_STARTER_SSH || says_hosts(j);
}

/* ---- which ---- */

static int read_list(struct job_reading *j) {
    _cleanup_(freep) char *text = NULL;
    const struct place *place = &j->spec->place;
    struct hosts_input in = {.list = job_text(j, RUN_HOST),
                             .file = job_text(j, RUN_HOSTFILE),
                             .include = job_text(j, RUN_INCLUDE),
                             .exclude = job_text(j, RUN_EXCLUDE)};
    if (in.list == NULL && in.file == NULL)
        in.list = place->job_nodelist;
    if (in.list == NULL && in.include == NULL && in.exclude == NULL && in.file == NULL)
        return err_set(j->err, -EINVAL,
                       "--starter=ssh: which hosts? name them with -H or --hostfile");
    if (in.file != NULL) {
        int r = j->probes->read_hostfile != NULL
                    ? j->probes->read_hostfile(j->probes->arg, in.file, &text, &in.len, j->err)
                    : err_set(j->err, -ENOTSUP, "can't read %s", in.file);
        if (r < 0) {
            err_prefix(j->err, "--hostfile");
            return r;
        }
        in.text = text;
    }
    return hosts_read(&in, &j->spec->hosts.list, j->err);
}

static const char *list_origin(const struct job_reading *j) {
    return job_given(j, RUN_HOST)       ? "-H"
           : job_given(j, RUN_HOSTFILE) ? "--hostfile"
                                        : "SLURM_JOB_NODELIST";
}

/* As many as the job can have, in their order. */
static int choose(struct job_reading *j) {
    struct hosts *hosts = &j->spec->hosts.list;
    struct rdzv_settings *s = &j->spec->rdzv;
    const char *origin = list_origin(j);
    if (hosts->n > RDZV_NODES_MAX)
        return err_set(j->err, -ERANGE, "%s has %zu hosts, and a job at most %d", origin, hosts->n,
                       RDZV_NODES_MAX);
    if (!job_given(j, RUN_NNODES))
        s->min_nodes = s->max_nodes = (uint32_t)hosts->n;
    if (s->min_nodes > hosts->n)
        return err_set(j->err, -EINVAL,
                       "%u nodes are asked for, but %s has %zu host%s; leave --nnodes out, or name "
                       "more hosts",
                       s->min_nodes, origin, hosts->n, hosts->n == 1 ? "" : "s");
    if (s->max_nodes < hosts->n) {
        _cleanup_(freep) bool *keep = xcalloc(hosts->n, sizeof *keep);
        memset(keep, true, s->max_nodes * sizeof *keep);
        if (job_given(j, RUN_HOST) || s->max_nodes == 1)
            strbuf_printf(j->warnings,
                          "--nnodes=%s: only the first %u of the %zu hosts of %s take part\n",
                          job_text(j, RUN_NNODES), s->max_nodes, hosts->n, origin);
        hosts_keep(hosts, keep);
    }
    return 0;
}

/* "-H a b": a user of mpirun or pdsh may write blanks. A script that only the hosts have usually
 * has a folder or a suffix. */
static void warn_of_script(struct job_reading *j) {
    const char *script = j->spec->script;
    if (!job_given(j, RUN_HOST) || j->spec->entry != JOB_ENTRY_PYTHON ||
        strpbrk(script, "/.") != NULL || j->probes->is_there == NULL ||
        j->probes->is_there(j->probes->arg, script))
        return;
    strbuf_printf(j->warnings,
                  "\"%.100s\" is taken for SCRIPT; if it is a host: -H takes them separated by "
                  "commas, as in -H %.100s,%.100s\n",
                  script, job_text(j, RUN_HOST), script);
}

/* What is wrong with the words of --ssh and --export, before anything is started. */
static int check_words(struct job_reading *j) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    char **words = NULL;
    int r = job_given(j, RUN_SSH) ? ssh_words(job_text(j, RUN_SSH), &words, j->err) : 0;
    words_free(words);
    return r < 0 ? r : ssh_env(job_text(j, RUN_EXPORT), j->envp, &env, j->err);
}

void job_warn_of_no_hosts(struct job_reading *j) {
    static const struct {
        enum run_option row;
        const char *name;
    } rows[] = {{RUN_SSH, "ssh"}, {RUN_EXPORT, "export"}};
    const bool over_ssh = j->spec->place.by == PLACE_BY_OWN_SSH;
    for (size_t i = 0; i < ARRAY_SIZE(rows) && !over_ssh; i++)
        if (job_given(j, rows[i].row))
            strbuf_printf(j->warnings,
                          "--%s has no effect: no hosts are given; name them with -H or "
                          "--hostfile\n",
                          rows[i].name);
}

/* ---- what they are told ---- */

static bool is_blank(const char *text) { return text == NULL || text[strspn(text, " \t")] == '\0'; }

/* Where the nodes meet: at the first of them, unless the user chooses another place. */
static void arrange(struct job_reading *j) {
    struct job_hosts *h = &j->spec->hosts;
    const char *backend = job_text(j, RUN_RDZV_BACKEND);
    const bool c10d = !job_given(j, RUN_RDZV_BACKEND) || strcmp(backend, "c10d") == 0,
               is_static = job_given(j, RUN_RDZV_BACKEND) && strcmp(backend, "static") == 0,
               is_chosen = !is_blank(job_text(j, RUN_RDZV_ENDPOINT)) ||
                           job_given(j, RUN_MASTER_ADDR) ||
                           (!c10d && job_given(j, RUN_MASTER_PORT));
    h->meet = h->list.n > 1 && !is_chosen && (c10d || is_static);
    job_name_run(j);
    if (!h->meet)
        return;
    const bool v6 = strchr(h->list.items[0].name, ':') != NULL;
    j->first_host = xasprintf("%s%s%s%s", v6 ? "[" : "", h->list.items[0].name, v6 ? "]" : "",
                              is_static ? ":1" : ""); /* job_leave_port_open() takes it away */
    if (!job_given(j, RUN_RDZV_BACKEND))
        job_fill_in(j, RUN_RDZV_BACKEND, "c10d");
    job_fill_in(j, RUN_RDZV_ENDPOINT, j->first_host);
}

static void say_hosts(struct job_reading *j) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct hosts *hosts = &j->spec->hosts.list;
    for (size_t i = 0; i < MIN2(hosts->n, (size_t)16); i++) {
        strbuf_add(&text, i > 0 ? " " : "");
        job_host_text(&hosts->items[i], &text);
    }
    job_derived(j, "hosts: %s%s, %zu in all, from %s%s", strbuf_text(&text),
                hosts->n > 16 ? " ..." : "", hosts->n, list_origin(j),
                job_given(j, RUN_INCLUDE)   ? " and --include"
                : job_given(j, RUN_EXCLUDE) ? " and --exclude"
                                            : "");
}

static int check(struct job_reading *j) {
    if (place_is_step(&j->spec->place) && j->spec->place.n_tasks > 1)
        return err_set(j->err, -EINVAL,
                       "srun has started muster on %u nodes already, so it does not start itself "
                       "over ssh: leave -H and --hostfile out, or srun",
                       j->spec->place.n_nodes);
    if (job_value(j, RUN_STANDALONE)->times > 0)
        return err_set(j->err, -EINVAL,
                       "--standalone is for one node that meets no other; leave it out to start "
                       "muster on other hosts");
    if (j->spec->starter == JOB_STARTER_SRUN)
        return err_set(j->err, -EINVAL,
                       "--starter=srun starts muster on the nodes of a Slurm job; hosts of your "
                       "own are for --starter=ssh");
    return 0;
}

int job_read_hosts(struct job_reading *j) {
    int r = check(j);
    if (r == 0)
        r = read_list(j);
    if (r == 0)
        r = choose(j);
    if (r == 0)
        r = check_words(j);
    if (r < 0)
        return r;
    j->fill = (struct place_fill){0};
    j->spec->nodes = PLACE_NODES_OF_USER;
    j->spec->start_nodes = (uint32_t)j->spec->hosts.list.n;
    warn_of_script(j);
    arrange(j);
    say_hosts(j);
    return 0;
}

/* The first host listens at a port that is free there, and only then the others start. */
void job_leave_port_open(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    if (!spec->hosts.meet)
        return;
    spec->endpoint_port = 0;
    job_derived(j, "rdzv_endpoint: %s, the first host, at a port that is free there",
                spec->endpoint_host);
}
