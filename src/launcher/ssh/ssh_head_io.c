#include "launcher/ssh/ssh_head_io.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/child.h"
#include "launcher/place/place.h"
#include "launcher/ssh/ssh_command.h"
#include "launcher/ssh/ssh_env.h"
#include "launcher/ssh/ssh_head_priv.h"
#include "launcher/ssh/ssh_suspend_io.h"
#include "launcher/starter/starter_program_io.h"

#define EXIT_CANT 1
#define EXIT_USAGE_ERROR 2

/* ---- output ---- */

static void pause_all(void *arg, bool pause) {
    struct ssh_head *h = arg;
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (h->members[i].host != NULL)
            ssh_host_pause(h->members[i].host, pause);
}

static void on_written(void *arg) {
    struct ssh_head *h = arg;
    h->written = true;
    loop_quit(h->loop);
}

static void on_dropped(void *arg, size_t which) {
    ssh_calls_send_all(arg, which == SSH_OUTPUT_OUT ? SSH_DROP_OUT : SSH_DROP_ERR, 0);
}

static const struct ssh_output_ops output_ops = {
    .pause = pause_all, .on_dropped = on_dropped, .on_done = on_written};

static void on_suspend(void *arg, int signo) {
    struct ssh_head *h = arg;
    _cleanup_(freep) int *fds = xcalloc(h->crew.n, sizeof *fds);
    size_t n = ssh_calls_fds(h, fds);
    (void)signo;
    log_notice("suspended; the job continues: fg (or SIGCONT) resumes it, kill ends it");
    ssh_output_flush(h->output);
    ssh_suspend_self(fds, n);
    ssh_calls_ping(h);
}

/* ---- effects ---- */

static void finish(struct ssh_head *h, int status) {
    h->status = ssh_losses_status(h, status);
    h->over = true;
    if (h->head.signo != 0)
        ssh_output_hurry(h->output);
    ssh_output_finish(h->output);
}

static void kill_all(struct ssh_head *h) {
    log_notice("killing the job on all hosts");
    ssh_output_only_workers(h->output);
    ssh_calls_send_all(h, SSH_STOP, SIGKILL);
    ssh_calls_nobody_else(h);
}

static void carry_out(struct ssh_head *h, const struct starter_effect *e) {
    switch (e->kind) {
    case STARTER_EFFECT_STOP:
        ssh_calls_nobody_else(h);
        if (e->link != 0)
            ssh_calls_send(h, (uint32_t)e->link - 1, SSH_STOP, e->signo);
        else
            ssh_calls_send_all(h, SSH_STOP, e->signo);
        break;
    case STARTER_EFFECT_ACK: ssh_calls_send(h, (uint32_t)e->link - 1, SSH_ACK, 0); break;
    case STARTER_EFFECT_SIGNAL: ssh_calls_send_all(h, SSH_SIGNAL, e->signo); break;
    case STARTER_EFFECT_KILL: kill_all(h); break;
    case STARTER_EFFECT_REQUEUE: break; /* only Slurm has a queue: config.requeues is false */
    case STARTER_EFFECT_END: finish(h, e->status); break;
    }
}

/* No effect calls back, so steps are not nested. */
void ssh_head_step(struct ssh_head *h, struct starter_event *event) {
    struct starter_update u;
    event->now_ns = clock_now_ns();
    starter_step(&h->head, event, &u);
    loop_timer_set(h->timer, u.deadline_ns);
    for (size_t i = 0; i < u.n_effects; i++)
        carry_out(h, &u.effects[i]);
}

static void on_timer(void *arg) {
    ssh_head_step(arg, &(struct starter_event){.kind = STARTER_EVENT_TIME});
}

/* In a job of Slurm, that may kill this head sooner; 0. */
static uint64_t grace_that_is_known(const struct ssh_head *h) {
    const struct job_spec *spec = h->config->spec;
    bool alone = spec->place.job_id == NULL;
    return alone || spec->shutdown_timeout_given ? spec->shutdown_timeout_ns : 0;
}

static void on_signal(void *arg, int signo, bool ends) {
    struct ssh_head *h = arg;
    if (h->over && ends) {
        loop_quit(h->loop);
        return;
    }
    if (ends && h->head.signo == 0 && h->head.state != STARTER_DECIDED)
        starter_signals_log(signo, grace_that_is_known(h));
    if (ends)
        ssh_output_hurry(h->output);
    ssh_head_step(
        h, &(struct starter_event){.kind = STARTER_EVENT_SIGNAL, .signo = signo, .ends = ends});
    if (ends && h->crew.n_gone == 0 && h->first == UINT32_MAX)
        ssh_calls_nobody_else(h);
    ssh_head_advance(h);
}

/* ---- what is due ---- */

void ssh_head_advance(struct ssh_head *h) {
    enum ssh_crew_do what;
    uint32_t i = 0;
    while ((what = ssh_crew_next(&h->crew, &i)) != SSH_CREW_DO_NOTHING) {
        if (what == SSH_CREW_DO_CALL)
            ssh_calls_call(h, i);
        else if (what == SSH_CREW_DO_BOOT)
            ssh_calls_boot(h, i);
        else
            ssh_losses_too_few(h);
    }
    ssh_losses_advance(h);
    if (!h->ended && ssh_crew_is_over(&h->crew)) {
        h->ended = true;
        ssh_head_step(
            h, &(struct starter_event){.kind = STARTER_EVENT_ENDED, .code = ssh_losses_code(h)});
    }
}

/* ---- from the hosts ---- */

static void on_message(void *arg, uint32_t i, const struct ssh_message *m) {
    struct ssh_head *h = arg;
    switch (m->kind) {
    case SSH_HELLO:
        ssh_calls_hello(h, i, m->hello.addrs);
        ssh_head_advance(h);
        break;
    case SSH_OUT: ssh_output_add(h->output, i, SSH_OUTPUT_OUT, m->data.bytes, m->data.len); break;
    case SSH_ERR: ssh_output_add(h->output, i, SSH_OUTPUT_ERR, m->data.bytes, m->data.len); break;
    case SSH_LEAD:
        log_info("node %s leads", m->lead.host);
        ssh_head_step(
            h, &(struct starter_event){.kind = STARTER_EVENT_LEADER, .link = (uint64_t)i + 1});
        ssh_calls_tell_expected(h);
        break;
    case SSH_VERDICT:
        log_info("host %s: the job ended with status %u%s%s", ssh_head_host(h, i)->name,
                 m->verdict.status, m->verdict.text[0] != '\0' ? ": " : "", m->verdict.text);
        ssh_head_step(h, &(struct starter_event){.kind = STARTER_EVENT_VERDICT,
                                                 .link = (uint64_t)i + 1,
                                                 .verdict = m->verdict});
        ssh_calls_nobody_else(h);
        ssh_head_advance(h);
        break;
    case SSH_EXIT: ssh_losses_exit(h, i, &m->exit); break;
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
    struct ssh_head *h = arg;
    ssh_output_end_host(h->output, i);
    ssh_calls_gone(h, i, why);
    ssh_head_step(
        h, &(struct starter_event){.kind = STARTER_EVENT_LEADER_GONE, .link = (uint64_t)i + 1});
    ssh_calls_tell_expected(h);
    ssh_losses_gone(h, i, why);
    ssh_head_advance(h);
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
    if (gethostname(h->host_name, sizeof h->host_name - 1) < 0)
        h->host_name[0] = '\0';
    envlist_copy(&h->here, h->config->envp);
    ssh_env_leave_slurm(&h->here);
    r = ssh_env(hosts->export_names, h->config->envp, &h->env, err);
    if (r == 0)
        r = starter_key_new(h->config->spec, h->config->keys, &h->key, err);
    if (h->config->python != NULL)
        envlist_set(&h->env, STARTER_PYTHON_ENV, h->config->python);
    return r;
}

static int set_up_loop(struct ssh_head *h) {
    int r = loop_new(&h->loop);
    if (r == 0)
        r = child_reaper_new(h->loop, &h->reaper);
    if (r == 0)
        r = loop_timer_new(h->loop, on_timer, h, &h->timer);
    if (r == 0)
        r = ssh_calls_begin(h);
    if (r == 0)
        r = ssh_losses_begin(h);
    if (r == 0)
        r = starter_signals_new(h->loop, h->config->spec, on_signal, h, &h->signals);
    if (r == 0 && !child_is_ignored(SIGTSTP))
        r = loop_signal_new(h->loop, SIGTSTP, on_suspend, h, &h->suspend);
    if (r == 0)
        r = ssh_output_new(h->loop, h->crew.n, &output_ops, h, &h->output);
    return r;
}

static const char *run_id(const struct ssh_head *h) {
    const struct job_spec *spec = h->config->spec;
    return spec->hosts.run_id != NULL ? spec->hosts.run_id : spec->run_id;
}

/* For muster ps, and others that are run here. On this machine an agent is found without a head. */
static void tell_machine(struct ssh_head *h) {
    const struct job_spec *spec = h->config->spec;
    struct err err = {0};
    uint32_t i = 0;
    while (i + 1 < h->crew.n && ssh_calls_is_here(h, ssh_head_host(h, i)))
        i++;
    _cleanup_(freep) char *program = starter_program_word(h->config->argv0, h->config->envp);
    _cleanup_(freep) char *ask = ssh_ask_line(spec->hosts.ssh != NULL ? spec->hosts.ssh : "ssh",
                                              ssh_head_host(h, i), program);
    if (registry_add_head(run_id(h), h->crew.n, ask, &h->registry, &err) < 0)
        log_debug("%s", err.text);
    const uint8_t *secret = starter_key_secret(h->key);
    if (secret != NULL && registry_add_key(&h->registry, secret, &err) < 0)
        log_debug("%s", err.text);
}

static int set_up(struct ssh_head *h, struct err *err) {
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
    ssh_calls_ping(h);
    ssh_head_advance(h);
    return 0;
}

static void tear_down(struct ssh_head *h) {
    ssh_calls_free(h);
    ssh_losses_free(h);
    ssh_output_free(h->output);
    if (h->over)
        starter_record_end(&h->head, run_id(h), h->status);
    registry_remove(&h->registry);
    starter_key_free(h->key);
    starter_signals_free(h->signals);
    loop_signal_free(h->suspend);
    loop_timer_free(h->timer);
    child_reaper_free(h->reaper);
    if (h->loop != NULL)
        loop_free(h->loop);
    envlist_fini(&h->env);
    envlist_fini(&h->here);
    words_free(h->words);
    free(h->program);
    free(h->command);
    free(h->cwd);
    free(h->addr);
}

int ssh_head_run(const struct ssh_head_config *config) {
    const struct job_spec *spec = config->spec;
    struct ssh_head h = {.config = config, .first = UINT32_MAX};
    struct err err = {0};
    file_open_standard();
    starter_init(&h.head, &(struct starter_config){.grace_ns = spec->shutdown_timeout_ns});
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
