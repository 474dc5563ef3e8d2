/* One worker's failure, as it travels to every node's report; and what the worker wrote about
 * it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text/strbuf.h"

#define FAILURE_NODE_MAX 128
#define FAILURE_TEXT_MAX 2048
#define FAILURE_PATH_MAX 1024

enum failure_kind {
    FAILURE_NONE = 0,
    FAILURE_EXIT,   /* code = exit status, not 0 */
    FAILURE_SIGNAL, /* code = signal number, which muster did not send */
    FAILURE_OOM,    /* killed for lack of memory, by cgroup or kernel; code = signal number */
    FAILURE_SPAWN,  /* never ran: code = errno, text has the step and the program */
    FAILURE_NODE,   /* not a worker: a node was lost, or could not continue; text has the reason */
    FAILURE_HANG,   /* kept the others waiting; text: what was seen. node "": no rank suspected */
    FAILURE_KIND_COUNT,
};

struct failure {
    enum failure_kind kind;
    int32_t code;
    bool core_dumped;
    uint32_t rank; /* global */
    uint32_t local_rank;
    uint32_t node_rank;   /* GROUP_RANK of its node */
    uint64_t incarnation; /* of its node's agent */
    int32_t pid;
    uint64_t at_ns;              /* that node's monotonic clock */
    uint64_t wall_ns;            /* that node's wall clock, since 1970 */
    uint64_t ran_ns;             /* how long the worker had run */
    char node[FAILURE_NODE_MAX]; /* host name, "-2" for the second agent of a host */
    char role[64];
    char text[FAILURE_TEXT_MAX];       /* error.json's message, or stderr's last lines; or "" */
    bool text_is_traceback;            /* text came from error.json */
    char error_file[FAILURE_PATH_MAX]; /* on that node; empty when none was written */
};

/* Ends of one tree's processes are noticed in any order: a peer sees a killed worker's connections
 * end before the kernel reports its exit. Within this time the failure that explains more is the
 * first. */
#define FAILURE_ECHO_NS 15000000

/* A smaller number explains more: 0 a signal that muster did not send, lack of memory, a program
 * that can't start; 1 an exit code, or SIGABRT or SIGPIPE, with which programs give up on a peer; 2
 * the same, with an error text about a lost peer. Above 0: it may be another failure's echo. */
int failure_noise(const struct failure *f);
/* SIGKILL, SIGTERM or lack of memory. When a host or a container ends, all its processes end like
 * this, and the agent perhaps a moment later. */
bool failure_may_end_node(const struct failure *f);

/* ---- what a worker that failed wrote about it; pieces point into the failure's text ---- */

/* The beginning of a last line that names the Python that ran the worker. */
#define FAILURE_INTERPRETER "The interpreter was "

struct piece {
    const char *at;
    size_t len; /* 0: there is none */
};

/* What Python wrote about the exception that ended the worker. */
struct exception {
    struct piece line;   /* "ValueError: bad" */
    struct piece more;   /* the next line with text, if the message begins with a newline */
    struct piece thread; /* "Exception in thread Thread-1 (f):", if it was not the main thread's */
};

bool failure_by_signal(const struct failure *f);
struct exception failure_exception(const struct failure *f);
const char *failure_interpreter(const struct failure *f); /* or NULL */
const char *failure_traceback(const struct failure *f);   /* or NULL */

/* "died of SIGSEGV (core dumped)", "ended with exit code 3", "could not be started: exec /x: …". */
void failure_cause_text(const struct failure *f, struct strbuf *ret);
void failure_add_exception(const char *before, struct exception e, struct strbuf *ret);
/* Adds one line, without a newline: "rank 3 (node b) ended with exit code 1: ValueError: no such
 * file". Without an exception the last line of standard error explains an exit code. after: "", or
 * more words, which precede that. */
void failure_line(const struct failure *f, const char *after, struct strbuf *ret);
/* The same as a text without control characters, cut to size - 1 bytes. */
void failure_copy_line(const struct failure *f, const char *after, char *ret, size_t size);
