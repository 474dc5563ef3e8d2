#include "nccl_env/lint/lint_names.h"

#include <stdlib.h>
#include <string.h>

#include "nccl_env/facts/netif_choice.h"

#define HCAS_MAX 32 /* the most that NCCL uses */

/* NCCL's grammar of both lists: [^][=]NAME,NAME … (src/misc/utils.cc, parseStringList). */
struct name_list {
    bool exclude, exact;
    const char *items; /* the rest */
};

static struct name_list list_of(const char *value) {
    struct name_list l = {.items = value};
    l.exclude = *l.items == '^';
    l.items += l.exclude;
    l.exact = *l.items == '=';
    l.items += l.exact;
    return l;
}

/* The length of one item's name: it ends at a colon, which port and rail follow. */
static size_t item_length(const char *item) { return strcspn(item, ","); }
static size_t name_length(const char *item) { return strcspn(item, ",:"); }
static const char *next_item(const char *item) {
    size_t n = item_length(item);
    return item + n + (item[n] == ',');
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

static const char *a_real_netif(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_netifs; i++)
        if (t->netifs[i].kind != TOPO_NETIF_LOOPBACK && strcmp(t->netifs[i].name, "lo") != 0 &&
            !netif_is_plumbing(t->netifs[i].name) && has_global(&t->netifs[i]))
            return t->netifs[i].name;
    return NULL;
}

/* An exclude list replaces NCCL's own, which excludes docker, lo and virbr. */
static void lint_excluded(const struct linting *z, const struct name_list *l) {
    if (!list_has(l, "lo"))
        lint_report(z, "replaces NCCL's own list, so lo is used again; write "
                       "^docker,lo,virbr,br-,veth,cali and whatever else to leave out");
    for (uint32_t i = 0; z->t != NULL && i < z->t->n_netifs; i++) {
        const struct topo_netif *n = &z->t->netifs[i];
        if (netif_is_plumbing(n->name) && n->running && n->n_addrs > 0 && !list_has(l, n->name)) {
            lint_report(z, "does not exclude %s, a virtual interface of containers", n->name);
            return;
        }
    }
}

static void lint_netif(const struct linting *z, const char *item, bool exact) {
    const struct topology *t = z->t;
    uint32_t found = TOPO_NONE, n_found = 0, other = TOPO_NONE;
    _cleanup_(freep) char *name = xstrndup(item, name_length(item));
    for (uint32_t i = 0; i < t->n_netifs; i++) {
        if (!matches(item, exact, t->netifs[i].name))
            continue;
        n_found++;
        if (found == TOPO_NONE || strcmp(t->netifs[i].name, name) == 0) {
            other = found != TOPO_NONE ? found : other;
            found = i;
        } else {
            other = i;
        }
    }
    if (n_found == 0) {
        lint_report(z, "there is no interface %s here", name);
        return;
    }
    const struct topo_netif *n = &t->netifs[found];
    const char *real = a_real_netif(t);
    if (n_found > 1 && strcmp(n->name, name) == 0)
        lint_report(z, "%s is a prefix, and means %s too; =%s means only that one", name,
                    t->netifs[other].name, name);
    else if (!n->up || !n->running)
        lint_report(z, "%s is down", n->name);
    else if (n->n_addrs == 0 || !has_global(n))
        lint_report(z, "%s has no address by which other nodes could reach it", n->name);
    else if (netif_is_plumbing(n->name) && real != NULL)
        lint_report(z, "%s is a virtual interface of containers; other nodes more likely reach %s",
                    n->name, real);
}

void lint_socket_ifname(const struct linting *z) {
    struct name_list l = list_of(z->value);
    if (strlen(z->value) <= 1) {
        lint_report(z, "NCCL ignores a value this short");
        return;
    }
    if (l.exclude) {
        lint_excluded(z, &l);
        return;
    }
    for (const char *p = l.items; z->t != NULL && z->t->n_netifs > 0 && *p != '\0';
         p = next_item(p))
        if (name_length(p) > 0)
            lint_netif(z, p, l.exact);
}

void lint_gloo_ifname(const struct linting *z) {
    if (z->value[0] == '^' || z->value[0] == '=') {
        lint_report(z, "only NCCL's variables know ^ and =; this one takes plain names");
        return;
    }
    for (const char *p = z->value; z->t != NULL && z->t->n_netifs > 0 && *p != '\0';
         p = next_item(p))
        if (name_length(p) > 0)
            lint_netif(z, p, true);
}

/* ---- HCAs ---- */

static void lint_hca(const struct linting *z, const char *item, bool exact) {
    const struct topology *t = z->t;
    const char *longer = NULL;
    uint32_t n_found = 0, n_active = 0;
    bool whole = false;
    _cleanup_(freep) char *name = xstrndup(item, name_length(item));
    for (uint32_t i = 0; i < t->n_nics; i++) {
        if (t->nics[i].kind == TOPO_NIC_SOCKET || !matches(item, exact, t->nics[i].name))
            continue;
        n_found++;
        n_active += topo_nic_state(&t->nics[i]) == TOPO_PORT_ACTIVE ||
                    topo_nic_state(&t->nics[i]) == TOPO_PORT_UNKNOWN;
        if (strcmp(t->nics[i].name, name) == 0)
            whole = true;
        else if (longer == NULL)
            longer = t->nics[i].name;
    }
    if (n_found == 0)
        lint_report(z, "there is no HCA %s here", name);
    else if (whole && longer != NULL)
        lint_report(z, "%s is a prefix, and means %s too; put = before the list", name, longer);
    else if (n_active == 0)
        lint_report(z, "%s has no ACTIVE port", name);
}

void lint_ib_hca(const struct linting *z) {
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
    if (n_taken > HCAS_MAX)
        lint_report(z, "means %u HCAs, but NCCL uses at most %d", n_taken, HCAS_MAX);
    else if (n_taken == 0 && l.exclude)
        lint_report(z, "excludes all HCAs");
}

/* ---- GIDs ---- */

static const struct topo_gid *gid_at(const struct topo_port *p, uint32_t index) {
    for (uint32_t i = 0; i < p->n_gids; i++)
        if (p->gids[i].index == index)
            return &p->gids[i];
    return NULL;
}

void lint_gid_index(const struct linting *z) {
    char *end;
    long index = strtol(z->value, &end, 10);
    if (*end != '\0' || index < 0 || index >= TOPO_GIDS_MAX || z->t == NULL)
        return;
    for (uint32_t i = 0; i < z->t->n_nics; i++) {
        const struct topo_nic *n = &z->t->nics[i];
        for (uint32_t k = 0; k < n->n_ports; k++) {
            const struct topo_port *p = &n->ports[k];
            if (p->link_layer != TOPO_LINK_ETHERNET || p->state != TOPO_PORT_ACTIVE ||
                p->n_gids == 0)
                continue;
            const struct topo_gid *g = gid_at(p, (uint32_t)index);
            const char *what = g == NULL                     ? "nothing"
                               : g->type == TOPO_GID_ROCE_V1 ? "an address of RoCE v1"
                               : g->gid[0] == 0xfe           ? "a link-local address"
                                                             : NULL;
            if (what != NULL) {
                lint_report(z, "%s has %s at this index", n->name, what);
                return;
            }
        }
    }
}
