/* Stands in for libnvidia-ml.so.1 where there is no GPU. What it answers is in the text file that FAKE_NVML_SCRIPT
 * names; without one it has no GPU. One statement a line, '#' begins a comment, "…" holds blanks, N-M is a range:
 *
 *   driver 550.54.15            nvml 12.550.54.15           cuda 12040
 *   count 8                     (more than are described: the rest can't be opened)
 *   gpu 0-7 name "NVIDIA H100 80GB HBM3" cc 9.0 memory 85520809984 pcie 5 16 5 16
 *   gpu 0 busid 00000000:1B:00.0 uuid GPU-… minor 0 numa 0 memnode 2 mig 1 mig-uuid MIG-…
 *   gpu 0-7 nvlink 0-3 remote 00000000:07:00.0 active 1 p2p 1 type switch      (gpu, cpu, switch, unknown)
 *   gpu 0 peers 1 2 3 3 4 4     (links 0, 1 … go to these GPUs)
 *   gpu 0 c2c 0-9 mbps 44712 active 1
 *   gpu 0 fabric 000102…0f clique 7 state 3 status 0 health 0xaa summary 1
 *   gpu 0 chassis 1821125000123 slot 5 tray 3    (the rack; without it there is no such information)
 *   gpu 0 rate 1024 65536 busy 100  (its links move so many KiB by NVLink and bytes by PCIe a millisecond, and it
 *                                    works; without "rate" it has no such counters)
 *   gpu 0 process 4711 used 1048576
 *   gpu 0 linkcount 4000000000  mig-count N  processes-said N  node-words W W    (answers as they stand)
 *   gpu 0 recovery 1            (the recovery action that it needs: field 230; unknown without it)
 *   gpu 0 remap PENDING FAILED  pages 1  ecc 2  slowed 0x40    (fields 144, 145, 31, 4; reasons for lower clocks)
 *   gpu 0 xid 31                (once registered for, this is the first event; the next ones never come)
 *   events FILE                 (each further line of it, "GPU XID", is an event, from the file's beginning on)
 *   fabric-version 2            (a newer structure is refused; 4: the call _v4 exists)
 *   hang CALL [GPU]             the call never returns
 *   crash CALL [GPU]            … takes its process with it
 *   fail CALL [GPU] RESULT      … fails
 *   slow CALL [GPU] MS          … takes so many milliseconds
 *   missing CALL                the library has no such symbol
 *   unterminated CALL           … fills its text to the last byte
 *   noise CALL                  … writes on the standard output */
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define GPUS 64
#define LINKS 36
#define WORDS 64
#define RULES 64
#define ANY (-1)
#define NO_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define FUNCTION_MISSING 13
#define TOO_SMALL 7
#define OTHER_VERSION 25

struct link {
    char remote[40];
    int active, p2p, type; /* type: 0 GPU, 1 NPU, 2 switch, 255 unknown; -1: no such call for it */
};

struct device {
    struct device *whole; /* of a MIG device */
    int index;
    char busid[40], uuid[96], name[96];
    int major, minor, minor_number, mig, numa, memnode;
    unsigned pcie[4];
    unsigned long long memory;
    struct link links[LINKS];
    int n_links;
    unsigned linkcount, mig_count, processes_said;
    unsigned long node_words[2];
    struct {
        unsigned mbps, active;
    } c2c[LINKS];
    int n_c2c;
    int has_rate;
    unsigned long long rates[2];
    unsigned busy;
    uint8_t fabric[16];
    unsigned clique, state, status, health, summary;
    char chassis[40];
    unsigned slot, tray;
    struct {
        unsigned pid;
        unsigned long long used;
    } processes[8];
    int n_processes;
    int recovery, xid; /* -1: unknown; 0: none */
    unsigned remap[2], pages, ecc, slowed;
    struct device *parts;
    int n_parts;
};

enum kind { HANG = 1, CRASH, FAIL, MISSING, UNTERMINATED, NOISE, SLOW };
static struct rule {
    enum kind kind;
    char call[64];
    int gpu, result;
} rules[RULES];

static struct device gpus[GPUS], parts[GPUS][16];
static int n_rules, cuda = 12040, fabric_version = 3;
static unsigned count;
static char driver[80] = "999.1", nvml[80] = "12.999.1", events[512];

/* ---- the script ---- */

static void refuse(const char *what, const char *line) {
    fprintf(stderr, "fake_nvml: %s: %s\n", what, line);
    _exit(70);
}

static int split(char *line, char *words[WORDS]) {
    int n = 0;
    for (char *p = line; n < WORDS;) {
        p += strspn(p, " \t\n");
        if (*p == '\0' || *p == '#')
            break;
        bool quoted = *p == '"';
        words[n++] = p += quoted;
        p += strcspn(p, quoted ? "\"" : " \t\n");
        if (*p != '\0')
            *p++ = '\0';
    }
    return n;
}

static void range(const char *text, int max, int *from, int *to) {
    *from = *to = atoi(text);
    if (strchr(text, '-') != NULL)
        *to = atoi(strchr(text, '-') + 1);
    if (*from < 0 || *to >= max || *from > *to)
        refuse("a number out of range", text);
}

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

static int take_links(struct device *d, char **w, int n) {
    int from, to, i = 2;
    range(w[1], LINKS, &from, &to);
    for (int k = from; k <= to; k++) {
        struct link *l = &d->links[k];
        *l = (struct link){.active = 1, .p2p = 1, .type = -1};
        for (i = 2; i + 1 < n; i += 2) {
            if (strcmp(w[i], "remote") == 0)
                copy(l->remote, sizeof l->remote, w[i + 1]);
            else if (strcmp(w[i], "active") == 0)
                l->active = atoi(w[i + 1]);
            else if (strcmp(w[i], "p2p") == 0)
                l->p2p = atoi(w[i + 1]);
            else if (strcmp(w[i], "type") == 0)
                l->type = *w[i + 1] == 'g' ? 0 : *w[i + 1] == 'c' ? 1 : *w[i + 1] == 's' ? 2 : 255;
            else
                break;
        }
    }
    d->n_links = to + 1 > d->n_links ? to + 1 : d->n_links;
    return i;
}

static int take_c2c(struct device *d, char **w, int n) {
    int from, to, i = 2;
    range(w[1], LINKS, &from, &to);
    for (int k = from; k <= to; k++) {
        d->c2c[k].active = 1;
        for (i = 2; i + 1 < n; i += 2) {
            if (strcmp(w[i], "mbps") == 0)
                d->c2c[k].mbps = (unsigned)strtoul(w[i + 1], NULL, 10);
            else if (strcmp(w[i], "active") == 0)
                d->c2c[k].active = (unsigned)atoi(w[i + 1]);
            else
                break;
        }
    }
    d->n_c2c = to + 1 > d->n_c2c ? to + 1 : d->n_c2c;
    return i;
}

static int take_fabric(struct device *d, char **w, int n) {
    for (int k = 0; k < 16; k++)
        d->fabric[k] = (uint8_t)strtoul((char[3]){w[1][2 * k], w[1][2 * k + 1]}, NULL, 16);
    int i = 2;
    for (; i + 1 < n; i += 2) {
        unsigned v = (unsigned)strtoul(w[i + 1], NULL, 0);
        if (strcmp(w[i], "clique") == 0)
            d->clique = v;
        else if (strcmp(w[i], "state") == 0)
            d->state = v;
        else if (strcmp(w[i], "status") == 0)
            d->status = v;
        else if (strcmp(w[i], "health") == 0)
            d->health = v;
        else if (strcmp(w[i], "summary") == 0)
            d->summary = v;
        else
            break;
    }
    return i;
}

/* Properties that are one number. */
static const struct {
    const char *key;
    size_t at;
} numbers[] = {
    {"minor", offsetof(struct device, minor_number)},
    {"mig", offsetof(struct device, mig)},
    {"numa", offsetof(struct device, numa)},
    {"memnode", offsetof(struct device, memnode)},
    {"slot", offsetof(struct device, slot)},
    {"tray", offsetof(struct device, tray)},
    {"busy", offsetof(struct device, busy)},
    {"recovery", offsetof(struct device, recovery)},
    {"xid", offsetof(struct device, xid)},
    {"pages", offsetof(struct device, pages)},
    {"ecc", offsetof(struct device, ecc)},
    {"slowed", offsetof(struct device, slowed)},
    {"linkcount", offsetof(struct device, linkcount)},
    {"mig-count", offsetof(struct device, mig_count)},
    {"processes-said", offsetof(struct device, processes_said)},
};

static bool take_number(struct device *d, const char *key, const char *value) {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(key, numbers[i].key) == 0) {
            unsigned n = (unsigned)strtoul(value, NULL, 0);
            memcpy((char *)d + numbers[i].at, &n, sizeof n);
            return true;
        }
    return false;
}

/* Reads one property of a GPU. Returns the number of words that it used. */
static int take_property(struct device *d, char **w, int n) {
    const char *key = w[0], *value = n > 1 ? w[1] : "";
    if (strcmp(key, "busid") == 0)
        copy(d->busid, sizeof d->busid, value);
    else if (strcmp(key, "uuid") == 0)
        copy(d->uuid, sizeof d->uuid, value);
    else if (strcmp(key, "name") == 0)
        copy(d->name, sizeof d->name, value);
    else if (strcmp(key, "cc") == 0)
        sscanf(value, "%d.%d", &d->major, &d->minor);
    else if (strcmp(key, "memory") == 0)
        d->memory = strtoull(value, NULL, 10);
    else if (strcmp(key, "chassis") == 0)
        copy(d->chassis, sizeof d->chassis, value);
    else if (strcmp(key, "mig-uuid") == 0 && d->n_parts < 16) {
        struct device *part = &d->parts[d->n_parts++];
        part->whole = d;
        part->index = d->index;
        copy(part->uuid, sizeof part->uuid, value);
    } else if (strcmp(key, "node-words") == 0) {
        for (int i = 0; i < 2 && i + 1 < n; i++)
            d->node_words[i] = strtoul(w[i + 1], NULL, 16);
        return 3;
    } else if (strcmp(key, "pcie") == 0 && n >= 5) {
        for (int i = 0; i < 4; i++)
            d->pcie[i] = (unsigned)strtoul(w[i + 1], NULL, 10);
        return 5;
    } else if (strcmp(key, "peers") == 0) {
        for (int i = 1; i < n && i <= LINKS; i++) {
            d->links[i - 1] = (struct link){.active = 1, .p2p = 1, .type = 0};
            snprintf(d->links[i - 1].remote, 40, "=%s", w[i]); /* its address can come later in the script */
            d->n_links = i;
        }
        return n;
    } else if (strcmp(key, "nvlink") == 0)
        return take_links(d, w, n);
    else if (strcmp(key, "c2c") == 0)
        return take_c2c(d, w, n);
    else if (strcmp(key, "fabric") == 0 && strlen(value) == 32)
        return take_fabric(d, w, n);
    else if (strcmp(key, "process") == 0 && n >= 4 && d->n_processes < 8) {
        d->processes[d->n_processes].pid = (unsigned)atoi(value);
        d->processes[d->n_processes++].used = strtoull(w[3], NULL, 10);
        return 4;
    } else if (strcmp(key, "remap") == 0 && n >= 3) {
        d->remap[0] = (unsigned)atoi(value);
        d->remap[1] = (unsigned)atoi(w[2]);
        return 3;
    } else if (strcmp(key, "rate") == 0 && n >= 3) {
        d->has_rate = 1;
        d->rates[0] = strtoull(value, NULL, 10);
        d->rates[1] = strtoull(w[2], NULL, 10);
        return 3;
    } else if (!take_number(d, key, value))
        refuse("not a property of a GPU", key);
    return 2;
}

static void take_rule(enum kind kind, char **w, int n) {
    if (n < 2 || n_rules == RULES)
        refuse("a rule without a call, or one too many", w[0]);
    struct rule *r = &rules[n_rules++];
    *r = (struct rule){.kind = kind, .gpu = ANY};
    copy(r->call, sizeof r->call, w[1]);
    if ((kind == FAIL || kind == SLOW) && n > 2)
        r->result = atoi(w[--n]);
    if (n > 2)
        r->gpu = atoi(w[2]);
}

static void take_line(char *line) {
    static const char *const kinds[] = {"", "hang", "crash", "fail", "missing", "unterminated", "noise", "slow"};
    char *w[WORDS];
    int n = split(line, w), from, to;
    if (n == 0)
        return;
    for (int k = HANG; k <= SLOW; k++)
        if (strcmp(w[0], kinds[k]) == 0) {
            take_rule((enum kind)k, w, n);
            return;
        }
    if (n < 2)
        refuse("a statement without a value", w[0]);
    if (strcmp(w[0], "driver") == 0)
        copy(driver, sizeof driver, w[1]);
    else if (strcmp(w[0], "events") == 0)
        copy(events, sizeof events, w[1]);
    else if (strcmp(w[0], "nvml") == 0)
        copy(nvml, sizeof nvml, w[1]);
    else if (strcmp(w[0], "cuda") == 0)
        cuda = atoi(w[1]);
    else if (strcmp(w[0], "fabric-version") == 0)
        fabric_version = atoi(w[1]);
    else if (strcmp(w[0], "count") == 0)
        count = (unsigned)strtoul(w[1], NULL, 10);
    else if (strcmp(w[0], "gpu") == 0) {
        range(w[1], GPUS, &from, &to);
        for (int g = from; g <= to; g++)
            for (int i = 2; i < n;)
                i += take_property(&gpus[g], w + i, n - i);
    } else
        refuse("not a statement", w[0]);
}

__attribute__((constructor)) static void read_script(void) {
    for (int i = 0; i < GPUS; i++)
        gpus[i] = (struct device){
            .index = i, .minor_number = i, .numa = -1, .memnode = -1, .recovery = -1, .parts = parts[i]};
    const char *path = getenv("FAKE_NVML_SCRIPT");
    FILE *f = path != NULL ? fopen(path, "re") : NULL;
    if (path != NULL && f == NULL)
        refuse("no such script", path);
    char line[1024];
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        take_line(line);
    if (f != NULL)
        fclose(f);
}

/* ---- the rules ---- */

static const struct rule *rule_of(enum kind kind, const char *call, int gpu) {
    for (int i = 0; i < n_rules; i++)
        if (rules[i].kind == kind && strcmp(rules[i].call, call) == 0 && (rules[i].gpu == ANY || rules[i].gpu == gpu))
            return &rules[i];
    return NULL;
}

static int enter(const char *call, int gpu) {
    if (rule_of(NOISE, call, gpu) != NULL)
        dprintf(1, "noise of %s\n", call);
    if (rule_of(CRASH, call, gpu) != NULL)
        kill(getpid(), SIGKILL);
    while (rule_of(HANG, call, gpu) != NULL)
        pause();
    const struct rule *slow = rule_of(SLOW, call, gpu);
    if (slow != NULL)
        usleep((unsigned)slow->result * 1000);
    const struct rule *r = rule_of(FAIL, call, gpu);
    return r != NULL ? r->result : 0;
}

static int put(const char *call, char *text, size_t len, const char *value) {
    if (rule_of(UNTERMINATED, call, ANY) != NULL) {
        memset(text, 'A', len);
        return 0;
    }
    if (strlen(value) >= len)
        return TOO_SMALL;
    memcpy(text, value, strlen(value) + 1);
    return 0;
}

/* A call that the script can remove: dlsym() calls the resolver, and returns its NULL. */
#define EXPORT(type, name, params)                                                 \
    type name params __attribute__((visibility("default"), ifunc("find_" #name))); \
    static type do_##name params;                                                  \
    __attribute__((used)) static type(*find_##name(void)) params {                 \
        return rule_of(MISSING, #name, ANY) != NULL ? NULL : do_##name;            \
    }                                                                              \
    static type do_##name params
#define ENTER(name, gpu)            \
    do {                            \
        int r_ = enter(#name, gpu); \
        if (r_ != 0)                \
            return r_;              \
    } while (0)
/* A call that returns one number of a device. */
#define NUMBER(name, type, known, value)                 \
    EXPORT(int, name, (struct device * d, type * ret)) { \
        ENTER(name, d->index);                           \
        if (!(known))                                    \
            return NOT_SUPPORTED;                        \
        *ret = (type)(value);                            \
        return 0;                                        \
    }

/* ---- the system ---- */

EXPORT(int, nvmlInit_v2, (void)) { return enter("nvmlInit_v2", ANY); }
EXPORT(int, nvmlInit, (void)) { return enter("nvmlInit", ANY); }
EXPORT(int, nvmlShutdown, (void)) { return enter("nvmlShutdown", ANY); }
EXPORT(const char *, nvmlErrorString, (int result)) {
    return result == 9    ? "Driver Not Loaded"
           : result == 15 ? "GPU is lost"
           : result == 18 ? "Driver/library version mismatch"
                          : "Unknown Error";
}
EXPORT(int, nvmlSystemGetDriverVersion, (char *text, unsigned len)) {
    ENTER(nvmlSystemGetDriverVersion, ANY);
    return put("nvmlSystemGetDriverVersion", text, len, driver);
}
EXPORT(int, nvmlSystemGetNVMLVersion, (char *text, unsigned len)) {
    ENTER(nvmlSystemGetNVMLVersion, ANY);
    return put("nvmlSystemGetNVMLVersion", text, len, nvml);
}
EXPORT(int, nvmlSystemGetCudaDriverVersion_v2, (int *ret)) {
    ENTER(nvmlSystemGetCudaDriverVersion_v2, ANY);
    *ret = cuda;
    return 0;
}
EXPORT(int, nvmlDeviceGetCount_v2, (unsigned *ret)) {
    ENTER(nvmlDeviceGetCount_v2, ANY);
    *ret = count;
    return 0;
}
EXPORT(int, nvmlDeviceGetHandleByIndex_v2, (unsigned index, struct device **ret)) {
    ENTER(nvmlDeviceGetHandleByIndex_v2, (int)index);
    if (index >= count || index >= GPUS)
        return NO_ARGUMENT;
    *ret = &gpus[index];
    return 0;
}

/* ---- a device ---- */

EXPORT(int, nvmlDeviceGetUUID, (struct device * d, char *text, unsigned len)) {
    ENTER(nvmlDeviceGetUUID, d->index);
    return put("nvmlDeviceGetUUID", text, len, d->uuid);
}
EXPORT(int, nvmlDeviceGetName, (struct device * d, char *text, unsigned len)) {
    ENTER(nvmlDeviceGetName, d->index);
    return put("nvmlDeviceGetName", text, len, d->name);
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem;
    char busid[32];
};

static int put_pci(const char *call, const char *busid, struct pci *ret, bool old) {
    memset(ret, 0, old ? offsetof(struct pci, busid) : sizeof *ret);
    ret->device_id = 0x233010de;
    /* The short form has a domain of four digits. */
    const char *tail = strchr(busid, ':');
    snprintf(ret->legacy, sizeof ret->legacy, "%.4s%s", tail == NULL || tail - busid < 8 ? busid : busid + 4,
             tail == NULL ? "" : tail);
    return old ? 0 : put(call, ret->busid, sizeof ret->busid, busid);
}

EXPORT(int, nvmlDeviceGetPciInfo_v3, (struct device * d, struct pci *ret)) {
    ENTER(nvmlDeviceGetPciInfo_v3, d->index);
    return put_pci("nvmlDeviceGetPciInfo_v3", d->busid, ret, false);
}
EXPORT(int, nvmlDeviceGetPciInfo, (struct device * d, struct pci *ret)) {
    ENTER(nvmlDeviceGetPciInfo, d->index);
    return put_pci("nvmlDeviceGetPciInfo", d->busid, ret, true);
}
NUMBER(nvmlDeviceGetMinorNumber, unsigned, true, d->minor_number)
EXPORT(int, nvmlDeviceGetCudaComputeCapability, (struct device * d, int *major, int *minor)) {
    ENTER(nvmlDeviceGetCudaComputeCapability, d->index);
    *major = d->major;
    *minor = d->minor;
    return 0;
}

EXPORT(int, nvmlDeviceGetMemoryInfo, (struct device * d, unsigned long long *ret)) {
    ENTER(nvmlDeviceGetMemoryInfo, d->index);
    ret[0] = d->memory;
    ret[1] = ret[2] = 0;
    return d->memory != 0 ? 0 : NOT_SUPPORTED;
}

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, d->pcie[0] != 0, d->pcie[0])
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, d->pcie[1] != 0, d->pcie[1])
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, d->pcie[2] != 0, d->pcie[2])
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, d->pcie[3] != 0, d->pcie[3])

EXPORT(int, nvmlDeviceGetMigMode, (struct device * d, unsigned *now, unsigned *pending)) {
    ENTER(nvmlDeviceGetMigMode, d->index);
    *now = *pending = (unsigned)d->mig;
    return d->major >= 8 ? 0 : NOT_SUPPORTED;
}
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, true, d->mig_count != 0 ? d->mig_count : 7u)
EXPORT(int, nvmlDeviceGetMigDeviceHandleByIndex, (struct device * d, unsigned i, struct device **ret)) {
    ENTER(nvmlDeviceGetMigDeviceHandleByIndex, d->index);
    if (i >= (unsigned)d->n_parts)
        return NOT_FOUND;
    *ret = &d->parts[i];
    return 0;
}

EXPORT(int, nvmlDeviceGetMemoryAffinity, (struct device * d, unsigned n, unsigned long *ret, unsigned scope)) {
    ENTER(nvmlDeviceGetMemoryAffinity, d->index);
    (void)scope;
    memset(ret, 0, n * sizeof *ret);
    for (unsigned i = 0; i < n && i < 2; i++)
        ret[i] = d->node_words[i];
    if (d->numa >= 0 && (unsigned)d->numa < 64 * n)
        ret[d->numa / 64] |= 1ul << (d->numa % 64);
    return d->numa >= 0 || d->node_words[0] != 0 || d->node_words[1] != 0 ? 0 : NOT_SUPPORTED;
}
NUMBER(nvmlDeviceGetNumaNodeId, unsigned, d->memnode >= 0, d->memnode)

struct fabric { /* nvmlGpuFabricState_t is one byte; what pads it can hold anything */
    uint8_t uuid[16];
    unsigned status, clique;
    uint8_t state, pad[3];
};
static int fabric_of(const struct device *d, struct fabric *ret) {
    *ret = (struct fabric){
        .status = d->status, .clique = d->clique, .state = (uint8_t)d->state, .pad = {0xa5, 0xa5, 0xa5}};
    memcpy(ret->uuid, d->fabric, 16);
    return d->state != 0 ? 0 : NOT_SUPPORTED;
}
EXPORT(int, nvmlDeviceGetGpuFabricInfoV, (struct device * d, void *ret)) {
    ENTER(nvmlDeviceGetGpuFabricInfoV, d->index);
    unsigned version;
    memcpy(&version, ret, 4);
    unsigned sizes[] = {0, 0, 36, 40};
    if (version >> 24 > (fabric_version < 3 ? (unsigned)fabric_version : 3u) || version >> 24 < 2 ||
        (version & 0xffffff) != sizes[version >> 24])
        return OTHER_VERSION;
    struct fabric f;
    if (fabric_of(d, &f) != 0)
        return NOT_SUPPORTED;
    memcpy((char *)ret + 4, &f, sizeof f);
    memcpy((char *)ret + 32, &d->health, 4);
    if (version >> 24 == 3)
        memcpy((char *)ret + 36, &d->summary, 4);
    return 0;
}
EXPORT(int, nvmlDeviceGetGpuFabricInfo, (struct device * d, struct fabric *ret)) {
    ENTER(nvmlDeviceGetGpuFabricInfo, d->index);
    return fabric_of(d, ret);
}
struct fabric_v4 {
    uint8_t uuid[16];
    unsigned status;
    struct clique {
        uint8_t type, pad[3];
        unsigned id;
    } cliques[64];
    unsigned n_cliques;
    uint8_t state, pad[3];
    unsigned health_mask;
    uint8_t health_summary, pad_2[3];
};
EXPORT(int, nvmlDeviceGetGpuFabricInfo_v4, (struct device * d, struct fabric_v4 *ret)) {
    ENTER(nvmlDeviceGetGpuFabricInfo_v4, d->index);
    struct fabric f;
    if (fabric_version < 4)
        return FUNCTION_MISSING;
    if (fabric_of(d, &f) != 0)
        return NOT_SUPPORTED;
    memset(ret, 0xa5, sizeof *ret);
    memcpy(ret->uuid, f.uuid, 16);
    ret->status = f.status;
    ret->cliques[0] = (struct clique){.type = 0, .id = f.clique};
    ret->cliques[1] = (struct clique){.type = 2, .id = f.clique + 1000};
    ret->n_cliques = 2;
    ret->state = f.state;
    ret->health_mask = d->health;
    ret->health_summary = (uint8_t)d->summary;
    return 0;
}

struct platform {
    unsigned version;
    uint8_t guid[16], chassis[16], slot, tray, host, peer, module;
};
EXPORT(int, nvmlDeviceGetPlatformInfo, (struct device * d, struct platform *ret)) {
    ENTER(nvmlDeviceGetPlatformInfo, d->index);
    if (ret->version != (2u << 24 | 44))
        return OTHER_VERSION;
    if (d->chassis[0] == '\0')
        return NOT_SUPPORTED;
    memcpy(ret->chassis, d->chassis, sizeof ret->chassis); /* 16 characters have no NUL */
    ret->slot = (uint8_t)d->slot;
    ret->tray = (uint8_t)d->tray;
    return 0;
}

/* ---- links ---- */

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    int result;
    unsigned long long value;
};

static unsigned long long millis(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000 + (unsigned long long)t.tv_nsec / 1000000;
}
static int answer_field(const struct device *d, struct field *f) {
    switch (f->id) {
    case 4: f->value = d->ecc; return 0;
    case 31: f->value = d->pages; return 0;
    case 144:
    case 145: f->value = d->remap[f->id - 144]; return 0;
    case 91: f->value = d->linkcount != 0 ? d->linkcount : (unsigned)d->n_links; return 0;
    case 165:
        if (f->scope >= (unsigned)d->n_links)
            return NO_ARGUMENT;
        f->value = (unsigned)d->links[f->scope].active;
        return d->major >= 9 ? 0 : NOT_SUPPORTED;
    case 170: f->value = (unsigned)d->n_c2c; return 0;
    case 171:
    case 172:
        if (f->scope >= (unsigned)d->n_c2c)
            return NO_ARGUMENT;
        f->value = f->id == 171 ? d->c2c[f->scope].active : d->c2c[f->scope].mbps;
        return 0;
    case 138: /* of all links: the scope is all ones */
    case 139:
    case 197:
    case 198:
        if (!d->has_rate || (f->id < 197 && f->scope != ~0U))
            return NOT_SUPPORTED;
        f->type = f->id < 197 ? 3 : 1; /* unsigned long long; unsigned int, which wraps around */
        f->value = d->rates[f->id >= 197] * (f->id == 138 || f->id == 197 ? millis() : 0);
        if (f->type == 1)
            f->value &= ~0U;
        return 0;
    case 230:
        if (d->recovery < 0)
            return NOT_SUPPORTED;
        f->type = 1;
        f->value = (unsigned)d->recovery;
        return 0;
    default: return NOT_SUPPORTED;
    }
}
EXPORT(int, nvmlDeviceGetFieldValues, (struct device * d, int n, struct field *fields)) {
    ENTER(nvmlDeviceGetFieldValues, d->index);
    for (int i = 0; i < n; i++)
        fields[i].result = answer_field(d, &fields[i]);
    return 0;
}

/* ---- what it does ---- */

EXPORT(int, nvmlDeviceGetUtilizationRates, (struct device * d, unsigned ret[2])) {
    ENTER(nvmlDeviceGetUtilizationRates, d->index);
    ret[0] = d->busy;
    ret[1] = 0;
    return d->has_rate ? 0 : NOT_SUPPORTED;
}
EXPORT(int, nvmlDeviceGetClockInfo, (struct device * d, unsigned type, unsigned *ret)) {
    ENTER(nvmlDeviceGetClockInfo, d->index);
    *ret = type == 1 ? 1410 : 0;
    return d->has_rate ? 0 : NOT_SUPPORTED;
}
EXPORT(int, nvmlDeviceGetMaxClockInfo, (struct device * d, unsigned type, unsigned *ret)) {
    ENTER(nvmlDeviceGetMaxClockInfo, d->index);
    *ret = type == 1 ? 1980 : 0;
    return d->has_rate ? 0 : NOT_SUPPORTED;
}
EXPORT(int, nvmlDeviceGetCurrentClocksThrottleReasons, (struct device * d, unsigned long long *ret)) {
    ENTER(nvmlDeviceGetCurrentClocksThrottleReasons, d->index);
    *ret = 0x20 | d->slowed;
    return d->has_rate || d->slowed != 0 ? 0 : NOT_SUPPORTED;
}
EXPORT(int, nvmlDeviceGetTotalEccErrors,
       (struct device * d, unsigned type, unsigned counter, unsigned long long *ret)) {
    ENTER(nvmlDeviceGetTotalEccErrors, d->index);
    *ret = type == 1 && counter == 0 ? 3 : 99;
    return d->has_rate ? 0 : NOT_SUPPORTED;
}

#define LINK(d, i)                         \
    do {                                   \
        if ((d)->major < 6)                \
            return NOT_SUPPORTED;          \
        if ((i) >= (unsigned)(d)->n_links) \
            return NO_ARGUMENT;            \
    } while (0)

EXPORT(int, nvmlDeviceGetNvLinkState, (struct device * d, unsigned link, unsigned *ret)) {
    ENTER(nvmlDeviceGetNvLinkState, d->index);
    LINK(d, link);
    *ret = (unsigned)d->links[link].active;
    return 0;
}
EXPORT(int, nvmlDeviceGetNvLinkCapability, (struct device * d, unsigned link, unsigned cap, unsigned *ret)) {
    ENTER(nvmlDeviceGetNvLinkCapability, d->index);
    LINK(d, link);
    *ret = cap == 0 ? (unsigned)d->links[link].p2p : 0;
    return 0;
}
static const char *remote_of(const struct device *d, unsigned link) {
    const char *text = d->links[link].remote;
    return *text == '=' ? gpus[atoi(text + 1) % GPUS].busid : text;
}
EXPORT(int, nvmlDeviceGetNvLinkRemotePciInfo_v2, (struct device * d, unsigned link, struct pci *ret)) {
    ENTER(nvmlDeviceGetNvLinkRemotePciInfo_v2, d->index);
    LINK(d, link);
    return put_pci("nvmlDeviceGetNvLinkRemotePciInfo_v2", remote_of(d, link), ret, false);
}
EXPORT(int, nvmlDeviceGetNvLinkRemotePciInfo, (struct device * d, unsigned link, struct pci *ret)) {
    ENTER(nvmlDeviceGetNvLinkRemotePciInfo, d->index);
    LINK(d, link);
    return put_pci("nvmlDeviceGetNvLinkRemotePciInfo", remote_of(d, link), ret, true);
}
EXPORT(int, nvmlDeviceGetNvLinkRemoteDeviceType, (struct device * d, unsigned link, unsigned *ret)) {
    ENTER(nvmlDeviceGetNvLinkRemoteDeviceType, d->index);
    LINK(d, link);
    if (d->links[link].type < 0)
        return NOT_SUPPORTED;
    *ret = (unsigned)d->links[link].type;
    return 0;
}

/* ---- processes ---- */

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gi, ci;
};
EXPORT(int, nvmlDeviceGetComputeRunningProcesses_v3, (struct device * d, unsigned *n, struct process *ret)) {
    ENTER(nvmlDeviceGetComputeRunningProcesses_v3, d->index);
    unsigned room = *n;
    *n = d->processes_said != 0 ? d->processes_said : (unsigned)d->n_processes;
    for (unsigned i = 0; i < (unsigned)d->n_processes && i < room; i++)
        ret[i] = (struct process){.pid = d->processes[i].pid, .used = d->processes[i].used};
    return room < (unsigned)d->n_processes ? TOO_SMALL : 0;
}

/* ---- events: of one set ---- */

#define TIMED_OUT 10
#define XID_EVENT 8ull
struct event {
    struct device *device;
    unsigned long long type, data;
    unsigned gi, ci;
};
static struct device *watched[GPUS];

EXPORT(int, nvmlEventSetCreate, (void **ret)) {
    ENTER(nvmlEventSetCreate, ANY);
    *ret = watched;
    return 0;
}
NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long, true, XID_EVENT)
EXPORT(int, nvmlDeviceRegisterEvents, (struct device * d, unsigned long long types, void *set)) {
    ENTER(nvmlDeviceRegisterEvents, d->index);
    if (types != XID_EVENT || set != watched)
        return NO_ARGUMENT;
    watched[d->index] = d;
    return 0;
}
/* The next whole line of the file, if it is about a GPU that is watched. */
static bool next_event(struct event *ret) {
    static long read_to;
    char line[64];
    unsigned gpu, xid;
    FILE *f = fopen(events, "re");
    bool found = false;
    if (f == NULL)
        return false;
    fseek(f, read_to, SEEK_SET);
    while (!found && fgets(line, sizeof line, f) != NULL && strchr(line, '\n') != NULL) {
        read_to = ftell(f);
        found = sscanf(line, "%u %u", &gpu, &xid) == 2 && gpu < GPUS && watched[gpu] != NULL;
        if (found)
            *ret = (struct event){.device = watched[gpu], .type = XID_EVENT, .data = xid};
    }
    fclose(f);
    return found;
}

EXPORT(int, nvmlEventSetWait_v2, (void *set, struct event *ret, unsigned ms)) {
    ENTER(nvmlEventSetWait_v2, ANY);
    for (unsigned waited = 0; events[0] != '\0' && waited < ms; waited += 5) {
        if (next_event(ret))
            return 0;
        usleep(5000);
    }
    for (int i = 0; i < GPUS && set == watched; i++)
        if (watched[i] != NULL && watched[i]->xid != 0) {
            *ret = (struct event){.device = watched[i], .type = XID_EVENT, .data = (unsigned)watched[i]->xid};
            watched[i] = NULL;
            return 0;
        }
    usleep(ms * 1000);
    return TIMED_OUT;
}
