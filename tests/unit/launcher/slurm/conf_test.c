#include "launcher/slurm/conf.h"

#include <criterion/criterion.h>

#include "base/util.h"

Test(slurm_conf, tasks_are_never_bound_only_where_the_file_says_so) {
    static const struct {
        const char *text;
        bool nothing;
    } cases[] = {
        {"", false},
        {"ClusterName=c1\nTaskPlugin=task/none\n", true},
        {"taskplugin = NONE # here\n", true},
        {"KillWait=30 TaskPlugin=task/none", true},
        {"TaskPlugin=task/affinity,task/cgroup\n", false},
        {"TaskPlugin=task/none,task/affinity\n", false},
        {"TaskPlugin=task/nonesuch\n", false},
        {"TaskPlugin=task/none\nTaskPlugin=task/cgroup\n", false},
        {"TaskPluginParam=none\n", false},
        {"MyTaskPlugin=task/none\n", false},
        {"#TaskPlugin=task/none\n", false},
        {"KillWait=30 # TaskPlugin=task/none\n", false},
        {"TaskPlugin=task/none\n  include /etc/slurm/more.conf\n", false},
        {"TaskPlugin task/none\n", false},
        {"TaskPlugin=", false},
        {"TaskPlugin", false},
        {"TaskPlugin=\ntask/none\n", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_eq(slurm_conf_binds_nothing(cases[i].text), cases[i].nothing, "%zu: %s", i, cases[i].text);
}
