#include "cli/jobs/find_job_io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/jobs/run_line_io.h"
#include "cli/options/job_options.h"
#include "cli/options/rdzv_text.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/helper_call.h"
#include "launcher/agent/agent_io.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rendezvous/operate/recent_runs_io.h"

extern char **environ;

static struct registry_entry *add(struct job_found *found) {
    found->list = xrealloc(found->list, (found->n + 1) * sizeof *found->list);
    struct registry_entry *e = &found->list[found->n++];
    *e = (struct registry_entry){.uid = geteuid()};
    return e;
}

void job_found_fini(struct job_found *found) {
    free(found->list);
    free(found->arbiter_dir);
    *found = (struct job_found){0};
}

static bool is_wanted(const struct job_place *place, const struct registry_entry *e) {
    return place->run_id == NULL || registry_is_of_run(e, place->run_id) ||
           (place->begins && run_id_begins(e->run_id, place->run_id));
}

static bool has_own(const struct job_place *place, const struct registry_entry *all, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (all[i].uid == geteuid() && is_wanted(place, &all[i]))
            return true;
    return false;
}

/* Whether a run of this user has that whole id and has perhaps ended. */
static bool was_here(const char *run_id) {
    _cleanup_(freep) struct recent_run *runs = NULL;
    size_t n;
    if (recent_runs_list(&runs, &n, NULL) < 0)
        return false;
    ssize_t found = recent_runs_find(runs, n, run_id);
    return found >= 0 && strcmp(runs[found].run_id, run_id) == 0;
}

/* With heads; of other users only if wanted. A run id can be the beginning of one that none has. */
static int list_here(struct job_place *place, struct registry_entry **ret, size_t *ret_n,
                     struct err *err) {
    struct registry_entry *all = NULL;
    size_t n = 0, kept = 0;
    int r = registry_list_all(&all, &n, err);
    if (r < 0)
        return r;
    place->begins = place->run_id != NULL;
    for (size_t i = 0; i < n && place->begins; i++)
        place->begins = !registry_is_of_run(&all[i], place->run_id);
    place->begins = place->begins && !was_here(place->run_id);
    bool others = place->all_users || (place->run_id != NULL && !has_own(place, all, n));
    for (size_t i = 0; i < n; i++)
        if (others || all[i].uid == geteuid())
            all[kept++] = all[i];
    *ret = all;
    *ret_n = kept;
    return 0;
}

/* Files that a container left behind are not listed beside a job that is known to run. */
static bool is_left_over(const struct job_place *place, const struct registry_entry *entries,
                         size_t n, const struct registry_entry *e) {
    for (size_t i = 0; i < n && e->foreign && place->run_id == NULL; i++)
        if (!entries[i].foreign && (entries[i].head_nodes > 0) == (e->head_nodes > 0))
            return true;
    return false;
}

/* The agents, or the heads, of this machine. *ret_one_job: all are of one, of one user. */
static void take(const struct job_place *place, const struct registry_entry *entries, size_t n,
                 bool heads, struct job_found *ret, bool *ret_one_job) {
    *ret_one_job = true;
    for (size_t i = 0; i < n; i++) {
        const struct registry_entry *e = &entries[i];
        if ((e->head_nodes > 0) != heads || !is_wanted(place, e) ||
            is_left_over(place, entries, n, e))
            continue;
        *add(ret) = *e;
        *ret_one_job = *ret_one_job && strcmp(e->run_id, ret->list[0].run_id) == 0 &&
                       e->uid == ret->list[0].uid;
        if (heads)
            ret->head = *e;
    }
}

static int find_several(const struct job_place *place, const char *text, struct err *err) {
    if (place->run_id != NULL && place->begins)
        return err_set(
            err, -EEXIST,
            "several jobs have an id that begins with '%.100s'; choose one:", place->run_id);
    return err_set(err, -EEXIST, "%s", text);
}

static void take_ended(const struct recent_run *run, struct job_found *ret) {
    uint64_t now_ns = clock_wall_ns(), end_ns = run->ended_wall_ns;
    ret->closed = true;
    ret->overview =
        (struct overview){.state = GROUP_CLOSED,
                          .outcome = run->outcome,
                          .since_ns = end_ns != 0 && end_ns < now_ns ? now_ns - end_ns : 0,
                          .job_ns = end_ns > run->since_wall_ns ? end_ns - run->since_wall_ns : 0};
    (void)snprintf(ret->overview.reason, sizeof ret->overview.reason, "%s",
                   end_ns != 0
                       ? run->reason
                       : "muster did not record how it ended, for example because it was killed");
    (void)strcpy(ret->run_id, run->run_id);
}

/* No agent runs: a run of this user that has ended. -ENOENT has no sentence. */
static int find_ended(struct job_place *place, struct job_found *ret, struct err *err) {
    _cleanup_(freep) struct recent_run *runs = NULL;
    size_t n;
    if (place->run_id == NULL || recent_runs_list(&runs, &n, NULL) < 0)
        return -ENOENT;
    ssize_t found = recent_runs_find(runs, n, place->run_id);
    if (found >= 0)
        take_ended(&runs[found], ret);
    for (size_t i = 0; i < n && found == -EEXIST; i++) {
        bool known = !run_id_begins(runs[i].run_id, place->run_id);
        for (size_t k = 0; k < ret->n && !known; k++)
            known = strcmp(ret->list[k].run_id, runs[i].run_id) == 0;
        if (!known)
            (void)strcpy(add(ret)->run_id, runs[i].run_id);
    }
    return found == -EEXIST ? find_several(place, "", err) : found >= 0 ? 0 : -ENOENT;
}

#define SQUEUE_TIMEOUT_NS (5 * NS_PER_S)

/* On a login node of Slurm, where no process of a job runs: this user's jobs, or the one with the
 * number. -ENOENT has no sentence. */
static int find_in_slurm(const struct job_place *place, struct job_found *ret, struct err *err) {
    const char *number = place->run_id, *line;
    if (number != NULL && !run_id_is_job(number))
        return -ENOENT;
    char user[32], jobs[RDZV_RUN_ID_MAX + 16] = "";
    const char *const words[] = {"squeue",      "--noheader", "--states=RUNNING",
                                 "--format=%A", user,         number != NULL ? jobs : NULL,
                                 NULL};
    (void)snprintf(user, sizeof user, "--user=%u", (unsigned)geteuid());
    if (number != NULL)
        (void)snprintf(jobs, sizeof jobs, "--jobs=%s", number);
    struct helper_call *call = NULL;
    struct helper_answer answer;
    if (helper_command(NULL, words, false, SQUEUE_TIMEOUT_NS, NULL, NULL, &call) < 0)
        return -ENOENT;
    helper_call_wait(call, &answer);
    for (line = answer.code == 0 ? answer.data : ""; *line >= '0' && *line <= '9';) {
        size_t n = strspn(line, "0123456789");
        (void)snprintf(add(ret)->run_id, RDZV_RUN_ID_MAX, "%.*s", (int)MIN2(n, (size_t)20), line);
        line += n + strspn(line + n, " \n");
    }
    helper_call_free(call);
    if (ret->n == 0)
        return -ENOENT;
    if (ret->n > 1)
        return err_set(err, -EEXIST,
                       "no job of yours is known on this machine; choose one of yours in Slurm:");
    (void)snprintf(ret->head.head_ask, sizeof ret->head.head_ask,
                   "srun --jobid=%s --overlap -N1 -n1 muster", ret->list[0].run_id);
    return err_set(err, -EREMOTE, "Slurm's job %s runs on other machines", ret->list[0].run_id);
}

static int find_none(struct job_place *place, struct job_found *ret, struct err *err) {
    int r = find_ended(place, ret, err);
    if (r == -ENOENT)
        r = find_in_slurm(place, ret, err);
    if (r != -ENOENT)
        return r;
    if (place->run_id != NULL)
        return err_set(err, -ENOENT,
                       "no job '%.100s' is known on this machine; give the JOB's address: "
                       "HOST:PORT, dir:/path or etcd://…",
                       place->run_id);
    _cleanup_(freep) struct recent_run *runs = NULL;
    size_t n, last = 0;
    if (recent_runs_list(&runs, &n, NULL) == 0 && n > 0) {
        for (size_t i = 1; i < n; i++)
            last = runs[i].ended_wall_ns > runs[last].ended_wall_ns ? i : last;
        return err_set(err, -ENOENT,
                       "no job of yours runs on this machine; how the last one ended: muster "
                       "status %.200s",
                       runs[last].run_id);
    }
    return err_set(err, -ENOENT,
                   "no job%s is known on this machine; give the JOB's address: HOST:PORT, "
                   "dir:/path or etcd://…",
                   place->all_users && geteuid() == 0 ? "" : " of yours");
}

/* It is only searched for if no agent was found here. */
static int find_head(struct job_place *place, const struct registry_entry *entries, size_t n,
                     struct job_found *ret, struct err *err) {
    bool one_job;
    take(place, entries, n, true, ret, &one_job);
    if (ret->n == 0)
        return find_none(place, ret, err);
    if (ret->n > 1)
        return find_several(
            place, "several jobs on other machines were started from here; choose one:", err);
    return err_set(err, -EREMOTE,
                   "the job '%.100s' was started here by process %d, and runs on other machines "
                   "(%u node%s)",
                   ret->head.run_id, ret->head.pid, ret->head.head_nodes,
                   ret->head.head_nodes == 1 ? "" : "s");
}

static int find_here(struct job_place *place, struct job_found *ret, struct err *err) {
    _cleanup_(freep) struct registry_entry *entries = NULL;
    size_t n = 0;
    bool one_job;
    int r = list_here(place, &entries, &n, err);
    if (r < 0)
        return r;
    take(place, entries, n, false, ret, &one_job);
    if (ret->n == 0)
        return find_head(place, entries, n, ret, err);
    if (!one_job)
        return find_several(place, "several jobs run on this machine; choose one:", err);
    if (place->one_agent && ret->n > 1)
        return err_set(err, -EEXIST, "several agents of that job run on this machine; choose one:");
    return 0;
}

/* Whether this process is still that head. */
static bool is_still(const struct registry_entry *head) {
    _cleanup_(freep) struct registry_entry *entries = NULL;
    struct err err = {0};
    size_t n = 0;
    bool found = false;
    if (registry_list_all(&entries, &n, &err) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        found = found || (entries[i].pid == head->pid && !entries[i].foreign &&
                          strcmp(entries[i].run_id, head->run_id) == 0);
    return found;
}

void job_await_end(const struct registry_entry *agent) {
    _cleanup_(file_close) int fd = (int)syscall(SYS_pidfd_open, agent->pid, 0);
    if (fd >= 0)
        (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 200);
}

/* The pid can't come to mean another process between the look and the signal. */
int job_stop_head(const struct registry_entry *head, struct err *err) {
    _cleanup_(file_close) int fd = (int)syscall(SYS_pidfd_open, head->pid, 0);
    int r = fd < 0 ? -errno : 0;
    if (head->foreign)
        r = -EREMOTE;
    else if (!is_still(head))
        r = -ESRCH;
    else if (fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) < 0)
        r = -errno;
    else if (r == -ENOSYS) /* before Linux 5.3 */
        r = kill(head->pid, SIGTERM) < 0 ? -errno : 0;
    if (r == -EREMOTE)
        return err_set(err, r,
                       "the launcher process of job '%.100s' is process %d of a container or of "
                       "another machine: end it there",
                       head->run_id, head->pid);
    if (r == -ESRCH)
        return err_set(err, r, "the job '%.100s' has just ended", head->run_id);
    if (r < 0)
        return err_set(err, r, "can't end the launcher process of the job '%.100s', process %d: %s",
                       head->run_id, head->pid, strerror(-r));
    return 0;
}

/* For root: of another user's agent at the LISTENER that muster ps shows; else its own. */
static uint32_t owner_of(const struct registry_entry *t) {
    _cleanup_(freep) struct registry_entry *entries = NULL;
    struct err err = {0};
    size_t n = 0;
    if (geteuid() != 0 || registry_list_all(&entries, &n, &err) < 0)
        return geteuid();
    for (size_t i = 0; i < n; i++)
        if (entries[i].port == t->port && strcmp(entries[i].addr, t->addr) == 0)
            return entries[i].uid;
    return geteuid();
}

/* The leader has one of the ports, and other programs may have others. */
static int find_host(const struct rdzv_place *place, struct job_found *ret, struct err *err) {
    for (unsigned i = 0; i < MAX2(place->ports.n, 1u); i++) {
        struct registry_entry *t = add(ret);
        if (strlen(place->host) >= sizeof t->addr)
            return err_set(err, -EINVAL, "the endpoint's host is too long: %.100s…", place->host);
        (void)strcpy(t->addr, place->host);
        t->port = place->ports.n > 0 ? place->ports.list[i] : JOB_C10D_PORT;
        t->uid = owner_of(t);
    }
    return 0;
}

/* Uses the rules of "muster run", so that endpoint, id and conf have the same meaning. */
static int read_arbiter(const struct job_place *place, struct job_spec *ret, struct err *err) {
    if (place->run_id == NULL)
        return err_set(err, -EINVAL,
                       "which job at %.300s? Give its --rdzv-id; \"muster ps\" shows those of this "
                       "machine",
                       place->endpoint);
    _cleanup_(words_freep) char **words = NULL;
    size_t n_words = 0;
    words_add(&words, &n_words, xstrdup("run"));
    words_add(&words, &n_words, xasprintf("--rdzv-endpoint=%s", place->endpoint));
    words_add(&words, &n_words, xasprintf("--rdzv-id=%s", place->run_id));
    if (place->conf != NULL)
        words_add(&words, &n_words, xasprintf("--rdzv-conf=%s", place->conf));
    words_add(&words, &n_words, xstrdup("--no-python"));
    words_add(&words, &n_words, xstrdup("true"));
    /* Variables about a job's nodes and workers do not matter here. */
    char *envp[8];
    size_t n = 0;
    for (char **e = environ; *e != NULL && n < ARRAY_SIZE(envp) - 1; e++)
        if (strncmp(*e, "MUSTER_ETCD_", 12) == 0)
            envp[n++] = *e;
    envp[n] = NULL;
    _cleanup_(strbuf_fini) struct strbuf warnings = {0};
    return job_options_read((int)n_words, words, envp, &run_line_probes, &warnings, ret, err);
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
    struct arbiter_record record;
    int r = read_arbiter(place, &spec, err);
    if (r != 0)
        return r < 0 ? -EINVAL
                     : err_set(err, -EINVAL, "\"%.200s\" is not an endpoint", place->endpoint);
    (void)snprintf(ret->run_id, sizeof ret->run_id, "%s", spec.run_id);
    r = job_arbiter_new(loop, &spec, true, place->timeout_ns, &arbiter, err);
    if (r == 0 && spec.arbiter_dir != NULL)
        ret->arbiter_dir = xstrdup(spec.arbiter_dir);
    if (r == 0)
        r = read_record(loop, arbiter, &record, err);
    arbiter_free(arbiter);
    if (r < 0)
        return r == -EINVAL ? -EHOSTUNREACH : r;
    ret->closed = record.closed;
    ret->overview =
        (struct overview){.state = GROUP_CLOSED, .epoch = record.epoch, .outcome = record.outcome};
    (void)snprintf(ret->overview.reason, sizeof ret->overview.reason, "%.511s", record.reason);
    if (ret->closed)
        return 0;
    const struct rdzv_peer *leader = &record.leader;
    if (record.epoch == 0 || leader->incarnation == 0 || leader->addr[0] == '\0')
        return err_set(
            err, -ENOENT,
            "no agent has led the run '%.100s' there yet; check the endpoint and --rdzv-id",
            spec.run_id);
    struct registry_entry *t = add(ret);
    (void)strcpy(t->addr, leader->addr);
    (void)strcpy(t->run_id, ret->run_id);
    t->port = leader->port;
    return 0;
}

int job_find(struct loop *loop, const struct job_place *place, struct job_found *ret,
             struct err *err) {
    struct job_place here = *place;
    *ret = (struct job_found){0};
    if (place->run_id == NULL) /* people name a job as "muster ps" shows it */
        here.run_id = place->endpoint;
    if (place->endpoint == NULL || place->run_id == NULL) {
        int r = find_here(&here, ret, err);
        bool found = r == 0 || r == -EEXIST || r == -EREMOTE;
        if (found || place->endpoint == NULL || run_id_is_job(place->endpoint)) /* no host's name */
            return r;
    }
    _cleanup_(rdzv_place_fini) struct rdzv_place parsed = {0};
    int r = rdzv_place_parse(place->endpoint, &parsed, err);
    if (r == -ENODATA)
        return err_set(err, -EINVAL, "the JOB is empty");
    if (r < 0)
        return r;
    if (place->one_agent && (parsed.host == NULL || parsed.ports.n > 1))
        return err_set(err, -EINVAL, "\"%.200s\" %s the node's, as HOST:PORT", place->endpoint,
                       parsed.host != NULL ? "is not a single agent; give"
                                           : "has no agent of its own; name");
    return parsed.host != NULL ? find_host(&parsed, ret, err)
                               : find_by_arbiter(loop, place, ret, err);
}
