#include "nccl_env/rules/findings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nccl_env/rules/rules.h"

#define MIB (UINT64_C(1) << 20)
/* What a process needs at most: some hundred files of its own, and for each rank of the job 64
 * sockets in each direction (NCCL user guide, NCCL_NSOCKS_PERTHREAD: the product of both
 * variables). */
#define NOFILE_ENOUGH UINT64_C(131072)
#define NOFILE_OWN 512
#define NOFILE_EACH_RANK 128

struct finding {
    const struct env_input *in;
    void (*report)(void *arg, const char *text);
    void *arg;
};

static void report(const struct finding *z, const char *fmt, ...) _printf_(2, 3);
static void report(const struct finding *z, const char *fmt, ...) {
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    z->report(z->arg, text);
}

/* ---- limits ---- */

static void find_limits(const struct finding *z) {
    const struct env_input *in = z->in;
    const struct nccl_facts *f = in->facts;
    bool rdma = in->topology != NULL && in->topology->n_nics > 0 && in->n_nodes > 1;
    uint64_t ranks = (uint64_t)MAX2(in->n_nodes, 1u) * in->nproc;
    uint64_t nofile = MIN2(NOFILE_OWN + ranks * NOFILE_EACH_RANK, NOFILE_ENOUGH);
    if (rdma && f->memlock_hard != 0 && f->memlock_hard != UINT64_MAX)
        report(z,
               "locked memory is limited to %" PRIu64 " KiB (ulimit -l): RDMA needs it "
               "unlimited, or fails with \"Cannot allocate memory\"",
               f->memlock_hard / 1024);
    if (f->nofile_hard != 0 && f->nofile_hard < nofile)
        report(z,
               "open files are limited to %" PRIu64 " (ulimit -n): with %" PRIu64
               " ranks NCCL can need %" PRIu64,
               f->nofile_hard, ranks, nofile);
    if (f->stack == UINT64_MAX && ranks > 1)
        report(z,
               "the stack is unlimited (ulimit -s): glibc then gives threads, also NCCL's, stacks "
               "of only 2 MiB; set it to 8192");
    if (f->shm_bytes != 0 && f->shm_bytes < 1024 * MIB && in->nproc > 1)
        report(z,
               "/dev/shm holds only %" PRIu64 " MiB, and NCCL and data loaders need 1 GiB or more "
               "(docker run --shm-size; in Kubernetes an emptyDir of medium Memory)",
               f->shm_bytes / MIB);
}

/* ---- GPUs ---- */

static void find_too_few(const struct finding *z) {
    const struct env_input *in = z->in;
    const char *list = rule_value_of(in, "CUDA_VISIBLE_DEVICES");
    if (list != NULL && in->n_visible > 0 &&
        in->n_visible < in->nproc * MAX2(in->gpus_per_worker, 1u))
        report(z, "CUDA_VISIBLE_DEVICES=%.200s shows %u GPU%s to %u workers", list, in->n_visible,
               in->n_visible == 1 ? "" : "s", in->nproc);
}

/* NCCL tells ranks apart by the PCI addresses of their GPUs. NVIDIA/nccl#1716 */
static void find_shared_by_mig(const struct finding *z) {
    const struct env_input *in = z->in;
    const char *several = rule_value_of(in, "NCCL_MULTI_RANK_GPU_ENABLE");
    bool allowed = several != NULL && strcmp(several, "0") != 0;
    if (allowed || in->visible == NULL || in->topology == NULL)
        return;
    for (uint32_t i = 0; i < in->n_visible && i < in->nproc; i++)
        for (uint32_t k = 0; k < i; k++)
            if (in->visible[k] == in->visible[i] && in->topology->gpus[in->visible[i]].mig) {
                report(z,
                       "local ranks %u and %u have MIG parts of one GPU, but NCCL needs a GPU for "
                       "each rank (unless NCCL_MULTI_RANK_GPU_ENABLE=1, since 2.30)",
                       k, i);
                return;
            }
}

/* ---- networks ---- */

/* How many EFA devices Amazon's machines have (AWS, EC2 user guide, Elastic Fabric Adapter). */
static void find_missing_efa(const struct finding *z) {
    static const struct {
        const char *machine;
        uint32_t n;
    } all[] = {{"p4d.24xlarge", 4},
               {"p4de.24xlarge", 4},
               {"p5.48xlarge", 32},
               {"p5e.48xlarge", 32},
               {"p5en.48xlarge", 16}};
    const struct topology *t = z->in->topology;
    uint32_t found = 0;
    for (uint32_t i = 0; t != NULL && i < t->n_nics; i++)
        found += t->nics[i].kind == TOPO_NIC_EFA;
    for (size_t i = 0; t != NULL && i < ARRAY_SIZE(all); i++)
        if (strcmp(z->in->facts->signs.product_name, all[i].machine) == 0 && found < all[i].n)
            report(z,
                   "%u of the %u EFA devices of a %s are visible here%s: are they attached, and "
                   "passed to this container?",
                   found, all[i].n, all[i].machine,
                   found == 0 ? ", so that NCCL would use TCP" : "");
}

/* Google's script sets one of these. */
static void find_script_not_run(const struct finding *z) {
    if (!rule_is_google(z->in) || rule_value_of(z->in, "NCCL_NET") != NULL ||
        rule_value_of(z->in, "NCCL_FASTRAK_CTRL_DEV") != NULL ||
        rule_value_of(z->in, "NCCL_GPUDIRECTTCPX_CTRL_DEV") != NULL)
        return;
    const char *script =
        z->in->facts->cloud == CLOUD_GCP_GIB     ? "/usr/local/gib/scripts/set_nccl_env.sh"
        : z->in->facts->cloud == CLOUD_GCP_TCPXO ? "nccl-env-profile.sh in the plug-in's folder"
                                                 : "the one that comes with it";
    report(z, "%s: the plug-in's variables are not set; source its script before muster run: %s",
           rule_tuner(z->in), script);
}

static bool is_usable(const struct topo_gid *g) {
    bool link_local = g->gid[0] == 0xfe && (g->gid[1] & 0xc0) == 0x80;
    return g->type == TOPO_GID_ROCE_V2 && !link_local;
}

/* NVIDIA/nccl#426, #769, #1131 */
static void find_gidless(const struct finding *z) {
    const struct topology *t = z->in->topology;
    const char *disable = rule_value_of(z->in, "NCCL_IB_DISABLE");
    uint32_t n = 0;
    const char *first = NULL;
    if (t == NULL || (disable != NULL && strcmp(disable, "0") != 0))
        return;
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t k = 0; k < t->nics[i].n_ports; k++) {
            const struct topo_port *p = &t->nics[i].ports[k];
            uint32_t usable = 0;
            for (uint32_t g = 0; g < p->n_gids; g++)
                usable += is_usable(&p->gids[g]);
            if (t->nics[i].kind != TOPO_NIC_RDMA || p->state != TOPO_PORT_ACTIVE ||
                p->link_layer != TOPO_LINK_ETHERNET || p->n_gids == 0 || usable > 0)
                continue;
            n++;
            first = first != NULL ? first : t->nics[i].name;
        }
    if (n > 0)
        report(
            z,
            "%s%s no RoCE v2 address (GID) except a link-local one, and NCCL's transfers through "
            "%s would fail with status 12: give %s an IP address",
            first, n > 1 ? " and others have" : " has", n > 1 ? "them" : "it",
            n > 1 ? "their interfaces" : "its interface");
}

static void find_networks(const struct finding *z) {
    const struct env_input *in = z->in;
    if (in->n_nodes <= 1 || !rule_has_gpus(in))
        return;
    find_gidless(z);
    if (in->facts == NULL)
        return;
    find_missing_efa(z);
    find_script_not_run(z);
}

static void find_conf_file(struct finding *z) {
    const char *file = rule_value_of(z->in, "NCCL_CONF_FILE");
    int r = z->in->facts != NULL ? z->in->facts->conf_file_error : 0;
    if (r == 0 || file == NULL)
        return;
    const char *why = r == -EINVAL  ? "it is not a regular file, and is not read here"
                      : r == -EFBIG ? "it is too large, and is not read here"
                                    : strerror(-r);
    report(z, "NCCL_CONF_FILE=%.200s: %s; ~/.nccl.conf is not read instead of it", file, why);
}

void env_find(const struct env_input *in, void (*to)(void *arg, const char *text), void *arg) {
    struct finding z = {in, to, arg};
    if (in->n_nodes > 1 && in->netif != NULL && in->netif->warning && in->mode != NCCL_ENV_OFF)
        report(&z, "no interface is chosen: %s", in->netif->why);
    find_networks(&z);
    if (!rule_has_gpus(in))
        return;
    if (in->facts != NULL)
        find_limits(&z);
    find_conf_file(&z);
    const char *file = rule_value_of(in, "NCCL_TOPO_FILE");
    if (in->facts != NULL && in->facts->topo_file_gone && file != NULL)
        report(
            &z,
            "NCCL_TOPO_FILE=%.200s: there is no such file here, so NCCL runs without it; if this "
            "is a container, give it the host's file",
            file);
    find_too_few(&z);
    find_shared_by_mig(&z);
}
