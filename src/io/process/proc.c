#include "io/process/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/file.h"

struct dirent64_head { /* getdents64(2) */
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

/* ---- text ---- */

char *proc_put_text(char *at, const char *text) {
    while (*text != '\0')
        *at++ = *text++;
    *at = '\0';
    return at;
}

char *proc_put_number(char *at, int n) {
    char digits[12];
    int len = 0;
    do
        digits[len++] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    while (len > 0)
        *at++ = digits[--len];
    *at = '\0';
    return at;
}

void proc_path(char out[PROC_PATH_MAX], pid_t pid, const char *rest) {
    char *at = proc_put_text(out, "/proc/");
    (void)proc_put_text(pid > 0 ? proc_put_number(at, pid) : proc_put_text(at, "self"), rest);
}

/* The number at the start of the field that is `skip` fields after p. */
static uint64_t field_number(const char *p, int skip) {
    for (; skip > 0 && *p != '\0'; p++)
        skip -= *p == ' ';
    uint64_t n = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        n = n * 10 + (uint64_t)(*p - '0');
    return n;
}

/* ---- one process ---- */

static ssize_t read_some(int fd, char *buf, size_t size) {
    ssize_t n;
    do
        n = read(fd, buf, size);
    while (n < 0 && errno == EINTR);
    return n;
}

ssize_t proc_read_file(const char *path, char *buf, size_t size) {
    _cleanup_(file_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : read_some(fd, buf, size);
}

ssize_t proc_read(pid_t pid, const char *name, char *buf, size_t size) {
    char path[PROC_PATH_MAX];
    proc_path(path, pid, name);
    return proc_read_file(path, buf, size);
}

static uint64_t ticks_ns(uint64_t ticks) {
    return ticks * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* The form is "pid (name) state ppid …", and the name can contain any byte. */
bool proc_parse_stat(const char *text, struct proc_stat *ret) {
    const char *name = strchr(text, '('), *p = strrchr(text, ')');
    if (name == NULL || p == NULL || p[1] != ' ' || p[2] == '\0')
        return false;
    size_t len = MIN2((size_t)(p - name - 1), sizeof ret->name - 1);
    memcpy(ret->name, name + 1, len);
    ret->name[len] = '\0';
    p += 2;
    ret->state = *p;
    ret->parent = (pid_t)field_number(p, 1);
    ret->ran_ns = ticks_ns(field_number(p, 11) + field_number(p, 12));
    ret->children_ns = ticks_ns(field_number(p, 13) + field_number(p, 14));
    ret->threads = (int)field_number(p, 17);
    ret->start = field_number(p, 19);
    ret->stack = field_number(p, 25);
    return true;
}

static bool read_stat(pid_t pid, const char *name, struct proc_stat *ret) {
    char text[1024];
    ssize_t n = proc_read(pid, name, text, sizeof text - 1);
    text[MAX2(n, 0)] = '\0';
    return proc_parse_stat(text, ret);
}

bool proc_read_stat(pid_t pid, struct proc_stat *ret) { return read_stat(pid, "/stat", ret); }

bool proc_read_thread_stat(pid_t pid, pid_t tid, struct proc_stat *ret) {
    char name[PROC_PATH_MAX];
    (void)proc_put_text(proc_put_number(proc_put_text(name, "/task/"), tid), "/stat");
    return read_stat(pid, name, ret);
}

pid_t proc_tracer(pid_t pid) {
    char buf[1024];
    ssize_t n = proc_read(pid, "/status", buf, sizeof buf - 1);
    if (n <= 0)
        return 0;
    buf[n] = '\0';
    static const char key[] = "\nTracerPid:";
    const char *p = strstr(buf, key);
    if (p == NULL)
        return 0;
    for (p += sizeof key - 1; *p == '\t' || *p == ' ';)
        p++;
    return (pid_t)field_number(p, 0);
}

int proc_boot_id(char out[BOOT_ID_MAX]) {
    ssize_t n = proc_read_file("/proc/sys/kernel/random/boot_id", out, BOOT_ID_MAX - 1);
    int r = n < 0 ? -errno : 0;
    out[MAX2(n, 0)] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return r == 0 && out[0] == '\0' ? -ENODATA : r;
}

/* ---- folders of numbers ---- */

/* 0 if it is not a number. */
static int number_of(const char *name) {
    int n = 0;
    for (; *name >= '0' && *name <= '9'; name++)
        n = n * 10 + (*name - '0');
    return *name == '\0' ? n : 0;
}

int proc_each_number(const char *path, proc_number_fn *fn, void *arg) {
    _cleanup_(file_close) int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    _Alignas(struct dirent64_head) char buf[2048];
    long n;
    while ((n = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64_head *d = (const void *)(buf + at);
            int number = number_of(d->name);
            if (number > 0)
                fn(arg, number);
            at += d->reclen;
        }
    return n < 0 ? -errno : 0;
}

/* ---- children ---- */

/* The numbers of a "children" file; false if there is no such file. */
static bool each_in_file(const char *path, proc_number_fn *fn, void *arg) {
    _cleanup_(file_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    char buf[1024];
    pid_t pid = 0;
    for (ssize_t n; (n = read_some(fd, buf, sizeof buf)) > 0;)
        for (ssize_t i = 0; i < n; i++) {
            if (buf[i] >= '0' && buf[i] <= '9') {
                pid = pid * 10 + (buf[i] - '0');
            } else if (pid > 0) {
                fn(arg, pid);
                pid = 0;
            }
        }
    if (pid > 0)
        fn(arg, pid);
    return true;
}

struct child_search {
    pid_t parent;
    proc_number_fn *fn;
    void *arg;
};

static void search_thread(void *arg, pid_t tid) {
    const struct child_search *s = arg;
    char path[PROC_PATH_MAX];
    char *at = proc_put_text(proc_put_number(proc_put_text(path, "/proc/"), s->parent), "/task/");
    (void)proc_put_text(proc_put_number(at, tid), "/children");
    (void)each_in_file(path, s->fn, s->arg);
}

static void search_process(void *arg, pid_t pid) {
    const struct child_search *s = arg;
    struct proc_stat st;
    if (proc_read_stat(pid, &st) && st.parent == s->parent)
        s->fn(s->arg, pid);
}

bool proc_is_ours(void) {
    char self[16];
    ssize_t n = readlink("/proc/self", self, sizeof self - 1);
    self[MAX2(n, 0)] = '\0';
    return n > 0 && number_of(self) == getpid();
}

void proc_each_child(pid_t parent, bool by_file, proc_number_fn *fn, void *arg) {
    struct child_search s = {.parent = parent, .fn = fn, .arg = arg};
    char path[PROC_PATH_MAX];
    if (!proc_is_ours())
        return;
    if (by_file && access("/proc/thread-self/children", R_OK) == 0) {
        proc_path(path, parent, "/task");
        (void)!proc_each_number(path, search_thread, &s); /* it can have ended */
        return;
    }
    (void)!proc_each_number("/proc", search_process, &s);
}

struct links {
    pid_t pid;
    proc_link_fn *fn;
    void *arg;
    bool ended;
};

static void look_at_link(void *arg, int fd) {
    struct links *l = arg;
    char path[PROC_PATH_MAX], link[64];
    proc_path(path, l->pid, "/fd/");
    *proc_put_number(path + strlen(path), fd) = '\0';
    ssize_t n = l->ended ? -1 : readlink(path, link, sizeof link - 1);
    if (n <= 0)
        return;
    link[n] = '\0';
    l->ended = !l->fn(l->arg, link);
}

int proc_each_link(pid_t pid, proc_link_fn *fn, void *arg) {
    struct links l = {pid, fn, arg, false};
    char path[PROC_PATH_MAX];
    proc_path(path, pid, "/fd");
    return proc_each_number(path, look_at_link, &l);
}

bool proc_is_gpu(const char *link) {
    static const char nvidia[] = "/dev/nvidia";
    if (strncmp(link, nvidia, sizeof nvidia - 1) != 0)
        return strcmp(link, "/dev/kfd") == 0;
    const char *number = link + sizeof nvidia - 1;
    return *number >= '0' && *number <= '9';
}

/* ---- CPUs ---- */

bool cpu_allowed(struct cpuset *ret) {
    cpu_set_t mask[CPUSET_MAX / CPU_SETSIZE]; /* as many as a kernel's mask can have */
    static_assert(sizeof mask == sizeof ret->words, "a mask is made of the same words");
    if (sched_getaffinity(0, sizeof mask, mask) < 0)
        return false;
    memcpy(ret->words, mask, sizeof mask);
    return true;
}

uint32_t cpu_count_allowed(void) {
    struct cpuset all;
    return cpu_allowed(&all) ? MAX2(cpuset_count(&all), 1) : 1;
}
