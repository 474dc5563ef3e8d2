/* In the agent that leads: asks all nodes of the group that runs what their workers do, collects
 * the answers, has those about a hang compared, and keeps what is found in files.
 *
 *     e = hang_evidence_new(loop, &ops, &server);
 *     hang_evidence_begin(e, group);                     its workers run
 *     r = hang_evidence_ask(e, why, timeout_ns, on_answers, me, &question);
 *                                                        … on_answers(me, &answers)
 *     hang_evidence_piece(e, incarnation, piece);        what arrives
 *     hang_evidence_end(e);                              they are being stopped
 *
 * A question disturbs no worker. Several can be open: those that are asked while a round of answers
 * is under way share it, because a node answers only the newest question. But those of the watchdog
 * need the time that they ask for; then the nodes are asked again, and all get the new answers.
 *
 * Samples (watchdog/profile/samples.h) are asked for in the same way, beside these questions. */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "io/loop.h"
#include "rendezvous/leader/group.h"
#include "watchdog/hang_workers.h"
#include "watchdog/judge/suspects.h"

/* ---- the group ---- */

struct hang_node {
    uint64_t incarnation;
    uint32_t first_rank, nproc;
    char name[RDZV_HOST_MAX]; /* in messages: "b", and "b-2" for the second agent of that host */
};

/* The members of a group in rank order, by which the watchdog numbers them; zeroed: none. */
struct hang_group {
    struct generation generation;
    uint32_t n_nodes, world_size;
    struct hang_node *nodes; /* owned, [n_nodes] */
    uint32_t *node_of;       /* owned, [world_size]: of each rank, its node's number */
};

/* The members of the present group. False, and *ret is empty: there are none, or more than
 * HANG_RANKS_MAX ranks. */
_must_use_ bool hang_group_read(const struct group *g, struct hang_group *ret);
/* The same of these nodes; their first_rank is filled in. Copied. */
_must_use_ bool hang_group_make(struct generation generation, const struct hang_node *nodes,
                                size_t n, struct hang_group *ret);
void hang_group_fini(struct hang_group *g); /* *g is empty then */
/* The number of this node; n_nodes: it is not a member. */
uint32_t hang_group_find(const struct hang_group *g, uint64_t incarnation);

/* ---- questions, and the nodes' answers ---- */

/* Bytes of all answers of a round; a node's has at most RDZV_EVIDENCE_MAX. */
#define HANG_ANSWERS_MAX ((size_t)128 << 20)
/* A leader that asks for more time does not get it: a dead disk or a node that is stopped would
 * keep the job from ending. */
#define HANG_LOOK_MAX_NS (60 * NS_PER_S)
/* After the time that the nodes were given, their answers are awaited for so long. */
#define HANG_ANSWERS_LATE_NS (500 * NS_PER_MS)
#define HANG_ENDS_READ_MAX 16 /* suspects whose native stacks are read */

struct hang_answer {    /* of one node */
    struct strbuf json; /* as it came (watchdog/evidence/evidence.h), not checked; may be empty */
    /* Why there is no whole answer; NULL: it has come. A constant text, such as "it did not answer
     * in time" */
    const char *missing;
};
/* Borrowed for the callback. Other nodes wrote them, and can write much: read them in a helper. */
struct hang_answers {
    struct hang_group group;
    struct hang_answer *nodes; /* [group.n_nodes] */
    uint64_t asked_wall_ns;    /* since 1970 */
};

struct rdzv_server; /* opaque here */
/* Must not free the collection. */
struct hang_evidence_ops {
    /* Sends this node an ASK, SUSPECTS or PROCEED. False: it is not connected. */
    bool (*send)(struct rdzv_server *server, uint64_t incarnation, const struct wire_message *m);
    /* For operators. A node of the group, in order of ranks; json is borrowed for the call. */
    void (*add)(struct rdzv_server *server, enum rdzv_ask_what what, const struct rdzv_stacks *node,
                const char *json, size_t len);
    /* That was all; or, for one sentence, why there is no answer. May be called from inside
     * hang_stacks_ask(). */
    void (*end)(struct rdzv_server *server, enum rdzv_ask_what what, const char *why_not);
};

struct hang_evidence;
/* server: borrowed; *server is NULL while this agent does not lead. */
_must_use_ struct hang_evidence *hang_evidence_new(struct loop *loop,
                                                   const struct hang_evidence_ops *ops,
                                                   struct rdzv_server *const *server);
/* Cancels open questions. Takes NULL. */
void hang_evidence_free(struct hang_evidence *e);

void hang_evidence_begin(struct hang_evidence *e, const struct hang_group *group); /* copies */
/* Borrowed until the next begin or end; world_size 0: none runs. */
const struct hang_group *hang_evidence_group(const struct hang_evidence *e);
/* Open questions get what has come so far, from the loop, except in a round of HANG_BEFORE_STOP. */
void hang_evidence_end(struct hang_evidence *e);
/* That node has left, or was lost: it is not waited for. */
void hang_evidence_forgotten(void *hang_evidence, uint64_t incarnation);
/* A piece that does not answer a present round is ignored. */
void hang_evidence_piece(void *hang_evidence, uint64_t incarnation,
                         const struct rdzv_evidence *piece);

enum hang_ask {
    /* Gets the answers of a round that is under way, however long that lasts: questions of the
     * watchdog must not wait for operators, nor be lost by them. */
    HANG_FOR_OPERATOR = 1,
    HANG_FOR_WATCHDOG,
    /* Right before the workers are stopped because one has failed: each node first looks at what
     * its workers do. Answers are awaited beyond hang_evidence_end(), until another group runs. */
    HANG_BEFORE_STOP,
};
struct hang_question;
typedef void hang_answers_fn(void *arg, const struct hang_answers *answers);
/* The nodes have timeout_ns to look. fn is called once, from the loop and never from inside this
 * call: when all have answered, HANG_ANSWERS_LATE_NS after that time, or soon after
 * hang_evidence_end(). The question is freed then. -ESRCH: no workers run. */
_must_use_ int hang_evidence_ask(struct hang_evidence *e, enum hang_ask why, uint64_t timeout_ns,
                                 hang_answers_fn *fn, void *arg, struct hang_question **ret);
/* The nodes take samples of their workers for length_ns; what: ASK_PROFILE or ASK_TIME. A question
 * of a kind cancels an open one of it. Nodes whose workers end answer with the samples until then.
 * fn as above, RDZV_PROFILE_LATE_NS after that time at the latest. -ESRCH: no workers run. */
_must_use_ int hang_evidence_samples(struct hang_evidence *e, enum rdzv_ask_what what,
                                     uint64_t period_ns, uint64_t length_ns, hang_answers_fn *fn,
                                     void *arg, struct hang_question **ret);
void hang_question_free(struct hang_question *q); /* cancels: fn is not called; takes NULL */
/* Right before the workers are stopped because the job hangs: these ranks [world size] get SIGABRT
 * before the stop, so that Python programs print their stacks (watchdog/evidence/disturb.h).
 * timeout_ns: the time that the nodes have to read the native stacks of HANG_ENDS_READ_MAX of them
 * first; the question *ret gets those, also beyond hang_evidence_end(), and takes the place of an
 * earlier one. fn may ask or free nothing here. 0: nothing is read, and fn and ret are not used. */
void hang_evidence_end_ranks(struct hang_evidence *e, const bool *suspects, uint64_t timeout_ns,
                             hang_answers_fn *fn, void *arg, struct hang_question **ret);
/* The job is being ended: evidence and the end of suspects are no longer awaited, and the nodes of
 * this group, which is being stopped, are notified. Open questions get what has come so far, from
 * the loop. */
void hang_evidence_let_go(struct hang_evidence *e, const struct hang_group *group);

/* For operators ("muster stacks", "muster profile"), whether the job hangs or not: ops.add for each
 * node, then ops.end. The evidence is passed on as it came, part by part in several turns of the
 * loop: the operator's command compares it. period_ns 0: ASK_STACKS; else ASK_PROFILE. The next
 * question of a kind comes after `end`. */
void hang_stacks_ask(void *hang_evidence, uint64_t period_ns, uint64_t timeout_ns);
/* The answer is no longer awaited: nothing is called until the next question of this kind, and
 * nodes stop taking samples. */
void hang_stacks_cancel(void *hang_evidence, enum rdzv_ask_what what);

/* ---- one case of a hang: the answers are compared ----
 *
 * From the question to the result within --evidence-timeout and a second. A helper compares and
 * writes: the disk can hang. The line is known before, so a dead disk costs only the rest of the
 * time. Evidence that is taken when a worker has failed delays the stop of the others. */

/* The name of the helper, by which it is spared (launcher/supervise/sweep_io.h). */
#define HANG_COMPARE_NAME "muster-compare"

struct hang_case_config { /* all borrowed for the life of a case */
    struct hang_evidence *evidence;
    struct hang_settings settings;
    const char *run_id;          /* for files */
    uint32_t log_mode;           /* of files */
    struct hang_workers workers; /* of this node: where the run's logs are */
};

struct hang_rank {
    uint64_t place; /* where its main thread is, suspects_place(); 0: not known */
    bool is_suspect;
    bool ended; /* it has exited with 0 */
};
struct hang_compared { /* borrowed for the callback */
    /* 0; or a negative errno, and all but files_error is empty: -ETIMEDOUT, -EPROTO, … */
    int code;
    char line[SUSPECTS_LINE_MAX]; /* suspects_line() */
    uint32_t n_suspects;          /* all; 0: none stands out */
    struct suspect first;         /* the first of them */
    uint32_t n_debugged;          /* ranks at a debugger's prompt, or that wait for one */
    uint32_t debugged;            /* the first of them */
    /* Ranks that wait for others, or hang at their exit (struct suspects): a reason to end it. */
    bool reason;
    uint64_t used_ns; /* CPU time of any main thread since it last moved, at most */
    uint32_t n_ranks;
    const struct hang_rank *ranks; /* [n_ranks] */
    const char *path;              /* of hang.txt; NULL: there are no files */
    const char *files_error;       /* why there are none, or not all; NULL: no error */
};

struct hang_case;
typedef void hang_compared_fn(void *arg, const struct hang_compared *compared);
/* in: what, quiet_ns, signs, and if a worker has failed `waited` and `failed`; copied. ends: the
 * group will be stopped for it, so a part of the time is left for the native stacks. fn is called
 * once, from the loop: when the files are written, or at the deadline; the case is freed then. A
 * helper that a disk holds is left alone, and no other one writes meanwhile. Returns 0; -ECANCELED:
 * --evidence-timeout is 0; -ESRCH: no workers run. */
_must_use_ int hang_case_new(const struct hang_case_config *config, const struct suspects_input *in,
                             bool ends, hang_compared_fn *fn, void *arg, struct hang_case **ret);
/* That part: a quarter of --evidence-timeout. */
uint64_t hang_case_native_ns(const struct hang_settings *settings);
void hang_case_free(struct hang_case *c); /* cancels; takes NULL */
/* The nodes are no longer asked: what they have answered is being compared. */
bool hang_case_has_answers(const struct hang_case *c);

/* ---- files ----
 *
 *     DIR/hangs/20261124-031038.123-1.1/{hang.txt,hang.json}      time (UTC), generation
 *
 * DIR: the folder of the run's logs. The oldest are removed, so that there are never more than
 * HANG_FILES_KEPT, with at most HANG_FILES_BYTES. mode: of the files (--log-mode); folders get
 * own_folder_mode() of it. These calls block as long as the file system does. */
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
