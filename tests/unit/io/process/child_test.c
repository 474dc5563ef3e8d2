#include "io/process/child.h"

#include <elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "io/process/reaper.h"
#include "rig/unit.h"

/* A NULL-terminated list of strings, with the type that execve(2) needs. */
#define ARGV(...) ((char *const *)(uintptr_t)(const char *const[]){__VA_ARGS__})

/* The rest is as in CHILD_SPEC_INIT. */
#define SPEC(...) spec_of(ARGV(__VA_ARGS__))

static struct child_spec spec_of(char *const *argv) {
    struct child_spec spec = CHILD_SPEC_INIT;
    spec.argv = argv;
    return spec;
}

static const unsigned kernels[] = {0, CHILD_WITHOUT_PIDFD, CHILD_WITHOUT_CLOSE_RANGE};

static char *worker(void) {
    char *path = getenv("WORKER");
    cr_assert(path != NULL, "WORKER must name tests/process/worker");
    return path;
}

static void arm(void) { (void)alarm(30); }
TestSuite(child, .init = arm);

/* Runs spec with its output in a pipe: out are its first 4095 bytes. Returns its status. */
static int output_of(struct child_spec *spec, char out[4096]) {
    int fds[2], status;
    cr_assert(pipe2(fds, O_CLOEXEC) == 0);
    spec->stdout_fd = fds[1];
    struct child c;
    struct err err = {0};
    int r = child_spawn(spec, &c, &err);
    cr_assert(r == 0, "%s", err.text);
    close(fds[1]);
    size_t len = 0;
    for (ssize_t n; (n = read(fds[0], out + len, 4095 - len)) > 0;)
        len += (size_t)n;
    out[len] = '\0';
    close(fds[0]);
    cr_assert(waitpid(c.pid, &status, 0) == c.pid);
    child_fini(&c);
    return status;
}

Test(child, runs_a_program_with_every_kind_of_kernel) {
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
        struct child_spec spec = SPEC(worker(), "print=hello", "sid", "cwd", "exit=3", NULL);
        spec.setsid = true;
        spec.cwd = "/";
        spec.without = kernels[i];
        char out[4096];
        int status = output_of(&spec, out);
        cr_expect_str_eq(out, "hello\nleader\n/\n");
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
}

Test(child, may_have_a_group_of_its_own_in_this_session) {
    struct child_spec spec = SPEC(worker(), "wait", NULL);
    struct child c = CHILD_INIT;
    struct err err = {0};
    spec.own_group = true;
    cr_assert_eq(child_spawn(&spec, &c, &err), 0, "%s", err.text);
    cr_expect_eq(getpgid(c.pid), c.pid);
    cr_expect_eq(getsid(c.pid), getsid(0));
    cr_assert_eq(child_kill(&c, SIGKILL), 0);
    cr_assert_eq(waitpid(c.pid, NULL, 0), c.pid);
    child_fini(&c);
}

Test(child, has_a_pidfd_only_where_the_kernel_has) {
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
        struct child_spec spec = SPEC(worker(), "wait", NULL);
        spec.without = kernels[i];
        struct child c;
        cr_assert(child_spawn(&spec, &c, NULL) == 0);
        cr_expect_eq(c.pidfd >= 0, !(kernels[i] & CHILD_WITHOUT_PIDFD));
        cr_expect_eq(child_kill(&c, SIGKILL), 0);
        cr_expect_eq(waitpid(c.pid, NULL, 0), c.pid);
        child_fini(&c);
    }
}

Test(child, inherits_no_descriptor_mask_or_disposition) {
    int leak = open("/dev/null", O_RDONLY); /* not close-on-exec */
    cr_assert(leak > 2);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    sigprocmask(SIG_BLOCK, &some, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
        struct child_spec spec = SPEC(worker(), "fds", "mask", NULL);
        spec.without = kernels[i];
        char out[4096];
        (void)output_of(&spec, out);
        cr_expect_str_eq(out, "end\nend\n");
    }
    close(leak);
}

Test(child, takes_streams_that_are_swapped) {
    char path[] = "/tmp/muster-child-XXXXXX";
    int file = mkstemp(path);
    cr_assert(file >= 0);
    int saved_out = dup(1), saved_err = dup(2);
    dup2(file, 2);
    struct child_spec spec = SPEC("sh", "-c", "echo to-out; echo to-err >&2", NULL);
    spec.stdout_fd = 2;
    spec.stderr_fd = 1;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, 1);
    struct child c;
    int r = child_spawn(&spec, &c, NULL);
    dup2(saved_out, 1);
    dup2(saved_err, 2);
    cr_assert(r == 0);
    waitpid(c.pid, NULL, 0);
    child_fini(&c);
    char text[64] = "";
    cr_assert(pread(file, text, sizeof text - 1, 0) > 0);
    cr_expect_str_eq(text, "to-out\n");
    close(null), close(saved_out), close(saved_err), close(file);
    unlink(path);
}

Test(child, is_bound_to_the_processors_named) {
    cpu_set_t mine, one;
    cr_assert(sched_getaffinity(0, sizeof mine, &mine) == 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &mine))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    struct child_spec spec = SPEC("sh", "-c", "grep Cpus_allowed_list /proc/self/status", NULL);
    spec.cpuset = &one;
    spec.cpuset_bytes = sizeof one;
    char out[4096];
    (void)output_of(&spec, out);
    cr_expect_str_eq(out, rig_text("Cpus_allowed_list:\t%d\n", cpu));
}

static bool no_policies_here(void) { return syscall(SYS_get_mempolicy, NULL, NULL, 0UL, NULL, 0UL) < 0; }

Test(child, is_bound_to_the_memory_named) {
    if (no_policies_here())
        cr_skip_test("get_mempolicy() is refused here");
    static const struct {
        enum child_memory memory;
        unsigned without;
        const char *words;
    } cases[] = {
        {CHILD_MEMORY_DEFAULT, 0, " default\n"},
        {CHILD_MEMORY_BIND, 0, " bind 0\n"},
        {CHILD_MEMORY_PREFER, CHILD_WITHOUT_PREFERRED_MANY, " preferred 0\n"},
        {CHILD_MEMORY_PREFER, 0, " preferred-many 0\n"}, /* needs Linux 5.15 */
    };
    unsigned long nodes[4] = {1};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct child_spec spec = SPEC(worker(), "bound", NULL);
        spec.memory = cases[i].memory;
        spec.memory_nodes = nodes;
        spec.memory_nodes_bytes = sizeof nodes;
        spec.without = cases[i].without;
        char out[4096];
        int status = output_of(&spec, out);
        cr_expect(strstr(out, cases[i].words) != NULL, "'%s' lacks '%s'", out, cases[i].words);
        cr_expect_eq(status, 0);
    }
}

static void expect_failure(struct child_spec *spec, int code, const char *words) {
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
        spec->without = kernels[i];
        struct child c = CHILD_INIT;
        struct err err = {0};
        int r = child_spawn(spec, &c, &err);
        cr_expect_eq(r, code);
        cr_expect(strstr(err.text, words) != NULL, "'%s' lacks '%s'", err.text, words);
        cr_expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "left a child behind");
    }
}

/* From here on, who names this process by PR_SET_PTRACER is killed. */
static void kill_who_names_us(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_PTRACER, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)getpid(), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        cr_skip_test("no seccomp here");
}

Test(child, lets_its_parent_read_it_only_if_it_should) {
    kill_who_names_us();
    for (int readable = 0; readable < 2; readable++) {
        struct child_spec spec = SPEC(worker(), "exit=3", NULL);
        spec.readable = readable;
        char out[4096];
        int status = output_of(&spec, out);
        if (readable)
            cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
        else
            cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
}

static void write_file(const char *path, const void *bytes, size_t len) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    cr_assert_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

Test(child, says_which_step_failed) {
    char dir[] = "/tmp/muster-child-XXXXXX";
    cr_assert(mkdtemp(dir) != NULL);
    const char *plain = rig_text("%s/plain", dir), *script = rig_text("%s/script", dir);
    const char *nosuch = rig_text("%s/nosuch", dir);
    write_file(plain, "echo\n", 5);
    cr_assert(chmod(plain, 0644) == 0);
    write_file(script, "#!/no/such/interpreter\n", 23);

    struct child_spec spec = SPEC(plain, NULL);
    expect_failure(&spec, -EACCES, "cannot run ");
    expect_failure(&spec, -EACCES, "plain: Permission denied");
    spec.argv = ARGV(nosuch, NULL);
    expect_failure(&spec, -ENOENT, "nosuch: No such file or directory");
    spec.argv = ARGV(script, NULL);
    expect_failure(&spec, -ENOENT, "interpreter");
    spec.argv = ARGV("muster-no-such-program", NULL);
    expect_failure(&spec, -ENOENT, "not found on PATH");
    spec.envp = ARGV(rig_text("PATH=%s", dir), NULL);
    spec.argv = ARGV("plain", NULL);
    expect_failure(&spec, -EACCES, "not executable");
    spec.envp = NULL;
    spec.argv = ARGV("true", NULL);
    spec.cwd = nosuch;
    expect_failure(&spec, -ENOENT, "cannot enter the directory ");
    cr_assert(chmod(plain, 0755) == 0);
    spec.cwd = NULL;
    spec.argv = ARGV(plain, NULL);
    expect_failure(&spec, -ENOEXEC, "#!/bin/sh");
    unlink(plain), unlink(script), rmdir(dir);
}

/* As of a virtual environment that was made on a login host. */
Test(child, names_the_machine_that_a_program_was_made_for) {
    struct utsname here;
    cr_assert_eq(uname(&here), 0);
    bool is_arm = strcmp(here.machine, "aarch64") == 0;
    Elf64_Ehdr head = {.e_ident = ELFMAG, .e_machine = is_arm ? EM_X86_64 : EM_AARCH64};
    char dir[] = "/tmp/muster-child-XXXXXX";
    cr_assert_not_null(mkdtemp(dir));
    const char *program = rig_text("%s/python3", dir), *script = rig_text("%s/script", dir);
    const char *text = rig_text("#! %s -u\n", program);
    write_file(program, &head, sizeof head);
    write_file(script, text, strlen(text));
    text = rig_text("(%s is a program for %s, and this machine is %s)", program, is_arm ? "x86_64" : "aarch64",
                    here.machine);
    struct child_spec spec = SPEC(program, NULL);
    expect_failure(&spec, -ENOEXEC, text);
    spec.argv = ARGV(script, NULL);
    expect_failure(&spec, -ENOEXEC, text);
    unlink(program), unlink(script), rmdir(dir);
}

/* No machine has a node 4000. */
Test(child, says_that_there_is_no_such_memory) {
    if (no_policies_here())
        cr_skip_test("get_mempolicy() is refused here");
    unsigned long nodes[64] = {0};
    nodes[4000 / 64] = 1UL << 4000 % 64;
    struct child_spec spec = SPEC("true", NULL);
    spec.memory_nodes = nodes;
    spec.memory_nodes_bytes = sizeof nodes;
    spec.memory = CHILD_MEMORY_BIND;
    expect_failure(&spec, -EINVAL, "cannot bind it to its NUMA nodes' memory: Invalid argument");
    spec.memory = CHILD_MEMORY_PREFER;
    expect_failure(&spec, -EINVAL, "(none of them has memory that may be used here)");
}

static void on_exit_of(void *arg, const struct child_status *status) {
    cr_expect_eq(status->code, 1);
    loop_quit(arg);
}

/* Also if the parent of this process has blocked SIGCHLD. */
Test(child, strangers_are_reaped_silently) {
    struct loop *loop;
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGCHLD), sigprocmask(SIG_BLOCK, &set, NULL);
    cr_assert_eq(loop_new(&loop), 0);
    struct child_reaper *reaper = child_reaper_new(loop);
    pid_t stranger = fork();
    if (stranger == 0)
        _exit(5);
    struct child_spec spec = SPEC(worker(), "cat", "exit=1", NULL);
    int in[2];
    cr_assert(pipe2(in, O_CLOEXEC) == 0);
    spec.stdin_fd = in[0];
    struct child c;
    cr_assert(child_spawn(&spec, &c, NULL) == 0);
    struct child_watch *watch = child_watch_new(reaper, &c, NULL, on_exit_of, loop);
    cr_expect(child_reaper_find(reaper, c.pid) != NULL && child_reaper_find(reaper, stranger) == NULL);
    siginfo_t si;
    cr_assert(waitid(P_PID, (id_t)stranger, &si, WEXITED | WNOWAIT) == 0);
    cr_assert(loop_turn(loop) == 0);
    cr_expect(kill(stranger, 0) < 0 && errno == ESRCH, "the stranger is still a zombie");
    close(in[0]), close(in[1]);
    cr_assert(loop_run(loop) == 0);
    cr_expect_not(child_watch_alive(watch));
    child_watch_free(watch);
    child_reaper_free(reaper);
    loop_free(loop);
}

Test(child, keeps_the_descriptors_that_it_is_to_keep) {
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
        int fds[2];
        cr_assert(pipe2(fds, O_CLOEXEC) == 0);
        cr_assert(write(fds[1], "kept", 4) == 4);
        close(fds[1]);
        char out[4096];
        struct child_spec spec = SPEC("/bin/sh", "-c", rig_text("cat <&%d; ls /proc/self/fd | wc -l", fds[0]), NULL);
        spec.keep_fds[1] = fds[0];
        spec.without = kernels[i];
        (void)output_of(&spec, out);
        cr_assert_str_eq(out, "kept5\n"); /* 0, 1, 2, the pipe, and that of ls */
        close(fds[0]);
    }
}

Test(child, a_copy_of_a_spec_owns_its_texts) {
    char word[] = "a", variable[] = "A=1", cwd[] = "/";
    unsigned long cpus = 3;
    struct child_spec spec = SPEC(word, NULL);
    spec.envp = ARGV(variable, NULL);
    spec.cwd = cwd;
    spec.cpuset = &cpus;
    spec.cpuset_bytes = sizeof cpus;
    spec.nofile_soft = 5;
    struct child_spec *copy = child_spec_copy(&spec);
    cr_assert(child_spec_alike(copy, &spec));
    variable[0] = 'B';
    cr_assert_str_eq(copy->envp[0], "A=1");
    cr_assert(child_spec_alike(copy, &spec), "environments don't count");
    word[0] = 'b';
    cr_assert_str_eq(copy->argv[0], "a");
    cr_assert(!child_spec_alike(copy, &spec));
    word[0] = 'a';
    cpus = 1;
    cr_assert(!child_spec_alike(copy, &spec));
    spec.cpuset = NULL;
    cr_assert(!child_spec_alike(copy, &spec));
    child_spec_free(copy);
    child_spec_free(NULL);
}
