#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "launcher/hosts/hostlist.h"
#include "launcher/hosts/hosts.h"
#include "launcher/place/place.h"

/* ---- which row ---- */

/* Variables leak, so an ancestor decides, or, where none can be seen, all variables of a row. */
static bool is_possible(const struct launcher *row, const struct place_facts *facts,
                        const struct place *p) {
    if (facts->ancestor != NULL)
        return launcher_has_word(row->ancestors, facts->ancestor);
    if (facts->sees_all && row->ancestors != NULL)
        return false;
    return p->slurm == PLACE_SLURM_NONE ||
           (row->kind == LAUNCHER_INSIDE && row->sizes != LAUNCHER_BY_VARIABLES);
}

/* ---- values ---- */

static const char *keep_name(char *const *envp, const char *names, struct place *p, size_t i) {
    return launcher_value(envp, names, p->names[i]) != NULL ? p->names[i] : NULL;
}

static int bad(const struct place *p, const char *names, struct err *err) {
    return err_set(err, -EINVAL,
                   "this is a node of %s, but %s is not set, or is not a number that fits; %s",
                   p->launcher->title, names,
                   p->launcher->advice != NULL
                       ? p->launcher->advice
                       : "give --nnodes, --node-rank and --rdzv-endpoint, or --standalone");
}

static int read_number(char *const *envp, const struct place *p, const char *names, uint32_t least,
                       uint32_t most, uint32_t *ret, struct err *err) {
    const char *text = launcher_value(envp, names, NULL);
    uint32_t value;
    if (text == NULL || parse_u32(text, &value) < 0 || value < least || value > most)
        return bad(p, names, err);
    *ret = value;
    return 0;
}

/* A name that comes from elsewhere can be long. Behind "#" is what differs between nodes. */
static void name_run(char *const *envp, const char *id, struct place *p) {
    const struct launcher *row = p->launcher;
    const char *attempt = launcher_value(envp, row->attempt, NULL);
    p->from.run_id = keep_name(envp, row->run_id, p, PLACE_NAME_RUN_ID);
    if (p->from.run_id == NULL)
        p->from.run_id = p->from.first_host != NULL ? p->from.first_host : row->title;
    if (id == NULL)
        id = p->first_host != NULL ? p->first_host : "none";
    size_t n = (size_t)snprintf(p->run_id, sizeof p->run_id, "%s-%.*s", row->name,
                                (int)MIN2(strcspn(id, "#"), sizeof p->run_id / 2), id);
    if (attempt != NULL && strcmp(attempt, "0") != 0)
        (void)snprintf(p->run_id + n, sizeof p->run_id - n, ".%.16s", attempt);
    if (attempt != NULL && parse_u32(attempt, &p->restarts) < 0)
        p->restarts = 0;
    place_clean_run_id(p);
}

/* ---- nodes ---- */

/* The next of the hosts in a text; NULL: none. *ret_len is its length. */
static const char *next_host(const char *at, enum launcher_hosts form, size_t *ret_len) {
    const char *stops = form == LAUNCHER_HOSTS_JSON ? "[]\", \t\r\n" : ", \t\r\n";
    at += strspn(at, stops);
    *ret_len = strcspn(at, stops);
    return *ret_len > 0 ? at : NULL;
}

/* Counts the hosts, keeps the first, and finds this one. *ret_self: UINT32_MAX: not there. */
static uint32_t count_hosts(char *const *envp, struct place *p, uint32_t *ret_self) {
    const struct launcher *row = p->launcher;
    const char *at = launcher_value(envp, row->hosts, NULL);
    const char *self = launcher_value(envp, row->self, NULL);
    uint32_t count = 0;
    size_t n;
    *ret_self = UINT32_MAX;
    for (; at != NULL && (at = next_host(at, row->hosts_form, &n)) != NULL; at += n) {
        if (count == 0)
            p->first_host = xstrndup(at, n);
        if (self != NULL && strlen(self) == n && memcmp(at, self, n) == 0)
            *ret_self = count;
        if (++count == TASKS_NODES_MAX)
            break;
    }
    p->from.first_host = count > 0 ? keep_name(envp, row->hosts, p, PLACE_NAME_HOSTS) : NULL;
    return count;
}

static int read_sizes(char *const *envp, struct place *p, struct err *err) {
    const struct launcher *row = p->launcher;
    uint32_t self, hosts = count_hosts(envp, p, &self);
    int r = 0;
    p->n_nodes = hosts;
    if (row->nodes != NULL)
        r = read_number(envp, p, row->nodes, 1, TASKS_NODES_MAX, &p->n_nodes, err);
    if (r == 0 && row->node_rank != NULL)
        r = read_number(envp, p, row->node_rank, 0, p->n_nodes - 1, &p->node_id, err);
    else if (r == 0 && self == UINT32_MAX)
        r = bad(p, row->self, err);
    else if (r == 0)
        p->node_id = self;
    const char *const from_nodes = row->nodes != NULL ? row->nodes : row->hosts,
                      *const from_rank = row->node_rank != NULL ? row->node_rank : row->self;
    p->from.n_nodes = keep_name(envp, from_nodes, p, PLACE_NAME_NODES);
    p->from.proc_id = keep_name(envp, from_rank, p, PLACE_NAME_RANK);
    return r;
}

static int read_node(char *const *envp, struct place *p, struct err *err) {
    const struct launcher *row = p->launcher;
    uint32_t first = 0;
    int r = read_sizes(envp, p, err);
    if (r == 0 && launcher_value(envp, row->first_rank, NULL) != NULL)
        r = read_number(envp, p, row->first_rank, 0, p->n_nodes - 1, &first, err);
    if (r < 0) {
        p->n_nodes = 0;
        return r;
    }
    const char *host = launcher_value(envp, row->first_host, NULL);
    const char *port = launcher_value(envp, row->port, NULL);
    if (host != NULL) {
        free(p->first_host);
        p->first_host = xstrdup(host);
        p->from.first_host = keep_name(envp, row->first_host, p, PLACE_NAME_HOSTS);
    }
    p->is_first = p->node_id == first;
    if (p->first_host == NULL && p->is_first && row->first_host != NULL) {
        p->first_host = xstrdup("localhost"); /* this node does not look for itself */
        p->from.first_host = p->from.proc_id;
    }
    if (port != NULL && parse_port(port, &p->first_port) < 0)
        p->first_port = 0;
    p->proc_id = p->node_id;
    p->n_tasks = p->n_nodes;
    p->node_tasks = p->most_tasks = 1;
    const char *gpus = launcher_value(envp, row->nproc, NULL);
    p->nproc_is_gpus = gpus != NULL && parse_u32(gpus, &p->nproc) == 0 && p->nproc > 0;
    p->from.nproc = p->nproc_is_gpus ? keep_name(envp, row->nproc, p, PLACE_NAME_NPROC) : NULL;
    if (!p->nproc_is_gpus)
        p->nproc = 0;
    return 0;
}

/* ---- inside ---- */

static int read_tasks(char *const *envp, struct place *p, struct err *err) {
    const struct launcher *row = p->launcher;
    int r = read_number(envp, p, row->tasks, 1, UINT32_MAX, &p->n_tasks, err);
    if (r == 0)
        r = read_number(envp, p, row->task, 0, p->n_tasks - 1, &p->proc_id, err);
    p->from.n_nodes = keep_name(envp, row->tasks, p, PLACE_NAME_NODES);
    p->from.proc_id = keep_name(envp, row->task, p, PLACE_NAME_RANK);
    if (r == 0 && p->n_tasks == 1)
        p->n_nodes = p->node_tasks = p->most_tasks = 1;
    p->is_first = p->proc_id == 0;
    return r;
}

/* -ENOENT: the row does not apply. */
static int read_inside(char *const *envp, const struct place_probes *probes,
                       const struct place_facts *facts, struct place *p, struct err *err) {
    const struct launcher *row = p->launcher;
    struct place_pmi pmi = {0};
    int r = read_tasks(envp, p, err);
    if (r < 0 || p->n_tasks == 1 || row->sizes == LAUNCHER_BY_VARIABLES || probes->pmi == NULL)
        return r;
    r = probes->pmi(probes->arg, row, envp, &pmi, err);
    if (r == -ENOSYS || (r == -ENOENT && facts->ancestor != NULL))
        return 0; /* n_nodes stays 0: how the tasks find each other is not known */
    if (r < 0)
        return r;
    p->n_tasks = pmi.n_tasks;
    p->proc_id = pmi.rank;
    p->n_nodes = pmi.n_nodes;
    p->node_id = pmi.node_id;
    p->node_tasks = p->nproc = pmi.node_tasks;
    p->most_tasks = pmi.most_tasks;
    p->local_id = pmi.local_id;
    p->is_first = pmi.node_id == 0;
    p->first_host = pmi.first_host;
    p->from.first_host = p->from.n_nodes = p->from.nproc = row->title;
    if (pmi.run_id != NULL)
        name_run(envp, pmi.run_id, p);
    free(pmi.run_id);
    return 0;
}

/* ---- an allocation ---- */

/* Adds every second word of "host1 8 host2 8" to a list. */
static void add_pairs(const char *text, struct strbuf *list) {
    size_t n;
    for (bool is_host = true; (text = next_host(text, LAUNCHER_HOSTS_LINES, &n)) != NULL;
         text += n, is_host = !is_host)
        if (is_host)
            strbuf_printf(list, "%s%.*s", list->len > 0 ? "," : "", (int)n, text);
}

static int read_hosts(char *const *envp, const struct place_probes *probes, struct place *p,
                      struct err *err) {
    const struct launcher *row = p->launcher;
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    _cleanup_(hosts_fini) struct hosts hosts = {0};
    _cleanup_(freep) char *text = NULL;
    const char *value = launcher_value(envp, row->hosts, NULL);
    struct hosts_input in = {0};
    p->from.job_nodelist = keep_name(envp, row->hosts, p, PLACE_NAME_HOSTS);
    if (row->hosts_form == LAUNCHER_HOSTS_FILE) {
        text = probes->file != NULL ? probes->file(probes->arg, value) : NULL;
        if (text == NULL)
            return err_set(err, -EINVAL,
                           "can't read %.200s, the hosts of this job of %s (%s); give them with "
                           "--hostfile, or --standalone for this host alone",
                           value, row->title, p->from.job_nodelist);
        in = (struct hosts_input){.file = value, .text = text, .len = strlen(text)};
    } else {
        add_pairs(value, &list);
        in.list = strbuf_text(&list);
    }
    int r = hosts_read(&in, &hosts, err);
    if (r < 0)
        return r;
    strbuf_clear(&list);
    for (size_t i = 0; i < hosts.n; i++)
        strbuf_printf(&list, "%s%s", i > 0 ? "," : "", hosts.items[i].name);
    p->job_nodes = (uint32_t)hosts.n;
    p->job_nodelist = strbuf_take(&list);
    return 0;
}

static int read_alloc(char *const *envp, const struct place_probes *probes, struct place *p,
                      struct err *err) {
    const struct launcher *row = p->launcher;
    const char *node = launcher_value(envp, row->node_rank, NULL);
    int r = read_hosts(envp, probes, p, err);
    if (r == 0 && node != NULL && strcmp(node, "0") != 0 && p->job_nodes > 1)
        return err_set(err, -EINVAL,
                       "this is host %.20s of the %u of %s job %.100s (%s), and something else "
                       "started muster here; %s",
                       node, p->job_nodes, row->title, launcher_value(envp, row->run_id, NULL),
                       row->node_rank, row->advice);
    return r;
}

/* ---- all of it ---- */

static int read_row(char *const *envp, const struct place_probes *probes,
                    const struct place_facts *facts, struct place *p, struct err *err) {
    int r = 0;
    switch (p->launcher->kind) {
    case LAUNCHER_NODES: r = read_node(envp, p, err); break;
    case LAUNCHER_INSIDE: r = read_inside(envp, probes, facts, p, err); break;
    case LAUNCHER_ALLOC: r = read_alloc(envp, probes, p, err); break;
    }
    if (p->run_id[0] == '\0' && r != -ENOENT)
        name_run(envp, launcher_value(envp, p->launcher->run_id, NULL), p);
    return r;
}

/* What Slurm's variables say is of what is around this launcher. */
static void forget_slurm(struct place *p) {
    p->slurm = PLACE_SLURM_NONE;
    p->first_host = NULL;
    p->run_id[0] = '\0';
    p->n_nodes = p->n_tasks = p->node_tasks = p->most_tasks = p->nproc = 0;
    p->node_id = p->local_id = p->proc_id = 0;
    p->nproc_is_gpus = false;
    memset(&p->from, 0, sizeof p->from);
    if (p->launcher->kind == LAUNCHER_INSIDE)
        return;
    p->job_id = p->job_nodelist = NULL;
    p->job_nodes = 0;
}

int place_read_launcher(char *const *envp, const struct place_probes *probes,
                        const struct place_facts *facts, struct place *p, struct err *err) {
    for (const struct launcher *row = launchers; (row = launcher_by_variables(envp, row)) != NULL;
         row++) {
        if (!is_possible(row, facts, p))
            continue;
        const struct place before = *p;
        p->launcher = row;
        p->launcher_pid = facts->ancestor_pid;
        forget_slurm(p);
        int r = read_row(envp, probes, facts, p, err);
        if (r == -ENOENT) {
            *p = before;
            continue;
        }
        free(before.first_host);
        if (p->job_id == NULL)
            free(before.job_id);
        if (p->job_nodelist != before.job_nodelist)
            free(before.job_nodelist);
        return r;
    }
    return 0;
}
