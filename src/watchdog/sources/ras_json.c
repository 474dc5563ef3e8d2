#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text/utf8.h"
#include "watchdog/sources/ras_priv.h"

/* NCCL writes about 500 bytes and 36 keys and values for a rank. */
static const struct json_limits limits = {
    .max_bytes = RAS_ANSWER_MAX, .max_depth = 8, .max_values = 131072};

/* ncclResult_t (nccl.h). 7, in progress, is no error. */
static const char *error_text(int64_t result) {
    static const char *const texts[] = {
        [1] = "unhandled CUDA error", [2] = "system error",  [3] = "internal error",
        [4] = "invalid argument",     [5] = "invalid usage", [6] = "remote process error",
    };
    if (result == 0 || result == 7)
        return "";
    return result > 0 && result < (int64_t)ARRAY_SIZE(texts) ? texts[result] : "unexpected error";
}

/* A member that other versions may not have. */
static int number_of(const struct json *obj, const char *key, int64_t min, int64_t missing,
                     int64_t *ret, struct err *err) {
    *ret = missing;
    return json_has(obj, key)
               ? json_as_integer(json_member(obj, key), key, min, INT32_MAX, ret, err)
               : 0;
}

static int flag_of(const struct json *obj, const char *key, bool *ret, struct err *err) {
    *ret = false;
    return json_has(obj, key) ? json_get_bool(obj, key, ret, err) : 0;
}

static int text_of(const struct json *obj, const char *key, char *ret, size_t size,
                   struct err *err) {
    const char *text = "";
    int r = json_has(obj, key) ? json_get_string(obj, key, RAS_ANSWER_MAX, &text, err) : 0;
    utf8_copy_line(ret, size, text);
    return r;
}

static int read_counts(const struct json *v, struct ras *r, struct ras_rank *to, struct err *err) {
    const struct json *counts = json_member(v, "collective_counts");
    if (counts == NULL)
        return 0;
    int bad = json_as_object(counts, "collective_counts", err);
    for (const struct json *c = json_first(counts); bad == 0 && c != NULL; c = json_next(c)) {
        int64_t n = 0;
        bad = json_as_integer(c, json_key(c), 0, (int64_t)JSON_INTEGER_MAX, &n, err);
        uint32_t kind = ras_kind(r, json_key(c), strlen(json_key(c)));
        if (bad == 0 && kind < RAS_KINDS_MAX) {
            to->counted |= 1u << kind;
            to->counts[kind] = (uint64_t)n;
        }
    }
    return bad;
}

static int read_status(const struct json *v, struct ras_rank *to, struct err *err) {
    const struct json *s = NULL;
    int64_t init = 0, async = 0;
    bool finalized = false, destroyed = false, aborted = false;
    if (!json_has(v, "status"))
        return 0;
    int r = json_get_object(v, "status", &s, err);
    r = r == 0 ? number_of(s, "init_state", INT32_MIN, 0, &init, err) : r;
    r = r == 0 ? number_of(s, "async_error", INT32_MIN, 0, &async, err) : r;
    r = r == 0 ? flag_of(s, "finalize_called", &finalized, err) : r;
    r = r == 0 ? flag_of(s, "destroy_flag", &destroyed, err) : r;
    r = r == 0 ? flag_of(s, "abort_flag", &aborted, err) : r;
    if (r < 0)
        return r;
    /* In this order NCCL itself concludes the state. */
    to->state = aborted                  ? RAS_STATE_ABORT
                : finalized || destroyed ? RAS_STATE_FINALIZE
                : init == 0              ? RAS_STATE_RUNNING
                                         : RAS_STATE_INIT;
    const char *error = error_text(init)[0] != '\0' ? error_text(init) : error_text(async);
    (void)snprintf(to->error, sizeof to->error, "%s", error);
    return 0;
}

static int read_missing_status(const struct json *v, struct ras_rank *to, struct err *err) {
    const struct json *s = NULL;
    bool unresponsive = true;
    to->missing = true;
    if (!json_has(v, "status"))
        return 0;
    int r = json_get_object(v, "status", &s, err);
    r = r == 0 ? flag_of(s, "unresponsive", &unresponsive, err) : r;
    r = r == 0 ? flag_of(s, "considered_dead", &to->dead, err) : r;
    if (!unresponsive)
        to->state = RAS_STATE_NOCOMM;
    return r;
}

static int read_ranks(const struct json *comm, const char *key, bool missing, struct ras *r,
                      struct ras_comm *c, struct err *err) {
    const struct json *ranks = NULL;
    if (!json_has(comm, key))
        return 0;
    int bad = json_get_array(comm, key, RAS_RANKS_MAX, &ranks, err);
    for (const struct json *v = bad == 0 ? json_first(ranks) : NULL; bad == 0 && v != NULL;
         v = json_next(v)) {
        uint32_t rank = 0;
        int64_t pid = -1;
        bad = json_as_object(v, key, err);
        bad = bad == 0 ? json_get_u32(v, "rank", INT32_MAX, &rank, err) : bad;
        bad = bad == 0 ? number_of(v, "pid", -1, -1, &pid, err) : bad;
        if (bad < 0)
            return bad;
        struct ras_rank *to = ras_add_rank(r, c, rank);
        if (to == NULL)
            return err_set(err, -E2BIG, "it has more than %u ranks", RAS_RANKS_MAX);
        to->pid = (int32_t)pid;
        bad = text_of(v, "host", to->host, sizeof to->host, err);
        if (bad == 0)
            bad = missing ? read_missing_status(v, to, err) : read_status(v, to, err);
        bad = bad == 0 && !missing ? read_counts(v, r, to, err) : bad;
        c->n_missing += missing;
    }
    return bad;
}

static int by_rank(const void *a, const void *b) {
    uint32_t x = ((const struct ras_rank *)a)->rank, y = ((const struct ras_rank *)b)->rank;
    return x < y ? -1 : x > y;
}

static int by_count(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int by_frequency(const void *a, const void *b) {
    const struct ras_tally *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->ranks != y->ranks)
        return x->ranks > y->ranks ? -1 : 1;
    return x->count > y->count ? -1 : x->count < y->count;
}

/* The tallies of the kinds whose counts differ. */
static int tally(const struct ras *r, struct ras_comm *c) {
    uint64_t *counts = c->n_ranks > 0 ? malloc(c->n_ranks * sizeof *counts) : NULL;
    int bad = c->n_ranks > 0 && counts == NULL ? -ENOMEM : 0;
    for (uint32_t kind = 0; kind < r->n_kinds && counts != NULL; kind++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < c->n_ranks; i++)
            if ((c->ranks[i].counted >> kind & 1) != 0)
                counts[n++] = c->ranks[i].counts[kind];
        if (n > 0)
            qsort(counts, n, sizeof *counts, by_count);
        if (n == 0 || counts[0] == counts[n - 1])
            continue;
        for (uint32_t i = 0, first = 0; i < n && bad == 0; i++) {
            if (i + 1 < n && counts[i + 1] == counts[i])
                continue;
            bad = ras_add_tally(c, kind, counts[i], i + 1 - first);
            first = i + 1;
        }
        bad = bad == -E2BIG ? 0 : bad; /* the summary would not show that many */
    }
    if (c->n_tallies > 0)
        qsort(c->tallies, c->n_tallies, sizeof *c->tallies, by_frequency);
    free(counts);
    return bad;
}

static int read_comm(const struct json *v, struct ras *r, struct err *err) {
    char hash[RAS_WORD_MAX] = "";
    int64_t size = 0;
    int bad = json_as_object(v, "communicators", err);
    bad = bad == 0 ? text_of(v, "hash", hash, sizeof hash, err) : bad;
    bad = bad == 0 ? number_of(v, "size", 0, 0, &size, err) : bad;
    if (bad < 0)
        return bad;
    struct ras_comm *c = ras_add_comm(r, strtoull(hash, NULL, 16));
    if (c == NULL)
        return err_set(err, -E2BIG, "it has more than %u communicators", RAS_COMMS_MAX);
    c->size = (uint32_t)size;
    bad = read_ranks(v, "ranks", false, r, c, err);
    bad = bad == 0 ? read_ranks(v, "missing_ranks", true, r, c, err) : bad;
    if (bad == 0 && c->n_ranks > 0)
        qsort(c->ranks, c->n_ranks, sizeof *c->ranks, by_rank);
    if (bad == 0 && (bad = tally(r, c)) < 0)
        return err_set(err, bad, "there is not enough memory");
    return bad;
}

int ras_read_json(const char *answer, size_t len, struct ras *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    const struct json *comms = NULL;
    int64_t timeouts = 0;
    int r = json_parse(answer, len, &limits, &doc, err);
    r = r == 0 ? json_as_object(doc, "the answer", err) : r;
    r = r == 0 ? text_of(doc, "nccl_version", ret->version, sizeof ret->version, err) : r;
    r = r == 0 ? json_get_array(doc, "communicators", RAS_COMMS_MAX, &comms, err) : r;
    for (const struct json *v = r == 0 ? json_first(comms) : NULL; r == 0 && v != NULL;
         v = json_next(v))
        r = read_comm(v, ret, err);
    if (r == 0 && json_has(doc, "ras")) {
        const struct json *own = NULL;
        r = json_get_object(doc, "ras", &own, err);
        r = r == 0 ? number_of(own, "timeouts_count", 0, 0, &timeouts, err) : r;
    }
    ret->timeouts = (uint32_t)timeouts;
    ret->n_comms_told = ret->n_comms;
    ret->whole = true;
    return r;
}
