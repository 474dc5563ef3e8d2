#include "launcher/node/snapshot_codec.h"

#include <errno.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)16 << 20) /* the longest value of a configuration file */

/* ---- out ---- */

static void put_text(struct strbuf *to, const char *text) {
    size_t n = text != NULL ? strlen(text) + 1 : 0;
    strbuf_add_bytes(to, &n, sizeof n);
    strbuf_add_bytes(to, text != NULL ? text : "", n);
}

static void put_array(struct strbuf *to, const void *array, uint32_t n, size_t size) {
    if (n > 0)
        strbuf_add_bytes(to, array, n * size);
}

static void put_topology(struct strbuf *to, const struct topology *t) {
    strbuf_add_bytes(to, t, sizeof *t);
    put_array(to, t->numa, t->n_numa, sizeof *t->numa);
    put_array(to, t->cores, t->n_cores, sizeof *t->cores);
    put_array(to, t->caches, t->n_caches, sizeof *t->caches);
    put_array(to, t->pci, t->n_pci, sizeof *t->pci);
    put_array(to, t->gpus, t->n_gpus, sizeof *t->gpus);
    put_array(to, t->nvlinks, t->n_nvlinks, sizeof *t->nvlinks);
    put_array(to, t->nics, t->n_nics, sizeof *t->nics);
    put_array(to, t->netifs, t->n_netifs, sizeof *t->netifs);
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t p = 0; p < TOPO_PORTS_MAX; p++) {
            const struct topo_port *port = &t->nics[i].ports[p];
            put_array(to, port->gids, port->n_gids, sizeof *port->gids);
        }
    for (uint32_t i = 0; i < t->n_warnings; i++)
        put_text(to, t->warnings[i]);
}

static void put_fact(void *arg, char **text) { put_text(arg, *text); }

void snapshot_encode(const struct topology *t, const struct nccl_facts *f, struct strbuf *to) {
    struct nccl_facts facts = *f;
    put_topology(to, t);
    strbuf_add_bytes(to, f, sizeof *f);
    put_array(to, f->user_conf.entries, f->user_conf.n, sizeof *f->user_conf.entries);
    put_array(to, f->system_conf.entries, f->system_conf.n, sizeof *f->system_conf.entries);
    nccl_facts_each_text(&facts, put_fact, to);
}

/* ---- in ---- */

struct snapshot_reader {
    const char *p;
    size_t left;
    bool bad; /* everything that is read afterwards is empty */
};

static void get(struct snapshot_reader *r, void *ret, size_t n) {
    r->bad = r->bad || r->left < n;
    if (r->bad || n == 0)
        return;
    memcpy(ret, r->p, n);
    r->p += n;
    r->left -= n;
}

static char *get_text(struct snapshot_reader *r) {
    size_t n = 0;
    get(r, &n, sizeof n);
    r->bad = r->bad || n > MIN2(r->left, TEXT_BYTES_MAX) || (n > 0 && r->p[n - 1] != '\0');
    if (r->bad || n == 0)
        return NULL;
    char *text = xmalloc(n);
    get(r, text, n);
    return text;
}

/* *n is 0 if nothing was read. */
static void *get_array(struct snapshot_reader *r, uint32_t *n, uint32_t max, size_t size) {
    r->bad = r->bad || *n > max || *n * size > r->left;
    if (r->bad || *n == 0) {
        *n = 0;
        return NULL;
    }
    /* As large as topology_add_…() would have made it: the number of elements is a power of two. */
    size_t room = 1;
    while (room < *n)
        room *= 2;
    void *array = xcalloc(room, size);
    get(r, array, *n * size);
    return array;
}
#define GET_ARRAY(r, t, array, max) \
    ((t)->array = get_array(r, &(t)->n_##array, max, sizeof *(t)->array))

static void get_gids(struct snapshot_reader *r, struct topology *t) {
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t p = 0; p < TOPO_PORTS_MAX; p++) {
            struct topo_port *port = &t->nics[i].ports[p];
            port->gids = NULL; /* it was a pointer of the other process */
            GET_ARRAY(r, port, gids, TOPO_GIDS_MAX);
        }
}

static void get_topology(struct snapshot_reader *r, struct topology *t) {
    get(r, t, sizeof *t);
    uint32_t n_warnings = r->bad ? 0 : t->n_warnings;
    t->n_warnings = 0;
    memset(t->warnings, 0, sizeof t->warnings);
    GET_ARRAY(r, t, numa, TOPO_NUMA_MAX);
    GET_ARRAY(r, t, cores, TOPO_CORES_MAX);
    GET_ARRAY(r, t, caches, TOPO_CACHES_MAX);
    GET_ARRAY(r, t, pci, TOPO_PCI_MAX);
    GET_ARRAY(r, t, gpus, TOPO_GPUS_MAX);
    GET_ARRAY(r, t, nvlinks, TOPO_NVLINKS_MAX);
    GET_ARRAY(r, t, nics, TOPO_NICS_MAX);
    GET_ARRAY(r, t, netifs, TOPO_NETIFS_MAX);
    get_gids(r, t);
    for (uint32_t i = 0; i < n_warnings && i < TOPO_WARNINGS_MAX; i++) {
        char *text = get_text(r);
        if (text != NULL)
            t->warnings[t->n_warnings++] = text;
    }
}

static void get_entries(struct snapshot_reader *r, struct nccl_conf *c) {
    c->entries = get_array(r, &c->n, NCCL_CONF_ENTRIES_MAX, sizeof *c->entries);
}

static void get_fact(void *arg, char **text) { *text = get_text(arg); }

static void get_facts(struct snapshot_reader *r, struct nccl_facts *f) {
    get(r, f, sizeof *f);
    r->bad = r->bad || f->n_plugins > NCCL_PLUGINS_MAX || f->n_topo_files > NCCL_TOPO_FILES_MAX;
    if (r->bad) /* its pointers belong to the other process */
        *f = (struct nccl_facts){0};
    get_entries(r, &f->user_conf);
    get_entries(r, &f->system_conf);
    nccl_facts_each_text(f, get_fact, r);
}

int snapshot_decode(const void *data, size_t len, struct topology *t, struct nccl_facts *f) {
    struct snapshot_reader r = {.p = data, .left = len, .bad = len > SNAPSHOT_MAX};
    get_topology(&r, t);
    get_facts(&r, f);
    if (!r.bad && r.left == 0)
        return 0;
    topology_fini(t);
    nccl_facts_fini(f);
    return -EBADMSG;
}
