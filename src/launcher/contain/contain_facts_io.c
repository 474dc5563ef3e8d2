#include "launcher/contain/contain_facts_io.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"

#define CAP_SYS_ADMIN_BIT 21      /* linux/capability.h */
#define SECCOMP_MODE_FILTERED "2" /* Seccomp: of proc_pid_status(5) */
#define TEXT_MAX 65536

/* The beginning of a file of /proc, which has no size; "": it can't be read. malloc'ed */
static char *text_of(const char *path) {
    char *text = xcalloc(TEXT_MAX, 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n = fd < 0 ? 0 : 1;
    while (n > 0 && len < TEXT_MAX - 1) {
        n = read(fd, text + len, TEXT_MAX - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    file_close(&fd);
    text[len] = '\0';
    return text;
}

static int64_t number_of(const char *path) {
    _cleanup_(freep) char *text = text_of(path);
    char *end;
    long long n = strtoll(text, &end, 10);
    return end == text ? CONTAIN_UNKNOWN : n;
}

/* What follows "NAME:" and blanks in /proc/self/status; "": there is no such line. */
static const char *field_of(const char *status, const char *name) {
    const char *at = strstr(status, name);
    return at == NULL ? "" : at + strlen(name) + strspn(at + strlen(name), " \t");
}

/* What can't be read is CONTAIN_UNKNOWN or false. */
static void read_facts(struct contain_facts *ret) {
    _cleanup_(freep) char *status = text_of("/proc/self/status"),
                          *mounts = text_of("/proc/self/mountinfo");
    const char *seccomp = field_of(status, "\nSeccomp:");
    uint64_t caps = strtoull(field_of(status, "\nCapEff:"), NULL, 16);
    *ret = (struct contain_facts){
        .uid = geteuid(),
        .has_admin = (caps >> CAP_SYS_ADMIN_BIT & 1) != 0,
        .filtered = strncmp(seccomp, SECCOMP_MODE_FILTERED, 1) == 0,
        .userns_clone = number_of("/proc/sys/kernel/unprivileged_userns_clone"),
        .userns_max = number_of("/proc/sys/user/max_user_namespaces"),
        .pidns_max = number_of("/proc/sys/user/max_pid_namespaces"),
        .apparmor_limit = number_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        .has_cgroup1 = strstr(mounts, " - cgroup ") != NULL,
    };
}

int contain_failed(enum contain_step step, int code, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    struct contain_facts facts;
    if (err == NULL)
        return code;
    read_facts(&facts);
    contain_why(step, code, &facts, &why);
    return err_set(err, code, "%s", strbuf_text(&why));
}
