#include "launcher/place/place.h"

#include <assert.h>

#include "base/hash.h"
#include "base/text/envlist.h"

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
