/* Why containment (--contain) can't be had here, and what to do: one line for the user, from the
 * step that failed, its error and a few facts about the kernel and the container. Pure.
 *
 * Sources: clone(2), pid_namespaces(7), user_namespaces(7), capabilities(7), seccomp(2),
 * cgroups(7); Documentation/admin-guide/sysctl/{user,kernel}.rst and cgroup-v2.rst of Linux;
 * Debian's kernel.unprivileged_userns_clone; Ubuntu's kernel.apparmor_restrict_unprivileged_userns;
 * docker run(1): --cap-add, --security-opt; Kubernetes' SecurityContext. */
#pragma once

#include "base/text/strbuf.h"

enum contain_step {
    CONTAIN_CLONE = 1, /* pidns: clone(2) with a pid and a mount namespace, for others than root
                          with a user namespace, too */
    CONTAIN_MAP,       /* pidns: the user in the new user namespace */
    CONTAIN_PROC,      /* pidns: /proc of the new pid namespace */
    CONTAIN_FIND,      /* cgroup: this process's own group */
    CONTAIN_MAKE,      /* cgroup: a group below it */
    CONTAIN_KILL,      /* cgroup: the group's cgroup.kill */
    CONTAIN_ENTER,     /* cgroup: the agent enters the group */
};

#define CONTAIN_UNKNOWN (-1) /* of a number: the kernel does not have it, or it can't be read */

struct contain_facts {
    uint32_t uid;           /* effective */
    bool has_admin;         /* CAP_SYS_ADMIN is effective */
    bool filtered;          /* a seccomp filter is in force */
    int64_t userns_clone;   /* kernel.unprivileged_userns_clone, 0: only root */
    int64_t userns_max;     /* user.max_user_namespaces */
    int64_t pidns_max;      /* user.max_pid_namespaces */
    int64_t apparmor_limit; /* kernel.apparmor_restrict_unprivileged_userns, 1: restricted */
    bool has_cgroup1;       /* a hierarchy of version 1 is mounted */
};

/* code: a negative errno. Adds one line without its newline: "--contain=pidns needs … ". */
void contain_why(enum contain_step step, int code, const struct contain_facts *facts,
                 struct strbuf *out);
