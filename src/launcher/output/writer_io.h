/* The log writer: the process that reads what the workers write, and writes it to log files and to
 * the terminal. What can hang or never end (a dead file system, a stopped terminal, a worker that
 * writes as fast as it can) happens in this process, not in the loop that holds the leases.
 *
 * It is a copy of the agent (io/process/helper.h) and dies with it. The agent's own lines go
 * through it too, so the order with the workers' lines is kept. While there is no writer, lines for
 * a plain file wait for the next one, because that file's disk can hang; other lines are written by
 * the agent's console.
 *
 * The agent keeps the read ends of all pipes, so a writer's death does not kill workers. A new one
 * is started and gets the pipes again (on_lost). What the old one had read but not written is lost,
 * and this is reported. A writer that makes no progress for WRITER_PATIENCE_NS is reported too, and
 * killed, let go and replaced if a user waits for its answer. If none can be started, such a user
 * continues without one after the same time.
 *
 * A writer that can't be killed, because the kernel waits for a disk, is spared by all sweeps.
 * Until it ends, a process that reads our output through a pipe gets no end of file. */
#pragma once

#include "base/list.h"
#include "io/loop.h"
#include "launcher/job/job.h"
#include "launcher/output/console_io.h"

#define WRITER_NAME "muster-logs" /* the name that ps shows */
#define WRITER_PATIENCE_NS (5 * NS_PER_S)
#define WRITER_RESTART_NS (1 * NS_PER_S) /* between starts, except the first two */
/* Bytes of the agent's own lines that can wait for the writer; more are dropped, and counted. */
#define WRITER_QUEUE_MAX ((size_t)256 * 1024)

/* ==== messages, over a SOCK_SEQPACKET pair between two copies of one program ==== */

/* The most bytes of all texts of a message; what is above is cut. */
#define WRITER_TEXT_MAX ((size_t)32 * 1024)
/* For finish.ms: as long as there is a reader. A second FINISH can end the wait. */
#define WRITER_PATIENT UINT32_MAX

enum writer_kind {
    /* to the writer */
    WRITER_PRINT = 1, /* lines of the agent itself */
    WRITER_STATUS,    /* the status line */
    WRITER_PREPARE,   /* make the folders and files of a start */
    WRITER_OPEN,      /* read the pipes of a worker */
    WRITER_EXITED,    /* the worker has ended */
    WRITER_EVENT,     /* a line for the event log */
    WRITER_ENDED,     /* the run is over */
    WRITER_DROP,      /* the user wants nothing more */
    WRITER_TAKE_REST, /* read what ended workers left, even if the console is full */
    WRITER_PING,
    WRITER_FINISH, /* show what is left, then end */
    /* from the writer */
    WRITER_FILES, /* of PREPARE, for each worker with a folder */
    WRITER_PREPARED,
    WRITER_NO_FILE, /* a log file can't be opened */
    WRITER_LAST_OUTPUT,
    WRITER_DRAINED,
    WRITER_HELD, /* a worker's output is not read, because the console takes nothing */
    WRITER_PONG,
    WRITER_FINISHED,
};

/* What the console shows of a stream. */
enum stream_view {
    STREAM_HIDDEN,   /* also of a stream without a pipe */
    STREAM_LINES,    /* its lines */
    STREAM_PREFIXED, /* its lines, each with the worker's prefix */
    STREAM_EXACT,    /* its bytes, as they come */
};

/* Texts are borrowed and end with a NUL; NULL is sent as "". Arrays of two: standard output,
 * standard error. */
struct writer_message {
    enum writer_kind kind;
    uint32_t user;  /* of the agent: which generation's output; 0: none */
    uint32_t index; /* of a worker */
    union {
        struct {
            enum console_stream stream;
            bool more; /* the next PRINT continues this text */
            size_t len;
            const char *text;
        } print;
        struct {
            const char *text;
        } status;
        struct {
            uint64_t nonce;
            uint32_t first_rank;
            const char *generation, *node;
            const char *run_dir; /* "": a new one */
        } prepare;
        struct {
            enum stream_view views[2];
            int fds[2]; /* pipes; -1: none */
            const char *prefix;
            const char *paths[2]; /* of log files; "": none */
        } open;
        struct {
            bool wants_last_output;
            bool more; /* processes that it left can write; the message is sent again */
            const char *error_path;  /* "": none */
            const char *stderr_path; /* the file that has its standard error; "": none */
        } exited;
        struct {
            const char *path, *line;
        } event;
        struct {
            const char *run_dir;
        } ended;
        struct {
            uint32_t ms;      /* how long the console's output may take; WRITER_PATIENT */
            bool while_taken; /* ms begin again whenever a reader takes something */
        } finish;
        struct {
            int fds[2];      /* files that the worker writes itself; -1: none */
            const char *dir; /* its folder; absolute */
        } files;
        struct {
            int result;                     /* 0 or a negative errno */
            const char *run_dir, *node_dir; /* "": none */
            const char *why;
        } prepared;
        struct {
            const char *why;
        } no_file;
        struct writer_last_output {
            const char *error; /* the text of its error file, for the user */
            bool bad_file;     /* the file is not valid; error has the reason */
            /* The last lines of its standard error (of both streams, if they are one), also if that
             * went to a file, each with its newline: tail_lines(). */
            const char *tail;
        } last_output; /* of a worker that has ended; a missing text is "" */
        struct {
            bool on;
        } held;
        struct {
            uint64_t n_printed;
        } pong;
        struct {
            uint64_t left; /* bytes that the console did not take */
            bool failed;   /* some output of workers was not written to console or files */
        } finished;
    };
};

/* A message with its texts. Its descriptors belong to the packet's owner. */
struct writer_packet {
    struct writer_message m;
    char text[WRITER_TEXT_MAX];
};

/* Sends at once or not at all. 0; -EAGAIN: no room now; others: the other side has ended. */
_must_use_ int writer_wire_send(int fd, const struct writer_message *m);
/* 1: *ret holds a message; 0: the other side has ended; -EAGAIN: no message now. */
_must_use_ int writer_wire_receive(int fd, struct writer_packet *ret);
/* Closes the descriptors of a message that is not handled. */
void writer_wire_close(struct writer_message *m);

/* ==== the two sides ==== */

struct writer;

/* The writer's own side: serves the socket until FINISH, or its end. console: this process's copy
 * of the agent's. Returns the exit status. */
int writer_process_run(int fd, struct console *console, const struct job_spec *spec);

/* A receiver of the writer's messages. Owned by the caller, who must not move it. */
struct writer_user {
    struct list link;
    uint32_t id; /* set by writer_add(); in each message of and to this user */
    /* The callee owns the message's fds. It may free the user. */
    void (*on_message)(void *arg, struct writer_message *m);
    /* The writer has ended, and all requests are lost, awaited ones too (writer_await()); the next
     * writer takes messages from now on. hung: it was given up. Must not free a user. Returns
     * whether log files lack output. */
    bool (*on_lost)(void *arg, bool hung);
    void *arg;
};

/* All are borrowed. on_pid (may be NULL) reports the pid of each writer that is started. */
_must_use_ struct writer *writer_new(struct loop *loop, struct console *console,
                                     const struct job_spec *spec,
                                     void (*on_pid)(void *arg, pid_t pid), void *arg);
/* Ends the writer at once. Takes NULL. */
void writer_free(struct writer *w);

void writer_add(struct writer *w, struct writer_user *user);
/* Does nothing if the user was not added. */
void writer_remove(struct writer *w, struct writer_user *user);

/* Never waits and never fails: a message that can't be sent now is queued, with copies of its texts
 * and descriptors. m->user is set. */
void writer_send(struct writer *w, const struct writer_user *user, const struct writer_message *m);
/* The descriptor of standard output (0) or error (1) if it is a terminal; else -1. */
int writer_terminal(const struct writer *w, int k);
/* Whether standard output and error are the same file, pipe or terminal. */
bool writer_has_one_output(const struct writer *w);
/* The user waits for an answer (+1), or no longer (-1): see above. */
void writer_await(struct writer *w, int by);

/* The job is to end. Now the end of workers waits for no reader: what they left in their pipes is
 * read at once, and only writer_finish() waits. */
void writer_take_rest(struct writer *w);

/* How long writer_finish() waits for the readers of standard output and error. */
struct writer_patience {
    uint32_t ms;              /* WRITER_PATIENT: as long as there is a reader */
    bool while_taken;         /* ms begin again whenever a reader takes something */
    int fd;                   /* while it waits and this is readable, it asks `leave`; -1: none */
    bool (*leave)(void *arg); /* reads fd. Whether to leave now, without what is left */
    void *arg;
};
/* Not from the loop: waits until everything that was sent is written. Reports what was not. Returns
 * whether output of workers was lost, except if its reader has left. */
bool writer_finish(struct writer *w, const struct writer_patience *patience);
