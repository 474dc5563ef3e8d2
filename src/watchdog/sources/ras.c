#include "watchdog/sources/ras.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "watchdog/sources/ras_priv.h"

#define RANGES_MAX 24 /* of a list of ranks: 0-3,7 are two */
#define NAMED_MAX 8   /* ranks of which host and pid are told in one line */
#define TALLIES_MAX 4096

void ras_fini(struct ras *r) {
    for (uint32_t i = 0; i < r->n_comms; i++) {
        free(r->comms[i].ranks);
        free(r->comms[i].tallies);
    }
    free(r->comms);
    free(r->processes);
    *r = (struct ras){0};
}

/* Room for one more element: arrays grow by doubling, at powers of two. */
static bool room(void **array, uint32_t n, size_t size) {
    if (n != 0 && (n & (n - 1)) != 0)
        return true;
    void *more = realloc(*array, (n == 0 ? 1 : (size_t)n * 2) * size);
    if (more == NULL)
        return false;
    *array = more;
    return true;
}

struct ras_comm *ras_add_comm(struct ras *r, uint64_t hash) {
    void *comms = r->comms;
    if (r->n_comms == RAS_COMMS_MAX || !room(&comms, r->n_comms, sizeof *r->comms))
        return NULL;
    r->comms = comms;
    struct ras_comm *c = &r->comms[r->n_comms++];
    *c = (struct ras_comm){.hash = hash};
    return c;
}

static uint32_t all_ranks(const struct ras *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_comms; i++)
        n += r->comms[i].n_ranks;
    return n;
}

struct ras_rank *ras_add_rank(struct ras *r, struct ras_comm *c, uint32_t rank) {
    void *ranks = c->ranks;
    bool grows = c->n_ranks == 0 || (c->n_ranks & (c->n_ranks - 1)) == 0;
    if ((grows && all_ranks(r) + MAX2(c->n_ranks, 1u) > RAS_RANKS_MAX) ||
        !room(&ranks, c->n_ranks, sizeof *c->ranks))
        return NULL;
    c->ranks = ranks;
    struct ras_rank *added = &c->ranks[c->n_ranks++];
    *added = (struct ras_rank){.rank = rank, .pid = -1};
    return added;
}

int ras_add_tally(struct ras_comm *c, uint32_t kind, uint64_t count, uint32_t ranks) {
    void *tallies = c->tallies;
    if (c->n_tallies == TALLIES_MAX)
        return -E2BIG;
    if (!room(&tallies, c->n_tallies, sizeof *c->tallies))
        return -ENOMEM;
    c->tallies = tallies;
    c->tallies[c->n_tallies++] = (struct ras_tally){kind, count, ranks};
    return 0;
}

int ras_add_process(struct ras *r, const struct ras_process *p) {
    void *processes = r->processes;
    if (r->n_processes == RAS_RANKS_MAX)
        return -E2BIG;
    if (!room(&processes, r->n_processes, sizeof *r->processes))
        return -ENOMEM;
    r->processes = processes;
    r->processes[r->n_processes++] = *p;
    return 0;
}

uint32_t ras_kind(struct ras *r, const char *name, size_t len) {
    if (len == 0 || len >= RAS_WORD_MAX)
        return RAS_KINDS_MAX;
    for (uint32_t i = 0; i < r->n_kinds; i++)
        if (strlen(r->kinds[i]) == len && memcmp(r->kinds[i], name, len) == 0)
            return i;
    if (r->n_kinds == RAS_KINDS_MAX)
        return RAS_KINDS_MAX;
    memcpy(r->kinds[r->n_kinds], name, len);
    r->kinds[r->n_kinds][len] = '\0';
    return r->n_kinds++;
}

int ras_read(const char *answer, size_t len, struct ras *ret, struct err *err) {
    *ret = (struct ras){0};
    if (len > RAS_ANSWER_MAX)
        return err_set(err, -E2BIG, "the answer has more than %u bytes", RAS_ANSWER_MAX);
    size_t blanks = 0;
    while (blanks < len && (answer[blanks] == ' ' || answer[blanks] == '\n'))
        blanks++;
    int r = blanks < len && answer[blanks] == '{' ? ras_read_json(answer, len, ret, err)
                                                  : ras_read_text(answer, len, ret, err);
    if (r < 0)
        ras_fini(ret);
    return r;
}

/* ---- in words ---- */

/* Adds the text, if there is room for it. */
static void add_line(struct strbuf *to, size_t begin, bool *full, struct strbuf *line) {
    static const char cut[] = "(more was left out)\n";
    if (!*full && to->len - begin + line->len + sizeof cut > RAS_SUMMARY_MAX) {
        *full = true;
        strbuf_add(to, cut);
    }
    if (!*full)
        strbuf_add(to, strbuf_text(line));
    strbuf_clear(line);
}

static bool of_tally(const struct ras_rank *rank, const struct ras_tally *t) {
    return (rank->counted >> t->kind & 1) != 0 && rank->counts[t->kind] == t->count;
}

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

/* "rank 2 (10.0.0.2, pid 12)", or if these are many, or not `places`: "ranks 0-1, 3". False: none
 * was chosen. The ranks are in order. */
static bool add_ranks(struct strbuf *line, const struct ras_comm *c, bool places, choose_fn *choose,
                      const void *arg) {
    uint32_t n = count_ranks(c, choose, arg), ranges = 0;
    places = places && n <= NAMED_MAX;
    if (n == 0)
        return false;
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
            return true;
        }
        strbuf_printf(line, "%s%u", ranges > 1 ? ", " : "", c->ranks[i].rank);
        if (last > i)
            strbuf_printf(line, "-%u", c->ranks[last].rank);
        if (places)
            add_place(line, c->ranks[i].host, c->ranks[i].pid);
        i = last;
    }
    return true;
}

static bool choose_tally(const struct ras_rank *rank, const void *arg) {
    return of_tally(rank, arg);
}

static bool choose_dead(const struct ras_rank *rank, const void *arg) {
    (void)arg;
    return rank->missing && rank->dead;
}

static bool choose_gone(const struct ras_rank *rank, const void *arg) {
    (void)arg;
    return rank->missing && !rank->dead && rank->state == RAS_STATE_NOCOMM;
}

static bool choose_silent(const struct ras_rank *rank, const void *arg) {
    (void)arg;
    return rank->missing && !rank->dead && rank->state != RAS_STATE_NOCOMM;
}

static bool choose_error(const struct ras_rank *rank, const void *arg) {
    return rank->error[0] != '\0' && strcmp(rank->error, arg) == 0;
}

static bool choose_state(const struct ras_rank *rank, const void *arg) {
    return !rank->missing && rank->state == *(const enum ras_state *)arg;
}

static void add_head(struct strbuf *line, const struct ras_comm *c) {
    strbuf_printf(line, "communicator 0x%llx", (unsigned long long)c->hash);
    if (c->size > 0)
        strbuf_printf(line, " (%u ranks)", c->size);
    strbuf_add(line, ": ");
}

static void add_tallies(const struct ras *r, const struct ras_comm *c, struct strbuf *to,
                        size_t begin, bool *full) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    for (uint32_t i = 0; i < c->n_tallies;) {
        uint32_t kind = c->tallies[i].kind, first = i;
        add_head(&line, c);
        strbuf_printf(&line, "%s: ", r->kinds[kind]);
        for (; i < c->n_tallies && c->tallies[i].kind == kind; i++) {
            const struct ras_tally *t = &c->tallies[i];
            if (i - first > RANGES_MAX)
                continue;
            strbuf_printf(&line, "%s%llu in ", i > first ? "; " : "", (unsigned long long)t->count);
            if (count_ranks(c, choose_tally, t) == t->ranks)
                (void)add_ranks(&line, c, i > first, choose_tally, t);
            else
                strbuf_printf(&line, "%u rank%s", t->ranks, t->ranks == 1 ? "" : "s");
        }
        strbuf_add(&line, "\n");
        add_line(to, begin, full, &line);
    }
}

static void add_missing(const struct ras_comm *c, struct strbuf *to, size_t begin, bool *full) {
    static const struct {
        choose_fn *choose;
        const char *what;
    } rows[] = {
        {choose_dead, "considered dead"},
        {choose_silent, "no answer"},
        {choose_gone, "has left the communicator"},
    };
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    bool named = false;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        add_head(&line, c);
        strbuf_printf(&line, "%s: ", rows[i].what);
        if (add_ranks(&line, c, true, rows[i].choose, NULL)) {
            strbuf_add(&line, "\n");
            add_line(to, begin, full, &line);
            named = true;
        }
        strbuf_clear(&line);
    }
    if (!named && c->n_missing > 0) {
        add_head(&line, c);
        strbuf_printf(&line, "no answer: %u rank%s\n", c->n_missing, c->n_missing == 1 ? "" : "s");
        add_line(to, begin, full, &line);
    }
}

static void add_states(const struct ras_comm *c, struct strbuf *to, size_t begin, bool *full) {
    static const char *const words[] = {
        [RAS_STATE_INIT] = "still initializing",
        [RAS_STATE_FINALIZE] = "finalizing",
        [RAS_STATE_ABORT] = "aborted",
    };
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    for (enum ras_state s = RAS_STATE_INIT; s <= RAS_STATE_ABORT; s++) {
        if (words[s] == NULL)
            continue;
        add_head(&line, c);
        strbuf_printf(&line, "%s: ", words[s]);
        if (add_ranks(&line, c, true, choose_state, &s)) {
            strbuf_add(&line, "\n");
            add_line(to, begin, full, &line);
        }
        strbuf_clear(&line);
    }
}

static void add_errors(const struct ras_comm *c, struct strbuf *to, size_t begin, bool *full) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    for (uint32_t i = 0; i < c->n_ranks && !*full; i++) {
        const char *error = c->ranks[i].error;
        bool again = error[0] == '\0';
        for (uint32_t k = 0; k < i && !again; k++)
            again = strcmp(c->ranks[k].error, error) == 0;
        if (again)
            continue;
        add_head(&line, c);
        strbuf_printf(&line, "%s: ", error);
        (void)add_ranks(&line, c, true, choose_error, error);
        strbuf_add(&line, "\n");
        add_line(to, begin, full, &line);
    }
}

static void add_processes(const struct ras *r, struct strbuf *to, size_t begin, bool *full) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    if (r->n_dead > 0)
        strbuf_printf(&line, "%u process%s considered dead\n", r->n_dead,
                      r->n_dead == 1 ? "" : "es");
    if (r->n_silent > 0)
        strbuf_printf(&line, "%u process%s gave no answer\n", r->n_silent,
                      r->n_silent == 1 ? "" : "es");
    add_line(to, begin, full, &line);
    for (uint32_t i = 0; i < r->n_processes && !*full; i++) {
        const struct ras_process *p = &r->processes[i];
        strbuf_printf(&line, "%s: pid %d on %s\n", p->dead ? "considered dead" : "no answer",
                      p->pid, p->host);
        add_line(to, begin, full, &line);
    }
    if (r->timeouts > 0)
        strbuf_printf(&line, "%u time-out%s of the service itself\n", r->timeouts,
                      r->timeouts == 1 ? "" : "s");
    add_line(to, begin, full, &line);
}

void ras_summary(const struct ras *r, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    size_t begin = to->len;
    bool full = false;
    strbuf_printf(&line, "NCCL%s%s: %u communicator%s\n", r->version[0] != '\0' ? " " : "",
                  r->version, r->n_comms_told, r->n_comms_told == 1 ? "" : "s");
    add_line(to, begin, &full, &line);
    add_processes(r, to, begin, &full);
    for (uint32_t i = 0; i < r->n_comms && !full; i++) {
        const struct ras_comm *c = &r->comms[i];
        size_t before = to->len;
        add_missing(c, to, begin, &full);
        add_errors(c, to, begin, &full);
        add_states(c, to, begin, &full);
        add_tallies(r, c, to, begin, &full);
        if (to->len == before && r->whole && !full) {
            add_head(&line, c);
            strbuf_add(&line, "all ranks have launched the same collectives\n");
            add_line(to, begin, &full, &line);
        }
    }
}

/* ---- counts ---- */

#define COUNT_MAX (UINT64_C(1) << 48) /* of one kind: their sum has room */

static bool is_ours(const struct ras *r, const struct ras_comm *c, const struct ras_own *own,
                    size_t n_own) {
    bool confirmed = !r->whole;
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

/* The sum of a rank of which all kinds are named. */
static uint64_t sum_of(const struct ras *r, const struct ras_rank *at) {
    uint64_t sum = 0;
    for (uint32_t kind = 0; kind < r->n_kinds; kind++)
        sum += MIN2(at->counts[kind], COUNT_MAX);
    return sum;
}

static void add_whole(const struct ras *r, const struct ras_comm *c, uint32_t world, uint64_t *sums,
                      bool *known) {
    bool *here = xcalloc(world, sizeof *here);
    for (uint32_t k = 0; k < c->n_ranks; k++) {
        const struct ras_rank *at = &c->ranks[k];
        if (at->rank >= world || at->missing || at->counted == 0 || here[at->rank])
            continue;
        here[at->rank] = true;
        sums[at->rank] += sum_of(r, at);
    }
    for (uint32_t i = 0; i < world; i++)
        known[i] = known[i] && here[i];
    free(here);
}

/* How many of the ranks that are named have this count. */
static uint32_t named(const struct ras_comm *c, const struct ras_tally *t) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < c->n_ranks; k++)
        n += (c->ranks[k].counted >> t->kind & 1) != 0 && c->ranks[k].counts[t->kind] == t->count;
    return n;
}

/* The text form names who differs from most. False: it doesn't say who all of them are. */
static bool add_outliers(const struct ras_comm *c, uint32_t world, uint64_t *sums, bool *known) {
    uint64_t most[RAS_KINDS_MAX] = {0};
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < c->n_tallies; i++) {
        const struct ras_tally *t = &c->tallies[i];
        if ((kinds >> t->kind & 1) != 0 && named(c, t) != t->ranks)
            return false;
        if ((kinds >> t->kind & 1) == 0)
            most[t->kind] = MIN2(t->count, COUNT_MAX);
        kinds |= 1U << t->kind;
    }
    for (uint32_t kind = 0; kind < RAS_KINDS_MAX; kind++)
        for (uint32_t i = 0; i < world; i++)
            sums[i] += most[kind];
    for (uint32_t k = 0; k < c->n_ranks; k++) {
        const struct ras_rank *at = &c->ranks[k];
        if (at->rank >= world)
            continue;
        for (uint32_t kind = 0; kind < RAS_KINDS_MAX; kind++)
            if ((at->counted & kinds) >> kind & 1)
                sums[at->rank] += MIN2(at->counts[kind], COUNT_MAX) - most[kind];
        known[at->rank] = known[at->rank] && !at->missing;
    }
    return kinds != 0;
}

uint32_t ras_counts(const struct ras *r, uint32_t world, const struct ras_own *own, size_t n_own,
                    uint64_t *ret) {
    _cleanup_(freep) bool *known = xcalloc(world + (size_t)1, sizeof *known);
    bool any = false;
    uint32_t n = 0;
    memset(known, true, world);
    memset(ret, 0, world * sizeof *ret);
    for (uint32_t i = 0; i < r->n_comms; i++) {
        const struct ras_comm *c = &r->comms[i];
        if (c->size != world || !is_ours(r, c, own, n_own))
            continue;
        if (r->whole)
            add_whole(r, c, world, ret, known);
        any = r->whole || add_outliers(c, world, ret, known) || any;
    }
    for (uint32_t i = 0; i < world; i++) {
        ret[i] = any && known[i] ? MAX2(ret[i], (uint64_t)1) : 0;
        n += ret[i] != 0;
    }
    return n;
}
