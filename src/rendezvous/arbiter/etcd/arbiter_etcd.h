/* Requests of the arbiter over etcd and their answers, as text: bodies of HTTP. Pure.
 *
 * Keys, below <prefix>/<run id>/:
 *     epoch-N   the record of epoch N (arbiter_record.h): its claim, or the close
 *     latest    a copy of the highest one's record; put in the same transaction
 *     beat      rewritten by the leader; its revision is the beat
 *
 * Each question is one transaction, and each answer shows `latest` and `beat` at one point in time.
 * A write has two conditions: epoch-N is absent, and `latest` still has the revision that was seen,
 * of a lower epoch and not the close. If it failed, the agent reads what is there now, and
 * continues. The close is an epoch, too: a request to close its own epoch gets the next one.
 *
 *     arbiter_etcd_begin(&s, base, &request, hint);
 *     do {
 *         arbiter_etcd_question(&s, &body);                     … POST /v3/kv/txn
 *         r = arbiter_etcd_read(base, text, len, &view, &err);
 *     } while (r == 0 && (r = arbiter_etcd_next(&s, &view, &result, &err)) == ARBITER_ETCD_E_ASK);
 *
 * A transaction whose answer was lost may have been executed: begin again, and the request finds
 * its own record there. Source: etcd's rpc.proto and "gRPC gateway" (3.4): keys and values are
 * base64, 64-bit numbers are texts, values that are zero, empty or false are left out. */
#pragma once

#include <errno.h>

#include "base/err.h"
#include "base/text/strbuf.h"
#include "rendezvous/arbiter/arbiter_messages.h"

#define ARBITER_ETCD_TXN "/v3/kv/txn"
#define ARBITER_ETCD_LOGIN "/v3/auth/authenticate"
#define ARBITER_ETCD_ANSWER_MAX (1024 * 1024) /* bytes */
#define ARBITER_ETCD_TOKEN_MAX 8192           /* a signed token holds the user's roles */
#define ARBITER_ETCD_HOST_MAX 256

enum { ARBITER_ETCD_E_ASK = 1 }; /* one more question */
/* The keys are not in a state in which agents leave them: they were removed, or changed by hand. */
#define ARBITER_ETCD_RUINED (-ENOTUNIQ)

struct arbiter_etcd_step {
    const char *base; /* "<prefix>/<run id>/"; borrowed */
    struct arbiter_request request;
    bool write;                   /* the next question is the conditional one */
    uint64_t mod;                 /* the condition: this revision of `latest`; 0: its absence */
    struct arbiter_record record; /* that the question writes; BEAT: none */
};

/* The contents of an answer. */
struct arbiter_etcd_view {
    bool succeeded;               /* the conditions held: the write was executed */
    uint64_t mod;                 /* revision of `latest`; 0: there is none */
    struct arbiter_record record; /* with the beat */
};

/* hint: a revision of `latest` that was the request's own claim; a BEAT then takes one question. */
void arbiter_etcd_begin(struct arbiter_etcd_step *s, const char *base,
                        const struct arbiter_request *request, uint64_t hint);
/* Appends the question to `body`. */
void arbiter_etcd_question(const struct arbiter_etcd_step *s, struct strbuf *body);
/* Of status 200. Negative errno: it is not from etcd, or exceeds a limit. ARBITER_ETCD_RUINED:
 * `latest` is not a record. */
_must_use_ int arbiter_etcd_read(const char *base, const char *text, size_t len,
                                 struct arbiter_etcd_view *ret, struct err *err);
/* 0: *ret and view->record are the answer. Or ARBITER_ETCD_E_ASK, ARBITER_ETCD_RUINED; -EINVAL: as
 * arbiter_decide(). */
_must_use_ int arbiter_etcd_next(struct arbiter_etcd_step *s, const struct arbiter_etcd_view *view,
                                 enum arbiter_result *ret, struct err *err);
/* What was seen in `latest`, which never goes back. Epoch 0: nothing yet. */
struct arbiter_etcd_seen {
    uint32_t epoch;
    uint64_t leader;
    uint64_t mod; /* its revision */
};
/* After each view. ARBITER_ETCD_RUINED: it goes back. */
_must_use_ int arbiter_etcd_see(struct arbiter_etcd_seen *seen, const char *base,
                                const struct arbiter_etcd_view *view, struct err *err);

void arbiter_etcd_login(const char *user, const char *password, struct strbuf *body);
/* Returns a token that can be used in a header: 1 … ARBITER_ETCD_TOKEN_MAX printable characters. */
_must_use_ int arbiter_etcd_token(const char *text, size_t len,
                                  char ret[ARBITER_ETCD_TOKEN_MAX + 1], struct err *err);

enum arbiter_etcd_refusal {
    ARBITER_ETCD_ELSEWHERE = 1, /* ask another member: no leader, too busy, or not etcd */
    ARBITER_ETCD_LOG_IN,        /* the token is missing, or has expired */
    ARBITER_ETCD_NO_LOG_IN,     /* answer to a login: there are no users; ask without a token */
    ARBITER_ETCD_DENIED,        /* the whole cluster refuses: user, password, permission */
};
/* Writes a sentence about it into `text`, with etcd's own error text if there is one. */
enum arbiter_etcd_refusal arbiter_etcd_refused(int status, const char *body, size_t len,
                                               struct err *text);

struct arbiter_etcd_endpoint {
    char host[ARBITER_ETCD_HOST_MAX]; /* a name or a literal, without brackets */
    uint16_t port;
    bool https; /* it began with https:// */
    bool http;  /* it began with http:// */
};
/* "host", "host:2379", "[fd00::1]:2379", "fd00::1", "https://host:2379/". -EINVAL. */
_must_use_ int arbiter_etcd_endpoint(const char *text, struct arbiter_etcd_endpoint *ret,
                                     struct err *err);
