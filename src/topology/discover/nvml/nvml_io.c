#include "topology/discover/nvml/nvml_io.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "topology/discover/common/discovery.h"
#include "topology/discover/nvml/nvml_ask_io.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"
#define PROC_GPUS "/proc/driver/nvidia/gpus"
#define REPORT_MAX ((size_t)4 << 20) /* a report is about half a megabyte */

bool nvml_may_answer(void) {
    const char *other = getenv(NVML_LIBRARY_VARIABLE);
    /* WSL has neither of the first two. */
    return (other != NULL && other[0] != '\0') || access("/proc/driver/nvidia", F_OK) == 0 ||
           access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* ---- the child ---- */

static int ask_in_child(int fd, void *arg) {
    const struct nvml_config *config = arg;
    const char *other = getenv(NVML_LIBRARY_VARIABLE);
    struct nvml_ask_config ask = {
        .library = config->library != NULL             ? config->library
                   : other != NULL && other[0] != '\0' ? other
                                                       : NVML_LIBRARY,
        .names_only = config->names_only,
    };
    return nvml_ask(&ask, fd) ? 0 : 1;
}

int nvml_begin(const struct nvml_config *config, struct nvml_child *ret) {
    uint64_t allowed = config->deadline_ns != 0 ? config->deadline_ns : NVML_DISCOVERY_NS;
    struct nvml_config copy = *config;
    struct helper_call_config call = {.name = "muster-nvml",
                                      .run = ask_in_child,
                                      .arg = &copy,
                                      .timeout_ns = allowed,
                                      .max_bytes = REPORT_MAX};
    *ret = (struct nvml_child){.allowed_ns = allowed};
    return helper_call_new(NULL, &call, NULL, NULL, &ret->call);
}

/* Returns 0: the report is complete; -ETIMEDOUT; -EIO: the child died, or sent something invalid.
 */
static int read_report(struct helper_call *call, struct nvml_report *report) {
    _cleanup_(freep) struct nvml_frames *in = xcalloc(1, sizeof *in);
    struct helper_answer answer;
    helper_call_wait(call, &answer);
    int r = nvml_frames_add(in, answer.data, answer.len, report);
    if (r == 0 && in->ended)
        return 0;
    return r == 0 && answer.code == -ETIMEDOUT ? -ETIMEDOUT : -EIO;
}

int nvml_end(struct nvml_child *child, struct nvml_report *ret) {
    memset(ret, 0, sizeof *ret);
    int r = child->call != NULL ? read_report(child->call, ret) : -EIO;
    helper_call_free(TAKE_PTR(child->call));
    if (r == 0)
        return 0;
    char at[NVML_TEXT_MAX + 4] = "";
    if (ret->at[0] != '\0')
        (void)snprintf(at, sizeof at, " (%.60s)", ret->at);
    uint64_t ms = child->allowed_ns / NS_PER_MS;
    ret->fault = r == -ETIMEDOUT ? NVML_FAULT_LATE : NVML_FAULT_ENDED;
    if (r == -ETIMEDOUT)
        (void)snprintf(ret->why_not, sizeof ret->why_not, "NVML did not answer in %u.%u s%.64s",
                       (unsigned)(ms / 1000), (unsigned)(ms % 1000 / 100), at);
    else
        (void)snprintf(ret->why_not, sizeof ret->why_not, "NVML could not be asked%.64s", at);
    return r;
}

/* ---- counting ---- */

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

/* 0, or -ETIMEDOUT. */
static int ask(struct nvml_report *ret) {
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

void nvml_discover(struct nvml_report *ret) { (void)ask(ret); }

int nvml_count_visible(const char *visible, uint32_t *ret, struct err *err) {
    /* Without a kernel driver there is nothing to ask NVML about. */
    if (!nvml_may_answer()) {
        *ret = 0;
        return 0;
    }
    _cleanup_(freep) struct nvml_report *report = xcalloc(1, sizeof *report);
    int r = ask(report);
    if (r < 0 && report->n == 0)
        return err_set(err, r, "%s", report->why_not);
    struct gpu_inventory inventory = {
        .n = report->n,
        .uuids = report->found ? report->uuids : NULL,
    };
    *ret = gpu_count_visible(visible, &inventory);
    return 0;
}
