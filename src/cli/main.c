#include <string.h>

#include "cli/options/commands.h"
#include "cli/options/options_table.h"
#include "cli/options/suggest.h"

const struct subcommand commands[] = {
    {"run", cmd_run, "[OPTIONS] SCRIPT [ARGS...]", "start the workers of this node", &run_options},
    {"status", cmd_status, "[OPTIONS] [JOB]", "show a job's state and its nodes", &status_options},
    {"ps", cmd_ps, "[OPTIONS]", "list the jobs of this machine", &ps_options},
    {"stacks", cmd_stacks, "[OPTIONS] [JOB]",
     "show what the workers of a job do, by groups of ranks", &stacks_options},
    {"logs", cmd_logs, "[OPTIONS] [JOB...]", "show what a run's workers wrote, in order of time",
     &logs_options},
    {"notify", cmd_notify, "VARIABLE=VALUE...", "report a worker's progress or save point",
     &notify_options},
    {"leave", cmd_leave, "[OPTIONS] [JOB]", "take a node out of its job", &leave_options},
    {"exclude", cmd_exclude, "[OPTIONS] NODE [JOB]", "exclude a node from the group permanently",
     &exclude_options},
    {"grow", cmd_grow, "[OPTIONS] [JOB]", "form a new group now, with the waiting nodes",
     &grow_options},
    {"stop", cmd_stop, "[OPTIONS] [JOB]", "end a job on all its nodes", &stop_options},
    {"env", cmd_env, "[OPTIONS]", "show the variables that workers of this node get, and why",
     &env_options},
    {"check", cmd_check, "[OPTIONS]", "check this node, or compare several nodes, before a job",
     &check_options},
    {"keygen", cmd_keygen, "[OPTIONS] [FILE]",
     "make the key by which nodes authenticate each other", &keygen_options},
    {"store", cmd_store, "--listen ADDR:PORT", "serve PyTorch's TCPStore protocol alone",
     &store_options},
    {"topo", cmd_topo, "[OPTIONS]",
     "show this node's GPUs and NICs, and which NIC serves which GPU", &topo_options},
    {"completion", cmd_completion, "bash|zsh|fish", "print the completion script for a shell",
     NULL},
    {"version", cmd_version, "[-v]",
     "print the version, and with -v what was found on this machine", NULL},
    {"help", cmd_help, "[COMMAND]", "explain muster, or one command", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

const struct subcommand *command_find(const char *name) {
    for (const struct subcommand *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int unknown_command(const char *name) {
    struct suggest s = suggest_for(name);
    for (const struct subcommand *c = commands; c->name != NULL; c++)
        suggest_offer(&s, c->name);
    if (s.best != NULL)
        return usage_error(NULL, "unknown command \"%s\"; did you mean \"muster %s\"?", name,
                           s.best);
    /* It is most likely a script: the most common mistake of people who know torchrun. */
    if (strchr(name, '.') != NULL || strchr(name, '/') != NULL || name[0] == '-')
        return usage_error(NULL,
                           "unknown command \"%s\"; to start a job: muster run [OPTIONS] "
                           "SCRIPT",
                           name);
    return usage_error(NULL, "unknown command \"%s\"; see \"muster help\"", name);
}

int main(int argc, char **argv) {
    const struct subcommand *run = command_find("run");
    if (argc > 0 && run != NULL && strcmp(path_name(argv[0]), "torchrun") == 0)
        return run->run(argc, argv);
    if (argc < 2) { /* like git: the overview, and a status for doing nothing */
        char help[] = "help", *words[] = {help, NULL};
        (void)cmd_help(1, words);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "--help-all") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    if (strcmp(name, "ssh-node") == 0) /* in no list: only muster itself calls it */
        return cmd_ssh_node(argc - 1, argv + 1);
    const struct subcommand *c = command_find(name);
    if (c == NULL)
        return unknown_command(name);
    return c->run(argc - 1, argv + 1);
}
