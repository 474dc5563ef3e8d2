#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/place/place.h"
#include "launcher/ssh/ssh_args.h"
#include "launcher/ssh/ssh_command.h"
#include "launcher/ssh/ssh_head_priv.h"
#include "launcher/starter/starter_program_io.h"

/* ---- to the hosts ---- */

void ssh_calls_send(struct ssh_head *h, uint32_t i, enum ssh_kind kind, int signo) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    struct ssh_message m = {.kind = kind};
    m.signal.signo = (uint32_t)signo;
    ssh_add(&m, &frame);
    ssh_host_send(h->members[i].host, &frame);
}

void ssh_calls_send_all(struct ssh_head *h, enum ssh_kind kind, int signo) {
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (ssh_crew_state(&h->crew, i) == SSH_CREW_BOOTED)
            ssh_calls_send(h, i, kind, signo);
}

void ssh_calls_tell_expected(struct ssh_head *h) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    struct ssh_message m = {.kind = SSH_EXPECT};
    m.expect.nodes = h->crew.n - h->crew.n_gone - h->crew.n_hanging;
    if (!h->config->spec->hosts.meet || h->head.link == 0 || m.expect.nodes == 0)
        return;
    ssh_add(&m, &frame);
    ssh_host_send(h->members[h->head.link - 1].host, &frame);
}

void ssh_calls_nobody_else(struct ssh_head *h) {
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

void ssh_calls_ping(struct ssh_head *h) {
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (may_ping(&h->members[i]))
            ssh_calls_send(h, i, SSH_PING, 0);
    loop_timer_set(h->calls.ping, clock_now_ns() + SSH_PING_NS);
}

static void on_ping(void *arg) { ssh_calls_ping(arg); }

size_t ssh_calls_fds(struct ssh_head *h, int fds[]) {
    size_t n = 0;
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (may_ping(&h->members[i]) && ssh_host_fd(h->members[i].host) >= 0)
            fds[n++] = ssh_host_fd(h->members[i].host);
    return n;
}

/* ---- hosts that do not answer ---- */

/* While the first host hangs nobody can meet there. Where the job can do without it, it gets no
 * more time than any other host that is late for the start. */
static void watch_first(struct ssh_head *h) {
    bool can = h->first == UINT32_MAX && ssh_crew_can_pass_over(&h->crew);
    bool hangs = can && ssh_crew_state(&h->crew, h->crew.leader) == SSH_CREW_HANGS;
    uint64_t wait_ns = MAX2(h->config->spec->rdzv.last_call_ns, (uint64_t)SSH_HEAD_FIRST_NS);
    wait_ns = hangs ? 0 : MIN2(wait_ns, (uint64_t)SSH_HEAD_SILENT_NS);
    if (can && h->calls.is_late_set && !hangs)
        return;
    h->calls.is_late_set = can;
    loop_timer_set(h->calls.late, can ? clock_now_ns() + wait_ns : TIME_NEVER);
}

static void begin_without_first(struct ssh_head *h) {
    uint32_t from = h->crew.leader;
    if (h->first != UINT32_MAX || !ssh_crew_can_pass_over(&h->crew))
        return;
    ssh_crew_pass_over(&h->crew);
    for (uint32_t i = from; i < h->crew.leader; i++) {
        if (!ssh_crew_is_called(&h->crew, i))
            continue;
        h->members[i].told = true;
        log_warning("host %s: its login has not started muster yet: the job begins without it",
                    ssh_head_host(h, i)->name);
    }
}

static void on_late(void *arg) {
    struct ssh_head *h = arg;
    h->calls.is_late_set = false;
    begin_without_first(h);
    ssh_head_advance(h);
}

/* Many logins at once are slow: none hangs as long as others come through. */
static uint64_t named_at(const struct ssh_head *h, const struct ssh_member *m) {
    return m->told ? TIME_NEVER : MAX2(m->called_ns, h->calls.answered_ns) + SSH_HEAD_SILENT_NS;
}

static uint64_t given_up_at(const struct ssh_head *h, const struct ssh_member *m) {
    return m->called_ns + h->config->spec->rdzv.join_timeout_ns;
}

static void watch_silence(struct ssh_head *h, uint64_t at_ns) {
    if (at_ns >= h->calls.silence_ns)
        return;
    h->calls.silence_ns = at_ns;
    loop_timer_set(h->calls.silence, at_ns);
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
    if (h->crew.leader < h->crew.next && now >= named_at(h, &h->members[h->crew.leader]))
        begin_without_first(h); /* which names it */
    for (uint32_t i = 0; i < h->crew.next; i++) {
        struct ssh_member *m = &h->members[i];
        if (!ssh_crew_is_called(&h->crew, i))
            continue;
        if (now >= given_up_at(h, m)) {
            give_up(h, i);
            continue;
        }
        if (now >= named_at(h, m)) {
            m->told = true;
            log_warning("host %s: its login has not started muster yet", ssh_head_host(h, i)->name);
            ssh_crew_hangs(&h->crew, i);
        }
        watch_silence(h, MIN2(named_at(h, m), given_up_at(h, m)));
    }
    ssh_calls_tell_expected(h);
    watch_first(h);
    ssh_head_advance(h);
}

/* ---- the start ---- */

bool ssh_calls_is_here(const struct ssh_head *h, const struct host *host) {
    size_t n = strcspn(h->host_name, ".");
    return host->user == NULL && host->port == 0 &&
           (strcmp(host->name, "localhost") == 0 || strcmp(host->name, h->host_name) == 0 ||
            (strlen(host->name) == n && strncmp(host->name, h->host_name, n) == 0));
}

static void show_gone(const struct ssh_head *h, uint32_t i, const char *why) {
    bool ends = h->head.state != STARTER_STARTING && h->head.state != STARTER_RUNNING;
    log_line(ends ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "host %s: %s", ssh_head_host(h, i)->name,
             why);
}

void ssh_calls_gone(struct ssh_head *h, uint32_t i, const char *why) {
    if (why != NULL)
        show_gone(h, i, why);
    ssh_crew_gone(&h->crew, i, why != NULL);
    watch_first(h);
}

void ssh_calls_call(struct ssh_head *h, uint32_t i) {
    const struct host *host = ssh_head_host(h, i);
    struct ssh_member *m = &h->members[i];
    struct err err = {0};
    char relay[] = "ssh-node";
    char *here[] = {h->program, relay, NULL};
    char **argv = ssh_calls_is_here(h, host) ? NULL : ssh_command(h->words, host, h->command);
    char *const *envp = argv != NULL ? h->config->envp : envlist_items(&h->here);
    m->host = ssh_host_new(&h->host_env, i);
    m->called_ns = clock_now_ns();
    watch_silence(h, MIN2(named_at(h, m), given_up_at(h, m)));
    starter_log_command(argv != NULL ? argv : here);
    int r = ssh_host_call(m->host, argv != NULL ? argv : here, envp, &err);
    words_free(argv);
    if (r < 0) {
        ssh_calls_gone(h, i, err.text);
        ssh_calls_tell_expected(h);
    }
}

void ssh_calls_hello(struct ssh_head *h, uint32_t i, const char *addrs) {
    bool was_counted_out = ssh_crew_state(&h->crew, i) == SSH_CREW_HANGS;
    h->members[i].addrs = xstrdup(addrs);
    h->calls.answered_ns = clock_now_ns();
    ssh_crew_hello(&h->crew, i);
    watch_first(h);
    if (was_counted_out)
        ssh_calls_tell_expected(h);
}

void ssh_calls_boot(struct ssh_head *h, uint32_t i) {
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {
        .cwd = xstrdup(h->cwd), .grace_ns = h->config->spec->shutdown_timeout_ns};
    _cleanup_(strbuf_forget) struct strbuf frames = {.is_secret = true};
    struct err err = {0};
    if (h->first == UINT32_MAX) {
        h->first = h->crew.leader;
        h->addr = ssh_meeting_addr(h->members[h->first].addrs);
        log_info("the hosts meet at %s (%s)", ssh_head_host(h, h->first)->name, h->addr);
    }
    envlist_copy(&boot.env, envlist_items(&h->env));
    ssh_args(h->config->spec, &(struct ssh_place){.host = i, .first = h->first, .addr = h->addr},
             h->config->args, &boot);
    starter_key_to_env(h->key, &boot.env);
    if (ssh_boot_add(&boot, &frames, &err) < 0) {
        show_gone(h, i, err.text);
        ssh_host_hang_up(h->members[i].host);
    } else {
        ssh_host_send_secret(h->members[i].host, &frames);
    }
    envlist_forget(&boot.env, STARTER_KEY_ENV);
}

/* ---- the whole ---- */

int ssh_calls_begin(struct ssh_head *h) {
    h->calls.silence_ns = TIME_NEVER;
    int r = loop_timer_new(h->loop, on_ping, h, &h->calls.ping);
    if (r == 0)
        r = loop_timer_new(h->loop, on_silence, h, &h->calls.silence);
    return r < 0 ? r : loop_timer_new(h->loop, on_late, h, &h->calls.late);
}

void ssh_calls_free(struct ssh_head *h) {
    for (uint32_t i = 0; i < h->crew.n; i++) {
        ssh_host_free(h->members[i].host);
        free(h->members[i].addrs);
    }
    free(h->members);
    ssh_crew_fini(&h->crew);
    loop_timer_free(h->calls.ping);
    loop_timer_free(h->calls.silence);
    loop_timer_free(h->calls.late);
}
