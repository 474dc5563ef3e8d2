#include "launcher/place/mounts.h"

#include <criterion/criterion.h>
#include <stddef.h>

#include "base/util.h"

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
