#include "launcher/contain/contain_why.h"

#include "rig/unit.h"

#define PLAIN \
    { .userns_clone = CONTAIN_UNKNOWN, .userns_max = 1000, .pidns_max = 1000, .apparmor_limit = CONTAIN_UNKNOWN }

static void expect(enum contain_step step, int code, struct contain_facts facts, const char *begins, const char *has) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    contain_why(step, code, &facts, &text);
    cr_expect_eq(strncmp(strbuf_text(&text), begins, strlen(begins)), 0, "%s", strbuf_text(&text));
    cr_expect_not_null(strstr(strbuf_text(&text), has), "no %s in: %s", has, strbuf_text(&text));
    expect_has(strbuf_text(&text), "or leave --contain out");
    cr_expect_null(strchr(strbuf_text(&text), '\n'));
    cr_expect_lt(text.len, 400, "a struct err takes it whole: %zu", text.len);
}

Test(contain_why, root_hears_of_capability_filter_and_security_module) {
    struct contain_facts f = PLAIN;
    static const char begins[] = "--contain=pidns: can't make a pid namespace: ";
    expect(CONTAIN_CLONE, -EPERM, f, begins,
           "CAP_SYS_ADMIN here (docker run --cap-add=SYS_ADMIN; Kubernetes: "
           "securityContext.capabilities.add)");
    f.filtered = true;
    expect(CONTAIN_CLONE, -EPERM, f, begins, "CAP_SYS_ADMIN");
    f.has_admin = true;
    expect(CONTAIN_CLONE, -EPERM, f, begins, "seccomp=unconfined");
    f.filtered = false;
    expect(CONTAIN_PROC, -EACCES, f,
           "--contain=pidns: can't mount /proc of the pid namespace: ", "apparmor=unconfined");
}

Test(contain_why, a_user_hears_which_setting_of_the_kernel_is_in_the_way) {
    static const char begins[] = "--contain=pidns: can't make a pid namespace: ";
    struct contain_facts f = *WITH(((struct contain_facts)PLAIN), .uid = 1000, .userns_clone = 0);
    expect(CONTAIN_CLONE, -EPERM, f, begins, "sysctl kernel.unprivileged_userns_clone=1");
    f.userns_clone = 1;
    f.userns_max = 0;
    expect(CONTAIN_CLONE, -ENOSPC, f, begins, "sysctl user.max_user_namespaces=1000");
    f.userns_max = 1000;
    f.pidns_max = 0;
    expect(CONTAIN_CLONE, -ENOSPC, f, begins, "sysctl user.max_pid_namespaces=1000");
    f.pidns_max = 1000;
    expect(CONTAIN_CLONE, -EUSERS, f, begins, "nested too deep");
    f.apparmor_limit = 1;
    expect(CONTAIN_MAP, -EPERM, f, "--contain=pidns: can't be the same user",
           "apparmor_restrict_unprivileged_userns=0");
    expect(CONTAIN_PROC, -EACCES, f, "--contain=pidns: can't mount /proc", "apparmor_restrict_unprivileged_userns=0");
    f.apparmor_limit = 0;
    expect(CONTAIN_PROC, -EPERM, f, "--contain=pidns: can't mount /proc", "procMount: Unmasked");
    f.filtered = true;
    expect(CONTAIN_CLONE, -EPERM, f, begins, "user 1000 needs");
    f.filtered = false;
    expect(CONTAIN_CLONE, -EPERM, f, begins, "user 1000 may make no user namespace");
    expect(CONTAIN_CLONE, -EINVAL, f, begins, "CONFIG_PID_NS");
    expect(CONTAIN_CLONE, -ENOMEM, f, begins, "Cannot allocate memory");
}

Test(contain_why, a_cgroup_needs_version_2_a_writable_mount_and_delegation) {
    struct contain_facts f = *WITH(((struct contain_facts)PLAIN), .uid = 7);
    expect(CONTAIN_FIND, -ENOENT, f, "--contain=cgroup: can't find", "no cgroup v2 is mounted here");
    f.has_cgroup1 = true;
    expect(CONTAIN_FIND, -ENOENT, f, "--contain=cgroup: can't find", "systemd.unified_cgroup_hierarchy=1");
    expect(CONTAIN_MAKE, -EROFS, f, "--contain=cgroup: can't make", "cgroup v2 is mounted read-only");
    expect(CONTAIN_MAKE, -EACCES, f, "--contain=cgroup: can't make", "delegated to user 7 (systemd-run --user --scope");
    expect(CONTAIN_ENTER, -EPERM, f, "--contain=cgroup: can't enter", "-p Delegate=yes");
    expect(CONTAIN_MAKE, -EAGAIN, f, "--contain=cgroup: can't make", "cgroup.max.descendants");
    expect(CONTAIN_ENTER, -EBUSY, f, "--contain=cgroup: can't enter", "Device or resource busy");
    expect(CONTAIN_KILL, -EOPNOTSUPP, f, "--contain=cgroup: can't kill", "Linux 5.14");
}
