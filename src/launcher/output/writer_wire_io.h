/* What both sides of the log writer's socket share (writer_io.h): messages with up to two
 * descriptors, over a SOCK_SEQPACKET pair between two copies of one program. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/text/strbuf.h"

#define WRITER_TEXT_MAX ((size_t)32 * 1024)

enum writer_kind {
    /* to the writer */
    WRITER_PRINT = 1, /* index: enum console_stream; flags: WRITER_MORE; text: lines */
    WRITER_STATUS,    /* text: the status line */
    WRITER_PREPARE,   /* number: the nonce; index: first rank; text: generation, node, run folder */
    WRITER_OPEN,      /* fds: pipes to read; flags, number; text: prefix, paths of both files */
    /* flags: WRITER_WANTS_LAST_OUTPUT, WRITER_MORE: processes that it left can write, and the
     * message comes again; text: error file, stderr's file */
    WRITER_EXITED,
    WRITER_ENDED,     /* the run is over; text: its folder */
    WRITER_DROP,      /* nothing more of this user is wanted */
    WRITER_TAKE_REST, /* what ended workers left is read, even if the console is full */
    WRITER_PING,
    /* index: how many ms are left for the console's output; WRITER_PATIENT; flags:
     * WRITER_WHILE_TAKEN */
    WRITER_FINISH,
    /* from the writer */
    WRITER_FILES,       /* of PREPARE, each worker: fds: redirected files; flags: WRITER_HAS_DIR */
    WRITER_PREPARED,    /* number: 0 or a negative errno; text: run folder, node folder, error */
    WRITER_NO_FILE,     /* text: why a log file can't be opened */
    WRITER_LAST_OUTPUT, /* flags: WRITER_BAD_FILE; text: of the error file, of stderr */
    WRITER_DRAINED,
    WRITER_HELD, /* index, number: 1: nobody reads the console, so what it writes is not read; 0 */
    WRITER_PONG,
    /* number: bytes that the console did not take; flags: WRITER_FAILED */
    WRITER_FINISHED,
};

/* As long as there is a reader. A second FINISH can end the wait. */
#define WRITER_PATIENT UINT32_MAX

/* Bits of flags. OPEN has the first four, and EXACT, once for each stream, shifted by its index. */
enum {
    WRITER_SHOWN = 1,    /* lines go to the console */
    WRITER_PREFIXED = 4, /* with the prefix */
    WRITER_TO_FILE = 16, /* bytes go to the file */
    WRITER_KEEP_TAIL = 64,
    WRITER_MORE = 256, /* the next message continues this text */
    WRITER_WANTS_LAST_OUTPUT = 512,
    WRITER_HAS_DIR = 1024,
    WRITER_BAD_FILE = 2048, /* the first text describes what is wrong with the error file */
    WRITER_FAILED = 4096, /* some output of workers was not written (console_failed(), log files) */
    WRITER_EXACT = 8192,  /* bytes go to the console as they come */
    WRITER_WHILE_TAKEN = 65536, /* the ms begin again whenever a reader takes something */
};

struct writer_message {
    uint32_t kind;  /* enum writer_kind */
    uint32_t user;  /* which generation's log; 0: none */
    uint32_t index; /* of a worker */
    uint32_t flags;
    uint64_t number;
};

struct writer_packet {
    struct writer_message m;
    char text[WRITER_TEXT_MAX + 1]; /* with a NUL after it */
    size_t len;
    int fds[2]; /* owned by the receiver; -1: none */
};

/* Sends at once or not at all. fds (borrowed) may be NULL. Texts above the limit are cut. 0,
 * -EAGAIN: no room now; others: the other side has ended. */
_must_use_ int writer_wire_send(int fd, const struct writer_message *m, const char *text,
                                size_t len, const int fds[2]);
/* 1: *ret holds a message; 0: the other side has ended; -EAGAIN: no message now. */
_must_use_ int writer_wire_receive(int fd, struct writer_packet *ret);
/* Closes those that are not -1. */
void writer_wire_close(int fds[2]);
/* A text of several parts has NULs between them. */
void writer_wire_add_part(struct strbuf *text, const char *part);
/* The n-th part; "" if there is none. Borrowed. */
const char *writer_wire_part(const struct writer_packet *p, unsigned n);
