#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/process/helper_call.h"
#include "topology/discover/nvml/nvml_abi.h"
#include "watchdog/look/gpus.h"
#include "watchdog/worker_signs.h"

#define LIBRARY "libnvidia-ml.so.1"
#define LIBRARY_VARIABLE "MUSTER_NVML_LIBRARY"
#define PROCESSES_ASKED 256

#define CLOCK_SM 1u         /* nvmlClockType_t */
#define ECC_UNCORRECTED 1u  /* nvmlMemoryErrorType_t */
#define ECC_SINCE_LOADED 0u /* nvmlEccCounterType_t */
#define SCOPE_ALL_LINKS UINT32_MAX

enum { /* fields of nvmlDeviceGetFieldValues, besides those of nvml_abi.h */
       FIELD_NVLINK_SENT = 138, /* KiB */
       FIELD_NVLINK_RECEIVED = 139,
       FIELD_PCIE_SENT = 197, /* bytes */
       FIELD_PCIE_RECEIVED = 198,
};
static const uint32_t fields_of[GPU_WAYS] = {
    [GPU_NVLINK_SENT] = FIELD_NVLINK_SENT,
    [GPU_NVLINK_RECEIVED] = FIELD_NVLINK_RECEIVED,
    [GPU_PCIE_SENT] = FIELD_PCIE_SENT,
    [GPU_PCIE_RECEIVED] = FIELD_PCIE_RECEIVED,
};
enum { VALUE_UINT = 1 }; /* nvmlValueType_t; larger ones have 64 bits here */

struct utilization { /* nvmlUtilization_t */
    unsigned gpu, memory;
};

/* One member for each call, in the order of symbols[]. */
struct api {
    int (*init)(void);
    int (*count)(unsigned *ret);
    int (*by_index)(unsigned index, struct nvml_device **ret);
    int (*pci)(struct nvml_device *d, struct nvml_pci_info *ret);
    int (*fields)(struct nvml_device *d, int n, struct nvml_field *fields);
    int (*utilization)(struct nvml_device *d, struct utilization *ret);
    int (*clock)(struct nvml_device *d, unsigned type, unsigned *ret);
    int (*max_clock)(struct nvml_device *d, unsigned type, unsigned *ret);
    int (*slowed)(struct nvml_device *d, unsigned long long *ret);
    int (*ecc)(struct nvml_device *d, unsigned type, unsigned counter, unsigned long long *ret);
    int (*processes)(struct nvml_device *d, unsigned *n, struct nvml_process_info *ret);
};
#define N_CALLS (sizeof(struct api) / sizeof(void (*)(void)))

/* The newest name first; an older one takes the same arguments. */
static const char *const symbols[][2] = {
    {"nvmlInit_v2", "nvmlInit"},
    {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
    {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
    {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"},
    {"nvmlDeviceGetFieldValues"},
    {"nvmlDeviceGetUtilizationRates"},
    {"nvmlDeviceGetClockInfo"},
    {"nvmlDeviceGetMaxClockInfo"},
    {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
    {"nvmlDeviceGetTotalEccErrors"},
    {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"},
};
static_assert(ARRAY_SIZE(symbols) == N_CALLS, "one row for each member");

bool source_gpus_may_answer(void) {
    const char *other = getenv(LIBRARY_VARIABLE);
    return (other != NULL && other[0] != '\0') || access("/dev/nvidiactl", F_OK) == 0;
}

static void load_api(void *library, struct api *ret) {
    void *pointers[N_CALLS] = {NULL};
    for (size_t i = 0; i < N_CALLS; i++)
        for (size_t k = 0; k < ARRAY_SIZE(symbols[i]) && pointers[i] == NULL; k++)
            if (symbols[i][k] != NULL)
                pointers[i] = dlsym(library, symbols[i][k]);
    static_assert(sizeof pointers == sizeof *ret, "one pointer for each member");
    memcpy(ret, pointers, sizeof pointers);
}

/* Every call about a GPU that is lost returns that. */
#define ASK(g, a, member, ...)                                    \
    ((a)->member == NULL || (g)->lost ? NVML_R_FUNCTION_NOT_FOUND \
                                      : note_loss(g, (a)->member(__VA_ARGS__)))
static int note_loss(struct gpu *g, int r) {
    g->lost = g->lost || r == NVML_R_GPU_LOST || r == NVML_R_RESET_REQUIRED;
    return r;
}

static bool ask_field(const struct api *a, struct nvml_device *d, struct gpu *g, uint32_t id,
                      uint32_t scope, struct nvml_field *ret) {
    *ret = (struct nvml_field){.id = id, .scope = scope};
    return ASK(g, a, fields, d, 1, ret) == NVML_R_OK && note_loss(g, ret->result) == NVML_R_OK;
}

static void ask_links(const struct api *a, struct nvml_device *d, struct gpu *g) {
    struct nvml_field f;
    g->nvlink = ask_field(a, d, g, NVML_FIELD_NVLINK_COUNT, 0, &f) && f.value.u32 > 0;
    for (unsigned way = 0; way < GPU_WAYS; way++) {
        bool nvlink = way < GPU_PCIE_SENT;
        if ((nvlink && !g->nvlink) ||
            (!ask_field(a, d, g, fields_of[way], nvlink ? SCOPE_ALL_LINKS : 0, &f) &&
             !(nvlink && ask_field(a, d, g, fields_of[way], 0, &f))))
            continue;
        bool small = f.value_type == VALUE_UINT;
        g->moved[way] = (struct gpu_counter){.value = small ? f.value.u32 : f.value.u64,
                                             .bits = small ? 32 : 64};
    }
}

static void ask_pids(const struct api *a, struct nvml_device *d, struct gpu *g) {
    struct nvml_process_info *all = xcalloc(PROCESSES_ASKED, sizeof *all);
    unsigned n = PROCESSES_ASKED;
    if (ASK(g, a, processes, d, &n, all) == NVML_R_OK)
        for (unsigned i = 0; i < MIN2(n, (unsigned)PROCESSES_ASKED) && g->n_pids < GPU_PIDS_MAX;
             i++)
            if (all[i].pid != 0)
                g->pids[g->n_pids++] = (int32_t)all[i].pid;
    free(all);
}

static void ask_gpu(const struct api *a, unsigned i, struct gpu *g) {
    struct nvml_device *d = NULL;
    struct nvml_pci_info pci = {0};
    struct utilization u;
    unsigned n;
    unsigned long long large;
    *g = (struct gpu){.busy_percent = -1, .sm_mhz = -1, .sm_max_mhz = -1, .uncorrected = -1};
    if (note_loss(g, a->by_index(i, &d)) != NVML_R_OK)
        return;
    if (ASK(g, a, pci, d, &pci) == NVML_R_OK)
        (void)snprintf(g->address, sizeof g->address, "%.*s", (int)sizeof pci.bus_id - 1,
                       pci.bus_id);
    ask_links(a, d, g);
    if (ASK(g, a, utilization, d, &u) == NVML_R_OK)
        g->busy_percent = (int32_t)MIN2(u.gpu, 100u);
    if (ASK(g, a, clock, d, CLOCK_SM, &n) == NVML_R_OK)
        g->sm_mhz = (int32_t)MIN2(n, 1000000u);
    if (ASK(g, a, max_clock, d, CLOCK_SM, &n) == NVML_R_OK)
        g->sm_max_mhz = (int32_t)MIN2(n, 1000000u);
    if (ASK(g, a, slowed, d, &large) == NVML_R_OK)
        g->slowed = large;
    if (ASK(g, a, ecc, d, ECC_UNCORRECTED, ECC_SINCE_LOADED, &large) == NVML_R_OK)
        g->uncorrected = (int64_t)MIN2(large, (unsigned long long)INT64_MAX);
    ask_pids(a, d, g);
}

int source_gpus(struct gpus *ret, struct err *err) {
    const char *other = getenv(LIBRARY_VARIABLE);
    const char *name = other != NULL && other[0] != '\0' ? other : LIBRARY;
    struct api api;
    unsigned n = 0;
    *ret = (struct gpus){.when_ns = clock_now_ns()};
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL); /* it stays for the process's life */
    if (library == NULL)
        return err_set(err, -ENOENT, "%.80s could not be loaded", name);
    load_api(library, &api);
    if (api.init == NULL || api.count == NULL || api.by_index == NULL)
        return err_set(err, -ENOENT, "%.80s is not NVML", name);
    int r = api.init();
    if (r == NVML_R_OK)
        r = api.count(&n);
    if (r != NVML_R_OK)
        return err_set(err, -ENOENT, "NVML error %d", r);
    ret->when_ns = clock_now_ns();
    for (ret->n = 0; ret->n < MIN2(n, (unsigned)GPUS_READ_MAX); ret->n++)
        ask_gpu(&api, ret->n, &ret->at[ret->n]);
    return 0;
}

/* ---- watching ---- */

struct gpu_watch {
    struct loop *loop;
    struct helper_call *call;    /* NULL: none is under way */
    uint64_t asked_ns;           /* when it was last asked; 0: never */
    struct gpus *before, *after; /* owned; n 0: not known */
};

struct gpu_watch *gpu_watch_new(struct loop *loop) {
    struct gpu_watch *w = xcalloc(1, sizeof *w);
    *w = (struct gpu_watch){.loop = loop};
    return w;
}

void gpu_watch_free(struct gpu_watch *w) {
    if (w == NULL)
        return;
    helper_call_free(w->call);
    free(w->before);
    free(w->after);
    free(w);
}

static int run(int fd, void *arg) {
    struct gpus *g = xcalloc(1, sizeof *g);
    struct err unused = {0};
    bool sent = source_gpus(g, &unused) == 0 && helper_send(fd, g, sizeof *g);
    free(g);
    return sent ? 0 : 1;
}

static void on_answer(void *arg, const struct helper_answer *a) {
    struct gpu_watch *w = arg;
    w->call = NULL;
    if (a->code < 0 || a->len != sizeof(struct gpus))
        return; /* nothing is concluded */
    free(w->before);
    w->before = w->after;
    w->after = xmalloc(sizeof *w->after);
    memcpy(w->after, a->data, sizeof *w->after);
}

void gpu_watch_tick(struct gpu_watch *w, uint64_t now_ns, bool wanted) {
    struct helper_call_config config = {.name = "muster-gpus",
                                        .run = run,
                                        .timeout_ns = GPU_WATCH_DEADLINE_NS,
                                        .max_bytes = sizeof(struct gpus)};
    if (!wanted || w->call != NULL ||
        (w->asked_ns != 0 && now_ns - w->asked_ns < GPU_WATCH_EVERY_NS) ||
        !source_gpus_may_answer())
        return;
    w->asked_ns = now_ns;
    if (helper_call_new(w->loop, &config, on_answer, w, &w->call) < 0)
        w->call = NULL; /* it is tried again */
}

uint32_t gpu_watch_flags(const struct gpu_watch *w, pid_t pid, uint64_t now_ns) {
    bool seen = false;
    if (w->before == NULL || now_ns - w->after->when_ns > GPU_WATCH_AGE_MAX_NS ||
        w->after->when_ns - w->before->when_ns > GPU_WATCH_AGE_MAX_NS)
        return 0;
    bool moves = gpus_move(w->before, w->after, pid, &seen);
    return (moves ? (uint32_t)SIGN_GPU : 0U) | (seen ? (uint32_t)SIGN_GPU_SEEN : 0U);
}
