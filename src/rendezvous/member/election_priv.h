/* Shared by the files of the election, and private to them.
 *   election.c         which leader to follow, where to search for it, nodes that come
 *   election_record.c  the arbiter's answers
 *   election_claim.c   when this node can claim, and with which state it then leads */
#pragma once

#include "rendezvous/member/election.h"

/* ---- election.c ---- */

void election_move(struct election *e, enum member_election to);
void election_follow(struct election *e, const struct step *s, const struct rdzv_peer *peer,
                     uint32_t epoch);
/* Sets what this node waits for: one sentence. */
void election_set_waiting(struct election *e, const char *fmt, ...) _printf_(2, 3);

/* ---- election_record.c ---- */

/* Sends a request to the arbiter. False: too many in one step. */
bool election_ask(struct election *e, const struct step *s, enum arbiter_kind kind, uint32_t epoch);
struct election_outcome election_on_record(struct election *e, const struct step *s,
                                           const struct arbiter_answer *a);
/* The arbiter's data is gone: this node ends if that does not change and no leader appears. */
struct election_outcome election_on_ruin(struct election *e, const struct step *s,
                                         const struct arbiter_answer *a);
/* Rule 4: no named successor claims, and the leader has ended, as far as the record shows. */
bool election_may_claim_unnamed(const struct election *e, const struct step *s);

/* ---- election_claim.c ---- */

struct election_outcome election_on_claim(struct election *e, const struct step *s,
                                          const struct arbiter_answer *a);
void election_forget_successors(struct election *e);
/* Claims, if it is allowed to by now. */
void election_claim_time(struct election *e, const struct step *s);
uint64_t election_claim_deadline(const struct election *e, const struct step *s);
void election_claim(struct election *e, const struct step *s, uint32_t epoch);
bool election_is_successor(const struct election *e);
