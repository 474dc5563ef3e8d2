#include "launcher/preflight/node_summary.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text/utf8.h"

enum { ALONE, COMPARED, MATTERS }; /* what a difference between nodes is */

static const struct {
    const char *name, *code;
    int how;
} facts[NODE_SUMMARY_FACT_COUNT] = {
    [NODE_SUMMARY_GPUS] = {"gpus", "GPUS-DIFFER", MATTERS},
    [NODE_SUMMARY_DRIVER] = {"driver", "DRIVER-DIFFERS", MATTERS},
    [NODE_SUMMARY_CUDA] = {"cuda", "CUDA-DIFFERS", COMPARED},
    [NODE_SUMMARY_NCCL] = {"nccl", "NCCL-DIFFERS", MATTERS},
    [NODE_SUMMARY_TORCH] = {"torch", "TORCH-DIFFERS", MATTERS},
    [NODE_SUMMARY_HCAS] = {"hcas", "HCAS-DIFFER", MATTERS},
    [NODE_SUMMARY_RAILS] = {"rails", "RAILS-DIFFER", COMPARED},
    [NODE_SUMMARY_NETIF] = {"interface", "NETIF-DIFFERS", COMPARED},
    [NODE_SUMMARY_MTU] = {"mtu", "MTU-DIFFERS", MATTERS},
    [NODE_SUMMARY_FAST] = {"fast network", "FAST-NET-DIFFERS", COMPARED},
    [NODE_SUMMARY_FAST_MTU] = {"fast mtu", "FAST-MTU-DIFFERS", COMPARED},
    [NODE_SUMMARY_MEMLOCK] = {"memlock", "MEMLOCK-DIFFERS", COMPARED},
    [NODE_SUMMARY_SHM] = {"shm", "SHM-DIFFERS", COMPARED},
    [NODE_SUMMARY_NAME] = {"own name", "NAME-DIFFERS", COMPARED},
    [NODE_SUMMARY_KERNEL] = {"kernel", "KERNEL-DIFFERS", COMPARED},
    [NODE_SUMMARY_DISK] = {"free disk", "", ALONE},
    [NODE_SUMMARY_PROCESSES] = {"gpu processes", "", ALONE},
};

const char *node_summary_fact_name(enum node_summary_fact f) { return facts[f].name; }
const char *node_summary_fact_code(enum node_summary_fact f) { return facts[f].code; }
bool node_summary_fact_matters(enum node_summary_fact f) { return facts[f].how == MATTERS; }
bool node_summary_fact_compared(enum node_summary_fact f) { return facts[f].how != ALONE; }

static const char *const level_names[] = {
    [NODE_SUMMARY_OK] = "ok", [NODE_SUMMARY_WARN] = "warn", [NODE_SUMMARY_FAIL] = "fail"};
const char *node_summary_level_name(enum node_summary_level l) { return level_names[l]; }

void node_summary_set(struct node_summary *d, enum node_summary_fact f, const char *fmt, ...) {
    char text[NODE_SUMMARY_VALUE_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    utf8_copy(d->values[f], sizeof d->values[f], text);
    utf8_clean(d->values[f], false);
}

/* Where it is full, the last of those that weigh less goes. */
static struct node_summary_finding *place_for(struct node_summary *d,
                                              enum node_summary_level level) {
    if (d->n_findings < NODE_SUMMARY_FINDINGS_MAX)
        return &d->findings[d->n_findings++];
    struct node_summary_finding *least = &d->findings[d->n_findings - 1];
    for (uint32_t i = d->n_findings; i > 0; i--)
        if (d->findings[i - 1].level < least->level)
            least = &d->findings[i - 1];
    return least->level < level ? least : NULL;
}

void node_summary_add(struct node_summary *d, enum node_summary_level level, const char *code,
                      const char *fmt, ...) {
    struct node_summary_finding *f = place_for(d, level);
    if (f == NULL)
        return;
    char text[NODE_SUMMARY_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    f->level = level;
    (void)snprintf(f->code, sizeof f->code, "%s", code);
    utf8_copy(f->text, sizeof f->text, text);
    utf8_clean(f->text, false);
}

enum node_summary_level node_summary_worst(const struct node_summary *d) {
    enum node_summary_level worst = NODE_SUMMARY_OK;
    for (uint32_t i = 0; i < d->n_findings; i++)
        worst = MAX2(worst, d->findings[i].level);
    return worst;
}

/* ---- JSON ---- */

static void write_with(const struct node_summary *d, uint32_t n_facts, uint32_t n_findings,
                       struct strbuf *to) {
    strbuf_clear(to);
    struct json_writer w = json_writer_of(to);
    json_write_object_begin(&w, NULL);
    json_write_object_begin(&w, "facts");
    for (uint32_t f = 0; f < n_facts; f++)
        if (d->values[f][0] != '\0')
            json_write_string(&w, facts[f].name, d->values[f]);
    json_write_object_end(&w);
    if (d->has_clock) {
        char text[24];
        (void)snprintf(text, sizeof text, "%lld", (long long)d->clock_ns);
        json_write_string(&w, "clock_ns", text);
    }
    json_write_array_begin(&w, "findings");
    for (uint32_t i = 0; i < n_findings; i++) {
        const struct node_summary_finding *f = &d->findings[i];
        if (f->level == NODE_SUMMARY_OK)
            continue;
        json_write_object_begin(&w, NULL);
        json_write_string(&w, "level", level_names[f->level]);
        json_write_string(&w, "code", f->code);
        json_write_string(&w, "text", f->text);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
}

/* Findings go first, then the last facts: a text full of escapes takes several times its length. */
void node_summary_write(const struct node_summary *d, size_t max, struct strbuf *to) {
    uint32_t n_facts = NODE_SUMMARY_FACT_COUNT, n_findings = d->n_findings;
    write_with(d, n_facts, n_findings, to);
    while (to->len >= max && (n_findings > 0 || n_facts > 0)) {
        if (n_findings > 0)
            n_findings--;
        else
            n_facts--;
        write_with(d, n_facts, n_findings, to);
    }
}

static const struct json_limits limits = {
    .max_bytes = 64 * 1024, .max_depth = 4, .max_values = 512};

static int read_facts(const struct json *doc, struct node_summary *ret, struct err *err) {
    const struct json *list;
    int r = json_get_object(doc, "facts", &list, err);
    for (uint32_t f = 0; r == 0 && f < NODE_SUMMARY_FACT_COUNT; f++) {
        if (json_has(list, facts[f].name))
            r = json_get_text(list, facts[f].name, ret->values[f], NODE_SUMMARY_VALUE_MAX, err);
        utf8_clean(ret->values[f], false); /* another node says it, and people read it */
    }
    return r;
}

static int read_clock(const struct json *doc, struct node_summary *ret, struct err *err) {
    const char *text;
    if (!json_has(doc, "clock_ns"))
        return 0;
    int r = json_get_string(doc, "clock_ns", 20, &text, err);
    if (r < 0)
        return r;
    char *end;
    errno = 0;
    ret->clock_ns = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        return err_set(err, -EINVAL, "\"clock_ns\" is no number: '%s'", text);
    ret->has_clock = true;
    return 0;
}

static int read_finding(const struct json *v, struct node_summary_finding *ret, struct err *err) {
    const char *level;
    int r = json_get_string(v, "level", 8, &level, err);
    if (r == 0)
        r = json_get_text(v, "code", ret->code, sizeof ret->code, err);
    if (r == 0)
        r = json_get_text(v, "text", ret->text, sizeof ret->text, err);
    if (r < 0)
        return r;
    utf8_clean(ret->code, false);
    utf8_clean(ret->text, false);
    for (enum node_summary_level l = NODE_SUMMARY_OK; l <= NODE_SUMMARY_FAIL; l++)
        if (strcmp(level, level_names[l]) == 0)
            ret->level = l;
    return ret->level != 0 ? 0 : err_set(err, -EINVAL, "no level is called '%s'", level);
}

int node_summary_read(const char *text, size_t len, struct node_summary *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    const struct json *list;
    memset(ret, 0, sizeof *ret);
    int r = json_parse(text, len, &limits, &doc, err);
    if (r == 0)
        r = read_facts(doc, ret, err);
    if (r == 0)
        r = read_clock(doc, ret, err);
    if (r == 0)
        r = json_get_array(doc, "findings", NODE_SUMMARY_FINDINGS_MAX, &list, err);
    if (r < 0)
        return r == -ENOMEM ? r : -EINVAL;
    for (const struct json *v = json_first(list); v != NULL && r == 0; v = json_next(v))
        r = read_finding(v, &ret->findings[ret->n_findings++], err);
    return r < 0 ? -EINVAL : 0;
}
