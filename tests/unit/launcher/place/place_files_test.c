#include "launcher/place/place_files.h"

#include <criterion/criterion.h>
#include <stddef.h>

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

/* As in /proc/self/mountinfo of a cluster's node. */
static const char mountinfo[] = "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n"
                                "30 22 0:26 / /sys rw shared:7 - sysfs sysfs rw\n"
                                "40 22 0:44 / /lustre/work rw,noatime shared:20 - lustre 10.1.0.1@o2ib:/work rw,flock\n"
                                "41 22 0:45 / /gpfs rw - gpfs gpfs0 rw\n"
                                "42 22 0:46 / /home rw - autofs /etc/auto.home rw,fd=6\n"
                                "43 42 0:47 / /home/me rw shared:3 master:4 - nfs4 srv:/export/me rw,vers=4.2\n"
                                "44 22 0:48 / /old rw - nfs srv:/old rw\n"
                                "45 22 0:49 / /bee\\040gfs rw - beegfs beegfs_nodev rw\n"
                                "46 22 0:50 / /ceph rw - ceph 10.0.0.1:6789:/ rw\n"
                                "47 22 0:51 / /weka rw - wekafs default rw\n"
                                "48 40 0:52 / /lustre/work/scratch rw - tmpfs tmpfs rw\n"
                                "49 22 0:53 / /twice rw - nfs srv:/a rw\n"
                                "50 49 0:54 / /twice rw - tmpfs tmpfs rw\n"
                                "garbage\n"
                                "51 22 0:55 / /none rw -";

Test(mounts, knows_what_nodes_share) {
    static const char *const cases[][2] = {
        {"/", NULL},
        {"/root", NULL},
        {"/lustre", NULL},
        {"/lustre/work", "Lustre"},
        {"/lustre/work/me/run1", "Lustre"},
        {"/lustre/work2", NULL},
        {"/lustre/work/scratch/x", NULL}, /* of this node only */
        {"/gpfs/x", "GPFS"},
        {"/home", NULL},
        {"/home/you", NULL},
        {"/home/me/x", "NFS"},
        {"/old", "NFS"},
        {"/bee gfs/x", "BeeGFS"},
        {"/bee", NULL},
        {"/ceph", "Ceph"},
        {"/weka/project", "WEKA"},
        {"/twice/x", NULL},
        {"/none", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *name = mounts_shared(mountinfo, cases[i][0]);
        cr_expect_eq(name == NULL, cases[i][1] == NULL, "%s: %s", cases[i][0], name != NULL ? name : "none");
        if (name != NULL && cases[i][1] != NULL)
            cr_expect_str_eq(name, cases[i][1], "%s", cases[i][0]);
    }
    cr_expect_null(mounts_shared("", "/x"));
}
