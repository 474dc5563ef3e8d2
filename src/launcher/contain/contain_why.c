#include "launcher/contain/contain_why.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WITHOUT "; or leave --contain out: only a SIGKILL of agent and guardian at once needs it"

static bool is_refused(int code) { return code == -EPERM || code == -EACCES; }

/* What root needs for namespaces. */
static void root_lacks(const struct contain_facts *f, struct strbuf *out) {
    if (!f->has_admin)
        strbuf_add(out, "root has no CAP_SYS_ADMIN here (docker run --cap-add=SYS_ADMIN; "
                        "Kubernetes: securityContext.capabilities.add)");
    else if (f->filtered)
        strbuf_add(out, "a seccomp filter forbids it (docker run --security-opt "
                        "seccomp=unconfined; Kubernetes: seccompProfile.type: Unconfined)");
    else
        strbuf_add(out, "a security module of the kernel forbids it (docker run --security-opt "
                        "apparmor=unconfined)");
}

/* What a user needs for a user namespace. */
static void user_lacks(const struct contain_facts *f, struct strbuf *out) {
    if (f->userns_clone == 0)
        strbuf_add(out, "only root may make user namespaces (sysctl "
                        "kernel.unprivileged_userns_clone=1)");
    else if (f->userns_max == 0)
        strbuf_add(out, "no user namespaces may be made (sysctl user.max_user_namespaces=1000)");
    else if (f->filtered)
        strbuf_printf(out,
                      "a seccomp filter forbids user namespaces, which user %" PRIu32
                      " needs for it (docker run --security-opt seccomp=unconfined; Kubernetes: "
                      "seccompProfile.type: Unconfined)",
                      f->uid);
    else if (f->apparmor_limit > 0)
        strbuf_add(out, "AppArmor restricts user namespaces (sysctl "
                        "kernel.apparmor_restrict_unprivileged_userns=0)");
    else
        strbuf_printf(out, "user %" PRIu32 " may make no user namespace with rights in it here",
                      f->uid);
}

static void pidns_lacks(enum contain_step step, int code, const struct contain_facts *f,
                        struct strbuf *out) {
    bool full = code == -ENOSPC || code == -EUSERS;
    if (full && f->pidns_max == 0)
        strbuf_add(out, "no pid namespaces may be made (sysctl user.max_pid_namespaces=1000)");
    else if (full && f->userns_max != 0)
        strbuf_add(out, "there are too many namespaces already, or they are nested too deep "
                        "(sysctl user.max_pid_namespaces, user.max_user_namespaces)");
    else if (code == -EINVAL && step == CONTAIN_CLONE)
        strbuf_add(out, "the kernel has no pid namespaces (CONFIG_PID_NS)");
    else if (!is_refused(code) && !full)
        strbuf_add(out, strerror(-code));
    else if (f->uid == 0)
        root_lacks(f, out);
    else if (step == CONTAIN_PROC && f->apparmor_limit <= 0)
        strbuf_add(out, "no new /proc can be mounted, because parts of this one are hidden (docker "
                        "run --security-opt systempaths=unconfined; Kubernetes: "
                        "securityContext.procMount: Unmasked)");
    else
        user_lacks(f, out);
}

static void cgroup_lacks(enum contain_step step, int code, const struct contain_facts *f,
                         struct strbuf *out) {
    if (step == CONTAIN_FIND)
        strbuf_add(out, f->has_cgroup1
                            ? "find this process's control group: only cgroup v1 is mounted here, "
                              "and it needs v2 (kernel option systemd.unified_cgroup_hierarchy=1)"
                            : "find this process's control group: no cgroup v2 is mounted here "
                              "(mount -t cgroup2 none /sys/fs/cgroup; a container: with the "
                              "host's, or --privileged)");
    else if (step == CONTAIN_KILL)
        strbuf_add(out, "kill a whole control group: the kernel has no cgroup.kill (Linux 5.14)");
    else if (code == -EROFS)
        strbuf_add(out, "make a control group: cgroup v2 is mounted read-only (a container: "
                        "only a privileged one has it writable)");
    else if (is_refused(code))
        strbuf_printf(out,
                      "%s a control group: none was delegated to user %" PRIu32
                      " (systemd-run --user --scope -p Delegate=yes muster run ...)",
                      step == CONTAIN_MAKE ? "make" : "enter", f->uid);
    else if (code == -EAGAIN)
        strbuf_add(out, "make a control group: there may be no more below this one (its "
                        "cgroup.max.descendants, cgroup.max.depth)");
    else
        strbuf_printf(out, "%s a control group: %s", step == CONTAIN_MAKE ? "make" : "enter",
                      strerror(-code));
}

void contain_why(enum contain_step step, int code, const struct contain_facts *facts,
                 struct strbuf *out) {
    static const char *const pidns_steps[] = {
        [CONTAIN_CLONE] = "make a pid namespace",
        [CONTAIN_MAP] = "be the same user in a user namespace",
        [CONTAIN_PROC] = "mount /proc of the pid namespace",
    };
    if (step >= CONTAIN_FIND) {
        strbuf_add(out, "--contain=cgroup: can't ");
        cgroup_lacks(step, code, facts, out);
    } else {
        strbuf_printf(out, "--contain=pidns: can't %s: ", pidns_steps[step]);
        pidns_lacks(step, code, facts, out);
    }
    strbuf_add(out, WITHOUT);
}
