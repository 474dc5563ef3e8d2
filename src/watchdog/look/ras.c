#include "watchdog/look/ras.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"
#include "base/text/utf8.h"

#define RANGES_MAX 24 /* of a list of ranks: 0-3,7 are two */
#define NAMED_MAX 8   /* ranks that a line shows with host and pid */

void ras_fini(struct ras *r) {
    for (uint32_t i = 0; i < r->n_comms; i++)
        free(r->comms[i].ranks);
    free(r->comms);
    *r = (struct ras){0};
}

/* The number of a kind of collective, which is added if it is new; RAS_KINDS_MAX: too many. */
static uint32_t kind_of(struct ras *r, const char *name) {
    size_t len = strlen(name);
    if (len == 0 || len >= RAS_WORD_MAX)
        return RAS_KINDS_MAX;
    for (uint32_t i = 0; i < r->n_kinds; i++)
        if (strcmp(r->kinds[i], name) == 0)
            return i;
    if (r->n_kinds == RAS_KINDS_MAX)
        return RAS_KINDS_MAX;
    memcpy(r->kinds[r->n_kinds], name, len + 1);
    return r->n_kinds++;
}

/* NCCL writes about 36 keys and values for a rank. */
static const struct json_limits limits = {
    .max_bytes = RAS_ANSWER_MAX, .max_depth = 8, .max_values = 1u << 20};

/* ncclResult_t (nccl.h). 7, in progress, is not an error. */
static const char *error_text(int64_t result) {
    static const char *const texts[] = {
        [1] = "unhandled CUDA error", [2] = "system error",  [3] = "internal error",
        [4] = "invalid argument",     [5] = "invalid usage", [6] = "remote process error",
    };
    if (result == 0 || result == 7)
        return "";
    return result > 0 && result < (int64_t)ARRAY_SIZE(texts) ? texts[result] : "unexpected error";
}

/* A rank as NCCL writes it. Members that other versions may not have are optional. */
struct raw_rank {
    struct ras_rank to;
    struct ras *all;
    bool has_status, finalized, destroyed, aborted, unresponsive, dead;
    int32_t init, async;
};

static int read_text(const struct json *v, const struct json_field *f, void *of) {
    const char *text = "";
    int r = json_as_string(v, f->key, RAS_ANSWER_MAX, &text, NULL);
    utf8_copy_line((char *)of + f->offset, f->size, text);
    return r;
}

static int read_hash(const struct json *v, const struct json_field *f, void *of) {
    const char *text = "";
    int r = json_as_string(v, f->key, RAS_ANSWER_MAX, &text, NULL);
    ((struct ras_comm *)of)->hash = strtoull(text, NULL, 16);
    return r;
}

static int read_counts(const struct json *v, const struct json_field *f, void *of) {
    struct raw_rank *raw = of;
    int r = raw->to.missing ? 0 : json_as_object(v, f->key, NULL);
    for (const struct json *c = raw->to.missing ? NULL : json_first(v); r == 0 && c != NULL;
         c = json_next(c)) {
        int64_t n = 0;
        r = json_as_integer(c, json_key(c), 0, (int64_t)JSON_INTEGER_MAX, &n, NULL);
        uint32_t kind = kind_of(raw->all, json_key(c));
        if (r == 0 && kind < RAS_KINDS_MAX) {
            raw->to.counted |= 1u << kind;
            raw->to.counts[kind] = (uint64_t)n;
        }
    }
    return r;
}

#define FIELD(type, kind, key, member) JSON_FIELD(type, kind, key, member), .when = JSON_OPTIONAL
static const struct json_field status_fields[] = {
    {FIELD(raw_rank, I32, "init_state", init), .min = INT32_MIN},
    {FIELD(raw_rank, I32, "async_error", async), .min = INT32_MIN},
    {FIELD(raw_rank, BOOL, "finalize_called", finalized)},
    {FIELD(raw_rank, BOOL, "destroy_flag", destroyed)},
    {FIELD(raw_rank, BOOL, "abort_flag", aborted)},
    {FIELD(raw_rank, BOOL, "unresponsive", unresponsive)},
    {FIELD(raw_rank, BOOL, "considered_dead", dead)},
};
static const struct json_table status_table = {JSON_ROWS(raw_rank, status_fields), .open = true};
static const struct json_field rank_fields[] = {
    {JSON_FIELD(raw_rank, U32, "rank", to.rank), .max = INT32_MAX},
    {FIELD(raw_rank, I32, "pid", to.pid), .min = -1},
    {FIELD(raw_rank, OWN, "host", to.host), .read = read_text},
    {.key = "status",
     .kind = JSON_FIELD_OBJECT,
     .table = &status_table,
     JSON_IF_TRUE(raw_rank, has_status)},
    {FIELD(raw_rank, OWN, "collective_counts", to.counts), .read = read_counts},
};
static const struct json_table rank_table = {JSON_ROWS(raw_rank, rank_fields), .open = true};
static const struct json_field comm_fields[] = {
    {FIELD(ras_comm, OWN, "hash", hash), .read = read_hash},
    {FIELD(ras_comm, U32, "size", size), .max = INT32_MAX},
};
static const struct json_table comm_table = {JSON_ROWS(ras_comm, comm_fields), .open = true};
static const struct json_field own_fields[] = {
    {FIELD(ras, U32, "timeouts_count", timeouts), .max = INT32_MAX},
};
static const struct json_table own_table = {JSON_ROWS(ras, own_fields), .open = true};
static const struct json_field answer_fields[] = {
    {FIELD(ras, OWN, "nccl_version", version), .read = read_text},
    {.key = "ras", .kind = JSON_FIELD_OBJECT, .table = &own_table, .when = JSON_OPTIONAL},
};
static const struct json_table answer_table = {JSON_ROWS(ras, answer_fields), .open = true};

static void conclude(struct raw_rank *raw) {
    struct ras_rank *to = &raw->to;
    if (to->missing)
        to->condition = raw->dead                               ? RAS_DEAD
                        : raw->has_status && !raw->unresponsive ? RAS_GONE
                                                                : RAS_SILENT;
    if (to->missing || !raw->has_status)
        return;
    /* In this order NCCL itself concludes the state. */
    to->condition = raw->aborted                       ? RAS_ABORTED
                    : raw->finalized || raw->destroyed ? RAS_FINALIZING
                    : raw->init == 0                   ? RAS_FINE
                                                       : RAS_INITIALIZING;
    const char *error =
        error_text(raw->init)[0] != '\0' ? error_text(raw->init) : error_text(raw->async);
    (void)snprintf(to->error, sizeof to->error, "%s", error);
}

static int read_ranks(const struct json *v, const char *key, bool missing, struct ras *r,
                      struct ras_comm *c, struct err *err) {
    const struct json *ranks = NULL;
    if (!json_has(v, key))
        return 0;
    int bad = json_get_array(v, key, RAS_RANKS_MAX, &ranks, err);
    for (const struct json *e = bad == 0 ? json_first(ranks) : NULL; e != NULL; e = json_next(e)) {
        struct raw_rank raw = {.to = {.pid = -1, .missing = missing}, .all = r};
        bad = json_table_read(e, &rank_table, &raw, err);
        if (bad < 0)
            return bad;
        conclude(&raw);
        if (r->n_ranks == RAS_RANKS_MAX)
            return err_set(err, -E2BIG, "it has more than %u ranks", RAS_RANKS_MAX);
        r->n_ranks++;
        c->ranks = xgrow(c->ranks, c->n_ranks, sizeof *c->ranks);
        c->ranks[c->n_ranks++] = raw.to;
    }
    return bad;
}

static int by_rank(const void *a, const void *b) {
    uint32_t x = ((const struct ras_rank *)a)->rank, y = ((const struct ras_rank *)b)->rank;
    return x < y ? -1 : x > y;
}

static int read_comm(const struct json *v, struct ras *r, struct err *err) {
    r->comms = xgrow(r->comms, r->n_comms, sizeof *r->comms);
    struct ras_comm *c = &r->comms[r->n_comms++];
    *c = (struct ras_comm){0};
    int bad = json_table_read(v, &comm_table, c, err);
    bad = bad == 0 ? read_ranks(v, "ranks", false, r, c, err) : bad;
    bad = bad == 0 ? read_ranks(v, "missing_ranks", true, r, c, err) : bad;
    if (bad == 0 && c->n_ranks > 0)
        qsort(c->ranks, c->n_ranks, sizeof *c->ranks, by_rank);
    return bad;
}

int ras_read(const char *answer, size_t len, struct ras *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    const struct json *comms = NULL;
    *ret = (struct ras){0};
    int r = json_parse(answer, len, &limits, &doc, err);
    r = r == 0 ? json_table_read(doc, &answer_table, ret, err) : r;
    r = r == 0 ? json_get_array(doc, "communicators", RAS_COMMS_MAX, &comms, err) : r;
    for (const struct json *v = r == 0 ? json_first(comms) : NULL; r == 0 && v != NULL;
         v = json_next(v))
        r = read_comm(v, ret, err);
    if (r < 0)
        ras_fini(ret);
    return r;
}

/* So many ranks have launched so many collectives of a kind. */
struct tally {
    uint32_t kind, ranks;
    uint64_t count;
};

static void add_place(struct strbuf *line, const char *host, int32_t pid) {
    if (host[0] != '\0' && pid >= 0)
        strbuf_printf(line, " (%s, pid %d)", host, pid);
    else if (host[0] != '\0')
        strbuf_printf(line, " (%s)", host);
}

typedef bool choose_fn(const struct ras_rank *rank, const void *arg);

static uint32_t count_ranks(const struct ras_comm *c, choose_fn *choose, const void *arg) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_ranks; i++)
        n += choose(&c->ranks[i], arg);
    return n;
}

/* "rank 2 (10.0.0.2, pid 12)", or if these are many, or not `places`: "ranks 0-1, 3"; at least one
 * is chosen. */
static void add_ranks(struct strbuf *line, const struct ras_comm *c, bool places, choose_fn *choose,
                      const void *arg) {
    uint32_t n = count_ranks(c, choose, arg), ranges = 0;
    places = places && n <= NAMED_MAX;
    strbuf_add(line, n == 1 ? "rank " : "ranks ");
    for (uint32_t i = 0; i < c->n_ranks; i++) {
        if (!choose(&c->ranks[i], arg))
            continue;
        uint32_t last = i;
        while (!places && last + 1 < c->n_ranks && choose(&c->ranks[last + 1], arg) &&
               c->ranks[last + 1].rank == c->ranks[last].rank + 1)
            last++;
        if (++ranges > RANGES_MAX) {
            strbuf_add(line, ", …");
            return;
        }
        strbuf_printf(line, "%s%u", ranges > 1 ? ", " : "", c->ranks[i].rank);
        if (last > i)
            strbuf_printf(line, "-%u", c->ranks[last].rank);
        if (places)
            add_place(line, c->ranks[i].host, c->ranks[i].pid);
        i = last;
    }
}

static bool choose_tally(const struct ras_rank *rank, const void *arg) {
    const struct tally *t = arg;
    return (rank->counted >> t->kind & 1) != 0 && rank->counts[t->kind] == t->count;
}

static bool choose_error(const struct ras_rank *rank, const void *arg) {
    return rank->error[0] != '\0' && strcmp(rank->error, arg) == 0;
}

static bool choose_condition(const struct ras_rank *rank, const void *arg) {
    return rank->condition == *(const enum ras_condition *)arg;
}

static void add_head(struct strbuf *line, const struct ras_comm *c, const char *what) {
    strbuf_printf(line, "communicator 0x%llx", (unsigned long long)c->hash);
    if (c->size > 0)
        strbuf_printf(line, " (%u ranks)", c->size);
    strbuf_printf(line, ": %s", what);
}

static int by_count(const void *a, const void *b) {
    uint64_t x = ((const struct tally *)a)->count, y = ((const struct tally *)b)->count;
    return x < y ? -1 : x > y;
}

static int by_frequency(const void *a, const void *b) {
    const struct tally *x = a, *y = b;
    if (x->ranks != y->ranks)
        return x->ranks > y->ranks ? -1 : 1;
    return -by_count(a, b);
}

/* The counts of a kind, the most frequent first. Returns how many differ. ret: [n_ranks] */
static uint32_t tally(const struct ras_comm *c, uint32_t kind, struct tally *ret) {
    uint32_t n = 0, merged = 0;
    for (uint32_t i = 0; i < c->n_ranks; i++)
        if ((c->ranks[i].counted >> kind & 1) != 0)
            ret[n++] = (struct tally){.kind = kind, .ranks = 1, .count = c->ranks[i].counts[kind]};
    qsort(ret, n, sizeof *ret, by_count);
    for (uint32_t i = 0; i < n; i++) {
        if (merged > 0 && ret[merged - 1].count == ret[i].count)
            ret[merged - 1].ranks++;
        else
            ret[merged++] = ret[i];
    }
    qsort(ret, merged, sizeof *ret, by_frequency);
    return merged;
}

/* A line for each kind of which ranks have launched different numbers. */
static void add_tallies(const struct ras *r, const struct ras_comm *c, struct strbuf *to) {
    _cleanup_(freep) struct tally *tallies = xcalloc(c->n_ranks + (size_t)1, sizeof *tallies);
    for (uint32_t kind = 0; kind < r->n_kinds; kind++) {
        uint32_t n = tally(c, kind, tallies);
        if (n < 2)
            continue;
        add_head(to, c, r->kinds[kind]);
        for (uint32_t i = 0; i < MIN2(n, RANGES_MAX + 1u); i++) {
            strbuf_printf(to, "%s%llu in ", i > 0 ? "; " : ": ",
                          (unsigned long long)tallies[i].count);
            add_ranks(to, c, i > 0, choose_tally, &tallies[i]);
        }
        strbuf_add(to, "\n");
    }
}

static void add_conditions(const struct ras_comm *c, enum ras_condition from,
                           enum ras_condition to_last, struct strbuf *to) {
    static const char *const words[RAS_CONDITIONS] = {
        [RAS_DEAD] = "considered dead: ",           [RAS_SILENT] = "no answer: ",
        [RAS_GONE] = "has left the communicator: ", [RAS_INITIALIZING] = "still initializing: ",
        [RAS_FINALIZING] = "finalizing: ",          [RAS_ABORTED] = "aborted: ",
    };
    for (enum ras_condition i = from; i <= to_last; i++) {
        if (count_ranks(c, choose_condition, &i) == 0)
            continue;
        add_head(to, c, words[i]);
        add_ranks(to, c, true, choose_condition, &i);
        strbuf_add(to, "\n");
    }
}

static void add_errors(const struct ras_comm *c, struct strbuf *to) {
    for (uint32_t i = 0; i < c->n_ranks; i++) {
        const char *error = c->ranks[i].error;
        bool again = error[0] == '\0';
        for (uint32_t k = 0; k < i && !again; k++)
            again = strcmp(c->ranks[k].error, error) == 0;
        if (again)
            continue;
        add_head(to, c, error);
        strbuf_add(to, ": ");
        add_ranks(to, c, true, choose_error, error);
        strbuf_add(to, "\n");
    }
}

void ras_summary(const struct ras *r, struct strbuf *to) {
    size_t begin = to->len;
    strbuf_printf(to, "NCCL%s%s: %u communicator%s\n", r->version[0] != '\0' ? " " : "", r->version,
                  r->n_comms, r->n_comms == 1 ? "" : "s");
    if (r->timeouts > 0)
        strbuf_printf(to, "%u time-out%s of the service itself\n", r->timeouts,
                      r->timeouts == 1 ? "" : "s");
    for (uint32_t i = 0; i < r->n_comms; i++) {
        const struct ras_comm *c = &r->comms[i];
        size_t before = to->len;
        add_conditions(c, RAS_DEAD, RAS_GONE, to);
        add_errors(c, to);
        add_conditions(c, RAS_INITIALIZING, RAS_ABORTED, to);
        add_tallies(r, c, to);
        if (to->len == before)
            add_head(to, c, "all ranks have launched the same collectives\n");
    }
    strbuf_cut_lines(to, begin, RAS_SUMMARY_MAX);
}

#define COUNT_MAX (UINT64_C(1) << 48) /* of one kind: their sum has room */

static bool is_ours(const struct ras_comm *c, const struct ras_own *own, size_t n_own) {
    bool confirmed = false;
    for (uint32_t k = 0; k < c->n_ranks; k++) {
        bool listed = false, same = false;
        for (size_t i = 0; i < n_own; i++) {
            listed = listed || own[i].rank == c->ranks[k].rank;
            same = same || (own[i].rank == c->ranks[k].rank && own[i].pid == c->ranks[k].pid);
        }
        if (listed && !same && c->ranks[k].pid > 0)
            return false;
        confirmed = confirmed || same;
    }
    return confirmed;
}

static uint64_t sum_of(const struct ras *r, const struct ras_rank *at) {
    uint64_t sum = 0;
    for (uint32_t kind = 0; kind < r->n_kinds; kind++)
        sum += MIN2(at->counts[kind], COUNT_MAX);
    return sum;
}

static void add_comm_counts(const struct ras *r, const struct ras_comm *c, uint32_t world,
                            uint64_t *sums, bool *known) {
    _cleanup_(freep) bool *here = xcalloc(world + (size_t)1, sizeof *here);
    for (uint32_t k = 0; k < c->n_ranks; k++) {
        const struct ras_rank *at = &c->ranks[k];
        if (at->rank >= world || at->missing || at->counted == 0 || here[at->rank])
            continue;
        here[at->rank] = true;
        sums[at->rank] += sum_of(r, at);
    }
    for (uint32_t i = 0; i < world; i++)
        known[i] = known[i] && here[i];
}

void ras_counts(const struct ras *r, uint32_t world, const struct ras_own *own, size_t n_own,
                uint64_t *ret) {
    _cleanup_(freep) bool *known = xcalloc(world + (size_t)1, sizeof *known);
    bool any = false;
    memset(known, true, world);
    memset(ret, 0, world * sizeof *ret);
    for (uint32_t i = 0; i < r->n_comms; i++) {
        const struct ras_comm *c = &r->comms[i];
        if (c->size != world || !is_ours(c, own, n_own))
            continue;
        any = true;
        add_comm_counts(r, c, world, ret, known);
    }
    for (uint32_t i = 0; i < world; i++)
        ret[i] = any && known[i] ? MAX2(ret[i], (uint64_t)1) : 0;
}
