#include "launcher/agent/agent_io.h"

#include <sched.h>
#include <sys/mount.h>

#include "base/text/utf8.h"
#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))
#define LOG "/dev/termination-log"

static char *const in_pod[] = {TEXT("KUBERNETES_SERVICE_HOST=10.96.0.1"), NULL};
static char *const elsewhere[] = {TEXT("KUBERNETES_SERVICE_HOST="), NULL};

Test(termination_io, a_message_is_one_line_of_at_most_4096_bytes) {
    static char text[6000];
    memset(text, 'a', sizeof text - 1);
    (void)memcpy(text + 4093, "\xe2\x82\xac", 3); /* not cut inside a character */
    char *line = termination_line(text);
    cr_expect_eq(strlen(line), 4094);
    cr_expect_eq(line[4093], '\n');
    free(line);
    line = termination_line("rank 1 failed:\n\tsee\x1b[31m \xff");
    cr_expect_str_eq(line, "rank 1 failed:  see?[31m \xef\xbf\xbd\n");
    free(line);
}

/* A /dev of this process alone, with a file there. */
static bool own_dev(const char *content) {
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/dev", "tmpfs", 0, "size=1m") < 0)
        return false;
    FILE *f = fopen(LOG, "we");
    cr_assert_not_null(f);
    cr_assert_geq(fputs(content, f), 0);
    cr_assert_eq(fclose(f), 0);
    return true;
}

static void expect_log(const char *want) {
    char text[256] = "";
    int fd = open(LOG, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_geq(read(fd, text, sizeof text - 1), 0);
    (void)close(fd);
    cr_expect_str_eq(text, want);
}

Test(termination_io, the_first_message_of_a_pod_stays) {
    if (!own_dev(""))
        cr_skip_test("no mount namespace can be made here");
    termination_write(elsewhere, "not in a pod");
    expect_log("");
    termination_write(in_pod, "first");
    termination_write(in_pod, "second");
    expect_log("first\n");
}

Test(termination_io, nothing_is_made_or_followed) {
    struct stat st;
    if (!own_dev("of the program"))
        cr_skip_test("no mount namespace can be made here");
    termination_write(in_pod, "late");
    expect_log("of the program");
    cr_assert_eq(unlink(LOG), 0);
    termination_write(in_pod, "no file");
    cr_expect_lt(lstat(LOG, &st), 0);
    cr_assert_eq(mkfifo(LOG, 0600), 0);
    termination_write(in_pod, "a pipe");
    cr_assert_eq(unlink(LOG), 0);
    cr_assert_eq(symlink("/dev/elsewhere", LOG), 0);
    FILE *f = fopen("/dev/elsewhere", "we");
    cr_assert_not_null(f);
    cr_assert_eq(fclose(f), 0);
    termination_write(in_pod, "a link");
    cr_assert_eq(stat("/dev/elsewhere", &st), 0);
    cr_expect_eq(st.st_size, 0);
}
