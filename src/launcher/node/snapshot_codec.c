#include "launcher/node/snapshot_codec.h"

#include <errno.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)16 << 20) /* the longest value of a configuration file */

/* One walk serves both directions. When it reads, the pointers in a struct that has just come are
 * those of the other process until the walk replaces them. */
struct snapshot {
    struct strbuf *out; /* the walk writes; NULL: it reads these bytes: */
    const char *p;
    size_t left;
    bool bad; /* everything that is read afterwards is empty */
};

static void pass(struct snapshot *s, void *data, size_t n) {
    if (s->out != NULL)
        strbuf_add_bytes(s->out, data, n);
    s->bad |= s->out == NULL && s->left < n;
    if (s->out != NULL || s->bad || n == 0)
        return;
    memcpy(data, s->p, n);
    s->p += n;
    s->left -= n;
}

static void pass_text(void *arg, char **text) {
    struct snapshot *s = arg;
    size_t n = s->out != NULL && *text != NULL ? strlen(*text) + 1 : 0;
    pass(s, &n, sizeof n);
    if (s->out == NULL) {
        s->bad |= n > MIN2(s->left, TEXT_BYTES_MAX) || (n > 0 && s->p[n - 1] != '\0');
        *text = s->bad || n == 0 ? NULL : xmalloc(n);
    }
    if (*text != NULL)
        pass(s, *text, n);
}

/* Returns the array; when it reads, *n is 0 if nothing was read. */
static void *pass_array(struct snapshot *s, void *array, uint32_t *n, uint32_t max, size_t size) {
    if (s->out == NULL) {
        s->bad |= *n > max || *n * size > s->left;
        *n = s->bad ? 0 : *n;
        /* as large as topology_add_…() would have made it: a power of two */
        size_t room = 1;
        while (room < *n)
            room *= 2;
        array = *n > 0 ? xcalloc(room, size) : NULL;
    }
    if (*n > 0)
        pass(s, array, *n * size);
    return array;
}
#define PASS_ARRAY(s, t, array, max) \
    ((t)->array = pass_array(s, (t)->array, &(t)->n_##array, max, sizeof *(t)->array))

static void pass_topology(struct snapshot *s, struct topology *t) {
    pass(s, t, sizeof *t);
    PASS_ARRAY(s, t, numa, TOPO_NUMA_MAX);
    PASS_ARRAY(s, t, cores, TOPO_CORES_MAX);
    PASS_ARRAY(s, t, caches, TOPO_CACHES_MAX);
    PASS_ARRAY(s, t, pci, TOPO_PCI_MAX);
    PASS_ARRAY(s, t, gpus, TOPO_GPUS_MAX);
    PASS_ARRAY(s, t, nvlinks, TOPO_NVLINKS_MAX);
    PASS_ARRAY(s, t, nics, TOPO_NICS_MAX);
    PASS_ARRAY(s, t, netifs, TOPO_NETIFS_MAX);
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t p = 0; p < TOPO_PORTS_MAX; p++)
            PASS_ARRAY(s, &t->nics[i].ports[p], gids, TOPO_GIDS_MAX);
    s->bad |= t->n_warnings > TOPO_WARNINGS_MAX;
    t->n_warnings = s->bad ? 0 : t->n_warnings;
    for (uint32_t i = 0; i < t->n_warnings; i++)
        pass_text(s, &t->warnings[i]);
}

static void pass_facts(struct snapshot *s, struct nccl_facts *f) {
    struct nccl_conf *const confs[] = {&f->user_conf, &f->system_conf};
    pass(s, f, sizeof *f);
    s->bad |= f->n_plugins > NCCL_PLUGINS_MAX || f->n_topo_files > NCCL_TOPO_FILES_MAX;
    if (s->bad)
        *f = (struct nccl_facts){0};
    for (size_t i = 0; i < ARRAY_SIZE(confs); i++)
        confs[i]->entries = pass_array(s, confs[i]->entries, &confs[i]->n, NCCL_CONF_ENTRIES_MAX,
                                       sizeof *confs[i]->entries);
    nccl_facts_each_text(f, pass_text, s);
}

void snapshot_encode(const struct topology *t, const struct nccl_facts *f, struct strbuf *to) {
    struct snapshot s = {.out = to};
    struct topology topology = *t;
    struct nccl_facts facts = *f;
    pass_topology(&s, &topology);
    pass_facts(&s, &facts);
}

int snapshot_decode(const void *data, size_t len, struct topology *t, struct nccl_facts *f) {
    struct snapshot s = {.p = data, .left = len, .bad = len > SNAPSHOT_MAX};
    pass_topology(&s, t);
    pass_facts(&s, f);
    if (!s.bad && s.left == 0)
        return 0;
    topology_fini(t);
    nccl_facts_fini(f);
    return -EBADMSG;
}
