/* The head of a job that is started over ssh (-H, --hostfile), a backend of starter_io.h: it calls
 * all hosts, has an agent started on each (ssh_boot.h decides which, and with what), shows what
 * they write, passes signals on, and its exit status is the job's.
 *
 * A host that can't be reached or started is logged at once, with ssh's own last line. The job
 * continues without it if --nnodes allows; else everything ends, with status 75. If the head is
 * killed, the input of every ssh ends, and each relay (ssh_node_io.h) ends the job on its node. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/net/resolver.h"
#include "io/process/child.h"
#include "io/process/helper_call.h"
#include "launcher/place/place.h"
#include "launcher/srun/slurm_job.h"
#include "launcher/ssh/ssh_boot.h"
#include "launcher/ssh/ssh_host_io.h"
#include "launcher/starter/starter_io.h"

/* After an agent ended with an error, without a verdict: until the others end, if too few. */
#define ALONE_NS (5 * NS_PER_S)
/* After a failure that ends the job, hosts are waited for so long, so that one start names all. */
#define NAMING_NS (2 * NS_PER_S)
/* After the end of all hosts but those that the verdict counts as lost: how long these may take. */
#define LOST_NS (3 * NS_PER_S)
/* Until hosts that are called, and have not answered, are named, and no longer expected at the
 * start: after that of the last one that has. ssh's own limit is 10 s, for the connection. */
#define SILENT_NS (15 * NS_PER_S)
/* For how long the first host is waited for at least, when enough others are there. */
#define FIRST_NS (2 * NS_PER_S)
/* Within the time to save of Grid Engine's -notify, which is 10 s or more. */
#define REQUEUE_NS (5 * NS_PER_S)

struct ssh_member {
    struct ssh_host *host;
    char *addrs;        /* of HELLO; NULL: not yet */
    uint64_t called_ns; /* when; 0: not yet */
};

enum head_timer {
    TIMER_PING = 0,
    TIMER_SILENCE, /* until the next that is called takes long, or too long */
    TIMER_ALONE,
    TIMER_NAMING,
    TIMER_LEAVE,
    TIMERS,
};

struct ssh_head {
    const struct starter_run_config *config;
    struct starter_run *run;
    const struct starter *starter; /* its machine; a link is a host's number and 1 */
    struct loop *loop;
    struct loop_timer *timers[TIMERS];
    struct loop_signal *suspend; /* ^Z; NULL: it is ignored */
    struct ssh_output *output;
    char *program, *command; /* muster's path, and what a host's shell is to run */
    char **words;            /* of --ssh */
    char *cwd;
    struct envlist env;  /* of the agents, over that of their login */
    struct envlist here; /* of a relay on this machine, which has no login of its own */
    struct ssh_host_env host_env;
    struct ssh_crew crew;
    struct ssh_member *members; /* [crew.n] */
    uint32_t first;             /* node 0, once somebody was booted; else UINT32_MAX */
    char *addr;                 /* its address */
    uint16_t port;              /* at which the hosts meet there; 0: the user has arranged that */
    struct {
        uint64_t silence_ns;  /* when TIMER_SILENCE is due */
        uint64_t answered_ns; /* when the last of all hosts has answered; 0: none has */
        uint64_t late_ns;     /* when the job begins without the first host; TIME_NEVER */
    } calls;
    struct {
        bool too_few;             /* which ends the job */
        bool is_naming;           /* too few are left, and others may fail, too */
        bool is_leaving;          /* the lost ones are no longer waited for */
        int code;                 /* of the first agent that ended with an error */
        uint32_t first_ended;     /* its host */
        struct helper_call *call; /* the batch system's command; NULL: it does not run */
        int asked, again;         /* the status after requeue(); 0 or that which requeues the job */
        int code_of_first;        /* of the agent on node 0, if it has ended with an error */
    } losses;
};

static inline const struct host *host_of(const struct ssh_head *h, uint32_t i) {
    return &h->config->spec->hosts.list.items[i];
}

/* Does what is due after any event. */
static void advance(struct ssh_head *h);

/* ---- to the hosts ---- */

/* To the hosts that were booted. */
static void send_all(struct ssh_head *h, const struct starter_message *m) {
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (ssh_crew_state(&h->crew, i) == SSH_CREW_BOOTED)
            ssh_host_send(h->members[i].host, m);
}

/* The agent that leads learns how many nodes can take part, and does not wait for the others. */
static void send_expected(struct ssh_head *h) {
    struct starter_message m = {.kind = STARTER_EXPECT};
    m.expect.nodes = h->crew.n - h->crew.n_gone - h->crew.n_hanging;
    if (!job_meets_at_host(h->config->spec) || h->starter->link == 0 || m.expect.nodes == 0)
        return;
    ssh_host_send(h->members[h->starter->link - 1].host, &m);
}

/* Hosts that have no agent yet get none. */
static void call_no_more(struct ssh_head *h) {
    ssh_crew_close(&h->crew);
    for (uint32_t i = 0; i < h->crew.n; i++) {
        if (ssh_crew_is_called(&h->crew, i))
            ssh_host_kill(h->members[i].host);
        else if (ssh_crew_state(&h->crew, i) == SSH_CREW_READY)
            ssh_host_hang_up(h->members[i].host);
    }
}

/* A relay is there, and no message to it is half sent. */
static bool may_ping(const struct ssh_member *m) {
    return m->addrs != NULL && m->host != NULL && ssh_host_unsent(m->host) == 0;
}

/* PING or SUSPENDED, to those whose relay is there. */
static void send_relays(struct ssh_head *h, enum starter_kind kind) {
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (may_ping(&h->members[i]))
            ssh_host_send(h->members[i].host, &(struct starter_message){.kind = kind});
}

static void ping_all(void *arg) {
    struct ssh_head *h = arg;
    send_relays(h, STARTER_PING);
    loop_timer_set(h->timers[TIMER_PING], clock_now_ns() + SSH_PING_NS);
}

/* ---- hosts that do not answer ---- */

static void watch_silence(struct ssh_head *h, uint64_t at_ns) {
    if (at_ns >= h->calls.silence_ns)
        return;
    h->calls.silence_ns = at_ns;
    loop_timer_set(h->timers[TIMER_SILENCE], at_ns);
}

/* No node can meet at a first host that hangs: it gets no more time than any other late host. */
static void watch_first(struct ssh_head *h) {
    bool can = h->first == UINT32_MAX && ssh_crew_can_pass_over(&h->crew);
    bool hangs = can && ssh_crew_state(&h->crew, h->crew.leader) == SSH_CREW_HANGS;
    uint64_t wait_ns = MAX2(h->config->spec->rdzv.last_call_ns, (uint64_t)FIRST_NS);
    wait_ns = hangs ? 0 : MIN2(wait_ns, (uint64_t)SILENT_NS);
    if (can && h->calls.late_ns != TIME_NEVER && !hangs)
        return;
    h->calls.late_ns = can ? clock_now_ns() + wait_ns : TIME_NEVER;
    watch_silence(h, h->calls.late_ns);
}

static void begin_without_first(struct ssh_head *h) {
    uint32_t from = h->crew.leader;
    if (h->first != UINT32_MAX || !ssh_crew_can_pass_over(&h->crew))
        return;
    ssh_crew_pass_over(&h->crew);
    for (uint32_t i = from; i < h->crew.leader; i++) {
        if (!ssh_crew_is_called(&h->crew, i))
            continue;
        log_warning("host %s: its login has not started muster yet: the job begins without it",
                    host_of(h, i)->name);
    }
}

/* Many logins at once are slow: none hangs as long as others come through. */
static uint64_t named_at(const struct ssh_head *h, uint32_t i) {
    return ssh_crew_state(&h->crew, i) == SSH_CREW_HANGS
               ? TIME_NEVER
               : MAX2(h->members[i].called_ns, h->calls.answered_ns) + SILENT_NS;
}

static uint64_t given_up_at(const struct ssh_head *h, uint32_t i) {
    return h->members[i].called_ns + h->config->spec->rdzv.join_timeout_ns;
}

static void give_up(struct ssh_head *h, uint32_t i) {
    char why[128];
    (void)snprintf(why, sizeof why, "its login has not started muster within %.0f s (join_timeout)",
                   (double)h->config->spec->rdzv.join_timeout_ns / (double)NS_PER_S);
    ssh_host_give_up(h->members[i].host, why);
}

static void on_silence(void *arg) {
    struct ssh_head *h = arg;
    uint64_t now = clock_now_ns();
    h->calls.silence_ns = TIME_NEVER;
    if (now >= h->calls.late_ns ||
        (h->crew.leader < h->crew.next && now >= named_at(h, h->crew.leader))) {
        h->calls.late_ns = TIME_NEVER;
        begin_without_first(h); /* which names it */
    }
    watch_silence(h, h->calls.late_ns);
    for (uint32_t i = 0; i < h->crew.next; i++) {
        if (!ssh_crew_is_called(&h->crew, i))
            continue;
        if (now >= given_up_at(h, i)) {
            give_up(h, i);
            continue;
        }
        if (now >= named_at(h, i)) {
            log_warning("host %s: its login has not started muster yet", host_of(h, i)->name);
            ssh_crew_hangs(&h->crew, i);
        }
        watch_silence(h, MIN2(named_at(h, i), given_up_at(h, i)));
    }
    send_expected(h);
    watch_first(h);
    advance(h);
}

/* ---- the start ---- */

/* It is this machine, by its name: no ssh is needed. */
static bool is_here(const struct host *host) {
    return host->user == NULL && host->port == 0 && resolve_is_own_name(host->name);
}

static void show_gone(const struct ssh_head *h, uint32_t i, const char *why) {
    bool ends = h->starter->state != STARTER_STARTING && h->starter->state != STARTER_RUNNING;
    log_line(ends ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "host %s: %s", host_of(h, i)->name, why);
}

/* Its relay has gone; why: NULL after its agent's end. */
static void crew_gone(struct ssh_head *h, uint32_t i, const char *why) {
    if (why != NULL)
        show_gone(h, i, why);
    ssh_crew_gone(&h->crew, i, why != NULL);
    watch_first(h);
}

/* A command of the batch system, from its own folder or from PATH. */
static char **batch_command(const struct ssh_head *h, const char *const words[LAUNCHER_WORDS_MAX],
                            const char *object, const char *command) {
    const char *folder = launcher_value(h->config->envp, h->config->spec->hosts.by->folder);
    _cleanup_(freep) char *path = folder != NULL ? xasprintf("%s/%s", folder, words[0]) : NULL;
    const bool is_there = path != NULL && access(path, X_OK) == 0;
    return ssh_command_of(words, is_there ? folder : NULL, object, command);
}

static char **command_of(const struct ssh_head *h, const struct host *host) {
    const struct launcher *by = h->config->spec->hosts.by;
    if (by == NULL || by->start[0] == NULL)
        return ssh_command(h->words, host, h->command);
    return batch_command(h, by->start, host->name, h->command);
}

static void call_host(struct ssh_head *h, uint32_t i) {
    const struct host *host = host_of(h, i);
    struct ssh_member *m = &h->members[i];
    struct err err = {0};
    char relay[] = "ssh-node";
    char *here[] = {h->program, relay, NULL};
    _cleanup_(words_freep) char **argv = is_here(host) ? NULL : command_of(h, host);
    char *const *envp = argv != NULL ? h->config->envp : envlist_items(&h->here);
    m->called_ns = clock_now_ns();
    watch_silence(h, MIN2(named_at(h, i), given_up_at(h, i)));
    starter_log_command(argv != NULL ? argv : here);
    int r = ssh_host_call(&h->host_env, i, argv != NULL ? argv : here, envp, &m->host, &err);
    if (r < 0) {
        crew_gone(h, i, err.text);
        send_expected(h);
    }
}

static void on_hello(struct ssh_head *h, uint32_t i, const char *addrs) {
    bool was_counted_out = ssh_crew_state(&h->crew, i) == SSH_CREW_HANGS;
    h->members[i].addrs = xstrdup(addrs);
    h->calls.answered_ns = clock_now_ns();
    ssh_crew_hello(&h->crew, i);
    watch_first(h);
    if (was_counted_out)
        send_expected(h);
}

static void add_gpus(const struct host *host, struct envlist *env) {
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    for (uint32_t i = 0; i < host->n_gpus; i++)
        strbuf_printf(&list, "%s%u", i > 0 ? "," : "", host->gpus[i]);
    if (host->n_gpus > 0)
        envlist_set(env, "CUDA_VISIBLE_DEVICES", strbuf_text(&list));
}

static void fill_boot(struct ssh_head *h, uint32_t i, struct ssh_boot *boot) {
    const struct job_spec job = ssh_job_of(h->config->spec, i, h->first, h->addr, h->port);
    struct strbuf text = {.is_secret = true};
    h->config->write_job(&job, &text);
    boot->job = strbuf_take(&text);
    boot->cwd = xstrdup(h->cwd);
    boot->grace_ns = job.shutdown_timeout_ns;
    for (char *const *word = h->config->args; *word != NULL; word++)
        words_add(&boot->args, &boot->n_args, xstrdup(*word));
    envlist_copy(&boot->env, envlist_items(&h->env));
    add_gpus(host_of(h, i), &boot->env);
    starter_key_to_env(h->run, &boot->env);
}

static void boot_host(struct ssh_head *h, uint32_t i) {
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {0};
    _cleanup_(strbuf_forget) struct strbuf frames = {.is_secret = true};
    struct err err = {0};
    if (h->first == UINT32_MAX)
        h->first = h->crew.leader;
    fill_boot(h, i, &boot);
    if (ssh_boot_add(&boot, &frames, &err) < 0) {
        show_gone(h, i, err.text);
        ssh_host_hang_up(h->members[i].host);
    } else {
        ssh_host_send_secret(h->members[i].host, &frames);
    }
    envlist_forget(&boot.env, STARTER_KEY_ENV);
}

/* Node 0 is to listen where the others meet. If it fails, the next one is asked. */
static void ask_to_listen(struct ssh_head *h, uint32_t i) {
    struct starter_message m = {.kind = STARTER_LISTEN};
    free(h->addr);
    h->addr = ssh_meeting_addr(h->members[i].addrs);
    (void)snprintf(m.listen.addr, sizeof m.listen.addr, "%s", h->addr);
    m.listen.low = h->config->spec->port_low;
    m.listen.high = h->config->spec->port_high;
    ssh_host_send(h->members[i].host, &m);
}

static void on_port(struct ssh_head *h, uint32_t i, uint16_t port) {
    if (!ssh_crew_listens(&h->crew, i))
        return;
    h->first = i;
    h->port = port;
    log_info("the hosts meet at %s (%s, port %u)", host_of(h, i)->name, h->addr, port);
}

/* ---- losses: whether the job continues without hosts that fail or end ---- */

#define SIGNAL_STATUS 128 /* and the signal's number */

static void end_too_few(struct ssh_head *h, const char *why) {
    if (h->losses.too_few || h->starter->state == STARTER_DECIDED ||
        h->starter->state == STARTER_OVER || h->starter->signo != 0)
        return;
    h->losses.too_few = true;
    log_error("%s", why);
    starter_event(h->run, &(struct starter_event){
                              .kind = STARTER_EVENT_SIGNAL, .signo = SIGTERM, .ends = true});
    call_no_more(h);
}

static void too_few(struct ssh_head *h) {
    char text[160];
    h->losses.is_naming = false;
    loop_timer_set(h->timers[TIMER_NAMING], TIME_NEVER);
    uint32_t left = h->crew.n - h->crew.n_failed;
    (void)snprintf(text, sizeof text, "%u host%s, and the job needs %u: ending it", left,
                   left == 1 ? " remains" : "s remain", h->crew.min);
    end_too_few(h, text);
}

/* Fewer are left than the job needs: waits for others that fail, so that one start shows all. */
static void name_failures(struct ssh_head *h) {
    h->losses.is_naming = true;
    loop_timer_set(h->timers[TIMER_NAMING], clock_now_ns() + NAMING_NS);
}

static void on_naming(void *arg) {
    too_few(arg);
    advance(arg);
}

/* The job's end is known, and only hosts that were lost are left. */
static void leave_lost(struct ssh_head *h) {
    uint32_t left = h->crew.next - h->crew.n_gone;
    if (h->losses.is_leaving || h->starter->state != STARTER_DECIDED ||
        left > h->starter->verdict.lost)
        return;
    h->losses.is_leaving = true;
    loop_timer_set(h->timers[TIMER_LEAVE], clock_now_ns() + LOST_NS);
}

static void on_leave(void *arg) {
    struct ssh_head *h = arg;
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (h->members[i].host != NULL)
            ssh_host_kill(h->members[i].host);
}

static void advance_losses(struct ssh_head *h) {
    if (h->losses.is_naming && h->crew.in_flight == 0)
        too_few(h);
    leave_lost(h);
}

static void on_agent_end(struct ssh_head *h, uint32_t i, const struct starter_exit *e) {
    int code = e->signalled ? SIGNAL_STATUS + (int)e->code : (int)e->code;
    if (code == 0 || h->starter->signo != 0)
        return;
    if (i == h->first)
        h->losses.code_of_first = code;
    if (h->losses.code != 0)
        return;
    h->losses.code = code;
    h->losses.first_ended = i;
    loop_timer_set(h->timers[TIMER_ALONE], clock_now_ns() + ALONE_NS);
}

static void on_alone(void *arg) {
    struct ssh_head *h = arg;
    char why[STARTER_HOST_MAX + 128];
    (void)snprintf(why, sizeof why,
                   "host %s: muster ended there with status %d, and the others are too few: ending "
                   "the job",
                   host_of(h, h->losses.first_ended)->name, h->losses.code);
    if (h->crew.n - h->crew.n_gone < h->crew.min)
        end_too_few(h, why);
}

/* The host at which the others meet can't be replaced. */
static void end_without_first(struct ssh_head *h, const char *why) {
    char text[STARTER_HOST_MAX + 128];
    int code = h->losses.code_of_first;
    bool by_itself = why == NULL && code <= SIGNAL_STATUS;
    (void)snprintf(text, sizeof text,
                   "host %s: muster ended there with status %d, and the others meet there: ending "
                   "the job",
                   host_of(h, h->first)->name, code);
    if (by_itself)
        h->losses.code = code;
    end_too_few(h, by_itself ? text
                             : "the other hosts meet at this host: ending the job (with "
                               "--rdzv-endpoint=dir:/PATH, in a folder that all hosts "
                               "share, or etcd://HOST, it can continue without any one host)");
}

/* The status of a job without a verdict, as its agents ended: one that was killed is lost. */
static int losses_code(const struct ssh_head *h) {
    int code = h->losses.code;
    bool is_lost = code > SIGNAL_STATUS || (code == 0 && h->crew.n_failed > 0);
    return is_lost ? STARTER_EXIT_LOST : code;
}

/* The exit status: that of `status`, unless the job ended for lack of hosts. */
static int losses_status(const struct ssh_head *h, int status) {
    bool failed = !h->starter->has_verdict || h->starter->verdict.status != 0;
    if (h->losses.again != 0)
        return h->losses.again;
    if (!h->losses.too_few || !failed)
        return status;
    int code = losses_code(h);
    return code != 0 ? code : STARTER_EXIT_LOST;
}

/* ---- output ---- */

static void pause_all(void *arg, bool pause) {
    struct ssh_head *h = arg;
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (h->members[i].host != NULL)
            ssh_host_pause(h->members[i].host, pause);
}

static void on_written(void *arg) { starter_quit(((struct ssh_head *)arg)->run); }

static void on_dropped(void *arg, size_t which) {
    send_all(arg, &(struct starter_message){.kind = which == SSH_OUTPUT_OUT ? STARTER_DROP_OUT
                                                                            : STARTER_DROP_ERR});
}

static const struct ssh_output_ops output_ops = {
    .pause = pause_all, .on_dropped = on_dropped, .on_done = on_written};

/* ^Z stops what the shell waits for. The hosts learn that silence is not the end. */
static void on_suspend(void *arg, int signo) {
    struct ssh_head *h = arg;
    struct sigaction by_default = {.sa_handler = SIG_DFL}, before;
    log_notice("suspended; the job continues: fg (or SIGCONT) resumes it, kill ends it");
    ssh_output_flush(h->output);
    send_relays(h, STARTER_SUSPENDED);
    (void)sigaction(SIGTSTP, &by_default, &before);
    (void)kill(getpid(), SIGTSTP); /* returns when it is continued */
    (void)sigaction(SIGTSTP, &before, NULL);
    ping_all(h);
}

/* ---- effects ---- */

static int finish(void *arg, int status) {
    struct ssh_head *h = arg;
    if (h->starter->signo != 0)
        ssh_output_hurry(h->output);
    ssh_output_finish(h->output);
    return losses_status(h, status);
}

static void requeued(struct ssh_head *h) {
    starter_event(h->run,
                  &(struct starter_event){.kind = STARTER_EVENT_REQUEUED, .code = h->losses.asked});
}

static void on_requeued(void *arg, const struct helper_answer *answer) {
    struct ssh_head *h = arg;
    h->losses.call = NULL;
    if (answer->len > 0)
        log_notice("%s: %.*s", h->config->spec->hosts.by->requeue[0],
                   (int)strcspn(answer->data, "\n"), answer->data);
    requeued(h);
}

/* Runs the command that queues the job again, beside the exit status. False: there is none. */
static bool requeue_by_command(struct ssh_head *h) {
    const struct launcher *by = h->config->spec->hosts.by;
    const char *id = launcher_value(h->config->envp, launcher_name(h->config->envp, by->run_id));
    const char *task = launcher_value(h->config->envp, by->task);
    if (by->requeue[0] == NULL || id == NULL)
        return false;
    _cleanup_(freep) char *job = task != NULL && isdigit((unsigned char)task[0])
                                     ? xasprintf("%s.%s", id, task)
                                     : xstrdup(id);
    _cleanup_(words_freep) char **argv = batch_command(h, by->requeue, job, NULL);
    return helper_command(h->loop, (const char *const *)argv, true, REQUEUE_NS, on_requeued, h,
                          &h->losses.call) == 0;
}

/* Batch systems requeue by the exit status. A signal that announces the end is as SIGTERM. */
static void requeue(void *arg, int status) {
    struct ssh_head *h = arg;
    const struct job_spec *spec = h->config->spec;
    const int signo = h->starter->signo;
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    const struct requeue_facts facts = {
        .asked = spec->requeue,
        .max = spec->max_requeues,
        .status = (uint32_t)(signo != 0 ? SIGNAL_STATUS + SIGTERM : losses_status(h, status)),
        .safe = h->starter->safe,
        .restarts = spec->place.restarts,
        .id = spec->place.run_id,
    };
    const bool again = requeue_decide(&facts, &why);
    h->losses.again = again ? spec->hosts.by->again : 0;
    if (again)
        log_notice("exiting with status %d, by which %s requeues job %s: %s", h->losses.again,
                   spec->hosts.by->title, facts.id, strbuf_text(&why));
    else if (why.len > 0)
        log_notice("%s", strbuf_text(&why));
    h->losses.asked = again ? h->losses.again : status;
    if (!again || !requeue_by_command(h))
        requeued(h);
}

static void kill_all(void *arg) {
    struct ssh_head *h = arg;
    log_notice("killing the job on all hosts");
    ssh_output_only_workers(h->output);
    send_all(h, &(struct starter_message){.kind = STARTER_STOP, .signal.signo = SIGKILL});
    call_no_more(h);
}

static void deliver(void *arg, uint64_t link, const struct starter_message *m) {
    struct ssh_head *h = arg;
    if (m->kind == STARTER_STOP)
        call_no_more(h);
    if (link != 0)
        ssh_host_send(h->members[link - 1].host, m);
    else
        send_all(h, m);
}

static void on_stop(void *arg) {
    struct ssh_head *h = arg;
    ssh_output_hurry(h->output);
    if (h->crew.n_gone == 0 && h->first == UINT32_MAX)
        call_no_more(h);
    advance(h);
}

/* ---- what is due ---- */

static void advance(struct ssh_head *h) {
    enum ssh_crew_do what;
    uint32_t i = 0;
    while ((what = ssh_crew_next(&h->crew, &i)) != SSH_CREW_DO_NOTHING) {
        if (what == SSH_CREW_DO_CALL)
            call_host(h, i);
        else if (what == SSH_CREW_DO_LISTEN)
            ask_to_listen(h, i);
        else if (what == SSH_CREW_DO_BOOT)
            boot_host(h, i);
        else
            name_failures(h);
    }
    advance_losses(h);
    if (!h->starter->ended && ssh_crew_is_over(&h->crew))
        starter_event(h->run,
                      &(struct starter_event){.kind = STARTER_EVENT_ENDED, .code = losses_code(h)});
}

/* ---- from the hosts ---- */

static void on_message(void *arg, uint32_t i, const struct starter_message *m) {
    struct ssh_head *h = arg;
    switch (m->kind) {
    case STARTER_HELLO:
        on_hello(h, i, m->hello.addrs);
        advance(h);
        break;
    case STARTER_OUT:
        ssh_output_add(h->output, i, SSH_OUTPUT_OUT, m->data.bytes, m->data.len);
        break;
    case STARTER_ERR:
        ssh_output_add(h->output, i, SSH_OUTPUT_ERR, m->data.bytes, m->data.len);
        break;
    case STARTER_LEAD:
        log_info("node %s leads", m->lead.host);
        starter_event(
            h->run, &(struct starter_event){.kind = STARTER_EVENT_LEADER, .link = (uint64_t)i + 1});
        send_expected(h);
        break;
    case STARTER_VERDICT:
        log_info("host %s: the job ended with status %u%s%s", host_of(h, i)->name,
                 m->verdict.status, m->verdict.text[0] != '\0' ? ": " : "", m->verdict.text);
        starter_event(h->run, &(struct starter_event){.kind = STARTER_EVENT_VERDICT,
                                                      .link = (uint64_t)i + 1,
                                                      .verdict = m->verdict});
        call_no_more(h);
        advance(h);
        break;
    case STARTER_EXIT: on_agent_end(h, i, &m->exit); break;
    case STARTER_PORT:
        on_port(h, i, m->port.port);
        advance(h);
        break;
    case STARTER_SAFE:
        starter_event(h->run, &(struct starter_event){.kind = STARTER_EVENT_SAFE});
        break;
    case STARTER_FAIL:
    case STARTER_LISTEN:
    case STARTER_BOOT_PART:
    case STARTER_BOOT:
    case STARTER_ACK:
    case STARTER_STOP:
    case STARTER_SIGNAL:
    case STARTER_EXPECT:
    case STARTER_PING:
    case STARTER_SUSPENDED:
    case STARTER_DROP_OUT:
    case STARTER_DROP_ERR: break;
    }
}

static void on_gone(void *arg, uint32_t i, const char *why) {
    struct ssh_head *h = arg;
    ssh_output_end_host(h->output, i);
    crew_gone(h, i, why);
    starter_event(h->run, &(struct starter_event){.kind = STARTER_EVENT_LEADER_GONE,
                                                  .link = (uint64_t)i + 1});
    send_expected(h);
    if (i == h->first && job_meets_at_host(h->config->spec) &&
        (why != NULL || h->losses.code_of_first != 0))
        end_without_first(h, why);
    advance(h);
}

/* ---- the whole ---- */

static int prepare(struct ssh_head *h, struct err *err) {
    const struct job_hosts *hosts = &h->config->spec->hosts;
    int r = ssh_words(hosts->ssh != NULL ? hosts->ssh : "ssh", &h->words, err);
    if (r == 0)
        r = starter_real_program(h->config->argv0, h->config->envp, &h->program, err);
    if (r == 0)
        r = ssh_remote_command(h->program, &h->command, err);
    if (r < 0)
        return r;
    h->cwd = starter_folder(h->config->envp);
    if (h->cwd == NULL)
        return err_set(err, -errno, "can't find out the working folder: %s", strerror(errno));
    envlist_copy(&h->here, h->config->envp);
    ssh_env_leave_slurm(&h->here);
    r = ssh_env(hosts->export_names, h->config->envp, &h->env, err);
    if (h->config->python != NULL)
        envlist_set(&h->env, STARTER_PYTHON_ENV, h->config->python);
    return r;
}

static void set_up_loop(struct ssh_head *h) {
    static loop_timer_fn *const fns[TIMERS] = {ping_all, on_silence, on_alone, on_naming, on_leave};
    h->calls.silence_ns = h->calls.late_ns = TIME_NEVER;
    for (size_t i = 0; i < TIMERS; i++)
        h->timers[i] = loop_timer_new(h->loop, fns[i], h);
    if (!child_is_ignored(SIGTSTP))
        h->suspend = loop_signal_new(h->loop, SIGTSTP, on_suspend, h);
    h->output = ssh_output_new(h->loop, h->crew.n, &output_ops, h);
}

static int start(void *arg, struct starter_run *run, struct err *err) {
    struct ssh_head *h = arg;
    const struct job_hosts *hosts = &h->config->spec->hosts;
    h->run = run;
    h->starter = starter_machine(run);
    h->loop = starter_loop(run);
    int r = prepare(h, err);
    if (r < 0)
        return r;
    set_up_loop(h);
    h->host_env = (struct ssh_host_env){
        .loop = h->loop,
        .ops = {.on_message = on_message, .on_gone = on_gone},
        .arg = h,
        .program = h->program,
        .version = h->config->version,
        .save = hosts->by != NULL ? hosts->by->save : NULL,
        .by = hosts->by != NULL && hosts->by->start[0] != NULL ? hosts->by->start[0] : "ssh",
    };
    ping_all(h);
    advance(h);
    return 0;
}

/* On this machine an agent is found without this process. */
static void describe(void *arg, struct starter_description *ret) {
    const struct ssh_head *h = arg;
    const struct job_spec *spec = h->config->spec;
    uint32_t i = 0;
    while (i + 1 < h->crew.n && is_here(host_of(h, i)))
        i++;
    _cleanup_(freep) char *program = starter_program_word(h->config->argv0, h->config->envp);
    (void)snprintf(ret->run_id, sizeof ret->run_id, "%s", spec->run_id);
    const struct launcher *by = spec->hosts.by;
    _cleanup_(strbuf_fini) struct strbuf words = {0};
    for (size_t k = 0; by != NULL && k < LAUNCHER_WORDS_MAX && by->start[k] != NULL; k++)
        strbuf_printf(&words, "%s%s", k > 0 ? " " : "", by->start[k]);
    ret->ask = ssh_ask_line(words.len > 0             ? strbuf_text(&words)
                            : spec->hosts.ssh != NULL ? spec->hosts.ssh
                                                      : "ssh",
                            host_of(h, i), program);
}

static void end(void *arg) {
    struct ssh_head *h = arg;
    for (uint32_t i = 0; i < h->crew.n; i++) {
        ssh_host_free(h->members[i].host);
        free(h->members[i].addrs);
    }
    helper_call_free(h->losses.call);
    free(h->members);
    ssh_crew_fini(&h->crew);
    ssh_output_free(h->output);
    loop_signal_free(h->suspend);
    for (size_t i = 0; i < TIMERS; i++)
        loop_timer_free(h->timers[i]);
    envlist_fini(&h->env);
    envlist_fini(&h->here);
    words_free(h->words);
    free(h->program);
    free(h->command);
    free(h->cwd);
    free(h->addr);
}

int ssh_head_run(const struct starter_run_config *config) {
    static const struct starter_ops ops = {.start = start,
                                           .deliver = deliver,
                                           .kill = kill_all,
                                           .describe = describe,
                                           .on_stop = on_stop,
                                           .requeue = requeue,
                                           .finish = finish,
                                           .end = end};
    const struct job_spec *spec = config->spec;
    const uint32_t n = (uint32_t)spec->hosts.list.n;
    struct ssh_head h = {.config = config, .first = UINT32_MAX};
    ssh_crew_init(&h.crew, n, MIN2(spec->rdzv.min_nodes, n), job_meets_at_host(spec));
    h.members = xcalloc(n, sizeof *h.members);
    return starter_run(config, &ops, &h);
}
