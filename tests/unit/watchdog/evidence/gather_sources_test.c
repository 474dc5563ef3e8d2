/* What others tell of a worker is in the evidence: where to ask is taken from the worker's environment. */
#include <sys/mman.h>
#include <sys/prctl.h>

#include "../look/fake_service.h"
#include "../look/ras_answer.h"
#include "rig/fds.h"
#include "rig/tree.h"
#include "watchdog/evidence/gather_io.h"

struct rig {
    struct tree tree;
    char socket[160], fifo[160], dump[192], kept[160], copy[192];
    pid_t worker, recorder;
    struct evidence e;
};

static void rig_make(struct rig *r) {
    tree_new(&r->tree);
    tree_folder(&r->tree, "kept");
    (void)snprintf(r->socket, sizeof r->socket, "%s/socket", r->tree.root);
    (void)snprintf(r->fifo, sizeof r->fifo, "%s/pipe_0.pipe", r->tree.root);
    (void)snprintf(r->dump, sizeof r->dump, "%s/trace_0", r->tree.root);
    (void)snprintf(r->kept, sizeof r->kept, "%s/kept", r->tree.root);
    (void)snprintf(r->copy, sizeof r->copy, "%s/nccl_trace_rank_0", r->kept);
}

static void rig_remove(struct rig *r) {
    const pid_t pids[] = {r->worker, r->recorder};
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
        if (pids[i] > 0) {
            (void)kill(pids[i], SIGKILL);
            (void)waitpid(pids[i], NULL, 0);
        }
    tree_remove(&r->tree);
    evidence_fini(&r->e);
}

static struct rig rig;
static void begin(void) { rig_make(&rig); }
static void end(void) { rig_remove(&rig); }
TestSuite(gather_sources, .init = begin, .fini = end);

/* A process that waits, started with this environment. It has it when the pipe is closed by its exec. */
static void start_worker(struct rig *r, char *const envp[]) {
    int begun[2];
    char byte;
    cr_assert_eq(pipe2(begun, O_CLOEXEC), 0);
    pid_t parent = getpid();
    r->worker = fork();
    cr_assert_geq(r->worker, 0);
    if (r->worker == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
            _exit(1);
        execle("/bin/sleep", "sleep", "1000", (char *)NULL, envp);
        _exit(1);
    }
    close(begun[1]);
    cr_assert_eq(read(begun[0], &byte, 1), 0);
    close(begun[0]);
}

static void assert_kept(const struct rig *r) {
    char text[16] = "";
    int fd = open(r->copy, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(read(fd, text, sizeof text - 1), 6);
    cr_assert_str_eq(text, "pickle");
    (void)close(fd);
}

static void gather(struct rig *r, uint32_t rank) {
    struct gather_worker worker = {.of.rank = rank, .of.pid = r->worker};
    struct gather_ask ask = {.node = "a", .workers = &worker, .n = 1, .timeout_ns = 60 * NS_PER_S, .keep_dir = r->kept};
    const unsigned open = rig_open_fds();
    evidence_fini(&r->e);
    gather_now(&ask, &r->e);
    cr_assert(r->e.n_workers == 1 && rig_open_fds() == open, "%u, %u", rig_open_fds(), open);
}

static bool has_gap(const struct evidence *e, const char *what) {
    for (uint32_t i = 0; i < e->n_gaps; i++)
        if (strncmp(e->gaps[i], what, strlen(what)) == 0)
            return true;
    return false;
}

static const char *recorder(void *arg, const char *line, bool *end) {
    *end = strcmp(line, "\r") == 0;
    return *end ? arg : NULL;
}

static const char *nccl(void *arg, const char *line, bool *end) {
    *end = strcmp(line, "VERBOSE STATUS") == 0;
    return *end ? arg : strncmp(line, "CLIENT", 6) == 0 ? "SERVER PROTOCOL 2\n" : "OK\n";
}

#define ANSWER_BYTES 16384

static void put_answer(pid_t pid, char *ret) {
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    struct answer a = answer_of(8, 120, 2);
    a.at[0].pid = pid;
    a.at[5].all_reduces = 119;
    answer_json(&a, &json);
    cr_assert_lt(json.len, ANSWER_BYTES);
    memcpy(ret, json.data, json.len + 1);
}

Test(gather_sources, recorder_and_nccl_are_asked_where_the_workers_environment_says) {
    static char fr[] = "HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n"
                       "{\"entries\":[],\"pg_status\":{\"0\":{\"last_enqueued_collective\":\"6\"}}}";
    /* The service is a child of this process, and the answer has the pid of a worker that starts later. */
    char *answer = mmap(NULL, ANSWER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(answer, MAP_FAILED);
    _cleanup_(fake_service_stop) struct fake_service f = {.reply = recorder, .arg = fr, .path = rig.socket};
    _cleanup_(fake_service_stop) struct fake_service ras = {.reply = nccl, .arg = answer};
    fake_service_start(&f);
    fake_service_start(&ras);
    char expected[512];
    char *socket = rig_text("TORCH_WORKER_SERVER_SOCKET=%s", rig.socket);
    char *address = rig_text("NCCL_RAS_ADDR=localhost:%u", ras.port);
    char *fifo = rig_text("TORCH_NCCL_DEBUG_INFO_PIPE_FILE=%s/pipe_", rig.tree.root);
    char *dump = rig_text("TORCH_FR_DUMP_TEMP_FILE=%s/trace_", rig.tree.root);
    char world[] = "WORLD_SIZE=8";
    char *const envp[] = {world, socket, address, fifo, dump, NULL};
    start_worker(&rig, envp);
    rig.recorder = fake_recorder_start(rig.fifo, rig.dump, 6);
    put_answer(rig.worker, answer);
    gather(&rig, 0);
    cr_assert_not_null(rig.e.workers[0].recorder);
    (void)snprintf(expected, sizeof expected,
                   "group 0: 6 enqueued, 0 completed\nNCCL's recorder has written %s, 6 bytes\ncopied to "
                   "%s/nccl_trace_rank_0\n",
                   rig.dump, rig.kept);
    cr_assert_str_eq(rig.e.workers[0].recorder, expected);
    assert_kept(&rig);
    cr_assert_eq(rig.e.workers[0].collectives, 6);
    for (uint32_t i = 0; i < rig.e.workers[0].n_gaps; i++)
        cr_assert_null(strstr(rig.e.workers[0].gaps[i], "recorder"), "%s", rig.e.workers[0].gaps[i]);
    uint64_t counts[8];
    evidence_counts(&rig.e, counts, 8);
    cr_assert_arr_eq(counts, ((const uint64_t[]){122, 122, 122, 122, 122, 121, 122, 122}), sizeof counts);
    cr_assert_not_null(rig.e.ras);
    assert_has(rig.e.ras, "119 in rank 5 (10.0.0.2, pid 105)");
    gather(&rig, 3);
    cr_assert(rig.e.ras == NULL && rig.e.n_counts == 0, "one node asks for the whole job");
}

static bool given(const struct local_workers *w, uint32_t local_rank, struct envlist *ret) {
    cr_assert_eq(local_rank, 0);
    envlist_set(ret, "TORCH_WORKER_SERVER_SOCKET", rig.socket);
    return true;
}

static bool spared(struct spare *s, const char *name) { return strcmp(name, GATHER_RECORDER_NAME) == 0; }

static const struct hang_workers_ops ops = {.env = given, .spared = spared};
static const struct hang_workers from = {.ops = &ops};

Test(gather_sources, what_does_not_answer_is_a_gap) {
    char socket[192], address[] = "NCCL_RAS_ADDR=localhost:1";
    (void)snprintf(socket, sizeof socket, "TORCH_WORKER_SERVER_SOCKET=%s", rig.socket);
    char *const envp[] = {socket, address, NULL};
    start_worker(&rig, envp);
    gather(&rig, 0);
    cr_assert_null(rig.e.workers[0].recorder);
    cr_assert_eq(rig.e.workers[0].collectives, 0);
    cr_assert(has_gap(&rig.e, "flight recorder: 1 worker has no server for it"));
    cr_assert(has_gap(&rig.e, "NCCL RAS: no answer on localhost:1"));
    cr_assert(rig.e.kernel_log != NULL || has_gap(&rig.e, "kernel log: ") || access("/dev/kmsg", R_OK) == 0);
}

Test(gather_sources, a_program_that_has_neither_is_not_asked) {
    char *const envp[] = {NULL};
    start_worker(&rig, envp);
    gather(&rig, 0);
    cr_assert_not(has_gap(&rig.e, "flight recorder"));
    cr_assert_not(has_gap(&rig.e, "NCCL"));
    if (rig.e.nics != NULL) /* two readings at once would tell nothing */
        cr_assert_null(strstr(rig.e.nics, " in 0.0 s"), "%s", rig.e.nics);
}

Test(gather_sources, what_the_recorder_wrote_to_the_folder_of_the_logs_stays_there) {
    char *fifo = rig_text("TORCH_NCCL_DEBUG_INFO_PIPE_FILE=%s/pipe_", rig.tree.root);
    char *dump = rig_text("TORCH_NCCL_DEBUG_INFO_TEMP_FILE=%s/trace_", rig.kept);
    (void)snprintf(rig.dump, sizeof rig.dump, "%s/trace_0", rig.kept);
    char *const envp[] = {fifo, dump, NULL};
    start_worker(&rig, envp);
    rig.recorder = fake_recorder_start(rig.fifo, rig.dump, 6);
    gather(&rig, 0);
    cr_assert_not_null(rig.e.workers[0].recorder);
    cr_assert_null(strstr(rig.e.workers[0].recorder, "copied"), "%s", rig.e.workers[0].recorder);
    cr_assert_eq(access(rig.copy, F_OK), -1);
}

Test(gather_sources, a_disk_that_still_holds_somebody_is_left_alone) {
    char *const envp[] = {rig_text("TORCH_NCCL_DEBUG_INFO_PIPE_FILE=%s/pipe_", rig.tree.root), NULL};
    start_worker(&rig, envp);
    struct gather_worker worker = {.of.pid = rig.worker};
    struct gather_ask ask = {.node = "a", .workers = &worker, .n = 1, .timeout_ns = 60 * NS_PER_S, .from = &from};
    gather_now(&ask, &rig.e);
    cr_assert(has_gap(&rig.e, "flight recorder of NCCL: not read, because the disk still holds"));
}
