#include "topology/discover/nvml/nvml_report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PCIE_GEN_MAX 15 /* the largest value of a PCI Express link's register */
#define PCIE_WIDTH_MAX 32
#define SM_MAX 999

static void end_text(char *text, size_t size) {
    text[size - 1] = '\0';
    for (char *p = text; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

static void bound(uint32_t *number, uint32_t max) {
    if (*number > max)
        *number = 0;
}

static void clean_gpu(struct nvml_gpu *g) {
    bound(&g->cur_gen, PCIE_GEN_MAX);
    bound(&g->max_gen, PCIE_GEN_MAX);
    bound(&g->cur_width, PCIE_WIDTH_MAX);
    bound(&g->max_width, PCIE_WIDTH_MAX);
    bound(&g->sm, SM_MAX);
    g->n_mig = MIN2(g->n_mig, (uint32_t)TOPO_MIG_MAX);
    for (uint32_t i = 0; i < TOPO_MIG_MAX; i++)
        end_text(g->mig_uuids[i], TOPO_MIG_UUID_MAX);
    g->n_links = MIN2(g->n_links, (uint32_t)NVML_LINKS_MAX);
    g->n_processes = MIN2(g->n_processes, (uint32_t)NVML_PROCESSES_MAX);
    g->has_address = g->has_address && g->at.dev <= 31 && g->at.fn <= 7;
}

static int take_head(struct nvml_report *r, const char *payload) {
    struct nvml_head head;
    memcpy(&head, payload, sizeof head);
    r->found = head.found != 0;
    r->fault = r->found ? NVML_FAULT_NONE : head.missing ? NVML_FAULT_MISSING : NVML_FAULT_ERROR;
    r->n = MIN2(head.n, (uint32_t)GPUS_MAX);
    memcpy(r->why_not, head.why_not, sizeof r->why_not);
    memcpy(r->driver, head.driver, sizeof r->driver);
    memcpy(r->version, head.version, sizeof r->version);
    memcpy(r->cuda, head.cuda, sizeof r->cuda);
    end_text(r->why_not, sizeof r->why_not);
    end_text(r->driver, sizeof r->driver);
    end_text(r->version, sizeof r->version);
    end_text(r->cuda, sizeof r->cuda);
    return 0;
}

static int take_name(struct nvml_report *r, uint32_t gpu, const char *payload) {
    if (gpu >= r->n)
        return -EBADMSG;
    struct nvml_name name;
    memcpy(&name, payload, sizeof name);
    memcpy(r->uuids[gpu], name.uuid, sizeof name.uuid);
    memcpy(r->names[gpu], name.name, sizeof name.name);
    end_text(r->uuids[gpu], sizeof r->uuids[gpu]);
    end_text(r->names[gpu], sizeof r->names[gpu]);
    return 0;
}

static int take_gpu(struct nvml_report *r, uint32_t gpu, const char *payload) {
    if (gpu >= r->n)
        return -EBADMSG;
    memcpy(&r->gpus[gpu], payload, sizeof r->gpus[gpu]);
    clean_gpu(&r->gpus[gpu]);
    return 0;
}

/* The length of the data after the head; SIZE_MAX: there is no such frame. */
static size_t payload_of(uint32_t kind) {
    switch (kind) {
    case NVML_FRAME_HEAD: return sizeof(struct nvml_head);
    case NVML_FRAME_NAME: return sizeof(struct nvml_name);
    case NVML_FRAME_GPU: return sizeof(struct nvml_gpu);
    case NVML_FRAME_AT: return NVML_TEXT_MAX;
    case NVML_FRAME_END: return 0;
    default: return SIZE_MAX;
    }
}

static int take(struct nvml_frames *in, const struct nvml_frame *f, const char *payload,
                struct nvml_report *r) {
    switch (f->kind) {
    case NVML_FRAME_HEAD: return take_head(r, payload);
    case NVML_FRAME_NAME: return take_name(r, f->gpu, payload);
    case NVML_FRAME_GPU: return take_gpu(r, f->gpu, payload);
    case NVML_FRAME_AT:
        memcpy(r->at, payload, sizeof r->at);
        end_text(r->at, sizeof r->at);
        return 0;
    case NVML_FRAME_END:
        in->ended = r->whole = true;
        r->at[0] = '\0';
        return 0;
    default: return -EBADMSG;
    }
}

/* How many bytes the next step needs: the head, or the frame. 0: not a frame. */
static size_t wanted(const struct nvml_frames *in, struct nvml_frame *ret) {
    if (in->n < sizeof *ret)
        return sizeof *ret;
    memcpy(ret, in->bytes, sizeof *ret);
    if (payload_of(ret->kind) != ret->len)
        return 0;
    return sizeof *ret + ret->len;
}

int nvml_frames_add(struct nvml_frames *in, const void *bytes, size_t n,
                    struct nvml_report *report) {
    const char *p = bytes;
    struct nvml_frame f = {0};
    while (!in->ended) {
        size_t want = wanted(in, &f);
        if (want == 0)
            return -EBADMSG;
        size_t part = MIN2(want - in->n, n);
        memcpy(in->bytes + in->n, p, part);
        in->n += part;
        p += part;
        n -= part;
        if (in->n < want)
            return 0;
        /* Only the head has arrived, and it announces that more follows. */
        want = wanted(in, &f);
        if (want == 0)
            return -EBADMSG;
        if (want > in->n)
            continue;
        int r = take(in, &f, in->bytes + sizeof f, report);
        if (r < 0)
            return r;
        in->n = 0;
    }
    return 0;
}

bool nvml_report_fabric(const struct nvml_report *r, char text[TOPO_TEXT_MAX]) {
    static const char *const states[] = {"none", "not started", "in progress", "failed"};
    uint32_t waiting = 0, first = 0;
    for (uint32_t i = r->n; i > 0; i--) {
        const struct nvml_gpu *g = &r->gpus[i - 1];
        if (g->fabric_state == 0 || g->fabric_state >= ARRAY_SIZE(states) ||
            (g->fabric_state == 3 && g->fabric_status == 0))
            continue;
        waiting++;
        first = i - 1;
    }
    if (waiting > 0)
        (void)snprintf(text, TOPO_TEXT_MAX,
                       "%u of %u GPUs have not joined the NVLink fabric (GPU %u: %s): is "
                       "nvidia-fabricmanager running?",
                       waiting, r->n, first, states[r->gpus[first].fabric_state]);
    return waiting > 0;
}

uint32_t nvml_report_processes(const struct nvml_report *r, uint32_t gpu,
                               const struct nvml_process **ret) {
    if (gpu >= MIN2(r->n, (uint32_t)GPUS_MAX))
        return 0;
    *ret = r->gpus[gpu].processes;
    return MIN2(r->gpus[gpu].n_processes, (uint32_t)NVML_PROCESSES_MAX);
}
