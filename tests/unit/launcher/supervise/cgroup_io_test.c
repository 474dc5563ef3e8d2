#include "launcher/supervise/cgroup_io.h"

#include "rig/unit.h"

static const char hybrid[] = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
                             "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
                             "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
static const char unified[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
static const char container[] = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";

static void expect(char *path, const char *expected) {
    cr_expect(expected != NULL ? path != NULL && strcmp(path, expected) == 0 : path == NULL, "%s, not %s", path,
              expected);
    free(path);
}

#define expect_path(mountinfo, cgroup, expected) expect(cgroup_path_from(mountinfo, cgroup), expected)
#define expect_oom_file(mountinfo, cgroup, expected) expect(cgroup_oom_file_from(mountinfo, cgroup), expected)

Test(cgroup_io, our_group_is_found_in_every_layout) {
    expect_path(hybrid, "4:memory:/job\n0::/\n", "/sys/fs/cgroup/unified");
    expect_path(hybrid, "0::/user.slice/a b\n", "/sys/fs/cgroup/unified/user.slice/a b");
    expect_path(unified, "0::/system.slice/x.service\n", "/sys/fs/cgroup/system.slice/x.service");
    expect_path(container, "0::/docker/abc/inner\n", "/sys/fs/cgroup/inner");
    expect_path(container, "0::/docker/abc\n", "/sys/fs/cgroup");
    expect_path(container, "0::/docker/abcd\n", NULL);
    expect_path(container, "0::/elsewhere\n", NULL);
    expect_path(hybrid, "4:memory:/job\n", NULL);
    expect_path("", "0::/\n", NULL);
    expect_path("nonsense\n - \n", "0::/\n", NULL);
    expect_path("1 2 0:3 / /my\\040cg rw - cgroup2 c rw\n", "0::/x\n", "/my cg/x");
}

Test(cgroup_io, the_memory_controllers_own_hierarchy_comes_first) {
    expect_oom_file(hybrid, "4:memory:/job/1\n0::/\n", "/sys/fs/cgroup/memory/job/1/memory.oom_control");
    expect_oom_file(hybrid, "7:cpu,memory:/j\n0::/\n", "/sys/fs/cgroup/memory/j/memory.oom_control");
    expect_oom_file(unified, "0::/a\n", "/sys/fs/cgroup/a/memory.events");
    expect_oom_file("", "0::/a\n", NULL);
}

static void read_whole(const char *path, char *out, size_t size) {
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    out[fread(out, 1, size - 1, f)] = '\0';
    (void)fclose(f);
}

Test(cgroup_io, this_process_has_the_file_of_its_own_group) {
    static char mountinfo[1 << 18], cgroup[1 << 14];
    read_whole("/proc/self/mountinfo", mountinfo, sizeof mountinfo);
    read_whole("/proc/self/cgroup", cgroup, sizeof cgroup);
    char *want = cgroup_oom_file_from(mountinfo, cgroup), *got = cgroup_oom_file();
    if (want == NULL || access(want, R_OK) < 0) {
        cr_assert_null(got);
    } else {
        cr_assert_not_null(got, "%s is there", want);
        cr_assert_str_eq(got, want);
    }
    free(want);
    free(got);
}

static uint64_t count_in(const char *text) {
    char path[] = "/tmp/muster-cgroup-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    uint64_t n = cgroup_oom_kills(path);
    unlink(path);
    return n;
}

Test(cgroup_io, kills_are_counted_in_both_formats) {
    cr_expect_eq(count_in("low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n"), 4);
    cr_expect_eq(count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n"), 12);
    cr_expect_eq(count_in("oom_kill_disable 1\nunder_oom 0\n"), 0);
    cr_expect_eq(count_in(""), 0);
    cr_expect_eq(cgroup_oom_kills("/no/such/file"), 0);
}

Test(cgroup_io, a_group_is_made_once_and_removed) {
    char *own = cgroup_own_path();
    if (own == NULL)
        cr_skip_test("no cgroup v2 here");
    int parent = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1, again = -1;
    free(own);
    cr_assert(parent >= 0);
    char name[64];
    snprintf(name, sizeof name, "muster-cgroup-test-%d", getpid());
    if (cgroup_make(parent, name, &fd) < 0)
        cr_skip_test("no cgroup can be made here");
    cr_expect_eq(cgroup_make(parent, name, &again), -EEXIST);
    cr_expect_eq(cgroup_populated(fd), 0);
    close(fd);
    cr_expect_eq(cgroup_remove(parent, name), 0);
    cr_expect_eq(cgroup_remove(parent, name), -ENOENT);
    close(parent);
}
