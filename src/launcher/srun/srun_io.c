/* Starts the agents of a job in a step of Slurm: one srun, whose tasks are muster itself with the
 * same arguments, one on each node. A backend of starter_io.h.
 *
 * The step is killed by scancel. Slurm is asked what people need to know: how long it waits before
 * it kills, whether the step waits for CPUs, and, with --requeue, why the job ends. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/process/helper_call.h"
#include "launcher/place/place_io.h"
#include "launcher/srun/requeue_io.h"
#include "launcher/srun/slurm_job.h"
#include "launcher/srun/srun_command.h"
#include "launcher/starter/starter_io.h"

#define SRUN_FAILED 1 /* srun's own errors; an agent's are others, or are reported */
/* Jobs that end sooner need not know before how long Slurm waits before it kills. */
#define ASK_AFTER_NS (5 * NS_PER_S)
#define ASK_TIMEOUT_NS (10 * NS_PER_S)

struct srun {
    const struct starter_run_config *config;
    const struct place *place;
    struct starter_run *run;
    struct requeue *requeue;          /* NULL: not asked for */
    struct loop_timer *late;          /* until Slurm is asked */
    struct helper_call *wait, *steps; /* while it is: how long it waits, whether the step does */
    struct helper_call *scancel;      /* while it runs */
};

/* ---- the end of the step ---- */

static void on_scancel(void *arg, const struct helper_answer *answer) {
    ((struct srun *)arg)->scancel = NULL;
}

/* scancel(1): --signal=KILL is sent at once. Without the step's number Slurm ends it after srun. */
static void kill_step(void *arg) {
    struct srun *s = arg;
    const char *step = starter_step_name(s->run);
    const char *const words[] = {"scancel", "--quiet", "--signal=KILL", step, NULL};
    if (step[0] != '\0') {
        log_notice("killing step %s", step);
        helper_call_free(TAKE_PTR(s->scancel));
    }
    if (step[0] == '\0' || helper_command(starter_loop(s->run), words, false, ASK_TIMEOUT_NS,
                                          on_scancel, s, &s->scancel) < 0)
        starter_signal(s->run, SIGKILL);
}

static void on_srun_exit(void *arg, const struct child_status *status) {
    struct srun *s = arg;
    const struct starter *m = starter_machine(s->run);
    if (!m->has_led && m->signo == 0 && !status->signalled && status->code == SRUN_FAILED)
        log_error("srun ended with status %d before muster began on the nodes: if the lines above "
                  "are its own, Slurm did not start the step, as while munge or the controller is "
                  "down; try srun hostname here",
                  status->code);
}

/* ---- requeueing ---- */

/* Without a verdict the node of the agent that led was lost, and is to be avoided. */
static void begin_to_requeue(void *arg, int status) {
    struct srun *s = arg;
    const struct starter *m = starter_machine(s->run);
    requeue_begin(s->requeue, (uint32_t)status, m->safe,
                  m->has_verdict ? m->verdict.lost_nodes : starter_lost_node(s->run));
}

static void on_requeued(void *arg, uint32_t status) {
    struct srun *s = arg;
    starter_event(s->run,
                  &(struct starter_event){.kind = STARTER_EVENT_REQUEUED, .code = (int)status});
}

static void look_at_queue(struct srun *s) {
    if (s->config->spec->requeue == 0)
        return;
    s->requeue = requeue_new(starter_loop(s->run), s->config->spec, on_requeued, s);
    requeue_look(s->requeue);
}

/* ---- questions to Slurm ---- */

static void on_config(void *arg, const struct helper_answer *answer) {
    struct srun *s = arg;
    uint64_t wait_ns;
    s->wait = NULL;
    if (answer->code != 0 || !slurm_kill_wait(answer->data, &wait_ns))
        return;
    starter_set_grace(s->run, slurm_grace(wait_ns));
    log_debug("workers have %.0f s after SIGTERM, by KillWait of Slurm",
              (double)slurm_grace(wait_ns) / (double)NS_PER_S);
}

static void on_steps(void *arg, const struct helper_answer *answer) {
    struct srun *s = arg;
    pid_t srun = starter_command_pid(s->run);
    s->steps = NULL;
    if (answer->code == 0 && starter_step_name(s->run)[0] == '\0' && srun != 0 &&
        slurm_step_waits(answer->data, srun))
        log_notice("srun waits, because another step of this job uses its CPUs; to run both at "
                   "once: export SLURM_OVERLAP=1");
}

/* The agents ask for the configuration, too: this one is for people. */
static void on_late(void *arg) {
    static const char *const config[] = {"scontrol", "show", "config", NULL};
    struct srun *s = arg;
    const char *const steps[] = {"scontrol", "show", "step", s->place->job_id, "--oneliner", NULL};
    struct loop *loop = starter_loop(s->run);
    int r = 0;
    if (!job_is_given(s->config->spec, "shutdown-timeout"))
        r = helper_command(loop, config, false, ASK_TIMEOUT_NS, on_config, s, &s->wait);
    if (r == 0 && starter_step_name(s->run)[0] == '\0')
        r = helper_command(loop, steps, false, ASK_TIMEOUT_NS, on_steps, s, &s->steps);
    if (r < 0)
        log_debug("no process can be started to ask Slurm");
}

/* ---- the backend ---- */

static int start_step(struct srun *s, struct err *err) {
    const struct starter_run_config *config = s->config;
    _cleanup_(freep) char *program = NULL;
    _cleanup_(envlist_fini) struct envlist env = {0};
    int r = starter_program(config->argv0, config->envp, &program, err);
    if (r < 0)
        return r;
    struct srun_command command = {
        .nodes = config->spec->start_nodes,
        .program = program,
        .is_torchrun = strcmp(path_name(config->argv0), "torchrun") == 0,
        .args = config->args,
        .place = s->place,
        .binds_nothing = slurm_binds_nothing(config->envp),
        .envp = config->envp,
    };
    srun_env(&command, &env);
    _cleanup_(words_freep) char **argv = srun_argv(&command);
    return starter_spawn(s->run, argv, &env, err);
}

static int start(void *arg, struct starter_run *run, struct err *err) {
    struct srun *s = arg;
    s->run = run;
    look_at_queue(s);
    s->late = loop_timer_new(starter_loop(run), on_late, s);
    loop_timer_set(s->late, clock_now_ns() + ASK_AFTER_NS);
    return start_step(s, err);
}

/* The agents' run id, with the step as soon as it is known. --overlap: the step has all CPUs. */
static void describe(void *arg, struct starter_description *ret) {
    const struct srun *s = arg;
    const struct job_spec *spec = s->config->spec;
    const char *number = s->run != NULL ? strrchr(starter_step_name(s->run), '.') : NULL;
    _cleanup_(freep) char *program = starter_program_word(s->config->argv0, s->config->envp);
    if (job_id_is_common(spec))
        (void)snprintf(ret->run_id, sizeof ret->run_id, "%s", spec->run_id);
    else
        (void)snprintf(ret->run_id, sizeof ret->run_id, "%s%s%s%s",
                       s->place->cluster != NULL ? s->place->cluster : "",
                       s->place->cluster != NULL ? "." : "", s->place->job_id,
                       number != NULL ? number : "");
    ret->ask = xasprintf("srun --jobid=%s --overlap -N1 -n1 %s", s->place->job_id, program);
}

static void end(void *arg) {
    struct srun *s = arg;
    requeue_free(s->requeue);
    helper_call_free(s->wait);
    helper_call_free(s->steps);
    loop_timer_free(s->late);
    helper_call_free(s->scancel);
}

int srun_run(const struct starter_run_config *config) {
    static const struct starter_ops ops = {.start = start,
                                           .kill = kill_step,
                                           .describe = describe,
                                           .stop_signal = SIGINT, /* others make srun kill them */
                                           .requeue = begin_to_requeue,
                                           .command_ended = on_srun_exit,
                                           .end = end};
    struct srun s = {.config = config, .place = &config->spec->place};
    return starter_run(config, &ops, &s);
}
