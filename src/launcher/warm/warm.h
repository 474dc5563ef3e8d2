/* Warm workers (--warm): what a start may be given that was made before it, and why not. A standby
 * is a process that has imported what the script imports, and waits before its first line; a
 * template is one that forks standbys. The gate is the piece of Python in which they wait
 * (warm_gate.py). Pure: warm_pool_io.h has the processes. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "launcher/job/job.h"

#define WARM_REASON_MAX 512
/* How long a standby may import, and how long it may take from the go to the script. */
#define WARM_IMPORT_NS (120 * NS_PER_S)
#define WARM_GO_NS (1 * NS_PER_S)
/* Two warm starts in a row that fail by themselves within this time: cold from then on. */
#define WARM_EARLY_NS (10 * NS_PER_S)
#define WARM_EARLY_MAX 2
/* So many standbys in a row that could not be made: none is tried any more. */
#define WARM_FAILURES_MAX 3
#define WARM_RECORD_MAX ((size_t)1 << 20)
/* Longer than any WORKER_MARKER's value: it is overwritten where the kernel shows it. */
#define WARM_MARKER_ROOM 64

enum warm_role { WARM_RECORD = 1, WARM_STANDBY, WARM_TEMPLATE, WARM_REACH };

/* ---- the gate ---- */

/* A zip that has the gate as sitecustomize.py. */
struct warm_zip {
    size_t n;
    const uint8_t *bytes;
};
extern const struct warm_zip warm_gate_zip;

struct warm_gate {
    enum warm_role role;
    pid_t agent;
    int zip_fd, control_fd, record_fd; /* control -1: none. record: of the agent for a RECORD */
    const char *skip;                  /* packages that are not imported, with commas; NULL: none */
};
/* Sets PYTHONPATH and MUSTER_WARM, and the marker of a standby to one that can be overwritten. */
void warm_gate_env(const struct warm_gate *gate, struct envlist *env);

/* What a worker has recorded: false, with the reason, if no standby can be made of it. */
_must_use_ bool warm_record_ok(const char *text, size_t n, char reason[WARM_REASON_MAX]);
/* The variable that the script set itself, after which nothing was recorded; "": none. */
void warm_record_stop(const char *text, size_t n, char *ret, size_t size);

/* ---- messages ---- */

enum warm_kind { WARM_READY = 1, WARM_GOING, WARM_COLD };

struct warm_message {
    enum warm_kind kind;
    uint32_t pid;
    double seconds;
    uint32_t modules, failed;
    char threads[WARM_REASON_MAX]; /* names of those that are left; "": none */
    char devices[WARM_REASON_MAX]; /* open files of devices */
    char read[WARM_REASON_MAX];    /* variables that differ from rank to rank, and were read */
    char moved[WARM_REASON_MAX];   /* working directory or umask, if they have changed */
    char reason[WARM_REASON_MAX];  /* COLD */
};
/* 0 or a negative errno with a sentence. */
_must_use_ int warm_read(const char *text, size_t n, struct warm_message *ret, struct err *err);

/* What the script begins with. */
struct warm_to {
    char *const *envp;
    const char *marker;
    const char *cwd; /* NULL: it has no name any more; then the standby stays where it is */
    uint32_t umask;
};
/* The go for a standby that was started with the environment `from`. False: the new one differs in
 * what an import may have read, and `reason` names it. */
_must_use_ bool warm_go(char *const *from, const struct warm_to *to, struct strbuf *out,
                        char reason[WARM_REASON_MAX]);
/* Only whether it would be refused. */
_must_use_ bool warm_may_go(char *const *from, char *const *to, char reason[WARM_REASON_MAX]);

/* Why a template that has reported can't fork, or a standby can't wait; false: it can. */
_must_use_ bool warm_refuses(enum warm_role role, const struct warm_message *message,
                             char reason[WARM_REASON_MAX]);
