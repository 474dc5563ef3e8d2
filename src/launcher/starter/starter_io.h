/* Runs a starter (starter.h) with a backend, which is a table of functions:
 *
 *     static const struct starter_ops ops = {.start = start, .describe = describe};
 *     status = starter_run(&config, &ops, me);             errors are reported
 *
 * Most backends have one command that starts agents, or one for each: start() calls
 * starter_spawn(), and the agent that leads connects to this process (starter_link_io.h). By
 * default, deliver and kill use that connection, and signals to the commands. A backend with a
 * connection of its own to each host (launcher/ssh) has its own, and calls starter_event().
 *
 * The job's key is the one that the user has given (--key-file, MUSTER_KEY_FILE, MUSTER_KEY), or a
 * random one that ends with the job. There is none with --auth=none, or if this machine has no
 * OpenSSL and the user has not asked for a key, which is logged. Agents get it as STARTER_KEY_ENV,
 * never on a command line: by srun, or from the relay, which gets it over ssh's standard input.
 * They remove the variable when they begin (keyring_take_env()), and take no other key.
 *
 * The agent connects to any address of this machine, at a free port (--port-range). A peer has
 * STARTER_GREETING_NS to prove by TLS that it has the job's key (on a loopback address the kernel
 * proves it), and to send LEAD with the token. If more than STARTER_STRANGERS_MAX are doing that,
 * the oldest is disconnected.
 *
 * If this process is killed, the commands remain, and the agent that leads stops the job, because
 * its connection is refused. While none is connected, a helper, muster-lifeline, waits for the
 * death of this process, and then interrupts the commands. */
#pragma once

#include "base/text/envlist.h"
#include "io/process/reaper.h"
#include "launcher/job/job.h"
#include "launcher/starter/starter.h"
#include "rendezvous/protocol/messages.h"

#define STARTER_GREETING_NS (5 * NS_PER_S)
#define STARTER_STRANGERS_MAX 16
#define STARTER_LINKS_MAX 64 /* connections with the token: agents that lead, or have led */

struct keyring;
struct strbuf;

struct starter_run_config { /* all borrowed */
    const struct job_spec *spec;
    char *const *args; /* the user's words behind "run", NULL-terminated */
    char *const *envp;
    const struct keyring *keys; /* that the user has given */
    const char *version;        /* of muster */
    /* Writes the job for an agent that gets no command line (cli/options/job_options.h). */
    void (*write_job)(const struct job_spec *spec, struct strbuf *out);
    const char *argv0;  /* the name of this program as it was called: nodes use the same path */
    const char *python; /* which would run the workers here; NULL: none, or none is needed */
};

/* For other programs on this machine, as muster ps. */
struct starter_description {
    char run_id[RDZV_RUN_ID_MAX]; /* as far as it is known here */
    char *ask; /* the beginning of a shell line that runs muster on a node of the job; malloc'ed */
};

struct starter_run;

struct starter_ops {
    /* Starts the agents. 0, or a negative errno and a sentence. -ENOENT: it is not installed. */
    int (*start)(void *arg, struct starter_run *r, struct err *err);
    /* STOP and ACK to one agent or all (link 0), SIGNAL to all. NULL: as above. */
    void (*deliver)(void *arg, uint64_t link, const struct starter_message *m);
    /* Kills everything on all nodes. NULL: the commands. */
    void (*kill)(void *arg);
    void (*describe)(void *arg, struct starter_description *ret);
    /* The rest may be NULL or 0. */
    /* With which a command has its agents stop in order. 0: the one that this process got. */
    int stop_signal;
    /* The job may have to go back into a queue: STARTER_EVENT_REQUEUED follows. */
    void (*requeue)(void *arg, int status);
    /* A command has ended: to explain why. */
    void (*command_ended)(void *arg, const struct child_status *status);
    /* A signal that ends the job has come, and the machine has taken it. */
    void (*on_stop)(void *arg);
    /* END: returns the exit status. The backend completes its output, then calls starter_quit(). */
    int (*finish)(void *arg, int status);
    /* Frees what the backend has on the loop. */
    void (*end)(void *arg);
};

/* Returns when the job is over: the exit status of muster run. */
int starter_run(const struct starter_run_config *config, const struct starter_ops *ops, void *arg);

/* The backends, by their names in JOB_STARTERS. Each returns the exit status of muster run. */
#define STARTER_BACKENDS(row) row(SRUN, srun_run) row(SSH, ssh_head_run) row(LOCAL, local_run)
#define STARTER_DECLARE(name, run) int run(const struct starter_run_config *config);
STARTER_BACKENDS(STARTER_DECLARE)

/* ---- for backends ---- */

struct loop *starter_loop(const struct starter_run *r);
const struct starter *starter_machine(const struct starter_run *r);
/* The step of the agent that led last, as it is named in LEAD, and the node that was lost if the
 * agent that led last has gone without a verdict; "": unknown. */
const char *starter_step_name(const struct starter_run *r);
const char *starter_lost_node(const struct starter_run *r);
/* The first command that still runs; 0: none. */
pid_t starter_command_pid(const struct starter_run *r);

/* Sets STARTER_KEY_ENV; to STARTER_NO_KEY without a key, so that a lost one is noticed. */
void starter_key_to_env(const struct starter_run *r, struct envlist *env);
/* Runs a command that starts agents. The variables that these need are added to *env. */
_must_use_ int starter_spawn(struct starter_run *r, char *const *argv, struct envlist *env,
                             struct err *err);
/* Sends a signal to all commands. */
void starter_signal(struct starter_run *r, int signo);
/* One step of the machine; sets event->now_ns. Of the effects only REQUEUE, the last of a step, may
 * call it back. */
void starter_event(struct starter_run *r, struct starter_event *event);
/* The time that workers have after SIGTERM, for people, if it is not --shutdown-timeout. */
void starter_set_grace(struct starter_run *r, uint64_t grace_ns);
/* After finish(): starter_run() returns. */
void starter_quit(struct starter_run *r);

/* ---- the program that a starter has started on the nodes: muster itself ---- */

/* This program as it was called (argv0), as an absolute path, malloc'ed; links are kept. */
_must_use_ int starter_program(const char *argv0, char *const *envp, char **ret, struct err *err);
/* The same, but what a link named torchrun leads to: by that name there are no other commands. */
_must_use_ int starter_real_program(const char *argv0, char *const *envp, char **ret,
                                    struct err *err);
/* For a line that people copy: its path, malloc'ed; "muster" if that needs quotes or is unknown. */
_must_use_ char *starter_program_word(const char *argv0, char *const *envp);
/* The folder's name as in the shell, with links, malloc'ed. NULL, and errno: it has none. */
_must_use_ char *starter_folder(char *const *envp);
/* Logs, with -v, the command that is run. */
void starter_log_command(char *const *argv);
