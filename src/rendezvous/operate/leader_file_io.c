#include "rendezvous/operate/leader_file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"
#include "rendezvous/operate/registry_io.h"

#define LEADER_FILE_NAME_MAX 48
#define LEADER_FILE_BYTES_MAX 2048
#define SWEEP_AFTER_S 200000 /* more than two days, and longer than any hold_ns */
#define SWEEP_CLOSED_AFTER_S 3600
#define LEADER_FILE_HOLD_MAX_NS (UINT64_C(3600) * NS_PER_S)

/* Each field has a fixed width, so that a leader file can be rewritten in place. */
#define HEAD_FORMAT \
    "muster mark 1\nboot=%s\nepoch=%010" PRIu32 "\noutcome=%d\nhold_ms=%010" PRIu64 "\n"

struct leader_file {
    int dir_fd, fd;
    char name[LEADER_FILE_NAME_MAX];
    char boot[BOOT_ID_MAX];
    char *tail; /* endpoint and run id */
    uint32_t epoch;
    uint64_t hold_ns;
    enum outcome outcome;
};

static void leader_file_text(const struct leader_file *m, struct strbuf *out) {
    strbuf_printf(out, HEAD_FORMAT, m->boot, m->epoch, (int)m->outcome, m->hold_ns / NS_PER_MS);
    strbuf_add(out, m->tail);
}

static bool parse(const struct leader_file *m, const char *text, struct leader_file_prev *ret,
                  char boot[BOOT_ID_MAX]) {
    int outcome, n = 0;
    uint64_t hold_ms;
    if (sscanf(text,
               "muster mark 1\nboot=%63s\nepoch=%" SCNu32 "\noutcome=%d\nhold_ms=%" SCNu64 "%n",
               boot, &ret->epoch, &outcome, &hold_ms, &n) != 4)
        return false;
    if (text[n] != '\n' || strcmp(text + n + 1, m->tail) != 0 || outcome < OUTCOME_NONE ||
        outcome > OUTCOME_FAILED || ret->epoch == 0 || ret->epoch == UINT32_MAX)
        return false;
    ret->outcome = (enum outcome)outcome;
    ret->hold_ns = MIN2(hold_ms, LEADER_FILE_HOLD_MAX_NS / NS_PER_MS) * NS_PER_MS;
    return true;
}

/* Reads the file that is there; one that is not ours, or incomplete, counts as missing. */
static int read_prev(const struct leader_file *m, struct leader_file_prev *ret) {
    *ret = (struct leader_file_prev){0};
    _cleanup_(file_close) int fd =
        openat(m->dir_fd, m->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    char text[LEADER_FILE_BYTES_MAX + 1], boot[BOOT_ID_MAX];
    struct stat st;
    ssize_t n = pread(fd, text, LEADER_FILE_BYTES_MAX, 0);
    if (n < 0 || fstat(fd, &st) < 0)
        return -errno;
    text[n] = '\0';
    if (!parse(m, text, ret, boot))
        *ret = (struct leader_file_prev){0};
    else if (strcmp(boot, m->boot) == 0)
        ret->touched_ns = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
    return 0;
}

static int set_time(int fd) {
    uint64_t now = clock_now_ns();
    struct timespec at = {.tv_sec = (time_t)(now / NS_PER_S), .tv_nsec = (long)(now % NS_PER_S)};
    return futimens(fd, (struct timespec[2]){at, at}) < 0 ? -errno : 0;
}

/* The new file stays open. */
static int put_file(struct leader_file *m) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    leader_file_text(m, &text);
    int fd = file_put_locked(m->dir_fd, m->name, strbuf_text(&text), text.len);
    if (fd < 0)
        return fd;
    file_close(&m->fd);
    m->fd = fd;
    return set_time(fd);
}

int leader_file_open(const char *run_id, const char *endpoint, uint64_t hold_ns,
                     struct leader_file_prev *ret_prev, struct leader_file **ret, struct err *err) {
    char path[REGISTRY_PATH_MAX];
    struct leader_file *m = xcalloc(1, sizeof *m);
    m->dir_fd = m->fd = -1;
    m->hold_ns = MIN2(hold_ns, LEADER_FILE_HOLD_MAX_NS);
    m->tail = xasprintf("endpoint=%s\nrun_id=%s\n", endpoint, run_id);
    (void)snprintf(m->name, sizeof m->name, "mark-%016" PRIx64 "%016" PRIx64,
                   hash_text(HASH_BEGIN, m->tail),
                   hash_text(UINT64_C(0x6d75737465720001), m->tail));
    int r = registry_dir_open(&m->dir_fd, path, err);
    if (r < 0) {
        m->dir_fd = -1;
        leader_file_free(m);
        return r;
    }
    struct leader_file_prev prev = {0};
    r = proc_boot_id(m->boot);
    if (r == 0)
        r = read_prev(m, &prev);
    if (r == 0) {
        uint64_t now = clock_now_ns(), until = leader_file_free_from(&prev, now);
        if (until > now) /* an agent that finds our file must also wait for what we wait for */
            m->hold_ns = MAX2(m->hold_ns, until - now);
        m->epoch = prev.epoch + 1;
        r = put_file(m);
    }
    if (r < 0) {
        (void)err_set(err, r, "can't write a leader file in %s: %s", path, strerror(-r));
        leader_file_free(m);
        return r;
    }
    *ret_prev = prev;
    *ret = m;
    return 0;
}

uint32_t leader_file_epoch(const struct leader_file *m) { return m->epoch; }

uint64_t leader_file_free_from(const struct leader_file_prev *prev, uint64_t now_ns) {
    if (prev->epoch == 0 || prev->outcome != OUTCOME_NONE || prev->touched_ns == 0)
        return 0;
    uint64_t until = MIN2(prev->touched_ns, now_ns) + prev->hold_ns;
    return until > now_ns ? until : 0;
}

int leader_file_touch(struct leader_file *m, enum outcome outcome) {
    struct stat st;
    bool said = m->outcome != OUTCOME_NONE || outcome == OUTCOME_NONE;
    if (!said)
        m->outcome = outcome;
    if (fstat(m->fd, &st) < 0)
        return -errno;
    if (st.st_nlink == 0) /* the file was removed */
        return put_file(m);
    if (!said) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        leader_file_text(m, &text);
        ssize_t n = pwrite(m->fd, strbuf_text(&text), text.len, 0);
        if (n != (ssize_t)text.len) {
            int r = n < 0 ? -errno : -EIO;
            m->outcome = OUTCOME_NONE; /* the next call tries again */
            return r;
        }
    }
    return set_time(m->fd);
}

/* ---- leader files for which no agent will ever wait ---- */

/* Whether the file is of this boot, and its leader has closed the run. */
static bool is_closed(int dir, const char *name, const char *boot) {
    char text[LEADER_FILE_BYTES_MAX + 1], its[BOOT_ID_MAX];
    uint32_t epoch;
    int outcome;
    return file_read_head(dir, name, text, sizeof text) >= 0 &&
           sscanf(text, "muster mark 1\nboot=%63s\nepoch=%" SCNu32 "\noutcome=%d\n", its, &epoch,
                  &outcome) == 3 &&
           strcmp(its, boot) == 0 && outcome != OUTCOME_NONE;
}

/* Whether the file is obsolete. The files are small, but a cluster's node sees many runs. */
static bool is_over(int dir, const char *name, const char *boot) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    uint64_t touched_s = (uint64_t)st.st_mtim.tv_sec, now_s = clock_now_ns() / NS_PER_S;
    if (touched_s + SWEEP_CLOSED_AFTER_S > clock_wall_ns() / NS_PER_S)
        return false; /* a new one, which has the time of day until its leader sets another */
    return touched_s > now_s + SWEEP_AFTER_S || touched_s + SWEEP_AFTER_S < now_s ||
           (touched_s + SWEEP_CLOSED_AFTER_S < now_s && is_closed(dir, name, boot));
}

static bool sweep_one(int dir, const char *name, void *boot) {
    if (strncmp(name, "mark-", 5) != 0)
        return false;
    if (is_over(dir, name, boot))
        (void)unlinkat(dir, name, 0);
    return true;
}

void leader_file_sweep(uint64_t until_ns) {
    char path[REGISTRY_PATH_MAX], boot[BOOT_ID_MAX];
    int dir;
    if (proc_boot_id(boot) == 0 && registry_dir_open(&dir, path, NULL) == 0)
        sweep_dir(dir, until_ns, sweep_one, boot);
}

void leader_file_free(struct leader_file *m) {
    if (m == NULL)
        return;
    file_close(&m->fd);
    file_close(&m->dir_fd);
    free(m->tail);
    free(m);
}
