#include "topology/discover/nvml/nvml_io.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "io/clock.h"
#include "topology/discover/nvml/nvml_abi.h"
#include "topology/discover/nvml/nvml_report.h"

#define NUMA_WORDS (TOPO_NUMA_MAX / 64) /* of a set of memory nodes */
#define PROCESSES_ASKED 256             /* if one GPU has more, none of them is reported */
#define C2C_LINKS_MAX 64
#define MIG_ASKED 64 /* GetMaxMigDeviceCount returns 7 */

/* Each call: result, member of struct nvml_api, parameters, and its names in the library, the
 * newest first; an older one takes the same arguments. D: of a device, which is the first one. */
#define CALLS(X, D)                                                                               \
    X(int, init, (void), "nvmlInit_v2", "nvmlInit")                                               \
    X(const char *, error_text, (int result), "nvmlErrorString")                                  \
    X(int, driver_version, (char *text, unsigned len), "nvmlSystemGetDriverVersion")              \
    X(int, nvml_version, (char *text, unsigned len), "nvmlSystemGetNVMLVersion")                  \
    X(int, cuda_version, (int *ret), "nvmlSystemGetCudaDriverVersion_v2",                         \
      "nvmlSystemGetCudaDriverVersion")                                                           \
    X(int, count, (unsigned *ret), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")                 \
    X(int, by_index, (unsigned index, struct nvml_device **ret), "nvmlDeviceGetHandleByIndex_v2", \
      "nvmlDeviceGetHandleByIndex")                                                               \
    D(uuid, (char *text, unsigned len), "nvmlDeviceGetUUID")                                      \
    D(name, (char *text, unsigned len), "nvmlDeviceGetName")                                      \
    D(pci, (struct nvml_pci_info * ret), "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2",    \
      "nvmlDeviceGetPciInfo")                                                                     \
    D(compute, (int *ret_major, int *ret_minor), "nvmlDeviceGetCudaComputeCapability")            \
    D(memory, (struct nvml_memory * ret), "nvmlDeviceGetMemoryInfo")                              \
    D(cur_gen, (unsigned *ret), "nvmlDeviceGetCurrPcieLinkGeneration")                            \
    D(cur_width, (unsigned *ret), "nvmlDeviceGetCurrPcieLinkWidth")                               \
    D(max_gen, (unsigned *ret), "nvmlDeviceGetMaxPcieLinkGeneration")                             \
    D(max_width, (unsigned *ret), "nvmlDeviceGetMaxPcieLinkWidth")                                \
    D(mig_mode, (unsigned *ret, unsigned *ret_pending), "nvmlDeviceGetMigMode")                   \
    D(mig_count, (unsigned *ret), "nvmlDeviceGetMaxMigDeviceCount")                               \
    D(mig_device, (unsigned i, struct nvml_device **ret), "nvmlDeviceGetMigDeviceHandleByIndex")  \
    D(memory_nodes, (unsigned n, unsigned long *ret, unsigned scope),                             \
      "nvmlDeviceGetMemoryAffinity")                                                              \
    D(numa_node, (unsigned *ret), "nvmlDeviceGetNumaNodeId")                                      \
    D(fabric_v4, (struct nvml_fabric_v4 * ret), "nvmlDeviceGetGpuFabricInfo_v4")                  \
    D(fabric_v, (struct nvml_fabric_v2 * ret), "nvmlDeviceGetGpuFabricInfoV")                     \
    D(fabric, (struct nvml_fabric_v1 * ret), "nvmlDeviceGetGpuFabricInfo")                        \
    D(platform, (struct nvml_platform_v2 * ret), "nvmlDeviceGetPlatformInfo")                     \
    D(slowed, (unsigned long long *ret), "nvmlDeviceGetCurrentClocksEventReasons",                \
      "nvmlDeviceGetCurrentClocksThrottleReasons")                                                \
    D(fields, (int n, struct nvml_field *fields), "nvmlDeviceGetFieldValues")                     \
    D(link_state, (unsigned link, unsigned *ret), "nvmlDeviceGetNvLinkState")                     \
    D(link_cap, (unsigned link, unsigned cap, unsigned *ret), "nvmlDeviceGetNvLinkCapability")    \
    D(link_remote, (unsigned link, struct nvml_pci_info *ret),                                    \
      "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo")                  \
    D(link_type, (unsigned link, unsigned *ret), "nvmlDeviceGetNvLinkRemoteDeviceType")           \
    X(int, event_set, (void **ret), "nvmlEventSetCreate")                                         \
    D(event_add, (unsigned long long types, void *set), "nvmlDeviceRegisterEvents")               \
    X(int, event_wait, (void *set, struct nvml_event *ret, unsigned ms), "nvmlEventSetWait_v2")   \
    D(utilization, (struct nvml_utilization * ret), "nvmlDeviceGetUtilizationRates")              \
    D(clock, (unsigned type, unsigned *ret), "nvmlDeviceGetClockInfo")                            \
    D(max_clock, (unsigned type, unsigned *ret), "nvmlDeviceGetMaxClockInfo")                     \
    D(processes, (unsigned *n, struct nvml_process_info *ret),                                    \
      "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")

#define ARGUMENTS(...) __VA_ARGS__
#define MEMBER(type, member, parameters, ...) type(*member) parameters;
#define DEVICE_MEMBER(member, parameters, ...) \
    int (*member)(struct nvml_device * d, ARGUMENTS parameters);
struct nvml_api {
    CALLS(MEMBER, DEVICE_MEMBER)
};
#define N_CALLS (sizeof(struct nvml_api) / sizeof(void (*)(void)))
#define CALL_OF(member) (offsetof(struct nvml_api, member) / sizeof(void (*)(void)))

#define NAMES(type, member, parameters, ...) {__VA_ARGS__},
#define DEVICE_NAMES(member, parameters, ...) {__VA_ARGS__},
static const char *const symbols[][3] = {CALLS(NAMES, DEVICE_NAMES)};

struct asker {
    struct nvml_api api;
    const char *found[N_CALLS];            /* the name that the library has; NULL: none */
    struct nvml_report *report;            /* shared with the reader */
    struct nvml_gpu *gpu;                  /* of the report: the one in question; NULL: none */
    struct nvml_device *devices[GPUS_MAX]; /* NULL: it can't be opened */
};

/* Before each call: the reader sees in which one the child hung or died. */
static void announce(struct asker *a, size_t call) {
    char *at = a->report->at;
    if (a->gpu == NULL)
        (void)snprintf(at, NVML_TEXT_MAX, "%s", a->found[call]);
    else
        (void)snprintf(at, NVML_TEXT_MAX, "%s of GPU %u", a->found[call],
                       (unsigned)(a->gpu - a->report->gpus));
}

static int note_lost(struct asker *a, int r) {
    if (a->gpu != NULL && (r == NVML_R_GPU_LOST || r == NVML_R_RESET_REQUIRED))
        a->gpu->lost = (uint32_t)r;
    return r;
}

/* A lost GPU is not asked again. */
#define CALL(a, member, ...)                             \
    ((a)->api.member == NULL ? NVML_R_FUNCTION_NOT_FOUND \
     : (a)->gpu != NULL && (a)->gpu->lost != 0           \
         ? NVML_R_GPU_LOST                               \
         : (announce(a, CALL_OF(member)), note_lost(a, (a)->api.member(__VA_ARGS__))))

static void load_api(void *library, struct asker *a) {
    /* dlsym() gives object pointers; POSIX lets their bytes be those of function pointers. */
    void *pointers[N_CALLS] = {NULL};
    for (size_t i = 0; i < N_CALLS; i++) {
        for (size_t k = 0; k < ARRAY_SIZE(symbols[i]) && pointers[i] == NULL; k++) {
            a->found[i] = symbols[i][k];
            if (symbols[i][k] != NULL)
                pointers[i] = dlsym(library, symbols[i][k]);
        }
    }
    static_assert(sizeof pointers == sizeof a->api, "one pointer for each member");
    memcpy(&a->api, pointers, sizeof pointers);
}

/* False: there is nothing to ask; the report has the reason. */
static bool open_library(struct asker *a, const char *name, unsigned *ret_n) {
    struct nvml_report *report = a->report;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    report->fault = NVML_FAULT_MISSING;
    if (library == NULL) {
        (void)snprintf(report->why_not, sizeof report->why_not, "no %.80s", name);
        return false;
    }
    load_api(library, a);
    if (a->api.init == NULL || a->api.count == NULL || a->api.by_index == NULL) {
        (void)snprintf(report->why_not, sizeof report->why_not, "%.80s is not NVML", name);
        return false;
    }
    report->fault = NVML_FAULT_ERROR;
    announce(a, CALL_OF(init));
    int r = a->api.init();
    if (r == NVML_R_OK)
        r = CALL(a, count, ret_n);
    const char *text = r != NVML_R_OK && a->api.error_text != NULL ? a->api.error_text(r) : NULL;
    if (text != NULL)
        (void)snprintf(report->why_not, sizeof report->why_not, "NVML: %.80s", text);
    else if (r != NVML_R_OK)
        (void)snprintf(report->why_not, sizeof report->why_not, "NVML error %d", r);
    if (r != NVML_R_OK)
        return false;
    report->fault = NVML_FAULT_NONE;
    return true;
}

static void ask_system(struct asker *a) {
    struct nvml_report *r = a->report;
    int cuda = 0;
    (void)CALL(a, driver_version, r->driver, sizeof r->driver);
    (void)CALL(a, nvml_version, r->version, sizeof r->version);
    if (CALL(a, cuda_version, &cuda) == NVML_R_OK)
        (void)snprintf(r->cuda, sizeof r->cuda, "%d.%d", cuda / 1000, cuda % 1000 / 10);
}

static bool address_of(const struct nvml_pci_info *info, struct pci_addr *ret) {
    char text[sizeof info->bus_id + 1] = "";
    memcpy(text, info->bus_id, sizeof info->bus_id);
    if (text[0] == '\0')
        memcpy(text, info->bus_id_legacy, sizeof info->bus_id_legacy);
    if (strncasecmp(text, "ffff", 4) == 0 && strchr(text, ':') != NULL &&
        strspn(text, "fF:.") == strlen(text)) {
        *ret = PCI_ADDR_UNKNOWN;
        return true;
    }
    return pci_addr_parse(text, ret) == 0;
}

static void ask_name(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    size_t i = (size_t)(g - a->report->gpus);
    (void)CALL(a, uuid, d, a->report->uuids[i], GPU_UUID_MAX);
    (void)CALL(a, name, d, a->report->names[i], NVML_TEXT_MAX);
    struct nvml_pci_info pci = {0};
    if (CALL(a, pci, d, &pci) == NVML_R_OK) {
        g->has_address = address_of(&pci, &g->at);
        g->device_id = pci.device_id;
    }
}

static void ask_numa(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    unsigned long nodes[NUMA_WORDS] = {0};
    static_assert(sizeof(unsigned long) == 8, "a 64-bit machine");
    unsigned node = 0;
    if (CALL(a, memory_nodes, d, NUMA_WORDS, nodes, NVML_SCOPE_NODE) == NVML_R_OK) {
        uint32_t n = 0;
        int32_t last = -1;
        for (uint32_t i = 0; i < TOPO_NUMA_MAX; i++) {
            if ((nodes[i / 64] >> (i % 64) & 1) != 0) {
                last = (int32_t)i;
                n++;
            }
        }
        g->numa = n == 1 ? last : -1;
    }
    if (CALL(a, numa_node, d, &node) == NVML_R_OK && node < TOPO_NUMA_MAX)
        g->memory_node = (int32_t)node;
}

static void ask_mig(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    unsigned now = 0, pending = 0, n = 0;
    if (CALL(a, mig_mode, d, &now, &pending) != NVML_R_OK || now != 1)
        return;
    g->mig = 1;
    if (CALL(a, mig_count, d, &n) != NVML_R_OK)
        return;
    n = MIN2(n, (unsigned)MIG_ASKED);
    for (unsigned i = 0; i < n && g->n_mig < TOPO_MIG_MAX; i++) {
        struct nvml_device *part = NULL;
        char *text = g->mig_uuids[g->n_mig];
        if (CALL(a, mig_device, d, i, &part) == NVML_R_OK &&
            CALL(a, uuid, part, text, TOPO_MIG_UUID_MAX) == NVML_R_OK)
            g->n_mig++;
    }
}

static void set_fabric(struct nvml_gpu *g, const uint8_t uuid[16], int32_t status, uint32_t clique,
                       uint8_t state) {
    memcpy(g->fabric_uuid, uuid, sizeof g->fabric_uuid);
    g->fabric_status = (uint32_t)status;
    g->fabric_clique = clique;
    g->fabric_state = state;
}

static void ask_fabric(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    struct nvml_fabric_v4 v4 = {0};
    if (CALL(a, fabric_v4, d, &v4) == NVML_R_OK) {
        uint32_t i = 0, n = MIN2(v4.n_cliques, (uint32_t)ARRAY_SIZE(v4.cliques));
        while (i < n && v4.cliques[i].type != NVML_CLIQUE_UNICAST_POINTER)
            i++;
        set_fabric(g, v4.uuid, v4.status, i < n ? v4.cliques[i].id : 0, v4.state);
        g->fabric_health = v4.health_mask;
        g->fabric_summary = v4.health_summary;
        return;
    }
    struct nvml_fabric_v2 v = {.version = NVML_VERSION(struct nvml_fabric_v2, 2)};
    struct nvml_fabric_v1 old = {0};
    if (CALL(a, fabric_v, d, &v) == NVML_R_OK) {
        set_fabric(g, v.uuid, v.status, v.clique, v.state);
        g->fabric_health = v.health_mask;
    } else if (CALL(a, fabric, d, &old) == NVML_R_OK) {
        set_fabric(g, old.uuid, old.status, old.clique, old.state);
    }
}

static void ask_platform(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    struct nvml_platform_v2 p = {.version = NVML_VERSION(struct nvml_platform_v2, 2)};
    if (CALL(a, platform, d, &p) != NVML_R_OK)
        return;
    (void)snprintf(g->chassis, sizeof g->chassis, "%.*s", (int)sizeof p.chassis,
                   (const char *)p.chassis);
    g->slot = p.slot;
    g->tray = p.tray;
}

static bool ask_field(struct asker *a, struct nvml_device *d, uint32_t id, uint32_t scope,
                      struct nvml_field *ret) {
    *ret = (struct nvml_field){.id = id, .scope = scope};
    return CALL(a, fields, d, 1, ret) == NVML_R_OK && note_lost(a, ret->result) == NVML_R_OK;
}

static bool field(struct asker *a, struct nvml_device *d, uint32_t id, uint32_t scope,
                  uint32_t *ret) {
    struct nvml_field f;
    bool known = ask_field(a, d, id, scope, &f);
    if (known)
        *ret = f.value.u32;
    return known;
}

static void ask_health(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    unsigned long long slowed = 0;
    (void)field(a, d, NVML_FIELD_RECOVERY, 0, &g->recovery);
    if (!field(a, d, NVML_FIELD_PAGES_PENDING, 0, &g->remap_pending) || g->remap_pending == 0)
        (void)field(a, d, NVML_FIELD_REMAP_PENDING, 0, &g->remap_pending); /* A100 and newer */
    (void)field(a, d, NVML_FIELD_REMAP_FAILED, 0, &g->remap_failed);
    (void)field(a, d, NVML_FIELD_ECC_UNCORRECTED, 0, &g->ecc_uncorrected);
    if (CALL(a, slowed, d, &slowed) == NVML_R_OK)
        g->slowed = (uint32_t)slowed;
}

/* NVLinks of a compute capability (NCCL, src/graph/xml.cc). */
static uint32_t links_of(uint32_t sm) {
    return sm < 60 ? 0 : sm < 70 ? 4 : sm < 80 ? 6 : sm < 90 ? 12 : 18;
}

/* False: there is no such link, and none with a higher number. */
static bool ask_link(struct asker *a, struct nvml_device *d, const struct nvml_gpu *g,
                     uint32_t link, struct nvml_link *ret) {
    unsigned p2p = 0;
    uint32_t active = 0;
    int r = CALL(a, link_cap, d, link, NVML_CAP_P2P_SUPPORTED, &p2p);
    if (r == NVML_R_INVALID_ARGUMENT)
        return false;
    if (r != NVML_R_OK || p2p != 1)
        return true;
    if (g->sm < 90 || !field(a, d, NVML_FIELD_NVLINK_STATE, link, &active)) {
        unsigned state = 0;
        active = CALL(a, link_state, d, link, &state) == NVML_R_OK ? state : 0;
    }
    struct nvml_pci_info remote = {0};
    if (active != 1 || CALL(a, link_remote, d, link, &remote) != NVML_R_OK ||
        !address_of(&remote, &ret->at))
        return true;
    ret->up = 1;
    ret->type = NVML_UNKNOWN;
    (void)CALL(a, link_type, d, link, &ret->type);
    return true;
}

static void ask_links(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    uint32_t n = links_of(g->sm), count = 0;
    if (a->api.link_cap == NULL || a->api.link_state == NULL || a->api.link_remote == NULL)
        return;
    if (field(a, d, NVML_FIELD_NVLINK_COUNT, 0, &count))
        n = count;
    n = MIN2(n, (uint32_t)NVML_LINKS_MAX);
    while (g->n_links < n && ask_link(a, d, g, g->n_links, &g->links[g->n_links]))
        g->n_links++;
    g->links_known = g->lost == 0;
}

static void ask_c2c(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    uint32_t n = 0;
    if (g->sm < 90 || !field(a, d, NVML_FIELD_C2C_COUNT, 0, &n))
        return;
    for (uint32_t i = 0; i < MIN2(n, (uint32_t)C2C_LINKS_MAX); i++) {
        uint32_t active = 0, mbps = 0;
        if (!field(a, d, NVML_FIELD_C2C_STATUS, i, &active) || active != 1 ||
            !field(a, d, NVML_FIELD_C2C_MAX_BW, i, &mbps))
            continue;
        g->n_c2c++;
        g->c2c_mbps += mbps;
    }
}

static void ask_processes(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    struct nvml_process_info list[PROCESSES_ASKED] = {0};
    unsigned n = PROCESSES_ASKED;
    if (CALL(a, processes, d, &n, list) != NVML_R_OK)
        return;
    g->n_pids = MIN2(n, (unsigned)NVML_PROCESSES_MAX);
    for (unsigned i = 0; i < g->n_pids; i++)
        g->pids[i] = list[i].pid;
}

static void ask_load(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    static const uint32_t fields[NVML_WAYS] = {
        [NVML_NVLINK_SENT] = NVML_FIELD_NVLINK_SENT,
        [NVML_NVLINK_RECEIVED] = NVML_FIELD_NVLINK_RECEIVED,
        [NVML_PCIE_SENT] = NVML_FIELD_PCIE_SENT,
        [NVML_PCIE_RECEIVED] = NVML_FIELD_PCIE_RECEIVED,
    };
    struct nvml_utilization u;
    struct nvml_field f;
    (void)field(a, d, NVML_FIELD_NVLINK_COUNT, 0, &g->n_links);
    for (unsigned way = g->n_links > 0 ? 0 : NVML_PCIE_SENT; way < NVML_WAYS; way++) {
        bool all_links =
            way < NVML_PCIE_SENT && ask_field(a, d, fields[way], NVML_SCOPE_ALL_LINKS, &f);
        if (!all_links && !ask_field(a, d, fields[way], 0, &f))
            continue;
        bool small = f.value_type == NVML_VALUE_UINT;
        g->moved[way] = (struct nvml_counter){.value = small ? f.value.u32 : f.value.u64,
                                              .bits = small ? 32 : 64};
    }
    if (CALL(a, utilization, d, &u) == NVML_R_OK)
        g->busy_percent = MIN2(u.gpu, 100u);
    if (CALL(a, clock, d, NVML_CLOCK_SM, &g->sm_mhz) != NVML_R_OK ||
        CALL(a, max_clock, d, NVML_CLOCK_SM, &g->sm_max_mhz) != NVML_R_OK)
        g->sm_mhz = 0;
}

static void ask_details(struct asker *a, struct nvml_device *d, struct nvml_gpu *g) {
    struct nvml_memory memory = {0};
    int major = 0, minor = 0;
    if (CALL(a, compute, d, &major, &minor) == NVML_R_OK && major > 0 && major < 100 &&
        minor >= 0 && minor < 10)
        g->sm = (uint32_t)(major * 10 + minor);
    if (CALL(a, memory, d, &memory) == NVML_R_OK)
        g->memory_bytes = memory.total;
    (void)CALL(a, cur_gen, d, &g->cur_gen);
    (void)CALL(a, cur_width, d, &g->cur_width);
    (void)CALL(a, max_gen, d, &g->max_gen);
    (void)CALL(a, max_width, d, &g->max_width);
    ask_numa(a, d, g);
    ask_mig(a, d, g);
    ask_fabric(a, d, g);
    ask_platform(a, d, g);
    g->asked = 1;
}

/* Names and addresses of all GPUs come first: they are quick, and the reader needs them most. */
static void ask_names(struct asker *a) {
    for (uint32_t i = 0; i < a->report->n; i++) {
        a->gpu = &a->report->gpus[i];
        *a->gpu = (struct nvml_gpu){
            .numa = -1, .memory_node = -1, .recovery = NVML_UNKNOWN, .busy_percent = NVML_UNKNOWN};
        if (CALL(a, by_index, i, &a->devices[i]) == NVML_R_OK)
            ask_name(a, a->devices[i], a->gpu);
        else
            a->devices[i] = NULL;
        a->gpu->named = 1;
    }
    a->gpu = NULL;
}

typedef void ask_fn(struct asker *a, struct nvml_device *d, struct nvml_gpu *g);

/* All of these, NULL-terminated, of each GPU in turn. */
static void ask_gpus(struct asker *a, ask_fn *const *asks) {
    for (uint32_t i = 0; i < a->report->n; i++) {
        a->gpu = &a->report->gpus[i];
        for (ask_fn *const *ask = asks; a->devices[i] != NULL && *ask != NULL; ask++)
            (*ask)(a, a->devices[i], a->gpu);
    }
}

#define NVML_LIBRARY "libnvidia-ml.so.1"
#define PROC_GPUS "/proc/driver/nvidia/gpus"

/* NULL: not set. */
static const char *other_library(void) {
    const char *other = getenv(NVML_LIBRARY_VARIABLE);
    return other != NULL && other[0] != '\0' ? other : NULL;
}

bool nvml_may_answer(void) {
    /* WSL has neither of the first two. */
    return other_library() != NULL || access("/proc/driver/nvidia", F_OK) == 0 ||
           access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* ---- the child ---- */

/* Fills in what is known at once. library: NULL: the usual one. False: there is nothing to ask. */
static bool begin(struct asker *a, const char *library) {
    unsigned n = 0;
    if (library == NULL)
        library = other_library() != NULL ? other_library() : NVML_LIBRARY;
    if (!open_library(a, library, &n))
        return false;
    ask_system(a);
    a->report->n = MIN2(n, (unsigned)GPUS_MAX);
    a->report->found = 1;
    ask_names(a);
    return true;
}

static int ask_in_child(int fd, void *arg) {
    static ask_fn *const details[] = {ask_health, ask_details, NULL};
    static ask_fn *const more[] = {ask_links, ask_c2c, ask_processes, NULL};
    const struct nvml_child *child = arg;
    struct asker a = {.report = child->shared};
    if (begin(&a, child->config.library) && !child->config.names_only) {
        ask_gpus(&a, details);
        ask_gpus(&a, more);
    }
    /* nvmlShutdown() is not called, because it can hang, too: the process simply ends. */
    __atomic_store_n(&child->shared->whole, 1, __ATOMIC_RELEASE);
    return 0;
}

int nvml_read_load(struct nvml_report *ret, struct err *err) {
    static ask_fn *const load[] = {ask_health, ask_load, ask_processes, NULL};
    struct asker a = {.report = ret};
    memset(ret, 0, sizeof *ret);
    if (!begin(&a, NULL))
        return err_set(err, -ENOENT, "%s", ret->why_not);
    ret->when_ns = clock_now_ns();
    ask_gpus(&a, load);
    return 0;
}

int nvml_begin(const struct nvml_config *config, struct nvml_child *ret) {
    void *shared =
        mmap(NULL, sizeof *ret->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *ret = (struct nvml_child){.config = *config};
    if (ret->config.deadline_ns == 0)
        ret->config.deadline_ns = NVML_DISCOVERY_NS;
    if (shared == MAP_FAILED)
        return -errno;
    ret->shared = shared;
    struct helper_call_config call = {.name = "muster-nvml",
                                      .run = ask_in_child,
                                      .arg = ret,
                                      .timeout_ns = ret->config.deadline_ns};
    return helper_call_new(NULL, &call, NULL, NULL, &ret->call);
}

/* Returns 0: the report is complete; -ETIMEDOUT; -EIO: the child died. */
static int take_report(struct nvml_child *child, struct nvml_report *ret) {
    struct helper_answer answer = {.code = -EIO};
    if (child->call != NULL)
        helper_call_wait(child->call, &answer);
    helper_call_free(TAKE_PTR(child->call)); /* from here on nothing writes into the report */
    if (child->shared == NULL)
        return -EIO;
    memcpy(ret, child->shared, sizeof *ret);
    (void)munmap(TAKE_PTR(child->shared), sizeof *ret);
    nvml_report_clean(ret);
    return ret->whole ? 0 : answer.code == -ETIMEDOUT ? -ETIMEDOUT : -EIO;
}

int nvml_end(struct nvml_child *child, struct nvml_report *ret) {
    memset(ret, 0, sizeof *ret);
    int r = take_report(child, ret);
    if (r == 0)
        return 0;
    char at[NVML_TEXT_MAX + 4] = "";
    if (ret->at[0] != '\0')
        (void)snprintf(at, sizeof at, " (%.60s)", ret->at);
    uint64_t ms = child->config.deadline_ns / NS_PER_MS;
    ret->fault = r == -ETIMEDOUT ? NVML_FAULT_LATE : NVML_FAULT_ENDED;
    if (r == -ETIMEDOUT)
        (void)snprintf(ret->why_not, sizeof ret->why_not, "NVML did not answer in %u.%u s%.64s",
                       (unsigned)(ms / 1000), (unsigned)(ms % 1000 / 100), at);
    else
        (void)snprintf(ret->why_not, sizeof ret->why_not, "NVML could not be asked%.64s", at);
    return r;
}

#define EVENT_WAIT_MS 60000

static void *watch_visible(struct asker *a, const char *visible) {
    uint32_t list[GPUS_MAX], n = nvml_report_visible(a->report, visible, list);
    void *set = NULL;
    bool any = false;
    if (CALL(a, event_set, &set) != NVML_R_OK)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        any |= a->devices[list[i]] != NULL &&
               CALL(a, event_add, a->devices[list[i]], NVML_EVENT_XID, set) == NVML_R_OK;
    return any ? set : NULL;
}

static bool send_xid(int fd, const struct asker *a, const struct nvml_event *e) {
    const struct nvml_report *r = a->report;
    struct nvml_xid x = {.at_ns = clock_now_ns(), .xid = (uint32_t)e->data};
    while (x.gpu < r->n && a->devices[x.gpu] != e->device)
        x.gpu++;
    if (e->type != NVML_EVENT_XID || x.gpu == r->n)
        return true;
    x.at = r->gpus[x.gpu].has_address ? r->gpus[x.gpu].at : PCI_ADDR_UNKNOWN;
    return helper_send(fd, &x, sizeof x);
}

int nvml_send_xids(int fd, void *visible) {
    struct asker a = {.report = xcalloc(1, sizeof *a.report)};
    struct nvml_event e;
    void *set = begin(&a, NULL) ? watch_visible(&a, *(const char **)visible) : NULL;
    int r = set != NULL ? NVML_R_TIMEOUT : NVML_R_FUNCTION_NOT_FOUND;
    while (r == NVML_R_TIMEOUT || (r == NVML_R_OK && send_xid(fd, &a, &e)))
        r = CALL(&a, event_wait, set, &e, EVENT_WAIT_MS);
    free(a.report);
    return 0;
}

static uint32_t count_proc(void) {
    DIR *dir = opendir(PROC_GPUS);
    if (dir == NULL)
        return 0;
    uint32_t n = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    (void)closedir(dir);
    return MIN2(n, (uint32_t)GPUS_MAX);
}

int nvml_discover(struct nvml_report *ret) {
    struct nvml_config config = {.deadline_ns = NVML_DEADLINE_NS, .names_only = true};
    struct nvml_child child;
    (void)nvml_begin(&config, &child); /* nvml_end() reports errors */
    int r = nvml_end(&child, ret);
    if (r < 0)
        ret->found = false;
    if (!ret->found)
        ret->n = count_proc();
    return r == -ETIMEDOUT ? r : 0;
}

int nvml_count_visible(const char *visible, uint32_t *ret, struct err *err) {
    /* Without a kernel driver there is nothing to ask NVML about. */
    if (!nvml_may_answer()) {
        *ret = 0;
        return 0;
    }
    _cleanup_(freep) struct nvml_report *report = xcalloc(1, sizeof *report);
    int r = nvml_discover(report);
    if (r < 0 && report->n == 0)
        return err_set(err, r, "%s", report->why_not);
    struct gpu_inventory inventory = {
        .n = report->n,
        .uuids = report->found ? report->uuids : NULL,
    };
    *ret = gpu_count_visible(visible, &inventory);
    return 0;
}
