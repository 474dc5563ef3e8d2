#include "io/net/port_owner.h"

#include <sys/prctl.h>

#include "rig/unit.h"

Test(sole_name, has_one_holder_at_a_time) {
    int fd, other = -1;
    const char *name = rig_text("muster-test-%d-%080d", (int)getpid(), 0);
    cr_assert_eq(sole_name_take(name, &fd), 0);
    cr_assert_eq(sole_name_take(name, &other), -EADDRINUSE);
    cr_assert_eq(other, -1);
    (void)close(fd);
    cr_assert_eq(sole_name_take(name, &fd), 0);
    (void)close(fd);
}

Test(sole_name, is_free_when_its_holder_has_died) {
    int fd;
    const char *name = rig_text("muster-test-%d", (int)getpid());
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)raise(sole_name_take(name, &fd) == 0 ? SIGKILL : SIGTERM);
        _exit(1);
    }
    cr_assert_eq(rig_status(child), -SIGKILL);
    cr_assert_eq(sole_name_take(name, &fd), 0);
    (void)close(fd);
}

/* A user that nothing else uses; only root can become it. */
#define OTHER 65533

Test(sole_name, is_known_by_whose_it_is) {
    int fd, r, status;
    uid_t uid = OTHER;
    const char *name = rig_text("muster-test-%d", (int)getpid());
    const char *longer = rig_text("%s-longer", name);
    cr_assert_eq(sole_name_holder(name, &uid), -ENOENT);
    cr_assert_eq(sole_name_take(longer, &fd), 0);
    cr_assert_eq(sole_name_holder(name, &uid), -ENOENT);
    r = sole_name_holder(longer, &uid);
    if (r < 0)
        cr_skip_test("the kernel does not say whose a unix socket is: %d", r);
    cr_assert_eq(uid, geteuid());
    (void)close(fd);
    if (geteuid() != 0)
        return;
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        bool is_other = setuid(OTHER) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && sole_name_take(name, &fd) == 0;
        (void)raise(is_other ? SIGSTOP : SIGKILL);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, WUNTRACED), child);
    cr_assert(WIFSTOPPED(status));
    cr_assert_eq(sole_name_take(name, &fd), -EADDRINUSE);
    cr_assert_eq(sole_name_holder(name, &uid), 0);
    cr_assert_eq(uid, OTHER);
    (void)kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, &status, 0), child);
}
