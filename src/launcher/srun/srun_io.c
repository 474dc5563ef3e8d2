#include "launcher/srun/srun_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/signal_name.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/child.h"
#include "launcher/place/place_io.h"
#include "launcher/srun/slurm_ask_io.h"
#include "launcher/srun/slurm_words.h"
#include "launcher/srun/srun_command.h"
#include "launcher/srun/srun_priv.h"
#include "launcher/starter/starter_program_io.h"

#define EXIT_CANT 1
#define SRUN_FAILED 1 /* srun's own errors; an agent's are others, or are told */
#define EXIT_USAGE_ERROR 2
#define BACKLOG 64
#define ADDRS_MAX 8
/* Jobs that end sooner need not know before how long Slurm waits before it kills. */
#define ASK_AFTER_NS (5 * NS_PER_S)
#define ASK_TIMEOUT_NS (10 * NS_PER_S)

/* ---- effects ---- */

static void signal_srun(struct srun *h, int signo) {
    if (h->srun != NULL && child_watch_kill(h->srun, signo) < 0)
        log_debug("srun has ended before it got SIG%s", signal_abbrev(signo));
}

static void on_scancel_exit(void *arg, const struct child_status *status) {
    struct srun *h = arg;
    log_debug("scancel %s %d", status->signalled ? "died of signal" : "ended with status",
              status->code);
    child_watch_free(TAKE_PTR(h->scancel));
}

/* The controller may be gone for long: no scancel stays behind that waits for it. */
static void end_scancel(struct srun *h) {
    if (h->scancel != NULL && child_watch_kill_group(h->scancel, SIGKILL) < 0)
        log_debug("scancel has ended");
    child_watch_free(TAKE_PTR(h->scancel));
}

/* scancel(1): --signal=KILL is sent at once. Without the step's number only srun can be ended, and
 * Slurm then ends its tasks. */
static void kill_step(struct srun *h) {
    char program[] = "scancel", quiet[] = "--quiet", kill_now[] = "--signal=KILL";
    char *argv[] = {program, quiet, kill_now, h->step, NULL};
    struct child_spec spec = CHILD_SPEC_INIT;
    struct child child = CHILD_INIT;
    struct err err = {0};
    spec.argv = argv;
    spec.envp = h->config->envp;
    spec.setsid = true;
    if (h->step[0] == '\0') {
        signal_srun(h, SIGKILL);
        return;
    }
    log_notice("killing step %s", h->step);
    end_scancel(h);
    if (child_spawn(&spec, &child, &err) < 0) {
        log_warning("can't run scancel: %s", err.text);
        signal_srun(h, SIGKILL);
    } else if (child_watch_new(h->reaper, &child, NULL, on_scancel_exit, h, &h->scancel) < 0) {
        child_fini(&child); /* the reaper takes its end */
    }
}

static void finish(struct srun *h, int status) {
    h->status = status;
    h->over = true;
    signal_srun(h, SIGKILL);
    loop_quit(h->loop);
}

/* Without a verdict the agent that led was lost, and its node is to be avoided. */
static void begin_to_requeue(struct srun *h, int status) {
    const struct starter *head = &h->head;
    struct requeue_end end = {.status = (uint32_t)status,
                              .safe = head->safe,
                              .lost = head->has_verdict ? head->verdict.lost_nodes : h->lost};
    requeue_begin(h->requeue, &end);
}

static void carry_out(struct srun *h, const struct starter_effect *e) {
    struct starter_message m = {.kind = STARTER_ACK};
    switch (e->kind) {
    case STARTER_EFFECT_STOP:
        m.kind = STARTER_STOP;
        m.signal.signo = (uint32_t)e->signo;
        srun_send(h, e->link, &m);
        break;
    case STARTER_EFFECT_ACK: srun_send(h, e->link, &m); break;
    case STARTER_EFFECT_SIGNAL: signal_srun(h, e->signo); break;
    case STARTER_EFFECT_KILL: kill_step(h); break;
    case STARTER_EFFECT_REQUEUE: begin_to_requeue(h, e->status); break;
    case STARTER_EFFECT_END: finish(h, e->status); break;
    }
}

/* Whether somebody else must notice that the head was killed. */
static void watch_alone(struct srun *h) {
    bool alone = h->srun != NULL && h->head.link == 0 && !h->head.has_verdict && !h->over;
    if (!alone) {
        lone_srun_watch_end(&h->lone);
    } else if (h->lone.fd < 0) {
        int r = lone_srun_watch(h->loop, child_watch_pid(h->srun), &h->lone);
        if (r < 0)
            log_debug("nobody watches whether the head is killed: %s", strerror(-r));
    }
}

void srun_step(struct srun *h, struct starter_event *event) {
    struct starter_update u;
    event->now_ns = clock_now_ns();
    starter_step(&h->head, event, &u);
    loop_timer_set(h->timer, u.deadline_ns);
    for (size_t i = 0; i < u.n_effects; i++)
        carry_out(h, &u.effects[i]);
    watch_alone(h);
}

static void on_timer(void *arg) {
    srun_step(arg, &(struct starter_event){.kind = STARTER_EVENT_TIME});
}

/* ---- signals ---- */

static void on_signal(void *arg, int signo, bool ends) {
    struct srun *h = arg;
    bool first = h->head.signo == 0;
    if (ends && first && h->head.state != STARTER_DECIDED && h->head.requeue == STARTER_UNASKED)
        starter_signals_say(signo, h->grace_ns);
    srun_step(h,
              &(struct starter_event){.kind = STARTER_EVENT_SIGNAL, .signo = signo, .ends = ends});
}

static void on_config(void *arg, const struct helper_answer *answer) {
    struct srun *h = arg;
    uint64_t wait_ns;
    h->wait = NULL;
    if (answer->code != 0 || !slurm_kill_wait(answer->data, &wait_ns))
        return;
    h->grace_ns = slurm_grace(wait_ns);
    log_debug("workers have %.0f s after SIGTERM, by KillWait of Slurm",
              (double)h->grace_ns / (double)NS_PER_S);
}

static void on_steps(void *arg, const struct helper_answer *answer) {
    struct srun *h = arg;
    h->steps = NULL;
    if (answer->code == 0 && h->step[0] == '\0' && h->srun != NULL &&
        slurm_step_waits(answer->data, child_watch_pid(h->srun)))
        log_notice("srun waits, because another step of this job uses its CPUs; to run both at "
                   "once: export SLURM_OVERLAP=1");
}

/* The agents ask for the configuration, too: this one is for people. */
static void on_late(void *arg) {
    static const char *const config[] = {"show", "config", NULL};
    struct srun *h = arg;
    const char *const steps[] = {"show", "step", h->config->place->job_id, "--oneliner", NULL};
    int r = 0;
    if (!h->config->spec->shutdown_timeout_given)
        r = slurm_ask(h->loop, config, ASK_TIMEOUT_NS, on_config, h, &h->wait);
    if (r == 0 && h->step[0] == '\0')
        r = slurm_ask(h->loop, steps, ASK_TIMEOUT_NS, on_steps, h, &h->steps);
    if (r < 0)
        log_debug("no process can be started to ask Slurm");
}

static int ask_late(struct srun *h) {
    const struct job_spec *spec = h->config->spec;
    int r = loop_timer_new(h->loop, on_late, h, &h->late);
    if (spec->shutdown_timeout_given)
        h->grace_ns = spec->shutdown_timeout_ns;
    if (r == 0)
        loop_timer_set(h->late, clock_now_ns() + ASK_AFTER_NS);
    return r;
}

/* ---- srun ---- */

static void on_srun_exit(void *arg, const struct child_status *status) {
    struct srun *h = arg;
    child_watch_free(TAKE_PTR(h->srun));
    if (!h->head.has_led && h->head.signo == 0 && !status->signalled && status->code == SRUN_FAILED)
        log_error("srun ended with status %d before muster began on the nodes: if the lines above "
                  "are its own, Slurm did not start the step, as while munge or the controller is "
                  "down; try srun hostname here",
                  status->code);
    srun_step(h, &(struct starter_event){.kind = STARTER_EVENT_ENDED,
                                         .signalled = status->signalled,
                                         .code = status->code});
}

static bool is_torchrun(const char *path) { return strcmp(path_name(path), "torchrun") == 0; }

static int spawn(struct srun *h, char *const *argv, const struct envlist *env, struct err *err) {
    struct child_spec spec = CHILD_SPEC_INIT;
    struct child child = CHILD_INIT;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    spec.argv = argv;
    spec.envp = envlist_items(env);
    spec.stdin_fd = null;
    spec.setsid = true; /* ^C and ^Z are the head's */
    starter_show_command(argv);
    int r = child_spawn(&spec, &child, err);
    file_close(&null);
    if (r == -ENOENT)
        return err_set(err, r,
                       "srun is not on PATH, so muster can't start itself on the job's other "
                       "nodes; add it to PATH, or use --starter=none to run on this node only");
    if (r == 0)
        r = child_watch_new(h->reaper, &child, NULL, on_srun_exit, h, &h->srun);
    return r;
}

/* "10.0.0.1,fd77::1:4711" */
static int address_text(const struct srun *h, struct strbuf *ret) {
    struct addr own[ADDRS_MAX], at;
    char text[ADDR_TEXT_MAX];
    size_t n = 0;
    int r = listener_addr(h->listener, &at);
    if (r == 0)
        r = addr_all_global(own, ARRAY_SIZE(own), &n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        addr_host_text(&own[i], text);
        strbuf_printf(ret, "%s%s", i > 0 ? "," : "", text);
    }
    strbuf_printf(ret, "%s:%u", n == 0 ? "127.0.0.1" : "", addr_port(&at));
    return 0;
}

static int start_step(struct srun *h, struct err *err) {
    const struct srun_config *config = h->config;
    _cleanup_(freep) char *program = NULL;
    _cleanup_(strbuf_fini) struct strbuf head = {0};
    _cleanup_(envlist_fini) struct envlist env = {0};
    (void)snprintf(h->token, sizeof h->token, "%016" PRIx64 "%016" PRIx64, random_u64(),
                   random_u64());
    int r = starter_program(config->argv0, config->envp, &program, err);
    if (r < 0)
        return r;
    r = address_text(h, &head);
    if (r < 0)
        return err_set(err, r, "can't list this machine's addresses: %s", strerror(-r));
    struct srun_command starter = {
        .nodes = config->nodes,
        .program = program,
        .is_torchrun = is_torchrun(config->argv0),
        .args = config->args,
        .place = config->place,
        .binds_nothing = slurm_binds_nothing(config->envp),
        .envp = config->envp,
        .head = strbuf_text(&head),
        .token = h->token,
        .python = config->python,
    };
    srun_env(&starter, &env);
    starter_key_to_env(h->key, &env);
    char **argv = srun_argv(&starter);
    r = spawn(h, argv, &env, err);
    words_free(argv);
    envlist_forget(&env, STARTER_KEY_ENV);
    if (r == 0)
        watch_alone(h);
    return r;
}

/* ---- the whole ---- */

static int listen_anywhere(struct srun *h, struct err *err) {
    struct addr any;
    int fd = -1;
    if (h->config->spec->port_low > 0)
        listen_set_range(h->config->spec->port_low, h->config->spec->port_high);
    int r = addr_from_literal("::", 0, &any);
    assert(r == 0);
    r = listen_socket(&any, BACKLOG, &fd, err);
    if (r == 0 && h->config->spec->auth != AUTH_NONE &&
        peer_gate_new(fd, NULL, NULL, &h->gate, NULL) < 0)
        h->gate = NULL; /* the agents say why; the token is still asked for */
    return r < 0 ? r : listener_new(h->loop, fd, srun_on_peer, h, &h->listener);
}

static void on_requeued(void *arg, uint32_t status) {
    srun_step(arg, &(struct starter_event){.kind = STARTER_EVENT_REQUEUED, .code = (int)status});
}

static int look_at_queue(struct srun *h) {
    const struct job_spec *spec = h->config->spec;
    struct requeue_config config = {.loop = h->loop,
                                    .id = h->config->place->job_id,
                                    .asked = spec->requeue,
                                    .max = spec->max_requeues,
                                    .restarts = h->config->place->restarts};
    if (spec->requeue == 0)
        return 0;
    int r = requeue_new(&config, on_requeued, h, &h->requeue);
    if (r == 0)
        requeue_look(h->requeue);
    return r;
}

/* For muster ps, and others that are run here. The number of the step is not known yet, which its
 * agents have in their run id. */
static void tell_machine(struct srun *h) {
    const struct place *place = h->config->place;
    const struct job_spec *spec = h->config->spec;
    struct err err = {0};
    if (spec->run_id_given)
        (void)snprintf(h->run_id, sizeof h->run_id, "%s", spec->run_id);
    else
        (void)snprintf(h->run_id, sizeof h->run_id, "%s%s%s",
                       place->cluster != NULL ? place->cluster : "",
                       place->cluster != NULL ? "." : "", place->job_id);
    _cleanup_(freep) char *program = starter_program_word(h->config->argv0, h->config->envp);
    /* srun(1): a step beside the one that has all CPUs */
    _cleanup_(freep) char *ask =
        xasprintf("srun --jobid=%s --overlap -N1 -n1 %s", place->job_id, program);
    if (registry_add_head(h->run_id, h->config->nodes, ask, &h->registry, &err) < 0)
        log_debug("%s", err.text);
    const uint8_t *secret = starter_key_secret(h->key);
    if (secret != NULL && registry_add_key(&h->registry, secret, &err) < 0)
        log_debug("%s", err.text);
}

static int set_up(struct srun *h, struct err *err) {
    (void)signal(SIGPIPE, SIG_IGN);
    int r = loop_new(&h->loop);
    if (r == 0)
        r = child_reaper_new(h->loop, &h->reaper);
    if (r == 0)
        r = loop_timer_new(h->loop, on_timer, h, &h->timer);
    if (r == 0)
        r = loop_timer_new(h->loop, srun_on_greeting_timer, h, &h->greeting);
    if (r == 0)
        r = starter_signals_new(h->loop, h->config->spec, on_signal, h, &h->signals);
    if (r == 0)
        r = starter_key_new(h->config->spec, h->config->keys, &h->key, err);
    if (r == 0)
        r = listen_anywhere(h, err);
    if (r == 0)
        r = look_at_queue(h);
    if (r == 0)
        r = ask_late(h);
    if (r == 0)
        tell_machine(h);
    return r < 0 ? r : start_step(h, err);
}

/* By the id that the agents have: one of them can be on this machine. */
static void record_end(const struct srun *h) {
    const char *number = h->config->spec->run_id_given ? NULL : strrchr(h->step, '.');
    _cleanup_(freep) char *run_id = xasprintf("%s%s", h->run_id, number != NULL ? number : "");
    starter_record_end(&h->head, run_id, h->status);
}

static void tear_down(struct srun *h) {
    srun_free_peers(h);
    if (h->listener != NULL)
        listener_free(h->listener);
    peer_gate_free(h->gate);
    starter_key_free(h->key);
    starter_signals_free(h->signals);
    lone_srun_watch_end(&h->lone);
    requeue_free(h->requeue);
    helper_call_free(h->wait);
    helper_call_free(h->steps);
    if (h->over)
        record_end(h);
    registry_remove(&h->registry);
    loop_timer_free(h->late);
    child_watch_free(h->srun);
    end_scancel(h);
    loop_timer_free(h->timer);
    loop_timer_free(h->greeting);
    child_reaper_free(h->reaper);
    if (h->loop != NULL)
        loop_free(h->loop);
}

int srun_run(const struct srun_config *config) {
    struct srun h = {.config = config, .lone = LONE_SRUN_INIT};
    struct starter_config head = {.grace_ns = config->spec->shutdown_timeout_ns,
                                  .requeues = config->spec->requeue != 0};
    struct err err = {0};
    file_open_standard();
    list_init(&h.strangers);
    list_init(&h.links);
    starter_init(&h.head, &head);
    int r = set_up(&h, &err);
    if (r == 0)
        r = loop_run(h.loop);
    if (r < 0)
        log_error("%s", err.text[0] != '\0' ? err.text : strerror(-r));
    tear_down(&h);
    if (!h.over)
        return r == -ENOENT ? EXIT_USAGE_ERROR : EXIT_CANT;
    return h.status;
}
