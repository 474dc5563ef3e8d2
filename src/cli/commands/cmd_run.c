#include "cli/commands/dry_run_io.h"
#include "cli/jobs/run_line_io.h"
#include "cli/options/commands.h"
#include "launcher/agent/start_io.h"

extern char **environ;

int cmd_run(int argc, char **argv) {
    struct job_spec spec = {0};
    int status = run_line_read(argc, argv, &spec);
    if (status >= 0)
        return status;
    status = spec.dry_run ? dry_run(&spec, environ) : job_start(&spec, environ);
    job_spec_fini(&spec);
    return status;
}
