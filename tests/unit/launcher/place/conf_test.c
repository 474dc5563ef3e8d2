#include "launcher/place/conf.h"

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

Test(slurm_conf, munge_listens_where_auth_info_says) {
    static const char *const cases[][2] = {
        {"AuthInfo=socket=/run/own/munge.socket.2\n", "/run/own/munge.socket.2"},
        {"authinfo = ttl=60,Socket=/a,cred_expire=2 # here\n", "/a"},
        {"AuthInfo=socket=/a\nAuthInfo=socket=/b\r\n", "/b"},
        {"KillWait=30 AuthInfo=ttl=60,socket=/a", "/a"},
    };
    static const char *const none[] = {"", "AuthInfo=ttl=60\n", "#AuthInfo=socket=/a\n", "AuthAltInfo=socket=/a\n",
                                       "AuthInfo"};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *found = slurm_conf_munge_socket(cases[i][0]);
        cr_assert_str_eq(found, cases[i][1]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        cr_assert_null(slurm_conf_munge_socket(none[i]), "%s", none[i]);
}
