/* The messages between the agent and its log writer (writer_io.h), over a SOCK_SEQPACKET pair
 * between two copies of one program. */
#pragma once

#include "launcher/output/console_io.h"

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
    STREAM_HIDDEN = 1,
    STREAM_LINES,    /* its lines */
    STREAM_PREFIXED, /* its lines, each with the worker's prefix */
    STREAM_EXACT,    /* its bytes, as they come */
};

/* Where the bytes of one stream go. */
struct stream_route {
    enum stream_view view;
    bool to_file;
    bool keeps_tail; /* its end is kept for the report */
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
            struct stream_route routes[2];
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
    size_t len;
    char text[WRITER_TEXT_MAX];
};

/* Sends at once or not at all. 0; -EAGAIN: no room now; others: the other side has ended. */
_must_use_ int writer_wire_send(int fd, const struct writer_message *m);
/* 1: *ret holds a message; 0: the other side has ended; -EAGAIN: no message now. */
_must_use_ int writer_wire_receive(int fd, struct writer_packet *ret);
/* A copy that can be sent later, with descriptors of its own; free with writer_wire_free(). */
struct writer_packet *writer_wire_copy(const struct writer_message *m);
void writer_wire_free(struct writer_packet *p);
/* Closes the descriptors of a message that is not handled. */
void writer_wire_close(struct writer_message *m);
