#include "launcher/place/place_io.h"

#include "rig/unit.h"

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

/* As in /proc/self/mounts of a cluster's node. */
static char mounts[] = "/dev/sda2 / ext4 rw,relatime 0 0\n"
                       "sysfs /sys sysfs rw 0 0\n"
                       "10.1.0.1@o2ib:/work /lustre/work lustre rw,noatime,flock 0 0\n"
                       "gpfs0 /gpfs gpfs rw 0 0\n"
                       "/etc/auto.home /home autofs rw,fd=6 0 0\n"
                       "srv:/export/me /home/me nfs4 rw,vers=4.2 0 0\n"
                       "srv:/old /old nfs rw 0 0\n"
                       "beegfs_nodev /bee\\040gfs beegfs rw 0 0\n"
                       "10.0.0.1:6789:/ /ceph ceph rw 0 0\n"
                       "default /weka wekafs rw 0 0\n"
                       "tmpfs /lustre/work/scratch tmpfs rw 0 0\n"
                       "srv:/a /twice nfs rw 0 0\n"
                       "tmpfs /twice tmpfs rw 0 0\n"
                       "garbage\n"
                       "none /none";

static const char *shared_of(const char *path) {
    FILE *file = fmemopen(mounts, strlen(mounts), "r");
    cr_assert_not_null(file);
    const char *name = mounts_shared(file, path);
    (void)fclose(file);
    return name;
}

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
        const char *name = shared_of(cases[i][0]);
        cr_expect_eq(name == NULL, cases[i][1] == NULL, "%s: %s", cases[i][0], name != NULL ? name : "none");
        if (name != NULL && cases[i][1] != NULL)
            cr_expect_str_eq(name, cases[i][1], "%s", cases[i][0]);
    }
}
