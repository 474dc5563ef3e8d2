#include "nccl_env/lint/lint.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "nccl_env/facts/netif_choice.h"

struct linting {
    const char *name, *value, *where;
    const struct nccl_facts *facts; /* NULL: not known, or not of the environment */
    const struct topology *t;       /* NULL: not known */
    struct words *to;
};

/* "NAME=VALUE (where): …" */
static void report(const struct linting *z, char *text) {
    words_printf(z->to, "%s=%s (%s): %s", z->name, z->value, z->where, text);
    free(text);
}
#define REPORT(z, ...) report(z, xasprintf(__VA_ARGS__))

/* NCCL's grammar of both lists: [^][=]NAME,NAME … (src/misc/utils.cc, parseStringList). */
struct name_list {
    bool exclude, exact;
    const char *items; /* the rest */
};

static struct name_list list_of(const char *value) {
    struct name_list l = {.exclude = *value == '^'};
    value += l.exclude;
    l.exact = *value == '=';
    l.items = value + l.exact;
    return l;
}

/* The length of one item's name: it ends at a colon, which port and rail follow. */
static size_t name_length(const char *item) { return strcspn(item, ",:"); }
static const char *next_item(const char *item) {
    item += strcspn(item, ",");
    return item + (*item == ',');
}

static bool matches(const char *item, bool exact, const char *name) {
    size_t n = name_length(item);
    return n > 0 && strncmp(item, name, n) == 0 && (!exact || name[n] == '\0');
}

static bool list_has(const struct name_list *l, const char *name) {
    for (const char *p = l->items; *p != '\0'; p = next_item(p))
        if (matches(p, l->exact, name))
            return true;
    return false;
}

static bool has_global(const struct topo_netif *n) {
    for (uint32_t i = 0; i < n->n_addrs; i++)
        if (!n->addrs[i].link_local)
            return true;
    return false;
}

/* What an item of a list means: the names that begin with it. */
struct meaning {
    uint32_t n;
    bool whole;         /* one of them is the item itself */
    const char *longer; /* the first that is not; NULL: none */
};

static bool see(struct meaning *m, const char *item, bool exact, const char *name) {
    if (!matches(item, exact, name))
        return false;
    m->n++;
    if (name[name_length(item)] == '\0')
        m->whole = true;
    else if (m->longer == NULL)
        m->longer = name;
    return true;
}

/* An exclude list replaces NCCL's own, which excludes docker, lo and virbr. */
static void lint_excluded(const struct linting *z, const struct name_list *l) {
    if (!list_has(l, "lo"))
        REPORT(z, "replaces NCCL's own list, so lo is used again; write "
                  "^docker,lo,virbr,br-,veth,cali and whatever else to leave out");
    for (uint32_t i = 0; z->t != NULL && i < z->t->n_netifs; i++) {
        const struct topo_netif *n = &z->t->netifs[i];
        if (netif_is_plumbing(n->name) && n->running && n->n_addrs > 0 && !list_has(l, n->name)) {
            REPORT(z, "does not exclude %s, a virtual interface of containers", n->name);
            return;
        }
    }
}

static void lint_netif(const struct linting *z, const char *item, bool exact) {
    const struct topology *t = z->t;
    const struct topo_netif *n = NULL;
    struct meaning m = {0};
    _cleanup_(freep) char *name = xstrndup(item, name_length(item));
    for (uint32_t i = 0; i < t->n_netifs; i++)
        if (see(&m, item, exact, t->netifs[i].name) &&
            (n == NULL || strcmp(t->netifs[i].name, name) == 0))
            n = &t->netifs[i];
    if (n == NULL) {
        REPORT(z, "there is no interface %s here", name);
        return;
    }
    const struct topo_netif *real = netif_real(t);
    if (m.whole && m.longer != NULL)
        REPORT(z, "%s is a prefix, and means %s too; =%s means only that one", name, m.longer,
               name);
    else if (!n->up || !n->running)
        REPORT(z, "%s is down", n->name);
    else if (n->n_addrs == 0 || !has_global(n))
        REPORT(z, "%s has no address by which other nodes could reach it", n->name);
    else if (netif_is_plumbing(n->name) && real != NULL)
        REPORT(z, "%s is a virtual interface of containers; other nodes more likely reach %s",
               n->name, real->name);
}

static void lint_netifs(const struct linting *z, const char *items, bool exact) {
    bool known = z->t != NULL && z->t->n_netifs > 0;
    for (const char *p = items; known && *p != '\0'; p = next_item(p))
        if (name_length(p) > 0)
            lint_netif(z, p, exact);
}

static void lint_socket_ifname(const struct linting *z) {
    struct name_list l = list_of(z->value);
    if (strlen(z->value) <= 1)
        REPORT(z, "NCCL ignores a value this short");
    else if (l.exclude)
        lint_excluded(z, &l);
    else
        lint_netifs(z, l.items, l.exact);
}

static void lint_gloo_ifname(const struct linting *z) {
    if (z->value[0] == '^' || z->value[0] == '=')
        REPORT(z, "only NCCL's variables know ^ and =; this one takes plain names");
    else
        lint_netifs(z, z->value, true);
}

static void lint_hca(const struct linting *z, const char *item, bool exact) {
    const struct topology *t = z->t;
    struct meaning m = {0};
    uint32_t n_active = 0;
    _cleanup_(freep) char *name = xstrndup(item, name_length(item));
    for (uint32_t i = 0; i < t->n_nics; i++)
        if (t->nics[i].kind != TOPO_NIC_SOCKET && see(&m, item, exact, t->nics[i].name))
            n_active += topo_nic_state(&t->nics[i]) == TOPO_PORT_ACTIVE ||
                        topo_nic_state(&t->nics[i]) == TOPO_PORT_UNKNOWN;
    if (m.n == 0)
        REPORT(z, "there is no HCA %s here", name);
    else if (m.whole && m.longer != NULL)
        REPORT(z, "%s is a prefix, and means %s too; put = before the list", name, m.longer);
    else if (n_active == 0)
        REPORT(z, "%s has no ACTIVE port", name);
}

static void lint_ib_hca(const struct linting *z) {
    struct name_list l = list_of(z->value);
    uint32_t n_rdma = 0, n_taken = 0;
    for (uint32_t i = 0; z->t != NULL && i < z->t->n_nics; i++) {
        bool rdma = z->t->nics[i].kind == TOPO_NIC_RDMA;
        n_rdma += rdma;
        n_taken += rdma && list_has(&l, z->t->nics[i].name) != l.exclude;
    }
    if (n_rdma == 0)
        return; /* there are none, or they are not known */
    for (const char *p = l.items; *p != '\0'; p = next_item(p))
        if (name_length(p) > 0)
            lint_hca(z, p, l.exact);
    if (n_taken > NCCL_HCAS_MAX)
        REPORT(z, "means %u HCAs, but NCCL uses at most %d", n_taken, NCCL_HCAS_MAX);
}

/* What a RoCE port has at this index that NCCL can't use; NULL: it can, or it is not known. */
static const char *gid_fault(const struct topo_port *p, uint32_t index) {
    if (p->link_layer != TOPO_LINK_ETHERNET || p->state != TOPO_PORT_ACTIVE || p->n_gids == 0)
        return NULL;
    for (uint32_t i = 0; i < p->n_gids; i++)
        if (p->gids[i].index == index)
            return p->gids[i].type == TOPO_GID_ROCE_V1 ? "an address of RoCE v1"
                   : p->gids[i].gid[0] == 0xfe         ? "a link-local address"
                                                       : NULL;
    return "nothing";
}

static void lint_gids(const struct linting *z, uint32_t index) {
    for (uint32_t i = 0; i < z->t->n_nics; i++)
        for (uint32_t k = 0; k < z->t->nics[i].n_ports; k++) {
            const char *fault = gid_fault(&z->t->nics[i].ports[k], index);
            if (fault == NULL)
                continue;
            REPORT(z, "%s has %s at this index", z->t->nics[i].name, fault);
            return;
        }
}

/* A fixed index was right once; the index can differ between nodes, and change while they run. */
static void lint_gid_index(const struct linting *z) {
    const struct nccl_facts *f = z->facts;
    uint64_t index;
    if (parse_u64(z->value, &index) < 0)
        return;
    if (index < TOPO_GIDS_MAX && z->t != NULL)
        lint_gids(z, (uint32_t)index);
    if (f != NULL && f->cloud == CLOUD_NONE && f->nccl_version >= NCCL_GID_SINCE)
        REPORT(z, "since 2.21 NCCL finds it by itself, separately on each node");
}

static bool is_on(const char *value) { return value[0] != '\0' && strcmp(value, "0") != 0; }

static bool is_number(const char *value) {
    const char *p = value + (value[0] == '-');
    return *p != '\0' && p[strspn(p, "0123456789")] == '\0';
}

static bool is_one_of(const char *value, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

/* PATH_* of NCCL's src/graph/topo.cc */
static void lint_level(const struct linting *z) {
    static const char *const words[] = {"LOC", "NVL", "NVB", "C2C", "PIX",
                                        "PXB", "P2C", "PXN", "PHB", "SYS"};
    if (is_number(z->value))
        REPORT(z, "a number is the old form, which NCCL maps to a similar level; use PIX, PXB, "
                  "PHB or SYS");
    else if (!is_one_of(z->value, words, ARRAY_SIZE(words)))
        REPORT(z, "is not a level that NCCL knows; use PIX, PXB, PHB or SYS");
    else if (strcasecmp(z->value, "LOC") == 0)
        REPORT(z, "turns it off; this is for debugging, and costs most of the speed");
}

static void lint_debugging(const struct linting *z) {
    if (is_on(z->value))
        REPORT(z, "is for debugging; if it stays on, it costs speed");
}

static void lint_ib_disable(const struct linting *z) {
    if (!is_on(z->value) || z->t == NULL)
        return;
    for (uint32_t i = 0; i < z->t->n_nics; i++)
        if (z->t->nics[i].kind == TOPO_NIC_RDMA &&
            topo_nic_state(&z->t->nics[i]) == TOPO_PORT_ACTIVE) {
            REPORT(z, "%s is ACTIVE here, and is much faster than sockets", z->t->nics[i].name);
            return;
        }
}

static void lint_debug(const struct linting *z) {
    static const char *const words[] = {"VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    if (!is_one_of(z->value, words, ARRAY_SIZE(words)))
        REPORT(z, "is not a level of NCCL; use VERSION, WARN, INFO or TRACE");
    else if (strcasecmp(z->value, "TRACE") == 0)
        REPORT(z, "writes a line for every operation");
}

static void lint_debug_file(const struct linting *z) {
    if (z->value[0] == '~')
        REPORT(z, "NCCL does not expand ~; write the whole path");
    if (strstr(z->value, "%p") == NULL && strstr(z->value, "/dev/") != z->value)
        REPORT(z, "all ranks truncate and write this same file; add %%h.%%p to its name");
}

/* ---- NVLink between nodes, and to the CPU ---- */

static void lint_switch(const struct linting *z) {
    if (strcmp(z->value, "0") != 0 && strcmp(z->value, "1") != 0)
        REPORT(z, "must be 0 or 1");
}

/* Without GPUs nothing is known of the workers' node. */
static void lint_mnnvl(const struct linting *z) {
    char domain[TOPO_DOMAIN_MAX];
    bool known = z->t != NULL && z->t->nvlinks_known;
    bool has = known && topology_domain(z->t, domain);
    if (strcmp(z->value, "0") == 0 && has)
        REPORT(z,
               "this node is in NVLink domain %s: NCCL then uses the network to its other "
               "nodes, not NVLink, which has up to 1.8 TB/s",
               domain);
    else if (strcmp(z->value, "1") == 0 && known && !has)
        REPORT(z, "NCCL fails here, because this node is not in an NVLink domain of several "
                  "nodes; 2, the default, uses NVLink only where it can");
    else if (strlen(z->value) != 1 || strchr("012", z->value[0]) == NULL)
        REPORT(z, "must be 0 (off), 1 (required) or 2 (where it is available)");
}

static void lint_mnnvl_identity(const struct linting *z) {
    if (!is_number(z->value))
        REPORT(z, "must be a number");
    else if (z->value[0] != '-')
        REPORT(z, "replaces what the driver reports: NCCL fails if nodes have the same value but "
                  "no common NVLink");
}

static void lint_c2c(const struct linting *z) {
    lint_switch(z);
    if (strcmp(z->value, "0") == 0 && z->t != NULL && topology_has_c2c(z->t))
        REPORT(z, "the GPUs here have NVLink-C2C to the CPU, which NCCL then does not use: it "
                  "is slower");
}

static const struct {
    const char *name, *text;
} gone[] = {
    {"NCCL_IB_CUDA_SUPPORT", "NCCL has ignored it since 2.4; use NCCL_NET_GDR_LEVEL"},
    {"NCCL_CHECKS_DISABLE", "was removed; use NCCL_CHECK_MODE"},
    {"NCCL_TREE_THRESHOLD", "was removed; NCCL chooses between trees and rings by itself"},
    {"NCCL_LL_THRESHOLD", "was removed; NCCL chooses its protocol by itself"},
    {"NCCL_ASYNC_ERROR_HANDLING", "its new name in PyTorch is TORCH_NCCL_ASYNC_ERROR_HANDLING"},
    {"NCCL_BLOCKING_WAIT", "its new name in PyTorch is TORCH_NCCL_BLOCKING_WAIT"},
    {"NCCL_DESYNC_DEBUG", "its new name in PyTorch is TORCH_NCCL_DESYNC_DEBUG"},
    {"NCCL_MAX_NRINGS", "its new name in NCCL is NCCL_MAX_NCHANNELS"},
    {"NCCL_MIN_NRINGS", "its new name in NCCL is NCCL_MIN_NCHANNELS"},
};

static const struct {
    const char *name;
    void (*check)(const struct linting *z);
    bool list; /* no blanks inside */
} checks[] = {
    {"NCCL_SOCKET_IFNAME", lint_socket_ifname, true},
    {"NCCL_OOB_NET_IFNAME", lint_socket_ifname, true},
    {"GLOO_SOCKET_IFNAME", lint_gloo_ifname, true},
    {"TP_SOCKET_IFNAME", lint_gloo_ifname, true},
    {"NCCL_IB_HCA", lint_ib_hca, true},
    {"NCCL_IB_GID_INDEX", lint_gid_index, false},
    {"NCCL_NET_GDR_LEVEL", lint_level, false},
    {"NCCL_P2P_LEVEL", lint_level, false},
    {"NCCL_P2P_DISABLE", lint_debugging, false},
    {"NCCL_SHM_DISABLE", lint_debugging, false},
    {"NCCL_P2P_DIRECT_DISABLE", lint_debugging, false},
    {"CUDA_LAUNCH_BLOCKING", lint_debugging, false},
    {"NCCL_IB_DISABLE", lint_ib_disable, false},
    {"NCCL_DEBUG", lint_debug, false},
    {"NCCL_DEBUG_FILE", lint_debug_file, false},
    {"NCCL_MNNVL_ENABLE", lint_mnnvl, false},
    {"NCCL_MNNVL_UUID", lint_mnnvl_identity, false},
    {"NCCL_MNNVL_CLIQUE_ID", lint_mnnvl_identity, false},
    {"NCCL_MNNVL_CROSS_CLIQUE", lint_switch, false},
    {"NCCL_MNNVL_SCATTER_NETS_ENABLE", lint_switch, false},
    {"NCCL_MNNVL_RAIL_PER_HOST", lint_switch, false},
    {"NCCL_NET_GDR_C2C", lint_c2c, false},
    {"NCCL_PXN_C2C", lint_c2c, false},
    {"NCCL_LL128_C2C", lint_c2c, false},
};

/* Nothing trims values or removes quotes, so blanks and quotes are reported. true: such a value
 * needs no further check. */
static bool lint_form(const struct linting *z, bool list) {
    size_t n = strlen(z->value);
    if (n == 0)
        return true;
    bool outer = isspace((unsigned char)z->value[0]) || isspace((unsigned char)z->value[n - 1]);
    const char *fault =
        z->value[n - 1] == '\r' ? "ends with a carriage return: the file was written on Windows"
        : strpbrk(z->value, "\"'") != NULL ? "the quotes are part of the value; leave them out"
        : outer || (list && strpbrk(z->value, " \t") != NULL)
            ? "the blank is part of the value; leave it out"
            : NULL;
    if (fault != NULL)
        REPORT(z, "%s", fault);
    return fault != NULL;
}

static void lint(const struct linting *z) {
    for (size_t i = 0; i < ARRAY_SIZE(gone); i++)
        if (strcmp(z->name, gone[i].name) == 0)
            REPORT(z, "%s", gone[i].text);
    size_t i = 0;
    while (i < ARRAY_SIZE(checks) && strcmp(z->name, checks[i].name) != 0)
        i++;
    bool known = i < ARRAY_SIZE(checks);
    if (!lint_form(z, known && checks[i].list) && known)
        checks[i].check(z);
}

static bool is_ours(const char *name) {
    static const char *const beginnings[] = {"NCCL_",     "GLOO_", "TORCH_NCCL_",
                                             "TORCH_FR_", "CUDA_", "TP_SOCKET_IFNAME"};
    return text_begins_with_any(name, beginnings, ARRAY_SIZE(beginnings));
}

static void lint_conf(const struct nccl_conf *c, const struct topology *t, struct words *to) {
    for (uint32_t i = 0; i < c->n; i++) {
        const struct nccl_conf_entry *e = &c->entries[i];
        _cleanup_(freep) char *where = xasprintf("%s line %u", c->path, e->line);
        lint(&(struct linting){e->name, e->value, where, NULL, t, to});
    }
}

void nccl_lint_all(char *const *envp, const struct nccl_facts *f, const struct topology *t,
                   struct words *to) {
    for (char *const *e = envp; e != NULL && *e != NULL; e++) {
        const char *equals = strchr(*e, '=');
        if (equals == NULL || !is_ours(*e))
            continue;
        _cleanup_(freep) char *name = xstrndup(*e, (size_t)(equals - *e));
        lint(&(struct linting){name, equals + 1, "environment", f, t, to});
    }
    if (f == NULL)
        return;
    lint_conf(&f->user_conf, t, to);
    lint_conf(&f->system_conf, t, to);
}
