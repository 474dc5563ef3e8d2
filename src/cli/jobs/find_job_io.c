#include "cli/jobs/find_job_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/jobs/run_line_io.h"
#include "cli/options/job_options.h"
#include "cli/options/rdzv_text.h"
#include "launcher/agent/job_arbiter_io.h"
#include "rendezvous/operate/registry_io.h"

extern char **environ;

static struct job_target *add(struct job_found *found) {
    found->list = xrealloc(found->list, (found->n + 1) * sizeof *found->list);
    struct job_target *t = &found->list[found->n++];
    *t = (struct job_target){0};
    return t;
}

void job_found_fini(struct job_found *found) {
    free(found->list);
    *found = (struct job_found){0};
}

/* ---- this machine ---- */

static int list_here(const struct job_place *place, struct registry_entry **ret, size_t *ret_n,
                     struct err *err) {
    return place->all_users ? registry_list_all(ret, ret_n, err) : registry_list(ret, ret_n, err);
}

static int find_here(const struct job_place *place, struct job_found *ret, struct err *err) {
    _cleanup_(freep) struct registry_entry *entries = NULL;
    size_t n = 0;
    int r = list_here(place, &entries, &n, err);
    if (r < 0)
        return r;
    bool one_job = true, some_live = false;
    for (size_t i = 0; i < n; i++)
        some_live = some_live || !entries[i].foreign;
    for (size_t i = 0; i < n; i++) {
        const struct registry_entry *e = &entries[i];
        if (place->run_id != NULL && strcmp(place->run_id, e->run_id) != 0)
            continue;
        /* Files that a container left behind must not be listed together with a job that is known
         * to run. */
        if (place->run_id == NULL && e->foreign && some_live)
            continue;
        struct job_target *t = add(ret);
        (void)strcpy(t->host, e->addr);
        (void)strcpy(t->run_id, e->run_id);
        t->port = e->port;
        t->pid = e->pid;
        one_job = one_job && strcmp(t->run_id, ret->list[0].run_id) == 0;
    }
    if (ret->n == 0 && place->run_id != NULL)
        return err_set(err, -ENOENT,
                       "no agent of the run '%.100s' is known on this machine; name an ENDPOINT "
                       "(HOST:PORT, dir:/path, etcd://…)",
                       place->run_id);
    if (ret->n == 0)
        return err_set(err, -ENOENT,
                       "no job%s is known on this machine; name an ENDPOINT (HOST:PORT, "
                       "dir:/path, etcd://…)",
                       place->all_users && geteuid() == 0 ? "" : " of yours");
    if (!one_job)
        return err_set(err, -EEXIST,
                       "several jobs run on this machine; name one by --rdzv-id, or an ENDPOINT:");
    if (place->one_agent && ret->n > 1)
        return err_set(err, -EEXIST,
                       "several agents of that job run on this machine; name one's ENDPOINT:");
    return 0;
}

/* A run id where an ENDPOINT is expected: people name a job as "muster ps" shows it. */
static bool is_run_here(const struct job_place *place) {
    _cleanup_(freep) struct registry_entry *entries = NULL;
    struct err err = {0};
    size_t n = 0;
    if (list_here(place, &entries, &n, &err) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(place->endpoint, entries[i].run_id) == 0)
            return true;
    return false;
}

/* ---- a host ---- */

static int find_host(const struct rdzv_place *place, struct job_found *ret, struct err *err) {
    struct job_target *t = add(ret);
    if (strlen(place->host) >= sizeof t->host)
        return err_set(err, -EINVAL, "the endpoint's host is too long: %.100s…", place->host);
    (void)strcpy(t->host, place->host);
    t->port = place->port < 0 ? JOB_C10D_PORT : (uint16_t)place->port;
    return 0;
}

/* The leader has one of the ports, and other programs may have others. */
static int find_ports(const struct job_place *place, struct job_found *ret, struct err *err) {
    uint16_t ports[JOB_ENDPOINT_PORTS_MAX];
    unsigned n;
    struct rdzv_place one = RDZV_PLACE_INIT;
    if (place->one_agent)
        return err_set(err, -EINVAL, "\"%.200s\" is no single agent; name the node's, as HOST:PORT",
                       place->endpoint);
    int r =
        rdzv_endpoint_parse_ports(place->endpoint, ARRAY_SIZE(ports), &one.host, ports, &n, err);
    for (unsigned i = 0; i < n && r == 0; i++) {
        one.port = ports[i];
        r = find_host(&one, ret, err);
    }
    free(one.host);
    return r;
}

/* ---- an arbiter ---- */

/* Uses the rules of "muster run", so that endpoint, id and conf have the same meaning. */
static int read_arbiter(const struct job_place *place, struct job_spec *ret, struct err *err) {
    if (place->run_id == NULL)
        return err_set(err, -EINVAL,
                       "which job at %.300s? Give its --rdzv-id; \"muster ps\" shows those of this "
                       "machine",
                       place->endpoint);
    const char *argv[10] = {"run", "--rdzv-endpoint", place->endpoint, "--rdzv-id", place->run_id};
    int argc = 5;
    if (place->conf != NULL) {
        argv[argc++] = "--rdzv-conf";
        argv[argc++] = place->conf;
    }
    argv[argc++] = "--no-python";
    argv[argc++] = "true";
    /* Variables about a job's nodes and workers do not matter here. */
    char *envp[8];
    size_t n = 0;
    for (char **e = environ; *e != NULL && n < ARRAY_SIZE(envp) - 1; e++)
        if (strncmp(*e, "MUSTER_ETCD_", 12) == 0)
            envp[n++] = *e;
    envp[n] = NULL;
    _cleanup_(strbuf_fini) struct strbuf warnings = {0};
    char *words[ARRAY_SIZE(argv)];
    for (int i = 0; i < argc; i++)
        words[i] = xstrdup(argv[i]);
    int r = job_options_read(argc, words, envp, &run_line_probes, &warnings, ret, err);
    for (int i = 0; i < argc; i++)
        free(words[i]);
    return r;
}

struct record_request {
    struct loop *loop;
    struct arbiter_answer answer;
};

static void on_answer(void *arg, const struct arbiter_answer *answer) {
    struct record_request *reading = arg;
    reading->answer = *answer;
    loop_quit(reading->loop);
}

static int read_record(struct loop *loop, struct arbiter *arbiter, struct arbiter_record *ret,
                       struct err *err) {
    struct record_request reading = {.loop = loop};
    struct arbiter_request request = {.kind = ARBITER_READ};
    arbiter_ask(arbiter, &request, on_answer, &reading);
    int r = loop_run(loop);
    if (r < 0)
        return err_set(err, r, "can't wait for an answer: %s", strerror(-r));
    if (reading.answer.result != ARBITER_OK)
        return err_set(err, -EHOSTUNREACH, "%s", reading.answer.text);
    *ret = reading.answer.record;
    return 0;
}

static int find_by_arbiter(struct loop *loop, const struct job_place *place, struct job_found *ret,
                           struct err *err) {
    _cleanup_(job_spec_fini) struct job_spec spec = {0};
    struct arbiter *arbiter = NULL;
    int r = read_arbiter(place, &spec, err);
    if (r != 0)
        return r < 0 ? -EINVAL
                     : err_set(err, -EINVAL, "\"%.200s\" is no endpoint", place->endpoint);
    (void)snprintf(ret->run_id, sizeof ret->run_id, "%s", spec.run_id);
    struct job_arbiter_config config = {
        .spec = &spec, .read_only = true, .timeout_ns = place->timeout_ns};
    r = job_arbiter_new(loop, &config, &arbiter, err);
    if (r == 0)
        r = read_record(loop, arbiter, &ret->record, err);
    arbiter_free(arbiter);
    if (r < 0)
        return r == -EINVAL ? -EHOSTUNREACH : r;
    ret->closed = ret->record.closed;
    if (ret->closed)
        return 0;
    const struct rdzv_peer *leader = &ret->record.leader;
    if (ret->record.epoch == 0 || leader->incarnation == 0 || leader->addr[0] == '\0')
        return err_set(
            err, -ENOENT,
            "no agent has led the run '%.100s' there yet; check the endpoint and --rdzv-id",
            spec.run_id);
    struct job_target *t = add(ret);
    (void)strcpy(t->host, leader->addr);
    (void)strcpy(t->run_id, ret->run_id);
    t->port = leader->port;
    return 0;
}

int job_find(struct loop *loop, const struct job_place *place, struct job_found *ret,
             struct err *err) {
    *ret = (struct job_found){0};
    if (place->endpoint == NULL)
        return find_here(place, ret, err);
    if (place->run_id == NULL && is_run_here(place)) {
        struct job_place here = *place;
        here.run_id = place->endpoint;
        return find_here(&here, ret, err);
    }
    if (rdzv_endpoint_has_ports(place->endpoint))
        return find_ports(place, ret, err);
    _cleanup_(rdzv_place_fini) struct rdzv_place parsed = RDZV_PLACE_INIT;
    int r = rdzv_place_parse(place->endpoint, &parsed, err);
    if (r == -ENODATA)
        return err_set(err, -EINVAL, "the ENDPOINT is empty");
    if (r < 0)
        return r;
    if (parsed.kind != RDZV_PLACE_HOST && place->one_agent)
        return err_set(err, -EINVAL,
                       "\"%.200s\" has no agent of its own; name the node's, as HOST:PORT",
                       place->endpoint);
    return parsed.kind == RDZV_PLACE_HOST ? find_host(&parsed, ret, err)
                                          : find_by_arbiter(loop, place, ret, err);
}
