#include "io/net/sole_name.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

Test(sole_name, has_one_holder_at_a_time) {
    char name[SOLE_NAME_MAX + 1];
    int fd, other = -1;
    (void)snprintf(name, sizeof name, "muster-test-%d-%080d", (int)getpid(), 0);
    cr_assert_eq(sole_name_take(name, &fd), 0);
    cr_assert_eq(sole_name_take(name, &other), -EADDRINUSE);
    cr_assert_eq(other, -1);
    (void)close(fd);
    cr_assert_eq(sole_name_take(name, &fd), 0);
    (void)close(fd);
}

Test(sole_name, is_free_when_its_holder_has_died) {
    char name[64];
    int fd, status;
    (void)snprintf(name, sizeof name, "muster-test-%d", (int)getpid());
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)raise(sole_name_take(name, &fd) == 0 ? SIGKILL : SIGTERM);
        _exit(1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cr_assert_eq(sole_name_take(name, &fd), 0);
    (void)close(fd);
}
