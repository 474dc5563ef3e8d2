/* What the user sees of the agent: which nodes it waits for, what failed, and how the run ended. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/report/failure_text.h"
#include "launcher/supervise/sweep_io.h"
#include "launcher/worker/error_file.h"

/* For the console's queue, if its reader is not waited for. */
#define AGENT_SHOW_LAST_MS 2000
/* After SIGTERM and the like, for a reader that takes nothing: SIGKILL may follow soon, and then
 * the report of what is lost would be lost, too. */
#define AGENT_SHOW_STALLED_MS 5000
#define REPEAT_NS (30 * NS_PER_S) /* without a terminal, the same kind of waiting is logged again */
#define TICK_NS (1 * NS_PER_S)    /* on a terminal, the time that has passed is updated */

/* How long an agent looks for its leader before it reports that nothing listens at the endpoint,
 * because nodes start at different times. Of a short join timeout it is a quarter. */
#define QUIET_NS (2500 * NS_PER_MS)
/* Of an agent whose leader reports the missing nodes; the second if its host does not answer. */
#define BRIEF_NS (10 * NS_PER_S)
#define BRIEF_SILENT_NS (4 * NS_PER_S)
#define ALL_COME_NS (2 * NS_PER_S) /* for the leader: srun and ssh start them all at once */

static void show_status(struct agent *a);
static void on_waiting_timer(void *arg);

static void on_writer(void *arg, pid_t pid) {
    struct agent *a = arg;
    spare_add(guardian_spared(a->config.link), pid);
}

void agent_show_begin(struct agent *a) {
    a->console = console_new(a->loop, STDOUT_FILENO, STDERR_FILENO);
    log_set_sink(console_log_sink, a->console);
    a->search_ns = clock_now_ns();
    a->waiting_timer = loop_timer_new(a->loop, on_waiting_timer, a);
    a->writer = writer_new(a->loop, a->console, a->config.spec, on_writer, a);
}

int agent_show_end_signals(struct agent *a) {
    sigset_t set;
    (void)sigemptyset(&set);
    for (uint32_t i = 0; i < a->config.spec->n_signals; i++)
        (void)sigaddset(&set, a->config.spec->signals[i]);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool leaves(void *arg) {
    struct agent *a = arg;
    struct signalfd_siginfo si;
    while (read(a->end_signals, &si, sizeof si) == sizeof si)
        agent_event(a, &(struct life_event){.kind = LIFE_EVENT_SIGNAL, .signo = (int)si.ssi_signo});
    return a->left_output;
}

static uint32_t patience_ms(const struct agent *a) {
    if (a->life.interrupts > 0)
        return AGENT_SHOW_LAST_MS;
    return a->life.signo == 0 || a->life.signo == SIGINT ? WRITER_PATIENT : AGENT_SHOW_STALLED_MS;
}

bool agent_show_end(struct agent *a) {
    bool lost = false;
    if (a->console == NULL)
        return false;
    struct writer_patience patience = {
        .ms = patience_ms(a),
        .while_taken = a->life.interrupts == 0,
        .fd = a->end_signals,
        .leave = leaves,
        .arg = a,
    };
    a->left_output = a->life.interrupts > 0;
    if (a->writer != NULL)
        lost = writer_finish(a->writer, &patience);
    writer_free(a->writer);
    /* what is left are our own lines */
    (void)console_flush(a->console, clock_now_ns() + AGENT_SHOW_LAST_MS * NS_PER_MS);
    log_set_sink(NULL, NULL);
    loop_timer_free(TAKE_PTR(a->waiting_timer));
    console_free(a->console);
    file_close(&a->end_signals);
    return lost;
}

/* Other agents write to the same place, and the one that leads speaks for all. */
static bool is_beside_others(const struct agent *a) {
    return a->config.spec->output != JOB_OUTPUT_OWN || a->head != NULL;
}

bool agent_show_is_brief(const struct agent *a) { return is_beside_others(a) && !agent_leads(a); }

void agent_show_leads(const struct agent *a) {
    log_set_name(agent_show_is_brief(a) ? a->host : NULL);
}

enum log_level agent_show_level(const struct agent *a, enum log_level level) {
    return agent_show_is_brief(a) ? LOG_LEVEL_INFO : level;
}

static enum log_level shared_level(const struct agent *a) {
    return agent_show_level(a, LOG_LEVEL_NOTICE);
}

/* Shows a live line on a terminal, else a plain one when `kind` changes, or after REPEAT_NS. */
static void show_progress(struct agent *a, const char *kind, const char *text) {
    if (!log_enabled(LOG_LEVEL_NOTICE))
        return;
    char line[CONSOLE_STATUS_MAX];
    (void)snprintf(line, sizeof line, "muster: %.500s", text);
    if (console_status(a->console, line))
        return;
    uint64_t now = clock_now_ns();
    if (strcmp(a->shown, kind) == 0 && now < a->shown_ns + REPEAT_NS)
        return;
    (void)snprintf(a->shown, sizeof a->shown, "%s", kind);
    a->shown_ns = now;
    log_notice("%s", text);
}

/* "0:11 of 10:00" */
static void add_time_of(struct strbuf *s, uint64_t passed_ns, uint64_t total_ns) {
    uint64_t passed = MIN2(passed_ns, total_ns) / NS_PER_S, total = total_ns / NS_PER_S;
    strbuf_printf(s, "%" PRIu64 ":%02" PRIu64 " of %" PRIu64 ":%02" PRIu64, passed / 60,
                  passed % 60, total / 60, total % 60);
}

/* Where this node looks although nobody said so. */
static void add_assumed(const struct agent *a, struct strbuf *s) {
    const struct job_spec *spec = a->config.spec;
    if (spec->endpoint_from == JOB_ENDPOINT_ASSUMED)
        strbuf_printf(s, " at %s:%u (no --master-addr given)", spec->endpoint_host,
                      spec->endpoint_port);
}

/* Before the live line, in which there is not always room for it. */
static void tell_assumed(struct agent *a) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    add_assumed(a, &s);
    if ((a->logged & AGENT_LOGGED_ASSUMED) != 0 || s.len == 0)
        return;
    a->logged |= AGENT_LOGGED_ASSUMED;
    log_notice("looking for the other nodes%s", strbuf_text(&s));
}

static const char *and_again(const struct agent *a) {
    return a->waiting_for == RDZV_WAIT_ELECTION ? "" : "; trying again";
}

/* Shows a->waiting in a line of its own, once, if the terminal would cut `text`. */
static void show_cut(struct agent *a, const char *text) {
    _cleanup_(freep) char *line = xasprintf("muster: %s", text);
    if (console_status_fits(a->console, line) || strcmp(a->shown, a->waiting) == 0)
        return;
    (void)snprintf(a->shown, sizeof a->shown, "%s", a->waiting);
    log_notice("%s%s", a->waiting, and_again(a));
}

static uint64_t quiet_ns(const struct agent *a) {
    enum rdzv_finding found =
        a->client != NULL ? rdzv_client_finding(a->client) : RDZV_FINDING_ELSE;
    if (agent_show_is_brief(a))
        return found == RDZV_FINDING_SILENCE ? BRIEF_SILENT_NS : BRIEF_NS;
    return found == RDZV_FINDING_NOTHING ? MIN2(QUIET_NS, a->config.spec->rdzv.join_timeout_ns / 4)
                                         : 0;
}

static uint64_t all_come_ns(const struct agent *a) {
    return is_beside_others(a) && !log_enabled(LOG_LEVEL_INFO) ? ALL_COME_NS : 0;
}

/* A terminal may cut the end of the live line, so the time comes first there. */
static void show_waiting(struct agent *a, uint64_t passed) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    uint64_t join_ns = a->config.spec->rdzv.join_timeout_ns;
    if (console_is_terminal(a->console, CONSOLE_ERR)) {
        add_time_of(&s, passed, join_ns);
        strbuf_printf(&s, ": %s", a->waiting);
        show_cut(a, strbuf_text(&s));
    } else {
        strbuf_printf(&s, "%s%s (", a->waiting, and_again(a));
        add_time_of(&s, passed, join_ns);
        strbuf_add(&s, ")");
    }
    show_progress(a, a->waiting, strbuf_text(&s));
}

static void on_waiting_timer(void *arg) {
    struct agent *a = arg;
    uint64_t now = clock_now_ns(), next = now + TICK_NS;
    uint64_t loud = a->waiting_since_ns + quiet_ns(a);
    if (a->waiting_since_ns > 0 && now < loud)
        next = loud;
    else if (a->waiting_since_ns > 0)
        show_waiting(a, now - a->waiting_since_ns);
    else if (a->status.max_nodes > 0 && now < (loud = a->gathering_since_ns + all_come_ns(a)))
        next = loud;
    else if (a->status.max_nodes > 0)
        show_status(a);
    loop_timer_set(a->waiting_timer, next);
}

static void waits_no_more(struct agent *a) {
    a->waiting[0] = '\0';
    a->waiting_since_ns = a->search_ns = 0;
    a->status.max_nodes = 0;
    loop_timer_set(a->waiting_timer, TIME_NEVER);
}

void agent_show_waiting(struct agent *a, enum rdzv_wait why, const char *text) {
    if (why == RDZV_WAIT_PLACE) {
        waits_no_more(a);
        show_progress(a, text, text);
        return;
    }
    a->waiting_for = why;
    (void)snprintf(a->waiting, sizeof a->waiting, "%s", text);
    if (a->waiting_since_ns == 0)
        a->waiting_since_ns = a->search_ns != 0 ? a->search_ns : clock_now_ns();
    a->status.max_nodes = 0;
    on_waiting_timer(a);
}

void agent_show_leaving(struct agent *a) {
    waits_no_more(a);
    (void)console_status(a->console, NULL);
}

void agent_show_leader(void *arg, uint64_t incarnation, const struct addr *listener, bool first) {
    struct agent *a = arg;
    waits_no_more(a);
    char at[ADDR_TEXT_MAX + 16] = "this node", text[ADDR_TEXT_MAX];
    if (incarnation != a->incarnation) {
        addr_to_text(listener, text);
        (void)snprintf(at, sizeof at, "the agent at %s", text);
    }
    log_line(first ? LOG_LEVEL_INFO : shared_level(a), "%s%s leads from now on",
             first ? "" : "the leader is gone: ", at);
}

static void add_names(struct strbuf *s, const char *before,
                      const char names[RDZV_STATUS_NAMES_MAX][RDZV_HOST_MAX], uint32_t n,
                      uint32_t total) {
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(s, "%s%s", i == 0 ? before : ", ", names[i]);
    if (n > 0 && total > n)
        strbuf_printf(s, " and %u more", total - n);
}

static uint64_t left_of(const struct agent *a) {
    uint64_t passed = clock_now_ns() - a->status_ns;
    return a->status.wait_ns - MIN2(passed, a->status.wait_ns);
}

static void show_status(struct agent *a) {
    if (agent_show_is_brief(a))
        return;
    const struct rdzv_status *st = &a->status;
    _cleanup_(strbuf_fini) struct strbuf s = {0}, time = {0};
    const uint64_t join_ns = a->config.spec->rdzv.join_timeout_ns;
    uint32_t wanted = st->last_call ? st->max_nodes : st->min_nodes;
    /* TIME_NEVER: the leader waits to learn whether a node is alive */
    bool limited = st->wait_ns != TIME_NEVER && !st->last_call;
    bool live = limited && left_of(a) <= join_ns && console_is_terminal(a->console, CONSOLE_ERR);
    if (live) {
        strbuf_add(&time, ", ");
        add_time_of(&time, join_ns - left_of(a), join_ns);
    }
    strbuf_printf(&s, "waiting for nodes%s: %u of %u here", strbuf_text(&time), st->present,
                  wanted);
    add_names(&s, " (", st->names, st->n_names, st->present);
    strbuf_add(&s, st->n_names > 0 ? ")" : "");
    if (st->usable < st->present && st->present >= st->min_nodes)
        strbuf_printf(&s, ", but only %u in whole units of %u nodes of one domain", st->usable,
                      a->config.spec->rdzv.node_unit);
    if (live)
        tell_assumed(a);
    else
        add_assumed(a, &s);
    add_names(&s, "; missing: ", st->missing, st->n_missing, st->n_missing);
    _cleanup_(freep) char *kind = xstrdup(strbuf_text(&s));
    double wait = (double)left_of(a) / (double)NS_PER_S;
    if (st->wait_ns != TIME_NEVER && st->last_call)
        strbuf_printf(&s, "; starting with %u in %.0f s", st->present - st->spares, wait);
    else if (limited && !live)
        strbuf_printf(&s, "; giving up in %.0f s", wait);
    show_progress(a, kind, strbuf_text(&s));
}

void agent_show_status(void *arg, const struct rdzv_status *st) {
    struct agent *a = arg;
    waits_no_more(a);
    if (st->max_nodes == 1 || agent_life_ends(&a->life))
        return;
    a->status = *st;
    a->status_ns = clock_now_ns();
    if (a->gathering_since_ns == 0)
        a->gathering_since_ns = a->status_ns;
    on_waiting_timer(a);
}

void agent_show_formed(struct agent *a, struct generation g, const struct form *f) {
    agent_show_leaving(a);
    a->shown[0] = '\0';
    a->gathering_since_ns = 0;
    a->shown_cause = (struct failure){0};
    bool interesting = f->n_nodes > 1 || g.counter > 1 || a->n_started > 0;
    uint32_t nproc = a->config.spec->nproc;
    char ranks[32];
    if (nproc == 1)
        (void)snprintf(ranks, sizeof ranks, "rank %u", f->first_rank);
    else
        (void)snprintf(ranks, sizeof ranks, "ranks %u-%u", f->first_rank,
                       f->first_rank + nproc - 1);
    log_line(interesting ? shared_level(a) : LOG_LEVEL_INFO,
             "attempt %u: %u node%s, %u worker%s; this is node %u with %s",
             1 + f->restarts_used + f->losses, f->n_nodes, f->n_nodes == 1 ? "" : "s",
             f->world_size, f->world_size == 1 ? "" : "s", f->node_rank, ranks);
}

static bool same_failure(const struct failure *a, const struct failure *b) {
    return a->incarnation == b->incarnation && a->rank == b->rank && a->at_ns == b->at_ns;
}

/* A worker that ends while others need it makes them fail, although its exit looks fine. */
static void show_quitter(struct agent *a, const struct failure *f) {
    uint32_t rank, n = local_workers_ended_well(a->local_workers, &rank);
    char more[32] = "";
    if (n == 0 || failure_noise(f) == 0)
        return;
    if (n > 1)
        (void)snprintf(more, sizeof more, " and %u more here", n - 1);
    log_notice("rank %u%s had already exited with status 0 when rank %u failed, which may have "
               "waited for it",
               rank, more, f->rank);
}

/* Only a hang names many things. An exception stays one line, for those who search for it. */
static void log_cause(const struct agent *a, const struct failure *f, const struct strbuf *text) {
    if (f->kind == FAILURE_HANG)
        log_folded(shared_level(a), "%s", strbuf_text(text));
    else
        log_line(shared_level(a), "%s", strbuf_text(text));
}

static void show_headline(struct agent *a, const struct failure *f,
                          const struct failure_counts *counts) {
    if (a->shown_cause.kind != 0 && same_failure(&a->shown_cause, f))
        return;
    a->shown_cause = *f;
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    failure_headline(f, counts, &s);
    log_cause(a, f, &s);
    show_quitter(a, f);
}

/* The leader sends a cause when it is certain of it. */
void agent_show_stop(struct agent *a, const char *reason, const struct desired *cause) {
    (void)console_status(a->console, NULL);
    if (cause != NULL && cause->has_failure) {
        uint32_t rank, ended = local_workers_ended_well(a->local_workers,
                                                        &rank); /* the leader counts them too */
        show_headline(
            a, &cause->failure,
            &(struct failure_counts){.stopping = cause->n_stopping - MIN2(ended, cause->n_stopping),
                                     .will_restart = cause->will_restart,
                                     .restarts_used = cause->restarts_used,
                                     .max_restarts = cause->max_restarts});
        return;
    }
    if (a->life.signo != 0 || reason[0] == '\0' || strcmp(a->shown, reason) == 0)
        return;
    (void)snprintf(a->shown, sizeof a->shown, "%s", reason);
    uint32_t alive = local_workers_workers_alive(a->local_workers);
    bool again = cause != NULL && cause->kind == DESIRED_STOP && cause->will_restart;
    char stopping[64] = "";
    if (alive > 0)
        (void)snprintf(stopping, sizeof stopping, "; stopping %u worker%s here", alive,
                       alive == 1 ? "" : "s");
    log_line(agent_head_said(a, reason) ? LOG_LEVEL_INFO : shared_level(a), "%s%s%s", reason,
             stopping, again ? "; the job starts again" : "");
}

static void write_whole(const char *to, const struct strbuf *text, const char *variable) {
    int r = file_write_atomic(to, strbuf_text(text), text->len);
    if (r < 0)
        log_warning("can't write the failure to %s ($%s): %s", to, variable, strerror(-r));
}

/* As torchrun does, for the agent's own TORCHELASTIC_ERROR_FILE. */
static void pass_error_on(const struct agent *a, const struct failure *f) {
    const char *to = env_get(a->config.envp, "TORCHELASTIC_ERROR_FILE");
    _cleanup_(freep) char *text = NULL;
    size_t len;
    if (to == NULL || to[0] == '\0' || f->incarnation != a->incarnation ||
        f->error_file[0] == '\0' ||
        file_read_text(f->error_file, ERROR_FILE_MAX_BYTES, &text, &len) < 0)
        return;
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    struct err err = {0};
    if (error_file_for_parent(text, len, failure_exit_code(f), &out, &err) == 0)
        write_whole(to, &out, "TORCHELASTIC_ERROR_FILE");
}

/* For the program that called muster: the Python package. */
static void pass_failure_on(const struct agent *a, const struct failure *f) {
    const char *to = env_get(a->config.envp, "MUSTER_FAILURE_FILE");
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    if (to == NULL || to[0] == '\0')
        return;
    failure_json(a->config.spec->script, f, &out);
    write_whole(to, &out, "MUSTER_FAILURE_FILE");
}

static int64_t utc_offset_s(uint64_t wall_ns) {
    time_t t = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    return localtime_r(&t, &tm) == NULL ? 0 : (int64_t)tm.tm_gmtoff;
}

/* Whether a local worker's stderr went where this agent's report goes. */
static bool was_shown(const struct job_spec *spec, uint32_t local_rank) {
    unsigned redirects = std_map_get(&spec->redirects, local_rank);
    unsigned tee = std_map_get(&spec->tee, local_rank);
    return (spec->console_ranks == NULL || spec->console_ranks[local_rank]) &&
           (redirects & ~tee & STD_ERR) == 0;
}

static void show_failure(struct agent *a, const struct failure *f) {
    const struct job_spec *spec = a->config.spec;
    _cleanup_(strbuf_fini) struct strbuf tail = {0}, block = {0};
    bool here = f->incarnation == a->incarnation && f->kind != FAILURE_NODE;
    bool shown = here && f->local_rank < spec->nproc && was_shown(spec, f->local_rank);
    if (here && !shown)
        local_workers_stderr_tail(a->local_workers, f->local_rank, &tail);
    struct failure_report sheet = {
        .entrypoint = spec->script,
        .failure = f,
        .utc_offset_s = utc_offset_s(f->wall_ns),
        .stderr_tail = tail.len > 0 || shown ? strbuf_text(&tail) : NULL,
    };
    failure_report_text(&sheet, &block);
    /* the leader may have no tail of another node */
    if (!agent_show_is_brief(a) || (tail.len > 0 && f->text[0] == '\0'))
        console_print(a->console, CONSOLE_ERR, strbuf_text(&block), block.len);
    if (f->error_file[0] != '\0' && f->incarnation == a->incarnation)
        worker_logs_keep(local_workers_files(a->local_workers));
    pass_error_on(a, f);
    pass_failure_on(a, f);
}

/* A name for the next run. A job that Slurm has requeued keeps its number. */
static void name_next_run(const struct agent *a, char *ret, size_t size) {
    char next[JOB_RUN_ID_MAX];
    const char *run_id = a->config.spec->run_id;
    job_next_run_id(run_id, next);
    if (a->config.spec->place.restarts > 0)
        (void)snprintf(ret, size,
                       "--rdzv-id=\"%s-${SLURM_RESTART_COUNT:-0}\", as Slurm has requeued the job",
                       run_id);
    else
        (void)snprintf(ret, size, "--rdzv-id=%s", next);
}

/* The run was over before this node joined: the arbiter's record says so. */
static void show_was_closed(const struct agent *a, const struct member_end *end) {
    const struct job_spec *spec = a->config.spec;
    bool success = end->kind == MEMBER_END_SUCCESS;
    char next[JOB_RUN_ID_MAX + 128];
    name_next_run(a, next, sizeof next);
    log_line(success && !end->was_over ? LOG_LEVEL_NOTICE : LOG_LEVEL_ERROR,
             "run '%s' %s: it %s%s%s; to run again, give another name, for example %s%s",
             spec->run_id,
             end->was_over ? "had finished before this agent was started"
                           : "was closed before this node joined",
             success ? "succeeded" : "failed", end->reason[0] != '\0' ? ": " : "", end->reason,
             next, spec->arbiter_dir != NULL ? ", or another directory" : "");
}

/* The exit status of a surplus node, 0 or 1, is the result of a job in which it had no part. */
static void show_never_ran(const struct agent *a) {
    const struct member_end *end = &a->end;
    bool over = end->kind == MEMBER_END_SUCCESS || end->kind == MEMBER_END_FAILED;
    if (over && end->was_spare && a->n_started == 0 && a->config.spec->check == JOB_CHECK_OFF)
        log_notice("this node never ran '%s': the job %s without it, because it got no place in "
                   "the group",
                   a->config.spec->script, end->kind == MEMBER_END_SUCCESS ? "succeeded" : "ran");
}

/* With an arbiter, the reason has the cause. An agent that did not admit this node was reached. */
static void show_no_leader(const struct agent *a, const struct member_end *end) {
    const char *cause = a->arbiter == NULL ? a->waiting : "";
    bool reached = a->waiting_for == RDZV_WAIT_NOT_ADMITTED;
    bool advise = cause[0] != '\0' && a->search_ns != 0 && !reached;
    log_error("%s%s%s%s", end->reason,
              advise ? "; check that the agent at the endpoint runs and can be reached from here"
                     : "",
              cause[0] != '\0' ? "; the last attempt: " : "", cause);
}

static void show_ended(const struct agent *a, const struct member_end *end) {
    _cleanup_(strbuf_fini) struct strbuf where = {0};
    if (a->n_started == 0 && a->config.spec->endpoint_from == JOB_ENDPOINT_ASSUMED) {
        strbuf_add(&where, "; this node looked for the others");
        add_assumed(a, &where);
    }
    log_line(agent_head_said(a, end->reason) ? LOG_LEVEL_INFO
                                             : agent_show_level(a, LOG_LEVEL_ERROR),
             "the job ended: %s%s", end->reason, strbuf_text(&where));
}

/* After the long report, what failed can be read where the cursor is. */
static void show_last_line(const struct agent *a, const struct failure *f) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    failure_last_line(f, &text);
    log_cause(a, f, &text);
}

/* ---- the termination message of a container ----
 *
 * "Determine the Reason for Pod Failure", kubernetes.io: at most 4096 bytes, in this file unless
 * terminationMessagePath names another. */

#define TERMINATION_FILE "/dev/termination-log"

char *termination_line(const char *text) {
    char *line = xmalloc(TERMINATION_BYTES_MAX + 1); /* with a NUL behind it */
    utf8_copy(line, TERMINATION_BYTES_MAX, text);
    for (char *c = line; *c != '\0'; c++)
        if (*c == '\n' || *c == '\t')
            *c = ' ';
    utf8_clean(line, false);
    size_t len = strlen(line);
    memcpy(line + len, "\n", 2);
    return line;
}

void termination_write(char *const *envp, const char *text) {
    const char *service = env_get(envp, "KUBERNETES_SERVICE_HOST");
    struct stat st;
    if (service == NULL || service[0] == '\0')
        return;
    _cleanup_(file_close) int fd = open(TERMINATION_FILE, O_WRONLY | O_APPEND | O_CLOEXEC |
                                                              O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0) {
        _cleanup_(freep) char *line = termination_line(text);
        (void)!write(fd, line, strlen(line)); /* the same is in the container's log */
    }
}

/* For whoever looks at the pod, and not at its log. */
static void tell_container(const struct agent *a, const struct member_end *end) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    bool failed = end->kind == MEMBER_END_FAILED || end->kind == MEMBER_END_REFUSED ||
                  end->kind == MEMBER_END_LEADER_LOST;
    if (!failed || (a->life.signo != 0 && !end->has_failure))
        return;
    if (end->kind == MEMBER_END_FAILED && end->has_failure)
        failure_line(&end->failure, "", &text);
    else
        strbuf_printf(&text, "the job ended: %s", end->reason);
    termination_write(a->config.envp, strbuf_text(&text));
}

void agent_show_outcome(struct agent *a) {
    (void)console_status(a->console, NULL);
    loop_timer_set(a->waiting_timer, TIME_NEVER);
    const struct member_end *end = &a->end;
    tell_container(a, end);
    if (end->was_closed) {
        show_was_closed(a, end);
        return;
    }
    switch (end->kind) {
    case MEMBER_END_NONE:
    case MEMBER_END_LEFT:
    case MEMBER_END_SUCCESS: break;
    case MEMBER_END_REFUSED: log_error("the leader refused this node: %s", end->reason); break;
    case MEMBER_END_LEADER_LOST: show_no_leader(a, end); break;
    case MEMBER_END_FAILED:
        if (end->has_failure) {
            show_headline(a, &end->failure,
                          &(struct failure_counts){.restarts_used = end->restarts_used,
                                                   .max_restarts = end->max_restarts});
            /* why the group was not restarted, although restarts were left */
            if (end->reason[0] != '\0')
                log_line(agent_show_level(a, LOG_LEVEL_ERROR), "the job failed: %s", end->reason);
            else if (end->max_restarts > 0)
                log_line(agent_show_level(a, LOG_LEVEL_ERROR),
                         "the job failed: %u of %u restarts used", end->restarts_used,
                         end->max_restarts);
            show_failure(a, &end->failure);
        } else if (a->life.signo == 0) {
            show_ended(a, end);
        }
        break;
    }
    show_never_ran(a);
    const char *logs = worker_logs_kept(local_workers_files(a->local_workers));
    if (logs != NULL && (end->kind == MEMBER_END_FAILED || a->config.spec->log_dir == NULL))
        log_line(end->has_failure && end->failure.incarnation == a->incarnation ? LOG_LEVEL_NOTICE
                                                                                : shared_level(a),
                 "logs: %s%s", logs,
                 a->config.spec->log_dir != NULL
                     ? ""
                     : " (kept; each node has its own folder without --log-dir)");
    if (end->kind == MEMBER_END_FAILED && end->has_failure)
        show_last_line(a, &end->failure);
}
