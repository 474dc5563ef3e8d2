#include "launcher/place/place.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/text/envlist.h"
#include "base/text/parse.h"

void place_fini(struct place *p) {
    char *const texts[] = {p->job_id,    p->cluster,       p->job_nodelist, p->tasks_per_node,
                           p->step_id,   p->step_nodelist, p->first_host,   p->topology,
                           p->srun_host, p->cpu_masks,     p->block};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        free(texts[i]);
    free(p->names);
    *p = (struct place){0};
}

void place_clean_run_id(struct place *p) {
    for (char *c = p->run_id; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            *c = '_';
}

static enum place_by find_starter(char *const *envp, const struct place *p) {
    const char *starter = env_get(envp, STARTER_HEAD_ENV);
    const bool is_ours = starter != NULL && starter[0] != '\0';
    if (place_is_step(p))
        return is_ours ? PLACE_BY_OWN_SRUN : PLACE_BY_USER_SRUN;
    if (is_ours)
        return PLACE_BY_OWN_SSH;
    if (p->pod.kind != PLACE_POD_NONE)
        return PLACE_BY_POD;
    return p->launcher != NULL ? PLACE_BY_LAUNCHER : PLACE_BY_HAND;
}

/* An agent that a muster has started, or a worker's own run, is not what a launcher started. */
static bool can_have_launcher(char *const *envp) {
    return env_get(envp, STARTER_HEAD_ENV) == NULL &&
           env_get(envp, "TORCHELASTIC_RUN_ID") == NULL &&
           launcher_by_variables(envp, launchers) != NULL;
}

int place_read(char *const *envp, const struct place_probes *probes, struct place *ret,
               struct err *err) {
    struct place_facts facts = {0};
    struct place p = {0};
    const bool has_job =
        env_get(envp, "SLURM_JOB_ID") != NULL || env_get(envp, "SLURM_JOBID") != NULL;
    const bool may_launch = can_have_launcher(envp);
    if (probes->facts != NULL && (has_job || may_launch))
        probes->facts(probes->arg, &facts);
    int r = place_read_slurm(envp, &facts, &p, err);
    place_read_pod(envp, NULL, &p.pod);
    if (p.pod.kind == PLACE_POD_INDEXED && probes->file != NULL) {
        _cleanup_(freep) char *hosts = probes->file(probes->arg, "/etc/hosts");
        place_read_pod(envp, hosts, &p.pod);
    }
    if (r == 0 && may_launch) {
        p.names = xcalloc(PLACE_NAMES, sizeof *p.names);
        r = place_read_launcher(envp, probes, &facts, &p, err);
    }
    p.by = find_starter(envp, &p);
    *ret = p;
    return r;
}

/* ---- ports ---- */

static uint32_t common_divisor(uint32_t a, uint32_t b) {
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The last bytes of a text change mostly low bits of its FNV hash; see murmur3's finalizer. */
static uint64_t mixed(uint64_t h) {
    h ^= h >> 33;
    h *= UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 33;
    h *= UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

/* Steps of one width through the range, which has no divisor in common with it, meet each port
 * once. Runs differ in start and width, so two that share one port seldom share the next. */
size_t place_ports(const char *run_id, uint16_t low, uint16_t high, uint16_t ret[PLACE_PORTS_MAX]) {
    assert(low > 0 && low <= high);
    uint64_t h = mixed(hash_text(HASH_BEGIN, run_id));
    uint32_t size = (uint32_t)(high - low) + 1;
    uint32_t at = (uint32_t)(h & UINT32_MAX) % size;
    uint32_t width = 1 + (uint32_t)(h >> 32) % size;
    while (common_divisor(width, size) != 1)
        width++;
    size_t n = MIN2(size, (uint32_t)PLACE_PORTS_MAX);
    for (size_t i = 0; i < n; i++, at = (at + width) % size)
        ret[i] = (uint16_t)(low + at);
    return n;
}

/* ==== a pod of Kubernetes ==== */

#define WORDS_MAX 3 /* of a line of hosts(5): address, full name, host name */

/* A piece of a longer text: it has no NUL at its end. */
struct word {
    const char *at;
    size_t len;
};

/* Letters, digits, dots and dashes: RFC 1123 §2.1. */
static bool is_name(const struct word *w) {
    for (size_t i = 0; i < w->len; i++)
        if (!isalnum((unsigned char)w->at[i]) && w->at[i] != '.' && w->at[i] != '-')
            return false;
    return w->len > 0 && w->len < PLACE_POD_NAME_MAX;
}

static bool same(const struct word *a, const struct word *b) {
    return a->len == b->len && strncasecmp(a->at, b->at, a->len) == 0;
}

/* The length of JOB in "JOB-INDEX", 0: it is another name. */
static size_t job_length(const struct word *label, uint32_t index) {
    char end[16];
    int n = snprintf(end, sizeof end, "-%u", index);
    bool ends_so =
        label->len > (size_t)n && memcmp(label->at + label->len - (size_t)n, end, (size_t)n) == 0;
    return ends_so ? label->len - (size_t)n : 0;
}

static void keep(char *ret, size_t size, const struct word *text) {
    (void)snprintf(ret, size, "%.*s", (int)MIN2(text->len, size - 1), text->at);
}

/* One line: "ADDRESS JOB-INDEX.SUBDOMAIN… JOB-INDEX". A line that the user added (hostAliases) can
 * have such a name, too, but not with the host name behind it and before the pod's own lines. */
static void read_line(struct place_pod *p, const char *line) {
    struct word words[WORDS_MAX];
    for (size_t i = 0; i < WORDS_MAX; i++, line += words[i - 1].len) {
        words[i].len = text_word(&line);
        words[i].at = line;
        if (words[i].len == 0)
            return;
    }
    const struct word *addr = &words[0], *full = &words[1], *host = &words[2];
    const char *dot = memchr(full->at, '.', full->len);
    if (dot == NULL || !is_name(full) || addr->len >= PLACE_POD_ADDR_MAX)
        return;
    const struct word label = {.at = full->at, .len = (size_t)(dot - full->at)};
    size_t job = job_length(&label, p->index);
    if (job == 0 || !same(&label, host))
        return;
    if (p->full_name[0] == '\0') {
        keep(p->full_name, sizeof p->full_name, full);
        keep(p->job, sizeof p->job, &(struct word){.at = label.at, .len = job});
        /* no longer than the full name */
        char *end = mempcpy(p->first_host, label.at, job);
        end = mempcpy(end, "-0", 2);
        (void)memcpy(end, dot, full->len - label.len);
    }
    const struct word known = {.at = p->full_name, .len = strlen(p->full_name)};
    if (same(full, &known) && p->n_addrs < PLACE_POD_ADDRS_MAX)
        keep(p->addrs[p->n_addrs++], PLACE_POD_ADDR_MAX, addr);
}

void place_read_pod(char *const *envp, const char *hosts, struct place_pod *ret) {
    const char *service = env_get(envp, "KUBERNETES_SERVICE_HOST");
    const char *index = env_get(envp, "JOB_COMPLETION_INDEX");
    *ret = (struct place_pod){.kind = PLACE_POD_NONE};
    if (service == NULL || service[0] == '\0')
        return;
    ret->kind = PLACE_POD_PLAIN;
    if (index == NULL)
        return;
    if (parse_u32(index, &ret->index) < 0) {
        ret->bad_index = index;
        return;
    }
    ret->kind = PLACE_POD_INDEXED;
    for (const char *line = hosts; line != NULL && *line != '\0'; line = text_next_line(line))
        read_line(ret, line);
}

bool place_pod_is_own(const struct place_pod *p, const char *host) {
    size_t n = strlen(host);
    if (strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
        strcmp(host, "::1") == 0)
        return true;
    bool begins = n > 0 && strncasecmp(p->full_name, host, n) == 0;
    if (begins && (p->full_name[n] == '\0' || p->full_name[n] == '.'))
        return true;
    for (uint32_t i = 0; i < p->n_addrs; i++)
        if (strcasecmp(p->addrs[i], host) == 0)
            return true;
    return false;
}
