#include "cli/profile/profile_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"
#include "base/text/utf8.h"
#include "watchdog/judge/suspects.h"

#define BAR_COLUMNS 40
#define SHOWN_SHARE 0.015 /* smaller ones are added up */
#define SINGLE_ROWS 16    /* above, ranks that do the same share a row */
#define ROWS_MAX 48
#define SAME_SHARE 0.05
#define RANGES_MAX 60 /* bytes */
#define LATE_AFTER_NS (3 * NS_PER_S)

struct profile_percent profile_percent(double share) {
    struct profile_percent ret;
    if (isfinite(share) && share > 0 && share < 0.0095)
        (void)strcpy(ret.text, "<1 %");
    else
        (void)snprintf(ret.text, sizeof ret.text, "%.0f %%", isfinite(share) ? 100 * share : 0.0);
    return ret;
}

double profile_seconds(const struct profile_findings *f) {
    return floor(10 * (double)f->span_ns / (double)NS_PER_S + 0.5) / 10;
}

uint32_t profile_largest(const double shares[PROFILE_CLASS_COUNT], double at_least,
                         enum profile_class ret[PROFILE_CLASS_COUNT]) {
    uint32_t n = 0;
    for (unsigned c = 0; c < PROFILE_CLASS_COUNT; c++) {
        if (!(shares[c] >= at_least))
            continue;
        uint32_t at = n++;
        for (; at > 0 && shares[ret[at - 1]] < shares[c]; at--)
            ret[at] = ret[at - 1];
        ret[at] = (enum profile_class)c;
    }
    return n;
}

void profile_add_late(const struct profile_findings *f, const struct profile_late *l,
                      struct strbuf *ret) {
    strbuf_printf(ret, "rank %" PRIu32 " ", l->rank);
    switch (l->how) {
    case PROFILE_IS_LATE:
        strbuf_printf(ret, "is late: the others wait for it %s of the time", PERCENT(l->share));
        break;
    case PROFILE_PAUSES:
        strbuf_printf(ret, "makes the others wait %" PRIu32 " %s, %.1f s each: %s of the time",
                      l->n_pauses, l->n_pauses == 1 ? "time" : "times", l->pause_s,
                      PERCENT(l->share));
        break;
    case PROFILE_MOST_WORK:
        strbuf_printf(ret, "has the most to do: it works %s of the time, the others %s",
                      PERCENT(l->works), PERCENT(l->others_work));
        if (f->load_balance > 0 && f->load_balance < 1)
            strbuf_printf(ret, "; evenly divided, a step would take %s less",
                          PERCENT(1 - f->load_balance));
        break;
    }
}

const char *profile_none_late(const struct profile_findings *f) {
    return f->n_ranks < 2                ? "one rank alone is never late"
           : f->span_ns <= LATE_AFTER_NS ? "too short to find late ranks: this needs more than 3 s"
                                         : "no rank is late";
}

void profile_add_reason(const struct profile_reason *r, bool is_more, struct strbuf *ret) {
    strbuf_printf(ret, is_more ? "%s (+%s)" : "%s %s", profile_class_names[r->cls],
                  PERCENT(r->share));
    if (r->place[0] != '\0')
        strbuf_printf(ret, ", %s", r->place);
}

static void add_late_ranks(const struct profile_findings *f, struct strbuf *ret) {
    for (uint32_t i = 0; i < f->n_late; i++) {
        const struct profile_late *l = &f->late[i];
        profile_add_late(f, l, ret);
        strbuf_add_char(ret, '\n');
        for (uint32_t k = 0; k < l->n_reasons; k++) {
            strbuf_add(ret, k == 0 ? "  it spends more time in " : "  and in ");
            profile_add_reason(&l->reasons[k], true, ret);
            strbuf_add_char(ret, '\n');
        }
    }
    if (f->n_late == 0)
        strbuf_printf(ret, "%s\n", profile_none_late(f));
}

static const char *const limit_keys[] = {
    [PROFILE_LIMIT_NONE] = "none",
    [PROFILE_LIMIT_DATA_HERE] = "data_here",
    [PROFILE_LIMIT_DATA_WORKERS] = "data_workers",
    [PROFILE_LIMIT_DATA] = "data",
    [PROFILE_LIMIT_CPU] = "cpu",
    [PROFILE_LIMIT_NETWORK] = "network",
    [PROFILE_LIMIT_DEVICE] = "device",
};
/* Before and behind the share of the time. */
static const char *const limit_words[][2] = {
    [PROFILE_LIMIT_NONE] = {"", ""},
    [PROFILE_LIMIT_DATA_HERE] = {"data loading limits the job: ",
                                 " of the time, in the worker's main process (num_workers=0)"},
    [PROFILE_LIMIT_DATA_WORKERS] = {"data loading limits the job: ",
                                    " of the time; its processes are always busy"},
    [PROFILE_LIMIT_DATA] = {"data loading limits the job: ",
                            " of the time; its processes are not always busy"},
    [PROFILE_LIMIT_CPU] = {"too few CPUs: main threads are ready to run, but find no CPU ",
                           " of the time"},
    [PROFILE_LIMIT_NETWORK] = {"the network limits the job: all ranks wait at once ",
                               " of the time"},
    [PROFILE_LIMIT_DEVICE] = {"hosts wait for their GPUs ",
                              " of the time; which GPU is slow cannot be seen from the host"},
};

static void add_limits(const struct profile_view *v, struct strbuf *ret) {
    uint32_t children = 0;
    for (uint32_t i = 0; i < v->profile->n_ranks; i++)
        children = MAX2(children, v->profile->ranks[i].n_children);
    for (uint32_t i = 0; i < v->findings->n_limits; i++) {
        const struct profile_found_limit *l = &v->findings->limits[i];
        strbuf_printf(ret, "%s%s%s", limit_words[l->what][0], PERCENT(l->share),
                      limit_words[l->what][1]);
        if (l->what == PROFILE_LIMIT_DATA_WORKERS)
            strbuf_printf(ret, " (%" PRIu32 " for each rank)", children);
        strbuf_printf(ret, "%s%s\n", l->place[0] != '\0' ? "\n  in " : "", l->place);
    }
}

struct group {
    const struct profile_row *first;
    double works, mostly[2]; /* sums over its ranks */
    uint32_t n, n_mostly;
    uint32_t *ranks; /* [n]; owned */
    char label[RANGES_MAX + 8];
};

bool profile_is_late(const struct profile_findings *f, uint32_t rank) {
    for (uint32_t i = 0; i < f->n_late; i++)
        if (f->late[i].rank == rank)
            return true;
    return false;
}

static bool same(const struct profile_row *a, const struct profile_row *b, uint32_t k) {
    const struct profile_reason *x = &a->mostly[k], *y = &b->mostly[k];
    if (k >= a->n_mostly || k >= b->n_mostly)
        return a->n_mostly == b->n_mostly;
    return x->cls == y->cls && strcmp(x->place, y->place) == 0 &&
           fabs(x->share - y->share) < SAME_SHARE;
}

static bool fits(const struct profile_findings *f, const struct group *g,
                 const struct profile_row *r) {
    return !profile_is_late(f, g->first->rank) && !profile_is_late(f, r->rank) &&
           fabs(g->first->works - r->works) < SAME_SHARE && same(g->first, r, 0) &&
           strcmp(g->first->gap, r->gap) == 0;
}

static void add_to_group(struct group *g, const struct profile_row *r) {
    if (g->n == 0)
        *g = (struct group){.first = r, .n_mostly = r->n_mostly};
    g->ranks = xgrow(g->ranks, g->n, sizeof *g->ranks);
    g->ranks[g->n++] = r->rank;
    g->works += r->works;
    for (uint32_t k = 0; k < 2; k++)
        g->mostly[k] += r->mostly[k].share;
    if (!same(g->first, r, 1))
        g->n_mostly = MIN2(g->n_mostly, 1);
}

static void add_group(const struct group *g, int width, struct strbuf *ret) {
    double works = floor(100 * g->works / g->n + 0.5) / 100; /* as it is shown: the sum is 100 % */
    bool sampled = g->first->works + g->first->waits > 0;
    strbuf_printf(ret, "%*s  %5s  %5s  ", width, g->label, sampled ? PERCENT(works) : "-",
                  sampled ? PERCENT(1 - works) : "-");
    for (uint32_t k = 0; k < g->n_mostly; k++) {
        struct profile_reason mean = g->first->mostly[k];
        mean.share = g->mostly[k] / g->n;
        strbuf_add(ret, k == 0 ? "" : "; ");
        profile_add_reason(&mean, false, ret);
    }
    if (g->first->gap[0] != '\0')
        strbuf_printf(ret, "%s(%s)", g->n_mostly > 0 ? " " : "", g->first->gap);
    strbuf_add_char(ret, '\n');
}

static void add_rows(const struct profile_view *v, struct strbuf *ret) {
    const struct profile_findings *f = v->findings;
    struct group groups[ROWS_MAX] = {0};
    uint32_t n = 0, n_shown = 0, beyond = 0;
    int width = 4;
    for (uint32_t i = 0; i < f->n_rows; i++)
        n_shown += rank_set_has(v->ranks, f->rows[i].rank);
    for (uint32_t i = 0; i < f->n_rows; i++) {
        uint32_t g = n_shown > SINGLE_ROWS ? 0 : n;
        if (!rank_set_has(v->ranks, f->rows[i].rank))
            continue;
        while (g < n && !fits(f, &groups[g], &f->rows[i]))
            g++;
        n += g == n && n < ROWS_MAX;
        if (g < n)
            add_to_group(&groups[g], &f->rows[i]);
        else
            beyond++;
    }
    for (uint32_t g = 0; g < n; g++) {
        _cleanup_(strbuf_fini) struct strbuf ranges = {0};
        suspects_ranges(groups[g].ranks, groups[g].n, RANGES_MAX, &ranges);
        utf8_copy_line(groups[g].label, sizeof groups[g].label, strbuf_text(&ranges));
        width = MAX2(width, (int)ranges.len);
        free(groups[g].ranks);
    }
    if (n > 0)
        strbuf_printf(ret, "\n%*s  works  waits  mostly\n", width, "rank");
    for (uint32_t g = 0; g < n; g++)
        add_group(&groups[g], width, ret);
    if (beyond > 0)
        strbuf_printf(ret, "%" PRIu32 " more ranks, which differ; --rank shows them\n", beyond);
}

static void add_shares(const struct profile_findings *f, struct strbuf *ret) {
    enum profile_class order[PROFILE_CLASS_COUNT];
    uint32_t n = profile_largest(f->shares, SHOWN_SHARE, order);
    double rest = 1;
    strbuf_add(ret, "\nwhere the time goes, for the average rank\n");
    for (uint32_t i = 0; i < n; i++) {
        double share = f->shares[order[i]];
        rest -= share;
        strbuf_printf(ret, "  %-26s %5s  ", profile_class_names[order[i]], PERCENT(share));
        for (long k = 0; k < (long)(BAR_COLUMNS * share + 0.5); k++)
            strbuf_add(ret, "█");
        strbuf_add_char(ret, '\n');
    }
    if (rest >= 0.0005)
        strbuf_printf(ret, "  %-26s %5s\n", "the rest", PERCENT(rest));
    strbuf_add_char(ret, '\n');
    if (f->communication > 0 && isfinite(f->load_balance))
        strbuf_printf(ret, "parallel efficiency %s = load balance %s x communication %s\n",
                      PERCENT(f->load_balance * f->communication), PERCENT(f->load_balance),
                      PERCENT(f->communication));
    else
        strbuf_add(ret, "parallel efficiency 0 %: all ranks only wait\n");
}

void profile_text(const struct profile_view *v, struct strbuf *ret) {
    const struct profile_findings *f = v->findings;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    double hz = (double)NS_PER_S / (double)MAX2(v->profile->period_ns, 1);
    strbuf_printf(&text, "job %s: %" PRIu32 " %s on %" PRIu32 " %s", v->run_id, v->world_size,
                  v->world_size == 1 ? "rank" : "ranks", v->n_nodes,
                  v->n_nodes == 1 ? "node" : "nodes");
    if (f->n_ticks > 0) {
        strbuf_printf(&text, ", %g samples a second for %g s\n", floor(hz * 10 + 0.5) / 10,
                      profile_seconds(f));
        add_shares(f, &text);
        add_late_ranks(f, &text);
        add_limits(v, &text);
    } else {
        strbuf_add(&text, "; no sample has stacks of all ranks\n");
    }
    add_rows(v, &text);
    for (uint32_t i = 0; i < v->n_missing; i++)
        strbuf_printf(&text, "%snode %s is missing: %s\n", i == 0 ? "\n" : "", v->missing[i].node,
                      v->missing[i].why);
    utf8_clean(text.data, true);
    strbuf_add_bytes(ret, text.data, text.len);
}

static const struct json_field reason_fields[] = {
    {JSON_NAMED(profile_reason, "class", cls, profile_class_keys)},
    {JSON_FIELD(profile_reason, DOUBLE, "share", share)},
    {JSON_FIELD(profile_reason, TEXT, "place", place)},
};
static const struct json_table reason_table = JSON_TABLE(profile_reason, reason_fields);

static const char *const how_keys[] = {
    [PROFILE_IS_LATE] = "late", [PROFILE_PAUSES] = "pauses", [PROFILE_MOST_WORK] = "most_work"};
static const struct json_field late_fields[] = {
    {JSON_FIELD(profile_late, U32, "rank", rank)},
    {JSON_NAMED(profile_late, "how", how, how_keys)},
    {JSON_FIELD(profile_late, DOUBLE, "share", share)},
    {JSON_FIELD(profile_late, DOUBLE, "works", works)},
    {JSON_FIELD(profile_late, DOUBLE, "others_work", others_work)},
    {JSON_FIELD(profile_late, U32, "pauses", n_pauses)},
    {JSON_FIELD(profile_late, DOUBLE, "pause_s", pause_s)},
    {JSON_LIST(profile_late, "reasons", reasons, n_reasons, reason_table)},
};
static const struct json_table late_table = JSON_TABLE(profile_late, late_fields);

static const struct json_field limit_fields[] = {
    {JSON_NAMED(profile_found_limit, "what", what, limit_keys)},
    {JSON_FIELD(profile_found_limit, DOUBLE, "share", share)},
    {JSON_FIELD(profile_found_limit, TEXT, "place", place)},
};
static const struct json_table limit_table = JSON_TABLE(profile_found_limit, limit_fields);

static const struct json_field findings_fields[] = {
    {JSON_FIELD(profile_findings, U32, "samples", n_ticks)},
    {JSON_FIELD(profile_findings, DOUBLE, "load_balance", load_balance)},
    {JSON_FIELD(profile_findings, DOUBLE, "communication", communication)},
    {JSON_LIST(profile_findings, "late", late, n_late, late_table)},
    {JSON_LIST(profile_findings, "limits", limits, n_limits, limit_table)},
};
static const struct json_table findings_table = JSON_TABLE(profile_findings, findings_fields);

static const struct json_field row_fields[] = {
    {JSON_FIELD(profile_row, U32, "rank", rank)},
    {JSON_FIELD(profile_row, DOUBLE, "works", works)},
    {JSON_FIELD(profile_row, DOUBLE, "waits", waits)},
    {JSON_LIST(profile_row, "mostly", mostly, n_mostly, reason_table)},
};
static const struct json_table row_table = JSON_TABLE(profile_row, row_fields);

void profile_json(const struct profile_view *v, struct strbuf *ret) {
    const struct profile_findings *f = v->findings;
    struct json_writer w = json_writer_of(ret);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "job", v->run_id);
    json_write_u64(&w, "ranks", v->world_size);
    json_write_u64(&w, "nodes", v->n_nodes);
    json_write_double(&w, "period_s", (double)v->profile->period_ns / (double)NS_PER_S);
    json_write_double(&w, "seconds", profile_seconds(f));
    json_write_object_begin(&w, "shares");
    for (unsigned c = 0; c < PROFILE_CLASS_COUNT; c++)
        json_write_double(&w, profile_class_keys[c], f->shares[c]);
    json_write_object_end(&w);
    json_write_double(&w, "parallel_efficiency", f->load_balance * f->communication);
    json_table_write(&w, &findings_table, f);
    json_write_array_begin(&w, "rows");
    for (uint32_t i = 0; i < f->n_rows; i++) {
        if (!rank_set_has(v->ranks, f->rows[i].rank))
            continue;
        json_write_object_begin(&w, NULL);
        json_table_write(&w, &row_table, &f->rows[i]);
        json_write_string(&w, "missing", f->rows[i].gap[0] != '\0' ? f->rows[i].gap : NULL);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_array_begin(&w, "missing_nodes");
    for (uint32_t i = 0; i < v->n_missing; i++) {
        json_write_object_begin(&w, NULL);
        json_write_string(&w, "node", v->missing[i].node);
        json_write_string(&w, "missing", v->missing[i].why);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add_char(ret, '\n');
}
