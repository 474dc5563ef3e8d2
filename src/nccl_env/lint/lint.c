#include "nccl_env/lint/lint.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"
#include "nccl_env/lint/lint_names.h"

void lint_report(const struct linting *z, const char *fmt, ...) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    strbuf_printf(&s, "%s=%s (%s): %s", z->name, z->value, z->where, text);
    z->report(z->arg, strbuf_text(&s));
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
        lint_report(z,
                    "a number is the old form, which NCCL maps to a similar level; use PIX, PXB, "
                    "PHB or SYS");
    else if (!is_one_of(z->value, words, ARRAY_SIZE(words)))
        lint_report(z, "is not a level that NCCL knows; use PIX, PXB, PHB or SYS");
    else if (strcasecmp(z->value, "LOC") == 0)
        lint_report(z, "turns it off; this is for debugging, and costs most of the speed");
}

/* NCCL user guide, NCCL_P2P_LEVEL: NCCL finds the best level by itself. */
static void lint_p2p_level(const struct linting *z) {
    static const char *const words[] = {"NVL", "PIX", "PXB", "PHB", "SYS"};
    lint_level(z);
    if (is_one_of(z->value, words, ARRAY_SIZE(words)))
        lint_report(z,
                    "NCCL itself finds the level up to which P2P works; set it only for debugging");
}

static void lint_debugging(const struct linting *z) {
    if (is_on(z->value))
        lint_report(z, "is for debugging; if it stays on, it costs speed");
}

static void lint_ib_disable(const struct linting *z) {
    if (!is_on(z->value) || z->t == NULL)
        return;
    for (uint32_t i = 0; i < z->t->n_nics; i++)
        if (z->t->nics[i].kind == TOPO_NIC_RDMA &&
            topo_nic_state(&z->t->nics[i]) == TOPO_PORT_ACTIVE) {
            lint_report(z, "%s is ACTIVE here, and is much faster than sockets",
                        z->t->nics[i].name);
            return;
        }
}

static void lint_graph_file(const struct linting *z) {
    lint_report(z, "sets fixed rings and trees; it is for NCCL's developers, not for production");
}

static void lint_debug(const struct linting *z) {
    static const char *const words[] = {"VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    if (!is_one_of(z->value, words, ARRAY_SIZE(words)))
        lint_report(z, "is not a level of NCCL; use VERSION, WARN, INFO or TRACE");
    else if (strcasecmp(z->value, "TRACE") == 0)
        lint_report(z, "writes a line for every operation");
}

static void lint_debug_file(const struct linting *z) {
    if (z->value[0] == '~')
        lint_report(z, "NCCL does not expand ~; write the whole path");
    if (strstr(z->value, "%p") == NULL && strstr(z->value, "/dev/") != z->value)
        lint_report(z, "all ranks truncate and write this same file; add %%h.%%p to its name");
}

static void lint_family(const struct linting *z) {
    if (strcmp(z->value, "AF_INET") != 0 && strcmp(z->value, "AF_INET6") != 0)
        lint_report(z, "NCCL knows only AF_INET and AF_INET6, and ignores other values");
}

static void lint_ras_addr(const struct linting *z) {
    const char *colon = strrchr(z->value, ':');
    if (colon == NULL || !is_number(colon + 1))
        lint_report(z, "must be HOST:PORT");
}

static void lint_signal(const struct linting *z) {
    if (is_number(z->value) && z->value[0] != '-')
        lint_report(z,
                    "NCCL handles this signal itself; a training script that uses it, for example "
                    "for a checkpoint, no longer gets it");
}

/* ---- CUDA ---- */

static uint32_t count_nvidia(const struct topology *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; t != NULL && i < t->n_gpus; i++)
        n += t->gpus[i].vendor == TOPO_VENDOR_NVIDIA;
    return n;
}

static bool stands_before(const char *list, const char *item, size_t n) {
    for (const char *p = list; p < item; p += strcspn(p, ",") + 1)
        if (strcspn(p, ",") == n && strncmp(p, item, n) == 0)
            return true;
    return false;
}

static void lint_visible(const struct linting *z) {
    uint32_t gpus = count_nvidia(z->t);
    for (const char *p = z->value; *p != '\0';) {
        size_t n = strcspn(p, ",");
        _cleanup_(freep) char *item = xstrndup(p, n);
        if (n > 0 && stands_before(z->value, p, n)) {
            lint_report(z, "%s is listed twice, and then CUDA shows no GPU at all", item);
            return;
        }
        if (gpus > 0 && is_number(item) && strlen(item) < 6 &&
            (item[0] == '-' || (uint32_t)atoi(item) >= gpus)) {
            lint_report(z, "there are %u GPUs, 0 to %u; CUDA ends the list before %s", gpus,
                        gpus - 1, item);
            return;
        }
        p += n + (p[n] == ',');
    }
}

static void lint_device_order(const struct linting *z) {
    if (strcmp(z->value, "FASTEST_FIRST") != 0 || z->t == NULL)
        return;
    for (uint32_t i = 1; i < z->t->n_gpus; i++)
        if (strcmp(z->t->gpus[i].name, z->t->gpus[0].name) != 0) {
            lint_report(z,
                        "the GPUs here differ, so CUDA numbers them differently from nvidia-smi; "
                        "use PCI_BUS_ID");
            return;
        }
}

/* ---- names that no longer exist ---- */

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
    {"NCCL_SOCKET_FAMILY", lint_family, false},
    {"NCCL_NET_GDR_LEVEL", lint_level, false},
    {"NCCL_P2P_LEVEL", lint_p2p_level, false},
    {"NCCL_P2P_DISABLE", lint_debugging, false},
    {"NCCL_SHM_DISABLE", lint_debugging, false},
    {"NCCL_P2P_DIRECT_DISABLE", lint_debugging, false},
    {"CUDA_LAUNCH_BLOCKING", lint_debugging, false},
    {"NCCL_IB_DISABLE", lint_ib_disable, false},
    {"NCCL_GRAPH_FILE", lint_graph_file, false},
    {"NCCL_DEBUG", lint_debug, false},
    {"NCCL_DEBUG_FILE", lint_debug_file, false},
    {"NCCL_RAS_ADDR", lint_ras_addr, false},
    {"NCCL_PROXY_DUMP_SIGNAL", lint_signal, false},
    {"CUDA_VISIBLE_DEVICES", lint_visible, false},
    {"CUDA_DEVICE_ORDER", lint_device_order, false},
};

/* Nothing trims values or removes quotes, so blanks and quotes are reported. true: such a value
 * needs no further check. */
static bool lint_form(const struct linting *z, bool list) {
    size_t n = strlen(z->value);
    if (n == 0)
        return true;
    if (z->value[n - 1] == '\r') {
        lint_report(z, "ends with a carriage return: the file was written on Windows");
        return true;
    }
    if (strpbrk(z->value, "\"'") != NULL) {
        lint_report(z, "the quotes are part of the value; leave them out");
        return true;
    }
    bool outer = isspace((unsigned char)z->value[0]) || isspace((unsigned char)z->value[n - 1]);
    if (outer || (list && strpbrk(z->value, " \t") != NULL)) {
        lint_report(z, "the blank is part of the value; leave it out");
        return true;
    }
    return false;
}

void nccl_lint(const char *name, const char *value, const char *where, const struct topology *t,
               void (*report)(void *arg, const char *text), void *arg) {
    struct linting z = {name, value, where, t, report, arg};
    for (size_t i = 0; i < ARRAY_SIZE(gone); i++)
        if (strcmp(name, gone[i].name) == 0)
            lint_report(&z, "%s", gone[i].text);
    size_t i = 0;
    while (i < ARRAY_SIZE(checks) && strcmp(name, checks[i].name) != 0)
        i++;
    bool known = i < ARRAY_SIZE(checks);
    if (!lint_form(&z, known && checks[i].list) && known)
        checks[i].check(&z);
}

/* ---- all findings of a node ---- */

static bool is_ours(const char *name) {
    static const char *const beginnings[] = {"NCCL_",     "GLOO_", "TORCH_NCCL_",
                                             "TORCH_FR_", "CUDA_", "TP_SOCKET_IFNAME"};
    return text_begins_with_any(name, beginnings, ARRAY_SIZE(beginnings));
}

#define GID_DYNAMIC_SINCE 22100

/* A fixed index was right once; the index can differ between nodes, and change while they run. */
static void lint_old_habit(const struct nccl_facts *f, const struct linting *z) {
    if (f != NULL && f->cloud == CLOUD_NONE && f->nccl_version >= GID_DYNAMIC_SINCE &&
        strcmp(z->name, "NCCL_IB_GID_INDEX") == 0 && is_number(z->value) && z->value[0] != '-')
        lint_report(z, "since 2.21 NCCL finds it by itself, separately on each node");
}

/* cloud: the cloud's image has this file, and for some machines it names a graph. */
static void lint_conf(const struct nccl_conf *c, enum cloud cloud, const struct topology *t,
                      void (*report)(void *arg, const char *text), void *arg) {
    for (uint32_t i = 0; i < c->n; i++) {
        const struct nccl_conf_entry *e = &c->entries[i];
        _cleanup_(freep) char *where = xasprintf("%s line %u", c->path, e->line);
        struct linting z = {e->name, e->value, where, t, report, arg};
        if (strpbrk(e->name, " \t") != NULL)
            lint_report(&z, "the blank is part of the name, so NCCL never finds it");
        else if (cloud != CLOUD_AZURE || strcmp(e->name, "NCCL_GRAPH_FILE") != 0)
            nccl_lint(e->name, e->value, where, t, report, arg);
    }
}

void nccl_lint_all(char *const *envp, const struct nccl_facts *f, const struct topology *t,
                   void (*report)(void *arg, const char *text), void *arg) {
    for (char *const *e = envp; e != NULL && *e != NULL; e++) {
        const char *equals = strchr(*e, '=');
        if (equals == NULL || !is_ours(*e))
            continue;
        _cleanup_(freep) char *name = xstrndup(*e, (size_t)(equals - *e));
        struct linting z = {name, equals + 1, "environment", t, report, arg};
        nccl_lint(name, equals + 1, z.where, t, report, arg);
        lint_old_habit(f, &z);
    }
    if (f == NULL)
        return;
    lint_conf(&f->user_conf, CLOUD_NONE, t, report, arg);
    lint_conf(&f->system_conf, f->cloud, t, report, arg);
}
