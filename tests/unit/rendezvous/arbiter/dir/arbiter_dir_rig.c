#include "arbiter_dir_rig.h"

#include <ftw.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "io/file.h"
#include "rig/loop_rig.h"

struct loop *rig_loop;
char rig_dir[80];

static void begin_in(const char *where) {
    cr_assert_eq(loop_new(&rig_loop), 0);
    int n = snprintf(rig_dir, sizeof rig_dir, "%s/muster-arbiter-XXXXXX", where);
    cr_assert_lt((size_t)n, sizeof rig_dir);
    cr_assert_not_null(mkdtemp(rig_dir));
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}), 0); /* each request closes what it opened */
}

void rig_begin(void) {
    const char *tmp = getenv("TMPDIR");
    begin_in(tmp == NULL ? "/tmp" : tmp);
}
void rig_begin_in_memory(void) { begin_in(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"); }

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) { return remove(path); }

void rig_finish(void) {
    loop_free(rig_loop);
    cr_assert_eq(nftw(rig_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

struct arbiter *rig_arbiter(uint64_t timeout_ns) {
    struct arbiter_dir_config config = {.path = rig_dir, .run_id = RIG_RUN_ID, .timeout_ns = timeout_ns};
    struct arbiter *a;
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &a, NULL), 0);
    return a;
}

static void on_answer(void *arg, const struct arbiter_answer *answer) {
    struct arbiter_answer *to = arg;
    *to = *answer;
    loop_quit(rig_loop);
}

struct arbiter_answer rig_ask(struct arbiter *a, const struct arbiter_request *q) {
    struct arbiter_answer answer = {0};
    uint64_t began_ns = clock_now_ns();
    arbiter_ask(a, q, on_answer, &answer);
    cr_assert_eq(answer.result, 0, "never from inside");
    while (answer.result == 0)
        rig_loop_run(rig_loop);
    cr_assert_eq(answer.request.kind, q->kind);
    cr_assert(answer.started_ns >= began_ns && answer.started_ns <= clock_now_ns());
    cr_assert(answer.text[0] != '\0' || answer.result != ARBITER_UNREACHABLE);
    return answer;
}

struct arbiter_request rig_request(enum arbiter_kind kind, uint32_t epoch, uint64_t who) {
    struct arbiter_request q = {.kind = kind, .epoch = epoch};
    q.leader = (struct rdzv_peer){.incarnation = who, .port = (uint16_t)(4000 + who)};
    (void)snprintf(q.leader.addr, sizeof q.leader.addr, "10.0.0.%u,fd00::%u", (unsigned)who % 256, (unsigned)who % 256);
    return q;
}

struct arbiter_answer rig_read(struct arbiter *a) {
    return rig_ask(a, AT(rig_request(ARBITER_READ, 0, 0)));
}

struct arbiter_answer rig_claim(struct arbiter *a, uint32_t epoch, uint64_t who) {
    return rig_ask(a, AT(rig_request(ARBITER_CLAIM, epoch, who)));
}

struct arbiter_answer rig_beat(struct arbiter *a, uint32_t epoch, uint64_t who) {
    return rig_ask(a, AT(rig_request(ARBITER_BEAT, epoch, who)));
}

struct arbiter_answer rig_close(struct arbiter *a, uint32_t epoch, uint64_t who, enum outcome outcome) {
    struct arbiter_request q = *WITH(rig_request(ARBITER_CLOSE, epoch, who), .outcome = outcome);
    (void)strcpy(q.reason, "told by \"who\"\n\xff");
    return rig_ask(a, &q);
}

const char *rig_path(const char *file) { return rig_text("%s/%s/%s", rig_dir, RIG_FOLDER, file); }

bool rig_there(const char *file) { return access(rig_path(file), F_OK) == 0; }

void rig_write(const char *file, const char *text) {
    cr_assert_eq(file_write_atomic(rig_path(file), text, strlen(text)), 0);
}

char *rig_file_text(const char *file) {
    char *text;
    size_t len;
    cr_assert_eq(file_read_text(rig_path(file), 65536, &text, &len), 0, "%s", file);
    return text;
}

int rig_pidfd(int pid) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    cr_assert_geq(fd, 0);
    return fd;
}

void rig_wait_end(int pidfd) {
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    cr_assert_eq(poll(&p, 1, (int)(RIG_DOOMSDAY_NS / NS_PER_MS)), 1, "the process did not end");
    (void)close(pidfd);
}
