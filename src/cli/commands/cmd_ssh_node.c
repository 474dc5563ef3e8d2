/* `muster ssh-node`: the relay (launcher/ssh/ssh_node_io.h) that `muster run` starts elsewhere. */
#include <errno.h>

#include "base/text/log.h"
#include "cli/options/commands.h"
#include "launcher/ssh/ssh_boot.h"
#include "launcher/ssh/ssh_node_io.h"

extern char **environ;

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
