/* The record of one epoch at an arbiter, as text: one JSON object. Four kinds:
 *
 *     {"version":1,"epoch":3,"leader":"00000000000004d2","addr":"10.0.0.1","port":4711}
 *     {"version":1,"epoch":4,"leader":"00000000000004d2","addr":"10.0.0.1","port":4711,
 *      "outcome":"success","reason":"all workers succeeded"}
 *     {"version":1,"epoch":4,"leader":"00000000000004d2","addr":"10.0.0.1","port":4711,
 *      "vacant":true}
 *     {"version":1,"epoch":1,"leader":"00000000000004d2","addr":"10.0.0.1","port":4711,
 *      "idle":true}
 *
 * The second is the close, the third an epoch without a leader, with the agent that left. In the
 * fourth epoch and all earlier ones nothing runs. A directory's text may also hold "superseded":
 * the whole record of a higher epoch, so that a reader needs no other file. The beat is not part of
 * it. Pure. */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "rendezvous/arbiter/arbiter_messages.h"

/* The longest text: a close, superseded by a close. Each byte of a reason may take six. */
#define ARBITER_RECORD_TEXT_MAX (32 * 1024)

/* Appends the record to `out`, without a newline. mark: the record that supersedes it, or NULL. */
void arbiter_record_write(const struct arbiter_record *record, const struct arbiter_record *mark,
                          struct strbuf *out);

/* ret_mark: epoch 0: there is no mark; NULL: a mark is an error. 0, or a negative errno and a
 * sentence about the text. */
_must_use_ int arbiter_record_read(const char *text, size_t len, struct arbiter_record *ret,
                                   struct arbiter_record *ret_mark, struct err *err);

/* Whether the record is this agent's claim of this epoch. */
bool arbiter_record_is_of(const struct arbiter_record *record, uint32_t epoch,
                          uint64_t incarnation);

enum { ARBITER_E_WRITE = 1 };
/* What a CLAIM, CLOSE or VACATE does if `latest` is the latest record. 0: it is answered by *ret
 * and `latest`. ARBITER_E_WRITE: *ret_write is to be written, if its epoch has no record and
 * `latest` is still the latest; if not, decide again. To close or vacate the agent's own epoch
 * writes the next one. -EINVAL: a claim without a leader, a close without an outcome. */
_must_use_ int arbiter_decide(const struct arbiter_request *q, const struct arbiter_record *latest,
                              enum arbiter_result *ret, struct arbiter_record *ret_write,
                              struct err *err);
