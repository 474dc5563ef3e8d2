#include "launcher/output/writer_process_io.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/idmap.h"
#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/loop.h"
#include "launcher/output/log_times_io.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/writer_stream_io.h"
#include "launcher/output/writer_wire_io.h"
#include "launcher/worker/error_file_io.h"

#define MESSAGES_PER_TURN 64
#define ALIVE_NS (250 * NS_PER_MS) /* between messages while it finishes */
/* The most bytes of each of the two texts about a failed worker; of a longer one the end is
 * kept. */
#define WORDS_MAX ((size_t)15 * 1024)

struct process {
    int fd;
    const struct job_spec *spec;
    struct loop *loop;
    struct console *console;
    struct log_sampler *own_files; /* that workers write themselves; NULL: they have no times */
    struct idmap workers;          /* user and index → struct writer_worker */
    struct strbuf text;            /* of a PRINT that continues */
    uint64_t n_printed;
    struct loop_timer *finish; /* the next message while the console's output is finished */
    bool finishing;
    char *ended_dir;   /* of the run that is over; NULL: it is not */
    uint64_t leave_ns; /* what the console has not taken by then is dropped */
    uint64_t anew_ns;  /* so long after it has taken something; 0: that makes no difference */
    uint64_t left;     /* how much it had not taken at the last look */
    int file_error;    /* why log files could not be written, as reported last; 0: they could */
    struct writer_packet packet;
};

static uint64_t key_of(uint32_t user, uint32_t index) {
    return (uint64_t)user << 32 | (index + UINT64_C(1));
}

/* --- to the agent ----------------------------------------------------------------------------- */

/* The agent always reads, so this waits only briefly. If the agent has ended, errors don't
 * matter. */
static void report(struct process *p, const struct writer_message *m, const char *text, size_t len,
                   const int fds[2]) {
    while (writer_wire_send(p->fd, m, text, len, fds) == -EAGAIN) {
        struct pollfd room = {.fd = p->fd, .events = POLLOUT};
        (void)poll(&room, 1, 100);
    }
}

static void report_plain(struct process *p, const struct writer_message *m) {
    report(p, m, NULL, 0, NULL);
}

/* --- folders and files ------------------------------------------------------------------------ */

static int make_node_dir(const struct process *p, uint64_t nonce, char **run_dir,
                         const char *generation, const char *node, char **ret, struct err *err) {
    const struct job_spec *spec = p->spec;
    int r = 0;
    if (*run_dir == NULL)
        r = logdir_claim_run(spec->log_dir, spec->run_id, nonce, spec->log_mode, run_dir, err);
    return r < 0 ? r : logdir_make_generation(*run_dir, generation, node, spec->log_mode, ret, err);
}

static void no_file(struct process *p, uint32_t user, const char *why) {
    report(p, &(struct writer_message){.kind = WRITER_NO_FILE, .user = user}, why, strlen(why),
           NULL);
}

static void on_no_file(void *arg, uint32_t user, const char *why) { no_file(arg, user, why); }

/* The files that a worker writes itself. */
static void report_files(struct process *p, uint32_t user, uint32_t i, const char *dir) {
    const struct job_spec *spec = p->spec;
    unsigned tee = std_map_get(&spec->tee, i), redirects = std_map_get(&spec->redirects, i);
    bool shown = spec->console_ranks == NULL || spec->console_ranks[i];
    unsigned own = (redirects & ~tee) | (shown ? STD_NONE : tee);
    int fds[2] = {-1, -1};
    for (int k = 0; k < 2; k++) {
        unsigned bit = k == 0 ? STD_OUT : STD_ERR;
        _cleanup_(freep) char *path = logdir_log_path(dir, k), *why = NULL;
        if ((own & bit) == 0)
            continue;
        fds[k] = writer_open_log(path, p->spec->log_mode, &why);
        if (fds[k] < 0)
            no_file(p, user, why);
        else
            log_sampler_add(p->own_files, user, path, fds[k]);
    }
    report(p,
           &(struct writer_message){
               .kind = WRITER_FILES, .user = user, .index = i, .flags = WRITER_HAS_DIR},
           NULL, 0, fds);
    writer_wire_close(fds);
}

/* The file of the filtered lines of all workers. It is there even if no line matches. */
static void make_filtered(struct process *p, uint32_t user, const char *node_dir, int k) {
    _cleanup_(freep) char *path = logdir_filtered_path(node_dir, k), *why = NULL;
    int fd = writer_open_log(path, p->spec->log_mode, &why);
    if (fd < 0)
        no_file(p, user, why);
    file_close(&fd);
}

static void prepare(struct process *p, const struct writer_message *m, const char *generation,
                    const char *node, const char *old_run_dir) {
    _cleanup_(freep) char *run_dir = old_run_dir[0] != '\0' ? xstrdup(old_run_dir) : NULL;
    _cleanup_(freep) char *node_dir = NULL;
    struct err err = {0};
    bool ours = p->spec->log_dir != NULL;
    int r = make_node_dir(p, m->number, &run_dir, generation, node, &node_dir, &err);
    if (r == -ENOENT && ours && run_dir != NULL) { /* it was removed: claim a new one */
        free(TAKE_PTR(run_dir));
        r = make_node_dir(p, m->number, &run_dir, generation, node, &node_dir, &err);
    }
    for (uint32_t i = 0; r == 0 && i < p->spec->nproc; i++) {
        _cleanup_(freep) char *dir = NULL;
        r = logdir_make_worker(node_dir, m->index + i, p->spec->log_mode, &dir, &err);
        if (r == 0)
            report_files(p, m->user, i, dir);
    }
    for (int k = 0; r == 0 && k < 2; k++)
        if (p->spec->filters[k] != NULL)
            make_filtered(p, m->user, node_dir, k);
    int linked = ours && node_dir != NULL ? logdir_set_latest(run_dir, generation) : 0;
    if (linked < 0) /* the link is only a convenience: the logs exist without it */
        log_warning("can't set the link %s/latest: %s", run_dir, strerror(-linked));
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    writer_wire_add_part(&text, run_dir == NULL ? "" : run_dir);
    writer_wire_add_part(&text, node_dir == NULL ? "" : node_dir);
    writer_wire_add_part(&text, r < 0 ? err.text : "");
    report(p,
           &(struct writer_message){
               .kind = WRITER_PREPARED, .user = m->user, .number = (uint64_t)(int64_t)r},
           text.data, text.len, NULL);
}

/* --- workers ---------------------------------------------------------------------------------- */

static void on_drained(void *arg, uint32_t user, uint32_t index) {
    struct process *p = arg;
    uint64_t key = key_of(user, index);
    struct writer_worker *w = idmap_get(&p->workers, key);
    idmap_remove(&p->workers, key);
    report_plain(p, &(struct writer_message){.kind = WRITER_DRAINED, .user = user, .index = index});
    writer_worker_free(w);
}

/* Most often it is the same disk for all, so this is said once, and then what each file lacks. */
static void on_not_written(void *arg, const char *path, int error) {
    struct process *p = arg;
    if (p->file_error != error)
        log_warning("can't write to %s: %s; the job goes on without that part of the log", path,
                    strerror(error));
    p->file_error = error;
}

static void on_lacking(void *arg, const char *path, uint64_t bytes) {
    (void)arg;
    log_warning("%s lacks %" PRIu64 " bytes that could not be written", path, bytes);
}

static void on_held(void *arg, uint32_t user, uint32_t index, bool held) {
    report_plain(arg, &(struct writer_message){
                          .kind = WRITER_HELD, .user = user, .index = index, .number = held});
}

static const struct writer_worker_ops worker_ops = {on_drained, on_no_file, on_not_written,
                                                    on_lacking, on_held};

static void open_worker(struct process *p) {
    const struct writer_packet *m = &p->packet;
    struct writer_worker_config config = {
        .user = m->m.user,
        .index = m->m.index,
        .log_mode = p->spec->log_mode,
        .flags = m->m.flags,
        .prefix = writer_wire_part(m, 0),
        .paths = {writer_wire_part(m, 1), writer_wire_part(m, 2)},
        .filters = {p->spec->filters[0], p->spec->filters[1]},
        .fds = {m->fds[0], m->fds[1]},
    };
    struct writer_worker *w;
    int r = writer_worker_new(p->loop, p->console, &config, &worker_ops, p, &w);
    if (r < 0) {
        log_warning("a worker's output can't be read: %s", strerror(-r));
        return;
    }
    idmap_put(&p->workers, key_of(m->m.user, m->m.index), w);
}

static void add_end(struct strbuf *ret, const struct strbuf *text) {
    size_t n = MIN2(text->len, WORDS_MAX);
    if (n > 0)
        strbuf_add_bytes(ret, text->data + text->len - n, n);
    strbuf_add_char(ret, '\0');
}

static void report_last_output(struct process *p, struct writer_worker *w, const char *error_path,
                               const char *stderr_path) {
    const struct writer_message *m = &p->packet.m;
    _cleanup_(strbuf_fini) struct strbuf error = {0}, tail = {0}, both = {0};
    bool bad = error_file_read(error_path, &error) < 0;
    writer_stderr_tail(w, stderr_path, &tail);
    add_end(&both, &error);
    add_end(&both, &tail);
    report(p,
           &(struct writer_message){.kind = WRITER_LAST_OUTPUT,
                                    .user = m->user,
                                    .index = m->index,
                                    .flags = bad ? WRITER_BAD_FILE : 0},
           both.data, both.len, NULL);
}

static void exited(struct process *p) {
    const struct writer_message m = p->packet.m;
    struct writer_worker *w = idmap_get(&p->workers, key_of(m.user, m.index));
    if (w != NULL)
        writer_worker_exited(w, (m.flags & WRITER_MORE) != 0);
    if ((m.flags & WRITER_WANTS_LAST_OUTPUT) != 0)
        report_last_output(p, w, writer_wire_part(&p->packet, 0), writer_wire_part(&p->packet, 1));
    if (w == NULL)
        report_plain(
            p, &(struct writer_message){.kind = WRITER_DRAINED, .user = m.user, .index = m.index});
}

/* Its generation is over; what is left could not be drained in time. */
static void drop_user(struct process *p, uint32_t user) {
    log_sampler_drop(p->own_files, user);
    for (uint32_t i = 0; i < p->spec->nproc; i++) {
        struct writer_worker *w = idmap_get(&p->workers, key_of(user, i));
        idmap_remove(&p->workers, key_of(user, i));
        writer_worker_free(w);
    }
}

/* --- from the agent --------------------------------------------------------------------------- */

static void pong(struct process *p) {
    report_plain(p, &(struct writer_message){.kind = WRITER_PONG, .number = p->n_printed});
}

static void print(struct process *p) {
    const struct writer_packet *m = &p->packet;
    strbuf_add_bytes(&p->text, m->text, m->len);
    p->n_printed++;
    if ((m->m.flags & WRITER_MORE) == 0) {
        console_print(p->console, (enum console_stream)m->m.index, p->text.data, p->text.len);
        strbuf_clear(&p->text);
    }
    pong(p);
}

/* What is left to do on the disk: when everything is shown, because it can hang. */
static void finish_files(struct process *p) {
    log_sampler_free(TAKE_PTR(p->own_files));
    if (p->ended_dir != NULL) /* without it "muster logs -f" on other machines goes on */
        (void)!logdir_set_ended(p->ended_dir, p->spec->log_mode);
}

/* Ends this process when the console has written everything, or may not wait any longer. */
static void go_on_finishing(void *arg) {
    struct process *p = arg;
    uint64_t left = console_pending(p->console), now_ns = clock_now_ns();
    if (!p->finishing)
        return;
    if (left < p->left && p->anew_ns > 0)
        p->leave_ns = now_ns + p->anew_ns;
    p->left = left;
    if (left > 0 && now_ns < p->leave_ns) {
        pong(p); /* the agent waits as long as these messages come */
        loop_timer_set(p->finish, MIN2(p->leave_ns, now_ns + ALIVE_NS));
        return;
    }
    p->finishing = false;
    finish_files(p);
    bool failed = p->file_error != 0 || console_failed(p->console);
    report_plain(p, &(struct writer_message){.kind = WRITER_FINISHED,
                                             .number = left,
                                             .flags = failed ? WRITER_FAILED : 0});
    loop_quit(p->loop);
}

/* Everything is read, and the agent ends: writes what the console still has. The loop goes on,
 * because the agent may change its mind about how long to wait. */
static void finish(struct process *p) {
    uint32_t ms = p->packet.m.index;
    p->finishing = true;
    p->leave_ns = ms == WRITER_PATIENT ? TIME_NEVER : clock_now_ns() + ms * NS_PER_MS;
    bool anew = (p->packet.m.flags & WRITER_WHILE_TAKEN) != 0 && ms != WRITER_PATIENT;
    p->anew_ns = anew ? ms * NS_PER_MS : 0;
    p->left = console_pending(p->console);
    (void)console_flush(p->console, clock_now_ns());
    go_on_finishing(p);
}

static void take(struct process *p) {
    const struct writer_packet *m = &p->packet;
    switch ((enum writer_kind)m->m.kind) {
    case WRITER_PRINT: print(p); return;
    case WRITER_STATUS: (void)console_status(p->console, m->text); return;
    case WRITER_PREPARE:
        prepare(p, &m->m, writer_wire_part(m, 0), writer_wire_part(m, 1), writer_wire_part(m, 2));
        return;
    case WRITER_OPEN: open_worker(p); return;
    case WRITER_EXITED: exited(p); return;
    case WRITER_ENDED:
        free(p->ended_dir);
        p->ended_dir = xstrdup(writer_wire_part(m, 0));
        return;
    case WRITER_DROP: drop_user(p, m->m.user); return;
    case WRITER_TAKE_REST: console_take_rest(p->console); return;
    case WRITER_PING: pong(p); return;
    case WRITER_FINISH: finish(p); return;
    case WRITER_FILES:
    case WRITER_PREPARED:
    case WRITER_NO_FILE:
    case WRITER_LAST_OUTPUT:
    case WRITER_DRAINED:
    case WRITER_HELD:
    case WRITER_PONG:
    case WRITER_FINISHED: break;
    }
    assert_not_reached();
}

static void on_ready(void *arg, int fd, unsigned events) {
    (void)events;
    struct process *p = arg;
    for (int i = 0; i < MESSAGES_PER_TURN; i++) {
        int r = writer_wire_receive(fd, &p->packet);
        if (r == -EAGAIN)
            return;
        if (r == 0) { /* the agent has died */
            loop_quit(p->loop);
            return;
        }
        take(p);
    }
}

int writer_process_run(int fd, struct console *console, const struct job_spec *spec) {
    struct process *p = xcalloc(1, sizeof *p);
    struct loop_watch *watch = NULL;
    /* Workers have sessions of their own, and the kernel's autogroups (sched(7)) share the CPUs
     * among sessions. In a session of its own, the writer does not use the agent's share to read
     * what all workers write. */
    (void)setsid();
    p->fd = fd;
    p->console = console;
    p->spec = spec;
    log_set_sink(console_log_sink, console);
    int r = loop_new(&p->loop);
    if (r == 0)
        r = loop_timer_new(p->loop, go_on_finishing, p, &p->finish);
    console_spool(console, spec->output_spool);
    console_on_empty(console, go_on_finishing, p);
    if (r == 0)
        r = console_reopen(console, p->loop);
    if (r == 0)
        r = loop_watch_new(p->loop, fd, LOOP_READ, LOOP_PRIO_LEASE, on_ready, p, &watch);
    if (r == 0) {
        p->own_files = log_sampler_new(p->loop);
        r = loop_run(p->loop);
    }
    log_sampler_free(p->own_files);
    return r < 0; /* the kernel frees the rest */
}
