#include "launcher/preflight/node_summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"
#include "base/text/utf8.h"

enum { ALONE, COMPARED, MATTERS }; /* how a difference between nodes is treated */

/* Each fact's name in JSON and in messages, its code, and how a difference is treated. */
#define FACTS(F)                                          \
    F(GPUS, "gpus", "GPUS-DIFFER", MATTERS)               \
    F(DRIVER, "driver", "DRIVER-DIFFERS", MATTERS)        \
    F(CUDA, "cuda", "CUDA-DIFFERS", COMPARED)             \
    F(NCCL, "nccl", "NCCL-DIFFERS", MATTERS)              \
    F(TORCH, "torch", "TORCH-DIFFERS", MATTERS)           \
    F(HCAS, "hcas", "HCAS-DIFFER", MATTERS)               \
    F(RAILS, "rails", "RAILS-DIFFER", COMPARED)           \
    F(NETIF, "interface", "NETIF-DIFFERS", COMPARED)      \
    F(MTU, "mtu", "MTU-DIFFERS", MATTERS)                 \
    F(FAST, "fast network", "FAST-NET-DIFFERS", COMPARED) \
    F(FAST_MTU, "fast mtu", "FAST-MTU-DIFFERS", COMPARED) \
    F(MEMLOCK, "memlock", "MEMLOCK-DIFFERS", COMPARED)    \
    F(SHM, "shm", "SHM-DIFFERS", COMPARED)                \
    F(NAME, "own name", "NAME-DIFFERS", COMPARED)         \
    F(KERNEL, "kernel", "KERNEL-DIFFERS", COMPARED)       \
    F(DISK, "free disk", "", ALONE)                       \
    F(PROCESSES, "gpu processes", "", ALONE)

#define FACT(f, name, code, how) [NODE_SUMMARY_##f] = {code, how},
static const struct {
    const char *code;
    int how;
} facts[NODE_SUMMARY_FACT_COUNT] = {FACTS(FACT)};

#define VALUE(f, name, code, how)                                    \
    {JSON_FIELD(node_summary, LINE, name, values[NODE_SUMMARY_##f]), \
     JSON_IF_TEXT(node_summary, values[NODE_SUMMARY_##f])},
static const struct json_field fact_fields[NODE_SUMMARY_FACT_COUNT] = {FACTS(VALUE)};
const struct json_table node_summary_facts = {JSON_ROWS(node_summary, fact_fields), .open = true};

const char *node_summary_fact_name(enum node_summary_fact f) { return fact_fields[f].key; }
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
    utf8_copy_line(d->values[f], sizeof d->values[f], text);
}

/* If the list is full, the last less severe finding is replaced. */
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

struct node_summary_finding *node_summary_add(struct node_summary *d, enum node_summary_level level,
                                              const char *code, const char *fmt, ...) {
    struct node_summary_finding *f = place_for(d, level);
    if (f == NULL)
        return NULL;
    char text[NODE_SUMMARY_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *f = (struct node_summary_finding){.level = level};
    (void)snprintf(f->code, sizeof f->code, "%s", code);
    utf8_copy_line(f->text, sizeof f->text, text);
    return f;
}

enum node_summary_level node_summary_worst(const struct node_summary *d) {
    enum node_summary_level worst = NODE_SUMMARY_OK;
    for (uint32_t i = 0; i < d->n_findings; i++)
        worst = MAX2(worst, d->findings[i].level);
    return worst;
}

/* ---- JSON ---- */

static const struct json_field finding_fields[] = {
    {JSON_NAMED(node_summary_finding, "level", level, level_names), .min = NODE_SUMMARY_OK},
    {JSON_FIELD(node_summary_finding, LINE, "code", code)},
    {JSON_FIELD(node_summary_finding, LINE, "text", text)},
};
const struct json_table node_summary_finding = {JSON_ROWS(node_summary_finding, finding_fields),
                                                .open = true};

static void write_clock(struct json_writer *w, const struct json_field *f, const void *of) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, ((const struct node_summary *)of)->clock_ns);
    json_write_string(w, f->key, text);
}

static int read_clock(const struct json *v, const struct json_field *f, void *of) {
    const char *text = json_string(v);
    char *end = NULL;
    (void)f;
    errno = 0;
    if (text != NULL)
        ((struct node_summary *)of)->clock_ns = strtoll(text, &end, 10);
    return text == NULL || strlen(text) > 20 || errno != 0 || end == text || *end != '\0' ? -EINVAL
                                                                                          : 0;
}

static const struct json_field fields[] = {
    {.key = "facts", .kind = JSON_FIELD_OBJECT, .table = &node_summary_facts},
    {JSON_FIELD(node_summary, OWN, "clock_ns", clock_ns), .write = write_clock, .read = read_clock,
     JSON_IF_TRUE(node_summary, has_clock)},
    {JSON_LIST(node_summary, "findings", findings, n_findings, node_summary_finding)},
};
static const struct json_table table = {JSON_ROWS(node_summary, fields), .open = true};

static void write_whole(const struct node_summary *d, struct strbuf *to) {
    strbuf_clear(to);
    json_table_text(&table, d, to);
}

/* If there is no room, findings are dropped first, then the last facts: a text full of escapes
 * takes several times its length. */
void node_summary_write(const struct node_summary *d, size_t max, struct strbuf *to) {
    struct node_summary part = *d;
    uint32_t n_facts = NODE_SUMMARY_FACT_COUNT;
    part.n_findings = 0;
    for (uint32_t i = 0; i < d->n_findings; i++)
        if (d->findings[i].level != NODE_SUMMARY_OK)
            part.findings[part.n_findings++] = d->findings[i];
    write_whole(&part, to);
    while (to->len >= max && (part.n_findings > 0 || n_facts > 0)) {
        if (part.n_findings > 0)
            part.n_findings--;
        else
            part.values[--n_facts][0] = '\0';
        write_whole(&part, to);
    }
}

static const struct json_limits limits = {
    .max_bytes = 64 * 1024, .max_depth = 4, .max_values = 512};

int node_summary_read(const char *text, size_t len, struct node_summary *ret, struct err *err) {
    memset(ret, 0, sizeof *ret);
    int r = json_table_parse(text, len, &limits, &table, ret, err);
    return r < 0 && r != -ENOMEM ? -EINVAL : r;
}
