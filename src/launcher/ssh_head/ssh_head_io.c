#include "launcher/ssh_head/ssh_head_io.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/child.h"
#include "launcher/head/head.h"
#include "launcher/head/head_program_io.h"
#include "launcher/head/head_signals_io.h"
#include "launcher/head/starter.h"
#include "launcher/ssh/ssh_args.h"
#include "launcher/ssh/ssh_command.h"
#include "launcher/ssh/ssh_env.h"
#include "launcher/ssh_head/ssh_crew.h"
#include "launcher/ssh_head/ssh_host_io.h"
#include "launcher/ssh_head/ssh_output_io.h"
#include "launcher/ssh_head/ssh_suspend_io.h"
#include "rendezvous/operate/registry_io.h"

#define EXIT_CANT 1
#define EXIT_USAGE_ERROR 2
#define SIGNAL_STATUS 128 /* and the signal's number */

struct member {
    struct ssh_host *host;
    char *addrs;        /* of HELLO; NULL: not yet */
    uint64_t called_ns; /* when; 0: not, or its silence was told */
};

struct run {
    const struct ssh_head_config *config;
    struct loop *loop;
    struct child_reaper *reaper;
    struct head_signals *signals;
    struct loop_signal *suspend; /* ^Z; NULL: it is ignored */
    struct loop_timer *timer, *ping, *alone, *naming, *leave;
    struct ssh_output *output;
    struct registry_own registry;
    char *program, *command; /* muster's path, and what a host's shell is to run */
    char **words;            /* of --ssh */
    char *cwd;
    char host_name[HEAD_HOST_MAX];
    struct envlist env;  /* of the agents, over that of their login */
    struct envlist here; /* of a relay on this machine, which has no login of its own */
    struct ssh_host_env host_env;
    struct ssh_crew crew;
    struct member *members; /* [crew.n] */
    uint32_t first;         /* node 0, once somebody was booted; else UINT32_MAX */
    char *addr;             /* its address */
    struct head head;
    bool ended;           /* the machine knows that all have */
    bool too_few;         /* which ends the job */
    bool is_naming;       /* too few are left, and others may fail, too */
    bool is_leaving;      /* the lost ones are no longer waited for */
    int code;             /* of the first agent that ended with an error */
    uint32_t first_ended; /* its host */
    int code_of_first;    /* of the agent on node 0, if it has ended with an error */
    bool over;            /* END: what is left is to write */
    bool written;         /* it is */
    int status;
};

static void step(struct run *h, struct head_event *event);
static void advance(struct run *h);

static const struct host *name_of(const struct run *h, uint32_t i) {
    return &h->config->spec->hosts.list.items[i];
}

/* ---- output ---- */

static void pause_all(void *arg, bool pause) {
    struct run *h = arg;
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (h->members[i].host != NULL)
            ssh_host_pause(h->members[i].host, pause);
}

static void on_written(void *arg) {
    struct run *h = arg;
    h->written = true;
    loop_quit(h->loop);
}

static void send_to_all(struct run *h, enum ssh_kind kind, int signo);

static void on_dropped(void *arg, size_t which) {
    send_to_all(arg, which == SSH_OUTPUT_OUT ? SSH_DROP_OUT : SSH_DROP_ERR, 0);
}

static const struct ssh_output_ops output_ops = {
    .pause = pause_all, .on_dropped = on_dropped, .on_done = on_written};

/* ---- to the hosts ---- */

static void send_signal(struct run *h, uint32_t i, enum ssh_kind kind, int signo) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    struct ssh_message m = {.kind = kind};
    m.signal.signo = (uint32_t)signo;
    ssh_add(&m, &frame);
    ssh_host_send(h->members[i].host, &frame);
}

/* Whoever leads learns how many can take part, so that the group forms without those that failed.
 */
static void tell_expected(struct run *h) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    struct ssh_message m = {.kind = SSH_EXPECT};
    m.expect.nodes = h->crew.n - h->crew.n_gone;
    if (!h->config->spec->hosts.meet || h->head.link == 0 || m.expect.nodes == 0)
        return;
    ssh_add(&m, &frame);
    ssh_host_send(h->members[h->head.link - 1].host, &frame);
}

static void send_to_all(struct run *h, enum ssh_kind kind, int signo) {
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (ssh_crew_state(&h->crew, i) == SSH_CREW_BOOTED)
            send_signal(h, i, kind, signo);
}

/* Hosts that have no agent yet get none. */
static void call_nobody_else(struct run *h) {
    ssh_crew_close(&h->crew);
    for (uint32_t i = 0; i < h->crew.n; i++) {
        if (ssh_crew_is_called(&h->crew, i))
            ssh_host_kill(h->members[i].host);
        else if (ssh_crew_state(&h->crew, i) == SSH_CREW_READY)
            ssh_host_hang_up(h->members[i].host);
    }
}

/* A relay is there, and no message to it is half sent. */
static bool may_ping(const struct member *m) {
    return m->addrs != NULL && m->host != NULL && ssh_host_unsent(m->host) == 0;
}

static void tell_silence(struct run *h, uint32_t i) {
    struct member *m = &h->members[i];
    if (!ssh_crew_is_called(&h->crew, i) || m->called_ns == 0 ||
        clock_now_ns() < m->called_ns + SSH_HEAD_SILENT_NS)
        return;
    m->called_ns = 0;
    log_warning("host %s: its login has not started muster yet", name_of(h, i)->name);
    ssh_crew_hangs(&h->crew, i);
}

static void on_ping(void *arg) {
    struct run *h = arg;
    for (uint32_t i = 0; i < h->crew.n; i++) {
        if (may_ping(&h->members[i]))
            send_signal(h, i, SSH_PING, 0);
        tell_silence(h, i);
    }
    loop_timer_set(h->ping, clock_now_ns() + SSH_PING_NS);
    advance(h);
}

static void on_suspend(void *arg, int signo) {
    struct run *h = arg;
    _cleanup_(freep) int *fds = xcalloc(h->crew.n, sizeof *fds);
    size_t n = 0;
    (void)signo;
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (may_ping(&h->members[i]) && ssh_host_fd(h->members[i].host) >= 0)
            fds[n++] = ssh_host_fd(h->members[i].host);
    log_notice("suspended at the terminal, but the job goes on: fg takes it back, kill ends it");
    ssh_output_flush(h->output);
    ssh_suspend_self(fds, n);
    on_ping(h);
}

/* ---- effects ---- */

static void finish(struct run *h, int status) {
    bool failed = !h->head.has_verdict || h->head.verdict.status != 0;
    h->status = h->too_few && failed ? (h->code != 0 ? h->code : HEAD_EXIT_LOST) : status;
    h->over = true;
    if (h->head.signo != 0)
        ssh_output_hurry(h->output);
    ssh_output_finish(h->output);
}

static void kill_all(struct run *h) {
    log_notice("killing the job on all hosts");
    ssh_output_only_workers(h->output);
    send_to_all(h, SSH_STOP, SIGKILL);
    call_nobody_else(h);
}

static void carry_out(struct run *h, const struct head_effect *e) {
    bool ending = h->head.pressure == HEAD_TERMINATED;
    switch (e->kind) {
    case HEAD_EFFECT_STOP:
        call_nobody_else(h);
        send_signal(h, (uint32_t)e->link - 1, SSH_STOP, e->signo);
        break;
    case HEAD_EFFECT_ACK: send_signal(h, (uint32_t)e->link - 1, SSH_ACK, 0); break;
    case HEAD_EFFECT_SIGNAL:
        if (ending)
            call_nobody_else(h);
        send_to_all(h, ending ? SSH_STOP : SSH_SIGNAL,
                    ending && h->head.signo != 0 ? h->head.signo
                    : ending                     ? SIGTERM
                                                 : e->signo);
        break;
    case HEAD_EFFECT_KILL_STEP: kill_all(h); break;
    case HEAD_EFFECT_REQUEUE: break; /* only Slurm has a queue: config.requeues is false */
    case HEAD_EFFECT_END: finish(h, e->status); break;
    }
}

/* No effect calls back, so steps are not nested. */
static void step(struct run *h, struct head_event *event) {
    struct head_update u;
    event->now_ns = clock_now_ns();
    head_step(&h->head, event, &u);
    loop_timer_set(h->timer, u.deadline_ns);
    for (size_t i = 0; i < u.n_effects; i++)
        carry_out(h, &u.effects[i]);
}

static void on_timer(void *arg) { step(arg, &(struct head_event){.kind = HEAD_EVENT_TIME}); }

/* In a job of Slurm, that may kill this head sooner; 0. */
static uint64_t grace_that_is_known(const struct run *h) {
    const struct job_spec *spec = h->config->spec;
    bool alone = env_get(h->config->envp, "SLURM_JOB_ID") == NULL;
    return alone || spec->shutdown_timeout_given ? spec->shutdown_timeout_ns : 0;
}

static void on_signal(void *arg, int signo, bool ends) {
    struct run *h = arg;
    if (h->over && ends) {
        loop_quit(h->loop);
        return;
    }
    if (ends && h->head.signo == 0 && h->head.state != HEAD_DECIDED)
        head_signals_say(signo, grace_that_is_known(h));
    if (ends)
        ssh_output_hurry(h->output);
    step(h, &(struct head_event){.kind = HEAD_EVENT_SIGNAL, .signo = signo, .ends = ends});
    if (ends && h->crew.n_gone == 0 && h->first == UINT32_MAX)
        call_nobody_else(h);
    advance(h);
}

/* ---- the start ---- */

static bool is_this_machine(const struct run *h, const struct host *host) {
    size_t n = strcspn(h->host_name, ".");
    return host->user == NULL && host->port == 0 &&
           (strcmp(host->name, "localhost") == 0 || strcmp(host->name, h->host_name) == 0 ||
            (strlen(host->name) == n && strncmp(host->name, h->host_name, n) == 0));
}

static void show_gone(const struct run *h, uint32_t i, const char *why) {
    if (h->head.state == HEAD_STARTING || h->head.state == HEAD_RUNNING)
        log_error("host %s: %s", name_of(h, i)->name, why);
    else
        log_info("host %s: %s", name_of(h, i)->name, why);
}

static void call(struct run *h, uint32_t i) {
    const struct host *host = name_of(h, i);
    struct err err = {0};
    char relay[] = "ssh-node";
    char *here[] = {h->program, relay, NULL};
    char **argv = is_this_machine(h, host) ? NULL : ssh_command(h->words, host, h->command);
    char *const *envp = argv != NULL ? h->config->envp : envlist_items(&h->here);
    h->members[i].host = ssh_host_new(&h->host_env, i);
    h->members[i].called_ns = clock_now_ns();
    head_show_command(argv != NULL ? argv : here);
    int r = ssh_host_call(h->members[i].host, argv != NULL ? argv : here, envp, &err);
    ssh_words_free(argv);
    if (r < 0) {
        show_gone(h, i, err.text);
        ssh_crew_gone(&h->crew, i, true);
        tell_expected(h);
    }
}

static void boot(struct run *h, uint32_t i) {
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {
        .cwd = xstrdup(h->cwd), .grace_ns = h->config->spec->shutdown_timeout_ns};
    _cleanup_(strbuf_fini) struct strbuf frames = {0};
    struct err err = {0};
    if (h->first == UINT32_MAX) {
        h->first = h->crew.leader;
        h->addr = ssh_meeting_addr(h->members[h->first].addrs);
        log_info("the hosts meet at %s (%s)", name_of(h, h->first)->name, h->addr);
    }
    envlist_copy(&boot.env, envlist_items(&h->env));
    ssh_args(h->config->spec, &(struct ssh_place){.host = i, .first = h->first, .addr = h->addr},
             h->config->args, &boot);
    if (ssh_boot_add(&boot, &frames, &err) < 0) {
        show_gone(h, i, err.text);
        ssh_host_hang_up(h->members[i].host);
        return;
    }
    ssh_host_send(h->members[i].host, &frames);
}

static void end_too_few(struct run *h, const char *why) {
    if (h->too_few || h->head.state == HEAD_DECIDED || h->head.state == HEAD_OVER ||
        h->head.signo != 0)
        return;
    h->too_few = true;
    log_error("%s", why);
    step(h, &(struct head_event){.kind = HEAD_EVENT_SIGNAL, .signo = SIGTERM, .ends = true});
    call_nobody_else(h);
}

static void too_few(struct run *h) {
    char text[160];
    h->is_naming = false;
    loop_timer_set(h->naming, TIME_NEVER);
    uint32_t left = h->crew.n - h->crew.n_failed;
    (void)snprintf(text, sizeof text, "%u host%s left, and the job needs %u: ending it", left,
                   left == 1 ? " is" : "s are", h->crew.min);
    end_too_few(h, text);
}

static void begin_naming(struct run *h) {
    h->is_naming = true;
    loop_timer_set(h->naming, clock_now_ns() + SSH_HEAD_NAMING_NS);
}

static void on_naming(void *arg) {
    too_few(arg);
    advance(arg);
}

/* The job's end is known, and only hosts that were lost are left. */
static void leave_lost(struct run *h) {
    uint32_t left = h->crew.next - h->crew.n_gone;
    if (h->is_leaving || h->head.state != HEAD_DECIDED || left > h->head.verdict.lost)
        return;
    h->is_leaving = true;
    loop_timer_set(h->leave, clock_now_ns() + SSH_HEAD_LOST_NS);
}

static void on_leave(void *arg) {
    struct run *h = arg;
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (h->members[i].host != NULL)
            ssh_host_kill(h->members[i].host);
}

static void advance(struct run *h) {
    enum ssh_crew_do what;
    uint32_t i = 0;
    while ((what = ssh_crew_next(&h->crew, &i)) != SSH_CREW_DO_NOTHING) {
        if (what == SSH_CREW_DO_CALL)
            call(h, i);
        else if (what == SSH_CREW_DO_BOOT)
            boot(h, i);
        else
            begin_naming(h);
    }
    if (h->is_naming && h->crew.in_flight == 0)
        too_few(h);
    leave_lost(h);
    if (!h->ended && ssh_crew_is_over(&h->crew)) {
        h->ended = true;
        step(h, &(struct head_event){.kind = HEAD_EVENT_SRUN_ENDED,
                                     .code = h->code != 0           ? h->code
                                             : h->crew.n_failed > 0 ? HEAD_EXIT_LOST
                                                                    : 0});
    }
}

/* ---- from the hosts ---- */

/* Nobody can take the place of the host at which the others meet. */
static void end_without_first(struct run *h, const char *why) {
    char text[HEAD_HOST_MAX + 128];
    bool by_itself = why == NULL && h->code_of_first <= SIGNAL_STATUS;
    (void)snprintf(text, sizeof text,
                   "host %s: muster ended there with status %d, and the others meet there: ending "
                   "the job",
                   name_of(h, h->first)->name, h->code_of_first);
    if (by_itself)
        h->code = h->code_of_first;
    else if (h->first_ended == h->first)
        h->code = 0; /* the program is not to blame */
    end_too_few(h, by_itself ? text
                             : "this was the host at which the others meet: ending the job (only "
                               "with --rdzv-endpoint=dir:/PATH, in a folder that all hosts share, "
                               "or etcd://HOST it could go on without any one host)");
}

static void on_exit_message(struct run *h, uint32_t i, const struct ssh_exit *e) {
    int code = e->signalled ? 128 + (int)e->code : (int)e->code;
    if (code == 0 || h->head.signo != 0)
        return;
    if (i == h->first)
        h->code_of_first = code;
    if (h->code != 0)
        return;
    h->code = code;
    h->first_ended = i;
    loop_timer_set(h->alone, clock_now_ns() + SSH_HEAD_ALONE_NS);
}

static void on_alone(void *arg) {
    struct run *h = arg;
    char why[HEAD_HOST_MAX + 128];
    (void)snprintf(why, sizeof why,
                   "host %s: muster ended there with status %d, and the others are too few: ending "
                   "the job",
                   name_of(h, h->first_ended)->name, h->code);
    if (h->crew.n - h->crew.n_gone < h->crew.min)
        end_too_few(h, why);
}

static void on_message(void *arg, uint32_t i, const struct ssh_message *m) {
    struct run *h = arg;
    switch (m->kind) {
    case SSH_HELLO:
        h->members[i].addrs = xstrdup(m->hello.addrs);
        ssh_crew_hello(&h->crew, i);
        advance(h);
        break;
    case SSH_OUT: ssh_output_add(h->output, i, SSH_OUTPUT_OUT, m->data.bytes, m->data.len); break;
    case SSH_ERR: ssh_output_add(h->output, i, SSH_OUTPUT_ERR, m->data.bytes, m->data.len); break;
    case SSH_LEAD:
        log_info("node %s leads", m->lead.host);
        step(h, &(struct head_event){.kind = HEAD_EVENT_LEADER, .link = (uint64_t)i + 1});
        tell_expected(h);
        break;
    case SSH_VERDICT:
        log_info("host %s: the job ended with status %u%s%s", name_of(h, i)->name,
                 m->verdict.status, m->verdict.text[0] != '\0' ? ": " : "", m->verdict.text);
        step(h, &(struct head_event){
                    .kind = HEAD_EVENT_VERDICT, .link = (uint64_t)i + 1, .verdict = m->verdict});
        call_nobody_else(h);
        break;
    case SSH_EXIT: on_exit_message(h, i, &m->exit); break;
    case SSH_FAIL:
    case SSH_BOOT_PART:
    case SSH_BOOT:
    case SSH_ACK:
    case SSH_STOP:
    case SSH_SIGNAL:
    case SSH_EXPECT:
    case SSH_PING:
    case SSH_DROP_OUT:
    case SSH_DROP_ERR: break;
    }
}

static void on_gone(void *arg, uint32_t i, const char *why) {
    struct run *h = arg;
    ssh_output_end_host(h->output, i);
    if (why != NULL)
        show_gone(h, i, why);
    ssh_crew_gone(&h->crew, i, why != NULL);
    step(h, &(struct head_event){.kind = HEAD_EVENT_LEADER_GONE, .link = (uint64_t)i + 1});
    tell_expected(h);
    if (i == h->first && h->config->spec->hosts.meet && (why != NULL || h->code_of_first != 0))
        end_without_first(h, why);
    advance(h);
}

/* ---- the whole ---- */

static int prepare(struct run *h, struct err *err) {
    const struct job_hosts *hosts = &h->config->spec->hosts;
    int r = ssh_words(hosts->ssh != NULL ? hosts->ssh : "ssh", &h->words, err);
    if (r == 0)
        r = head_real_program(h->config->argv0, h->config->envp, &h->program, err);
    if (r == 0)
        r = ssh_remote_command(h->program, &h->command, err);
    if (r < 0)
        return r;
    h->cwd = head_folder(h->config->envp);
    if (h->cwd == NULL)
        return err_set(err, -errno, "can't find out the working folder: %s", strerror(errno));
    if (gethostname(h->host_name, sizeof h->host_name - 1) < 0)
        h->host_name[0] = '\0';
    envlist_copy(&h->here, h->config->envp);
    ssh_env_leave_slurm(&h->here);
    r = ssh_env(hosts->export_names, h->config->envp, &h->env, err);
    if (h->config->python != NULL)
        envlist_set(&h->env, STARTER_PYTHON_ENV, h->config->python);
    return r;
}

static int set_up_loop(struct run *h) {
    const struct {
        void (*fn)(void *arg);
        struct loop_timer **timer;
    } timers[] = {{on_timer, &h->timer},
                  {on_ping, &h->ping},
                  {on_alone, &h->alone},
                  {on_naming, &h->naming},
                  {on_leave, &h->leave}};
    int r = loop_new(&h->loop);
    if (r == 0)
        r = child_reaper_new(h->loop, &h->reaper);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(timers); i++)
        r = loop_timer_new(h->loop, timers[i].fn, h, timers[i].timer);
    if (r == 0)
        r = head_signals_new(h->loop, h->config->spec, on_signal, h, &h->signals);
    if (r == 0 && !child_is_ignored(SIGTSTP))
        r = loop_signal_new(h->loop, SIGTSTP, on_suspend, h, &h->suspend);
    if (r == 0)
        r = ssh_output_new(h->loop, h->crew.n, &output_ops, h, &h->output);
    return r;
}

/* For muster ps. */
static void tell_machine(struct run *h) {
    const struct job_spec *spec = h->config->spec;
    struct err err = {0};
    if (registry_add_head(spec->hosts.run_id != NULL ? spec->hosts.run_id : spec->run_id, h->crew.n,
                          &h->registry, &err) < 0)
        log_debug("%s", err.text);
}

static int set_up(struct run *h, struct err *err) {
    (void)signal(SIGPIPE, SIG_IGN);
    int r = prepare(h, err);
    if (r == 0)
        r = set_up_loop(h);
    if (r < 0)
        return r;
    h->host_env = (struct ssh_host_env){
        .loop = h->loop,
        .reaper = h->reaper,
        .ops = {.on_message = on_message, .on_gone = on_gone},
        .arg = h,
        .program = h->program,
        .version = h->config->version,
    };
    tell_machine(h);
    on_ping(h);
    advance(h);
    return 0;
}

static void tear_down(struct run *h) {
    struct loop_timer *timers[] = {h->timer, h->ping, h->alone, h->naming, h->leave};
    for (uint32_t i = 0; i < h->crew.n; i++) {
        ssh_host_free(h->members[i].host);
        free(h->members[i].addrs);
    }
    free(h->members);
    ssh_crew_fini(&h->crew);
    ssh_output_free(h->output);
    registry_remove(&h->registry);
    head_signals_free(h->signals);
    loop_signal_free(h->suspend);
    for (size_t i = 0; i < ARRAY_SIZE(timers); i++)
        if (timers[i] != NULL)
            loop_timer_free(timers[i]);
    child_reaper_free(h->reaper);
    if (h->loop != NULL)
        loop_free(h->loop);
    envlist_fini(&h->env);
    envlist_fini(&h->here);
    ssh_words_free(h->words);
    free(h->program);
    free(h->command);
    free(h->cwd);
    free(h->addr);
}

int ssh_head_run(const struct ssh_head_config *config) {
    const struct job_spec *spec = config->spec;
    struct run h = {.config = config, .first = UINT32_MAX};
    struct err err = {0};
    file_open_standard();
    head_init(&h.head, &(struct head_config){.grace_ns = spec->shutdown_timeout_ns});
    ssh_crew_init(&h.crew, (uint32_t)spec->hosts.list.n,
                  MIN2(spec->rdzv.min_nodes, (uint32_t)spec->hosts.list.n));
    h.members = xcalloc(h.crew.n, sizeof *h.members);
    int r = set_up(&h, &err);
    if (r == 0 && !h.written)
        r = loop_run(h.loop);
    tear_down(&h);
    if (r < 0)
        log_error("%s", err.text[0] != '\0' ? err.text : strerror(-r));
    if (r < 0)
        return r == -EINVAL || r == -ENOENT ? EXIT_USAGE_ERROR : EXIT_CANT;
    return h.status;
}
