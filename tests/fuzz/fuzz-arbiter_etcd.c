/* Any bytes as an answer of etcd (to a transaction, to a login, or a refusal), and as an endpoint. An accepted answer
 * leads to a decision that fits the request, and every error has a sentence. The first byte chooses the request. */
#include <string.h>

#include "rendezvous/arbiter/arbiter_record.h"
#include "rendezvous/arbiter/etcd/arbiter_etcd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char base[] = "/muster/job/";

static void decide(const struct arbiter_etcd_view *view, unsigned kind, uint64_t hint) {
    struct arbiter_request q = {
        .kind = (enum arbiter_kind)kind, .epoch = 2, .leader = {.incarnation = 0xabc, .port = 1}};
    q.outcome = q.kind == ARBITER_CLOSE ? OUTCOME_SUCCESS : OUTCOME_NONE;
    struct arbiter_etcd_step s;
    struct err err = {0};
    arbiter_etcd_begin(&s, base, &q, hint);
    for (int asked = 1;; asked++) {
        _cleanup_(strbuf_fini) struct strbuf body = {0};
        arbiter_etcd_question(&s, &body);
        enum arbiter_result result = 0;
        int r = arbiter_etcd_next(&s, view, &result, &err);
        if (r == ARBITER_ETCD_E_ASK && asked < 4)
            continue;
        if (r > 0 || (r < 0 && err.text[0] == '\0')) /* the same answer, repeated, ends it */
            abort();
        if (r == 0 && q.kind == ARBITER_CLAIM && result == ARBITER_OK &&
            !arbiter_record_is_of(&view->record, q.epoch, q.leader.incarnation))
            abort();
        if (r == 0 && view->record.closed && q.kind == ARBITER_CLAIM && result != ARBITER_LOST)
            abort();
        return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 65536)
        return 0;
    unsigned first = *data++;
    const char *text = (const char *)data;
    size--;
    struct arbiter_etcd_view view;
    struct err err = {0};
    int r = arbiter_etcd_read(base, text, size, &view, &err);
    if (r == 0) {
        if ((view.mod == 0) != (view.record.epoch == 0))
            abort();
        for (unsigned kind = ARBITER_READ; kind < ARBITER_KIND_COUNT; kind++)
            decide(&view, kind, first & 3);
    } else if (err.text[0] == '\0') {
        abort();
    }
    err.text[0] = '\0';
    char token[ARBITER_ETCD_TOKEN_MAX + 1];
    r = arbiter_etcd_token(text, size, token, &err);
    if (r == 0 ? token[0] == '\0' || strpbrk(token, " \r\n") != NULL : err.text[0] == '\0')
        abort();
    err.text[0] = '\0';
    (void)arbiter_etcd_refused(200 + (int)first * 2, text, size, &err);
    if (err.text[0] == '\0' || strchr(err.text, '\n') != NULL)
        abort();
    _cleanup_(freep) char *name = xstrndup(text, size);
    struct arbiter_etcd_endpoint e;
    err.text[0] = '\0';
    r = arbiter_etcd_endpoint(name, &e, &err);
    if (r == 0 ? e.host[0] == '\0' || e.port == 0 : err.text[0] == '\0')
        abort();
    return 0;
}
