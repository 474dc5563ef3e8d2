/* In the agent that leads: asks all nodes of the group that runs what their workers do, and
 * collects the answers. It does not read them: they come from other nodes and can be long, so a
 * helper compares them (hang_case_io.h).
 *
 *     e = hang_evidence_new(loop, &ops, me);
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

#include "base/text/strbuf.h"
#include "io/loop.h"
#include "watchdog/act/hang_group.h"

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
/* Borrowed for the callback. */
struct hang_answers {
    struct hang_group group;
    struct hang_answer *nodes; /* [group.n_nodes] */
    uint64_t asked_wall_ns;    /* since 1970 */
    struct hang_round *own;    /* the collection's own */
};
struct hang_evidence_ops {
    /* Sends this node an ASK, SUSPECTS or PROCEED. False: it is not connected. Must not free the
     * collection. */
    bool (*send)(void *arg, uint64_t incarnation, const struct wire_message *m);
};

struct hang_evidence;
_must_use_ struct hang_evidence *hang_evidence_new(struct loop *loop,
                                                   const struct hang_evidence_ops *ops, void *arg);
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
     * its workers do. The answers are awaited beyond hang_evidence_end(), until another
     * group runs. */
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
 * of a kind cancels an open one of it. Workers that end do not end it: the nodes
 * answer with the samples until then. fn as above, RDZV_PROFILE_LATE_NS after that time at the
 * latest. -ESRCH: no workers run. */
_must_use_ int hang_evidence_samples(struct hang_evidence *e, enum rdzv_ask_what what,
                                     uint64_t period_ns, uint64_t length_ns, hang_answers_fn *fn,
                                     void *arg, struct hang_question **ret);
void hang_question_free(struct hang_question *q); /* cancels: fn is not called; takes NULL */
/* Right before the workers are stopped because the job hangs: these ranks [world size] get SIGABRT
 * before the stop, so that Python programs print their stacks (watchdog/evidence/disturb.h).
 * timeout_ns: the time that the nodes have to read the native stacks of HANG_ENDS_READ_MAX of them
 * first; the question *ret gets those, also beyond hang_evidence_end(), and takes the place of an
 * earlier one. fn may ask or free nothing here. 0: nothing is read, and fn and ret are not used.
 * Other questions are not affected. */
void hang_evidence_end_ranks(struct hang_evidence *e, const bool *suspects, uint64_t timeout_ns,
                             hang_answers_fn *fn, void *arg, struct hang_question **ret);
/* The job is being ended: evidence and the end of suspects are no longer awaited, and the nodes of
 * this group, which is being stopped, are notified. Open questions get what has come so far, from
 * the loop. */
void hang_evidence_let_go(struct hang_evidence *e, const struct hang_group *group);

/* ---- for operators ----
 *
 * Answers operators that want to know what the workers do ("muster stacks", "muster profile"),
 * whether the job hangs or not.
 *
 *     s = hang_stacks_new(loop, evidence, &ops, me);
 *     hang_stacks_ask(s, period_ns, timeout_ns);       … ops.add for each node, then ops.end
 *
 * The evidence goes to the operator as it came from the nodes, part by part in several turns of the
 * loop: the operator's command compares it. */

struct hang_stacks_ops { /* must not free the object */
    /* A node of the group, in order of ranks; json is borrowed for the call. */
    void (*add)(void *arg, enum rdzv_ask_what what, const struct rdzv_stacks *node,
                const char *json, size_t len);
    /* That was all; or, for one sentence, why there is no answer. May be called from inside
     * hang_stacks_ask(). */
    void (*end)(void *arg, enum rdzv_ask_what what, const char *why_not);
};

struct hang_stacks;
/* evidence is borrowed for its life. */
_must_use_ struct hang_stacks *hang_stacks_new(struct loop *loop, struct hang_evidence *evidence,
                                               const struct hang_stacks_ops *ops, void *arg);
void hang_stacks_free(struct hang_stacks *s); /* takes NULL */
/* period_ns 0: ASK_STACKS; else ASK_PROFILE. The next question of a kind comes after `end`. */
void hang_stacks_ask(void *hang_stacks, uint64_t period_ns, uint64_t timeout_ns);
/* The answer is no longer awaited: nothing is called until the next question of this kind,
 * and nodes stop taking samples. */
void hang_stacks_cancel(void *hang_stacks, enum rdzv_ask_what what);
