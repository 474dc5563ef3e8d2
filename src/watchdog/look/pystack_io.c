#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/file.h"
#include "io/process/proc.h"
#include "watchdog/look/pystack.h"

#define CANDIDATES_MAX 4

struct process_memory {
    pid_t pid;
    int fd; /* /proc/PID/mem; -1: not open */
};

static void close_memory(struct process_memory *m) { file_close(&m->fd); }

/* Not by process_vm_readv(), which a container's filter of system calls can forbid although the
 * memory may be read. Without the right, the file can't be opened. */
static ssize_t read_memory(void *arg, uint64_t address, void *buf, size_t n) {
    struct process_memory *m = arg;
    char path[PROC_PATH_MAX];
    proc_path(path, m->pid, "/mem");
    if (m->fd == -1)
        m->fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = m->fd == -1 ? -1 : pread(m->fd, buf, n, (off_t)address);
    return got >= 0 ? got : -errno;
}

static bool gather_memory(void *arg, const struct pystack_pieces *p, void *buf) {
    const struct process_memory *m = arg;
    struct iovec to = {.iov_base = buf, .iov_len = p->size}, from[PYSTACK_PIECES_MAX];
    for (uint32_t i = 0; i < p->n; i++)
        from[i] = (struct iovec){.iov_base = (void *)(uintptr_t)p->of[i].address,
                                 .iov_len = p->of[i].size};
    return process_vm_readv(m->pid, &to, 1, from, p->n, 0) == (ssize_t)p->size;
}

static ssize_t read_file(void *arg, uint64_t offset, void *buf, size_t n) {
    if (offset > INT64_MAX - n)
        return 0;
    ssize_t got = pread(*(const int *)arg, buf, n, (off_t)offset);
    return got >= 0 ? got : -errno;
}

struct candidate {
    uint64_t begin, end; /* its mapping of offset 0 */
    bool is_library;
    uint64_t inode;
    uint32_t version; /* by its name; 0: not in the name */
    char path[PATH_MAX];
};

struct maps {
    uint32_t n;
    struct candidate of[CANDIDATES_MAX];
    uint32_t version; /* of modules of Python that are mapped: "cpython-39-"; 0: none */
};

/* "3.9", "39", "310"; 0: not such a number. */
static uint32_t version_of(const char *text) {
    unsigned minor;
    bool is = sscanf(text, "3.%2u", &minor) == 1 || sscanf(text, "3%2u", &minor) == 1;
    return is ? 3u << 24 | minor << 16 : 0;
}

/* One line: "BEGIN-END rwxp OFFSET DEV INODE PATH". proc_pid_maps(5) */
static void read_mapping(const char *line, const char *exe, struct maps *m) {
    unsigned long long begin, end, offset, inode;
    int path_at = 0;
    if (sscanf(line, "%llx-%llx %*s %llx %*s %llu %n", &begin, &end, &offset, &inode, &path_at) <
            4 ||
        path_at == 0 || line[path_at] != '/')
        return;
    const char *path = line + path_at, *name = strrchr(path, '/') + 1;
    const char *module = strstr(name, "cpython-3");
    if (module != NULL && m->version == 0)
        m->version = version_of(module + strlen("cpython-"));
    bool is_library = strncmp(name, "libpython", 9) == 0;
    if (offset != 0 || m->n == CANDIDATES_MAX || strlen(path) >= PATH_MAX ||
        (!is_library && strcmp(path, exe) != 0))
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        if (strcmp(m->of[i].path, path) == 0)
            return;
    }
    struct candidate *c = &m->of[m->n++];
    *c = (struct candidate){begin, end, is_library, inode, 0, ""};
    snprintf(c->path, sizeof c->path, "%s", path);
    const char *digits = is_library ? name + 9 : strncmp(name, "python", 6) == 0 ? name + 6 : "";
    c->version = version_of(digits);
}

static int no_right(pid_t pid, int r, struct err *err) {
    return err_set(err, -EPERM,
                   "no right to read the memory of pid %d: %s; it needs the same user, and with "
                   "ptrace_scope 1 that the process allows it, or CAP_SYS_PTRACE",
                   (int)pid, strerror(-r));
}

static int read_maps(pid_t pid, struct maps *ret, struct err *err) {
    char path[PROC_PATH_MAX], exe[PATH_MAX], line[PATH_MAX + 128];
    proc_path(path, pid, "/exe");
    ssize_t n = readlink(path, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    int why = n < 0 ? errno : 0;
    proc_path(path, pid, "/maps");
    FILE *f = why == 0 ? fopen(path, "re") : NULL;
    if (f == NULL) {
        why = why != 0 ? why : errno;
        if (why == EACCES || why == EPERM)
            return no_right(pid, -why, err);
        return err_set(err, -ESRCH, "there is no process %d any more", (int)pid);
    }
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        read_mapping(line, exe, ret);
    }
    fclose(f);
    return 0;
}

/* The mapped file itself, also if it was deleted or is hidden in a container. map_files needs more
 * rights (CAP_CHECKPOINT_RESTORE) than the others. A path is as we see the file, or as the process
 * does: with a root of its own these can differ. */
static int open_mapped(pid_t pid, const struct candidate *c) {
    char path[PATH_MAX + PROC_PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", (int)pid,
             (unsigned long long)c->begin, (unsigned long long)c->end);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd != -1)
        return fd;
    if (!c->is_library) {
        snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        return fd != -1 ? fd : -errno;
    }
    struct stat st;
    fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd != -1 && (fstat(fd, &st) < 0 || st.st_ino != c->inode))
        file_close(&fd);
    if (fd != -1)
        return fd;
    snprintf(path, sizeof path, "/proc/%d/root%s", (int)pid, c->path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd != -1 ? fd : -errno;
}

static void fill_found(const struct pystack_memory *memory, const struct maps *maps,
                       const struct candidate *c, const struct python_elf *e,
                       struct pystack_found *ret) {
    uint64_t bias = c->begin - e->first, version = 0;
    ret->runtime = bias + e->runtime;
    ret->code_type = e->code_type != 0 ? bias + e->code_type : 0;
    ret->text_type = e->text_type != 0 ? bias + e->text_type : 0;
    ret->bytes_type = e->bytes_type != 0 ? bias + e->bytes_type : 0;
    if (e->version != 0 && pystack_get_u64(memory, bias + e->version, &version))
        ret->version = (uint32_t)version;
    else
        ret->version = c->version != 0 ? c->version : maps->version;
}

/* The pid in the process's own pid namespace: the last of NSpid. proc_pid_status(5) */
static int32_t inner_id(pid_t pid, pid_t tid) {
    char path[PROC_PATH_MAX], buf[4096];
    if (tid == pid)
        snprintf(path, sizeof path, "/status");
    else
        snprintf(path, sizeof path, "/task/%d/status", (int)tid);
    ssize_t n = proc_read(pid, path, buf, sizeof buf - 1);
    if (n <= 0)
        return 0;
    buf[n] = '\0';
    char *ids = strstr(buf, "\nNSpid:\t");
    if (ids == NULL)
        return tid;
    ids[1 + strcspn(ids + 1, "\n")] = '\0';
    return (int32_t)strtol(strrchr(ids, '\t') + 1, NULL, 10);
}

int pystack_process_find(int32_t pid, struct pystack_process *ret, struct err *err) {
    struct proc_stat stat;
    if (!proc_read_stat(pid, &stat))
        return err_set(err, -ESRCH, "there is no process %d any more", (int)pid);
    struct pystack_process p = {.pid = pid, .start = stat.start};
    _cleanup_(close_memory) struct process_memory process = {.pid = pid, .fd = -1};
    struct pystack_memory memory = {.read = read_memory, .arg = &process};
    _cleanup_(freep) struct maps *maps = xcalloc(1, sizeof *maps);
    int r = read_maps(pid, maps, err);
    bool found = false;
    for (uint32_t i = 0; r == 0 && !found && i < maps->n; i++) {
        int fd = open_mapped(pid, &maps->of[i]);
        struct pystack_memory file = {.read = read_file, .arg = &fd};
        struct python_elf elf;
        found = fd >= 0 && python_elf_read(&file, &elf) == 0;
        if (found)
            fill_found(&memory, maps, &maps->of[i], &elf, &p.python.found);
        else if (fd < 0 && maps->of[i].is_library)
            r = err_set(err, fd, "%s can't be opened: %s", maps->of[i].path, strerror(-fd));
        if (fd >= 0)
            close(fd);
    }
    if (r == 0 && !found)
        r = err_set(err, -ENOENT, "no Python is loaded in it");
    if (r == 0) {
        p.python.found.pid = inner_id(pid, pid);
        p.inner = p.python.found.pid != pid;
        struct pystack_found was = p.python.found;
        uint64_t begin;
        ssize_t got = read_memory(&process, was.runtime, &begin, sizeof begin);
        r = got == sizeof begin ? pystack_open(&memory, &was, &p.python, err)
            : got == -EPERM || got == -EACCES
                ? no_right(pid, (int)got, err)
                : err_set(err, -EBADMSG, "its memory can't be read: %s",
                          got < 0 ? strerror((int)-got) : "short");
    }
    if (r == 0)
        *ret = p;
    return r;
}

struct inner_tids {
    pid_t pid;
    uint32_t n;
    struct {
        int32_t outer, inner;
    } of[PYSTACK_THREADS_MAX * 8];
};

static void add_tid(void *arg, int tid) {
    struct inner_tids *t = arg;
    if (t->n < ARRAY_SIZE(t->of)) {
        t->of[t->n].outer = tid;
        t->of[t->n++].inner = inner_id(t->pid, tid);
    }
}

struct translated {
    const struct inner_tids *tids;
    pystack_thread_fn *fn;
    void *arg;
};

static void on_inner_thread(void *arg, const struct pystack_thread *thread) {
    const struct translated *t = arg;
    struct pystack_thread out = *thread;
    out.tid = 0;
    for (uint32_t i = 0; i < t->tids->n; i++) {
        if (thread->tid != 0 && t->tids->of[i].inner == thread->tid)
            out.tid = t->tids->of[i].outer;
    }
    t->fn(t->arg, &out);
}

static bool is_same(const struct pystack_process *p) {
    struct proc_stat stat;
    return proc_read_stat(p->pid, &stat) && stat.start == p->start;
}

int pystack_process_read(const struct pystack_process *p, pystack_thread_fn *fn, void *arg,
                         struct err *err) {
    if (!is_same(p))
        return err_set(err, -ESRCH, "there is no process %d any more", (int)p->pid);
    _cleanup_(close_memory) struct process_memory process = {.pid = p->pid, .fd = -1};
    struct pystack_memory memory = {.read = read_memory, .arg = &process};
    int r;
    if (p->inner) {
        struct inner_tids tids = {.pid = p->pid};
        char path[PROC_PATH_MAX];
        proc_path(path, p->pid, "/task");
        if (proc_each_number(path, add_tid, &tids) < 0)
            tids.n = 0;
        struct translated t = {&tids, fn, arg};
        r = pystack_read(&memory, &p->python, on_inner_thread, &t);
    } else {
        r = pystack_read(&memory, &p->python, fn, arg);
    }
    return r >= 0
               ? r
               : err_set(err, -ESRCH, "no thread of Python is in it: it has not begun, or ended");
}

uint64_t pystack_process_addresses(const struct pystack_process *p) {
    if (!is_same(p))
        return 0;
    _cleanup_(close_memory) struct process_memory process = {.pid = p->pid, .fd = -1};
    struct pystack_memory memory = {.read = read_memory, .arg = &process};
    return pystack_addresses(&memory, &p->python);
}

int pystack_process_watch(const struct pystack_process *p, struct pystack_watch *w,
                          pystack_number_fn *fn, void *arg, struct pystack_numbers *ret) {
    _cleanup_(close_memory) struct process_memory process = {.pid = p->pid, .fd = -1};
    struct pystack_memory memory = {read_memory, &process, gather_memory};
    return pystack_watch_read(w, &memory, fn, arg, ret);
}
