/* The subcommands of muster: one row each in main.c, one file each (cmd_NAME.c;
 * cmd_operate.c has four, cmd_run.c two).
 *
 * Every command gets its own argc and argv (argv[0] is the command's name), and returns the exit
 * status of the process: 0, EXIT_JOB_FAILED, EXIT_USAGE, or 128+n. */
#pragma once

#include "base/text/log.h"
#include "base/util.h"
#include "cli/options/options.h"

#define EXIT_JOB_FAILED 1
#define EXIT_USAGE 2

#define VERSION_LINE "muster " MUSTER_VERSION "\n"

struct job_spec;

struct subcommand {
    const char *group; /* its heading in the overview; NULL: that of the row before */
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;              /* one line of help */
    const struct option_set *options; /* NULL: it has no table of them */
    const char *args;                 /* its arguments, if it has no table */
};

/* The table of main.c; ends with a row whose name is NULL. */
extern const struct subcommand commands[];

/* NULL: there is no such command. */
const struct subcommand *command_find(const char *name);

extern const struct option_set check_options;
extern const struct option_set status_options, ps_options, logs_options, keygen_options,
    notify_options, leave_options, exclude_options, grow_options, stop_options, store_options,
    topo_options, env_options, stacks_options, profile_options;

/* Whether it is -h, --help or --help-all: for commands without a table of options. */
bool help_is_asked(const char *word);

int cmd_run(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_stacks(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_keygen(int argc, char **argv);
int cmd_notify(int argc, char **argv);
int cmd_leave(int argc, char **argv);
int cmd_exclude(int argc, char **argv);
int cmd_grow(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_store(int argc, char **argv);
int cmd_topo(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_ssh_node(int argc, char **argv); /* in no table: muster-protocol(7), OVER SSH */
/* Prints a command for each worker of this, or the first, node, and before what hosts there are.
 * Returns the exit status. */
int dry_run(const struct job_spec *of_head);

/* Prints "muster COMMAND: TEXT", or "torchrun: TEXT" (command_called()), as one line on standard
 * error, cleaned as by utf8_clean(). command may be NULL. Returns EXIT_USAGE. */
#define usage_error(command, ...) usage_failed(command, xasprintf(__VA_ARGS__))
int usage_failed(const char *command, char *text); /* takes text */
/* Flushes standard output after we wrote to it. Returns 0, or 1 after an error, which is printed as
 * one line. If its reader has gone, nothing is printed, and the status is that of SIGPIPE. */
int finish_stdout(void);
/* Prints a text. The same. */
int print_text(const struct strbuf *text);
/* Logs an error, and returns EXIT_JOB_FAILED. */
static inline int print_failure(const struct err *err) {
    log_error("%s", err->text);
    return EXIT_JOB_FAILED;
}
