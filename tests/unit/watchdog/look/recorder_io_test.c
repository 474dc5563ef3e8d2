#include "watchdog/look/recorder.h"

#include "fake_service.h"
#include "io/clock.h"
#include "rig/tree.h"

struct rig {
    struct tree tree;
    char socket[160], fifo[160], dump[160], keep[160];
    pid_t child;
};

static void rig_make(struct rig *r) {
    *r = (struct rig){.child = 0};
    tree_new(&r->tree);
    (void)snprintf(r->socket, sizeof r->socket, "%s/socket", r->tree.root);
    (void)snprintf(r->fifo, sizeof r->fifo, "%s/fr_0.pipe", r->tree.root);
    (void)snprintf(r->dump, sizeof r->dump, "%s/fr_0", r->tree.root);
    (void)snprintf(r->keep, sizeof r->keep, "%s/kept", r->tree.root);
}

static void rig_remove(struct rig *r) {
    if (r->child > 0) {
        (void)kill(r->child, SIGKILL);
        (void)waitpid(r->child, NULL, 0);
    }
    tree_remove(&r->tree);
}

static struct rig rig;
static struct strbuf summary;
static uint64_t collectives;
static struct err err;
static void begin(void) { rig_make(&rig); }
static void end(void) {
    rig_remove(&rig);
    strbuf_fini(&summary);
}
TestSuite(recorder_io, .init = begin, .fini = end);

static const char *server(void *arg, const char *line, bool *end) {
    static bool right;
    if (strncmp(line, "POST ", 5) == 0)
        right = strcmp(line, "POST /handler/fr_trace_json HTTP/1.1\r") == 0;
    *end = strcmp(line, "\r") == 0;
    return !*end ? NULL : right ? arg : "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
}

#define ANSWER "{\"entries\":[],\"pg_status\":{\"0\":{\"last_enqueued_collective\":\"6\"}}}"
static char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n" ANSWER;

Test(recorder_io, asks_the_server_of_a_worker) {
    _cleanup_(fake_service_stop) struct fake_service f = {.reply = server, .arg = answer, .path = rig.socket};
    fake_service_start(&f);
    cr_assert_eq(source_recorder(rig.socket, clock_now_ns() + 60 * NS_PER_S, &summary, &collectives, &err), 0, "%s",
                 err.text);
    cr_assert_eq(collectives, 6);
}

Test(recorder_io, an_endless_answer_is_cut) {
    _cleanup_(fake_service_stop) struct fake_service f = {
        .reply = server, .arg = answer, .path = rig.socket, .manner = FAKE_ENDLESSLY};
    fake_service_start(&f);
    cr_assert_eq(source_recorder(rig.socket, clock_now_ns() + 60 * NS_PER_S, &summary, &collectives, &err), -EMSGSIZE,
                 "%s", err.text);
}

Test(recorder_io, a_program_without_the_server) {
    char longest[200];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cr_assert_eq(source_recorder(rig.socket, clock_now_ns() + NS_PER_S, &summary, &collectives, &err), -ENOENT);
    assert_has(err.text, "does not use worker_main()");
    cr_assert_eq(source_recorder(longest, clock_now_ns() + NS_PER_S, &summary, &collectives, &err), -ENAMETOOLONG);
}

static void start_reader(struct rig *of, off_t size) { of->child = fake_recorder_start(of->fifo, of->dump, size); }

static void ask_for(struct source_recorder_dump *d, uint64_t ns) {
    uint64_t end_ns = clock_now_ns() + ns;
    source_recorder_dumps(d, 1, end_ns, end_ns + 60 * NS_PER_S);
}

static void assert_kept(const struct rig *of, const char *text) {
    char kept[16] = "";
    FILE *f = fopen(of->keep, "re");
    cr_assert_not_null(f);
    cr_assert_eq(fread(kept, 1, sizeof kept - 1, f), strlen(text));
    fclose(f);
    cr_assert_str_eq(kept, text);
}

Test(recorder_io, nccls_recorder_writes_its_file_when_its_fifo_is_written) {
    struct source_recorder_dump d = {.fifo = rig.fifo, .dump = rig.dump, .keep = rig.keep};
    start_reader(&rig, 6);
    ask_for(&d, 60 * NS_PER_S);
    cr_assert(d.code == 0 && d.bytes == 6, "%s", d.err.text);
    assert_kept(&rig, "pickle");
    d.dump = rig.keep; /* it is kept already */
    d.keep = NULL;
    ask_for(&d, 300 * NS_PER_MS);
    cr_assert(d.code == -ETIMEDOUT && d.bytes == 0, "an older file is not taken for it");
}

Test(recorder_io, the_fifo_never_blocks) {
    struct source_recorder_dump d = {.fifo = rig.fifo, .dump = rig.dump};
    ask_for(&d, 60 * NS_PER_S);
    cr_assert_eq(d.code, -ENOENT);
    cr_assert_eq(mkfifo(rig.fifo, 0600), 0);
    ask_for(&d, 60 * NS_PER_S);
    cr_assert_eq(d.code, -ENXIO);
    assert_has(d.err.text, "no process reads");
    cr_assert_eq(unlink(rig.fifo), 0);
    int fd = open(rig.fifo, O_WRONLY | O_CREAT, 0600);
    close(fd);
    ask_for(&d, 60 * NS_PER_S);
    cr_assert_eq(d.code, -EINVAL, "a plain file");
    struct stat st;
    cr_assert_eq(stat(rig.fifo, &st), 0);
    cr_assert_eq(st.st_size, 0, "a file that is no FIFO is not written");
}

Test(recorder_io, a_recorder_that_writes_nothing_costs_the_deadline_and_not_the_file_of_another) {
    _cleanup_(rig_remove) struct rig other;
    rig_make(&other);
    start_reader(&rig, -1);
    start_reader(&other, 6);
    struct source_recorder_dump list[] = {{.fifo = rig.fifo, .dump = rig.dump, .keep = rig.keep},
                                          {.fifo = other.fifo, .dump = other.dump, .keep = other.keep}};
    uint64_t end_ns = clock_now_ns() + 3 * NS_PER_S;
    source_recorder_dumps(list, 2, end_ns, end_ns);
    cr_assert_eq(list[0].code, -ETIMEDOUT);
    assert_has(list[0].err.text, "has not written");
    cr_assert(list[1].code == 0 && list[1].bytes == 6, "%s", list[1].err.text);
    assert_kept(&other, "pickle");
    struct stat st;
    cr_assert_eq(stat(rig.keep, &st), -1);
}

Test(recorder_io, what_is_too_large_stays_where_it_is) {
    struct source_recorder_dump d = {.fifo = rig.fifo, .dump = rig.dump, .keep = rig.keep};
    start_reader(&rig, (off_t)RECORDER_DUMP_MAX + 1);
    ask_for(&d, 60 * NS_PER_S);
    cr_assert(d.code == -EFBIG && d.bytes == RECORDER_DUMP_MAX + 1);
    assert_has(d.err.text, "the file is larger than 64 MiB");
    struct stat st;
    cr_assert_eq(stat(rig.keep, &st), -1);
}

Test(recorder_io, a_link_is_not_followed) {
    struct source_recorder_dump d = {.fifo = rig.fifo, .dump = rig.dump, .keep = rig.keep};
    cr_assert_eq(symlink(rig.socket, rig.dump), 0); /* which the reader writes through */
    start_reader(&rig, 6);
    ask_for(&d, 500 * NS_PER_MS);
    cr_assert_eq(d.code, -ETIMEDOUT);
    struct stat st;
    cr_assert_eq(stat(rig.keep, &st), -1);
}
