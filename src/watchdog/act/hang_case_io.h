/* One case of a hang, in the agent that leads: asks what all ranks do, compares the answers, and
 * keeps them in files, from the question to the result within --evidence-timeout and
 * HANG_CASE_LATE_NS.
 *
 *     struct suspects_input in = {.what = text, …};
 *     r = hang_case_new(&config, &in, ends, on_compared, me, &c);      … on_compared(me, &compared)
 *
 * A helper with a deadline compares and writes: the answers come from other nodes, they can be
 * long, and the disk can hang. The line is known before the files are written, so a dead disk costs
 * only the rest of the time. No worker is disturbed; but evidence that is taken when a worker has
 * failed delays the stop of the others. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "watchdog/act/hang_evidence_io.h"
#include "watchdog/act/hang_workers.h"
#include "watchdog/judge/suspects.h"

#define HANG_CASE_LATE_NS NS_PER_S
/* The name of the helper, by which it is spared (launcher/supervise/sweep_io.h). */
#define HANG_COMPARE_NAME "muster-compare"

struct hang_case_config { /* all borrowed for the life of a case */
    struct loop *loop;
    const struct hang_settings *settings;
    const char *run_id; /* for files */
    uint32_t log_mode;  /* of files */
    struct hang_evidence *evidence;
    /* The folder of the run's logs on this node; NULL: none. Borrowed; asked once. */
    const char *(*dir)(void *arg);
    /* This helper writes there, and the disk may hold it for ever. May be NULL. */
    void (*writes)(void *arg, pid_t pid);
    void *arg; /* for both */
};

struct hang_rank {
    uint64_t place; /* where its main thread is, suspects_place(); 0: not known */
    bool is_suspect;
    bool ended; /* it has exited with 0 */
};
struct hang_compared { /* borrowed for the callback */
    /* 0; or a negative errno, and all but files_error is empty: -ETIMEDOUT, -EPROTO, … */
    int code;
    const char *line;     /* suspects_line() */
    uint32_t n_suspects;  /* all; 0: none stands out */
    struct suspect first; /* the first of them */
    uint32_t n_debugged;  /* ranks at a debugger's prompt, or that wait for one */
    uint32_t debugged;    /* the first of them */
    /* Ranks that wait for others, or hang at their exit (struct suspects): a reason to end it. */
    bool reason;
    uint64_t used_ns; /* CPU time of any main thread since it last moved, at most */
    uint32_t n_ranks;
    const struct hang_rank *ranks; /* [n_ranks] */
    const char *path;              /* of hang.txt; NULL: there are no files */
    const char *files_error;       /* why there are none, or not all; NULL: no error */
    int32_t stuck; /* the helper, if the disk still held it at the deadline; else 0 */
};

struct hang_case;
typedef void hang_compared_fn(void *arg, const struct hang_compared *compared);
/* in: what, quiet_ns, signs, and if a worker has failed `waited` and `failed`; copied. ends: the
 * group will be stopped for it, so a part of the time is left for the native stacks. fn is called
 * once, from the loop: when the files are written, or at the deadline; the case is freed then. A
 * helper that a disk holds is left alone. Returns 0; -ECANCELED: --evidence-timeout is 0; -ESRCH:
 * no workers run. */
_must_use_ int hang_case_new(const struct hang_case_config *config, const struct suspects_input *in,
                             bool ends, hang_compared_fn *fn, void *arg, struct hang_case **ret);
/* That part: a quarter of --evidence-timeout. */
uint64_t hang_case_native_ns(const struct hang_settings *settings);
void hang_case_free(struct hang_case *c); /* cancels; takes NULL */
/* The nodes are no longer asked: what they have answered is being compared. */
bool hang_case_has_answers(const struct hang_case *c);

/* Where what is known of a hang is kept: below the folder of the run's logs,
 *
 *     DIR/hangs/20261124-031038.123-1.1/{hang.txt,hang.json}      time (UTC), generation
 *
 * The oldest are removed, so that there are never more than HANG_FILES_KEPT, with at most
 * HANG_FILES_BYTES. mode: of the files (--log-mode); folders get own_folder_mode() of it. These
 * calls block as long as the file system does. */
#define HANG_FILES_KEPT 16
#define HANG_FILES_BYTES (UINT64_C(64) << 20)
#define HANG_FILES_NAME_MAX 64

/* The name of a folder; it sorts by time. */
void hang_files_name(uint64_t wall_ns, struct generation generation, char ret[HANG_FILES_NAME_MAX]);

/* *ret_path: of hang.txt, malloc'ed. Otherwise an errno, and what was tried, on what; what could be
 * written stays. */
_must_use_ int hang_files_write(const char *dir, const char *name, uint32_t mode,
                                const struct strbuf *text, const struct strbuf *json,
                                char **ret_path, struct err *err);
/* Adds to files that are there: the text at the end of this hang.txt, and members (",\"key\":…") to
 * the object in the hang.json beside it. The same. */
_must_use_ int hang_files_amend(const char *path, const struct strbuf *text,
                                const struct strbuf *json, struct err *err);
