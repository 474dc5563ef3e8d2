#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/log.h"
#include "cli/jobs/run_line_io.h"
#include "cli/options/commands.h"
#include "cli/options/job_options.h"
#include "launcher/agent/agent_io.h"
#include "launcher/node/python_io.h"
#include "launcher/place/place.h"
#include "launcher/srun/hold_io.h"
#include "launcher/srun/step_cpus_io.h"
#include "launcher/ssh/ssh_boot.h"
#include "launcher/ssh/ssh_node_io.h"
#include "launcher/starter/starter_io.h"

extern char **environ;

/* The agent of this node. Other tasks of Slurm hold until it has ended, if there are any. */
static int be_agent(const struct job_spec *spec, struct keyring *keys, const char *hold) {
    struct err err = {0};
    int fd = -1;
    if (hold != NULL && hold_claim(hold, &fd, &err) < 0) {
        log_error("%s", err.text);
        return EXIT_FAILURE;
    }
    srun_restore_env();
    int status = job_start(spec, environ, keys);
    hold_tell(fd, status);
    return status;
}

/* What starts the agents, by --starter. */
#define STARTER(name, run) [JOB_STARTER_##name] = run,
static int (*const starters[])(const struct starter_run_config *config) = {
    STARTER_BACKENDS(STARTER)};

static int start_on_nodes(const struct job_spec *spec, struct keyring *keys, char **args) {
    _cleanup_(freep) char *python = NULL;
    const enum job_starter starter = spec->hosts.list.n > 0             ? JOB_STARTER_SSH
                                     : spec->starter > JOB_STARTER_NONE ? spec->starter
                                                                        : JOB_STARTER_SRUN;
    keyring_keep_from_children(keys);
    if (spec->entry != JOB_ENTRY_PROGRAM && /* only the nodes need one */
        python_find(program_invocation_name, environ, &python, NULL) == 0)
        python_warn_of_other(python, environ);
    return starters[starter](&(struct starter_run_config){.spec = spec,
                                                          .args = args,
                                                          .envp = environ,
                                                          .keys = keys,
                                                          .version = MUSTER_VERSION,
                                                          .write_job = job_write,
                                                          .argv0 = program_invocation_name,
                                                          .python = python});
}

static int start(const struct job_spec *spec, struct keyring *keys, char **argv) {
    char hold[HOLD_NAME_MAX];
    const struct place *place = &spec->place;
    if (spec->hosts.list.n > 0 || spec->start_nodes > 0)
        return start_on_nodes(spec, keys, argv + 1);
    if (!place_has_one_agent(spec->nodes) || place->node_tasks == 1)
        return be_agent(spec, keys, NULL);
    hold_name(place->run_id, place->node_id, hold);
    return place->local_id == 0
               ? be_agent(spec, keys, hold)
               : hold_wait(hold, place->node_tasks - 1, place->local_id, HOLD_START_NS);
}

/* A shell without job control ignores these in a command that it starts with "&". kill -INT is to
 * stop the job there, too, and workers are to get KeyboardInterrupt. */
static void end_ignoring(void) {
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGQUIT, SIG_DFL);
}

int cmd_run(int argc, char **argv) {
    _cleanup_(job_spec_fini) struct job_spec spec = {0};
    _cleanup_(run_keys_fini) struct run_keys keys;
    struct err err = {0};
    end_ignoring();
    run_keys_take(&keys);
    int status = run_line_read(argc, argv, &keys, &spec);
    if (status >= 0)
        return status;
    if (spec.dry_run)
        return dry_run(&spec);
    if (run_keys_load(&keys, &spec, &err) < 0)
        return usage_error("run", "%s", err.text);
    return start(&spec, keys.ring, argv);
}

/* `muster ssh-node`: the relay that `muster run` starts on other hosts. */
int cmd_ssh_node(int argc, char **argv) {
    if (argc > 1)
        return usage_error("ssh-node", "unknown argument \"%s\"; it takes none", argv[1]);
    /* the head calls it by its whole path */
    if (program_invocation_name[0] != '/')
        return usage_error("ssh-node", "muster run starts this on other hosts, by its whole path");
    log_set_level(LOG_LEVEL_WARNING); /* its standard error is ssh's */
    return ssh_node_run(&(struct ssh_node_config){.in_fd = 0,
                                                  .out_fd = 1,
                                                  .version = MUSTER_VERSION,
                                                  .program = program_invocation_name,
                                                  .envp = environ,
                                                  .boot_ns = SSH_NODE_BOOT_NS,
                                                  .silence_ns = SSH_SILENCE_NS});
}
