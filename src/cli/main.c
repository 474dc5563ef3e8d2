#include <errno.h>
#include <string.h>

#include "cli/jobs/shell_words.h"
#include "cli/options/commands.h"
#include "cli/options/options_table.h"
#include "io/file.h"

const struct subcommand commands[] = {
    {"Run:", "run", cmd_run, "start the workers of this node, or of all nodes", &run_options, NULL},
    {"Look:", "status", cmd_status, "show a job's state and its nodes", &status_options, NULL},
    {NULL, "ps", cmd_ps, "list the jobs of this machine", &ps_options, NULL},
    {NULL, "logs", cmd_logs, "show the log files of a run, in order of time", &logs_options, NULL},
    {NULL, "stacks", cmd_stacks, "show where the workers of a job are in their code",
     &stacks_options, NULL},
    {NULL, "profile", cmd_profile, "show where a job's time goes, and which rank is late",
     &profile_options, NULL},
    {"Change:", "stop", cmd_stop, "end a job on all its nodes", &stop_options, NULL},
    {NULL, "leave", cmd_leave, "take a node out of its job; the others continue", &leave_options,
     NULL},
    {NULL, "exclude", cmd_exclude, "take a node out of a job for good", &exclude_options, NULL},
    {NULL, "grow", cmd_grow, "restart a job with the nodes that wait to join it", &grow_options,
     NULL},
    {"Prepare:", "check", cmd_check, "check this node, or compare several nodes, before a job",
     &check_options, NULL},
    {NULL, "topo", cmd_topo, "show this node's GPUs and NICs, and which belong together",
     &topo_options, NULL},
    {NULL, "env", cmd_env, "show the variables set for NCCL and PyTorch, and why", &env_options,
     NULL},
    {NULL, "keygen", cmd_keygen, "make the key with which nodes authenticate each other",
     &keygen_options, NULL},
    {"Other:", "notify", cmd_notify, "report progress or a safe point from a shell script",
     &notify_options, NULL},
    {NULL, "store", cmd_store, "serve PyTorch's TCPStore protocol", &store_options, NULL},
    {NULL, "completion", cmd_completion, "print the completion script for a shell", NULL,
     "bash|zsh|fish"},
    {NULL, "version", cmd_version, "print the version; -v: also what this machine has", NULL,
     "[-v]"},
    {NULL, "help", cmd_help, "explain muster, or one command", NULL, "[COMMAND]"},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

const struct subcommand *command_find(const char *name) {
    for (const struct subcommand *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int unknown_command(int argc, char **argv) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    const char *name = argv[1];
    char run[] = "run";
    struct options_parsed parsed = {.operand = argc};
    struct err unused = {0};
    /* a script, or options of "run": the most common mistake of people who know torchrun */
    if (name[0] == '-' ? options_parse(&run_options, argc, argv, &parsed, &unused) == 0
                       : strpbrk(name, "./") != NULL) {
        char **word = argv + parsed.operand;
        if (parsed.operand < argc && strcmp(*word, run) == 0) /* it belongs before the options */
            memmove(word, word + 1, (size_t)(argc-- - parsed.operand) * sizeof *word);
        argv[0] = run;
        shell_add_line(&line, argc - 1, argv, NULL, argv[argc - 1]);
        return usage_error(NULL, "unknown command \"%s\"; to start a job: %s", name,
                           strbuf_text(&line));
    }
    struct suggest s = suggest_for(name);
    for (const struct subcommand *c = commands; c->name != NULL; c++)
        suggest_offer(&s, c->name);
    if (s.best != NULL)
        return usage_error(NULL, "unknown command \"%s\"; did you mean \"muster %s\"?", name,
                           s.best);
    return usage_error(NULL, "unknown command \"%s\"; %s", name,
                       name[0] == '-' ? "to start a job: muster run [OPTIONS] SCRIPT"
                                      : "see \"muster help\"");
}

int main(int argc, char **argv) {
    const struct subcommand *run = command_find("run");
    file_open_standard();
    if (argc > 0 && run != NULL && strcmp(path_name(argv[0]), "torchrun") == 0)
        return run->run(argc, argv);
    if (argc > 1 && run != NULL && strcmp(argv[1], "torchrun") == 0) {
        program_invocation_short_name =
            argv[1]; /* packaging/python/torchrun.sh can't set argv[0] */
        return run->run(argc - 1, argv + 1);
    }
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
        return unknown_command(argc, argv);
    return c->run(argc - 1, argv + 1);
}
