#include "topology/discover/nvml/nvml_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "topology/discover/common/discovery.h"
#include "topology/discover/nvml/nvml_ask_io.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"
#define PROC_GPUS "/proc/driver/nvidia/gpus"
#define PIPE_BYTES (1 << 20) /* so that the child need not wait for a reader who is busy */
#define LATE_READS 128       /* of what the pipe still has when the time is over */

static uint64_t now_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

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
    *ret = (struct nvml_child){
        .child = TOPO_CHILD_INIT, .allowed_ns = allowed, .end_ns = now_ns() + allowed};
    struct nvml_config copy = *config;
    int r = topo_child_start("muster-nvml", ask_in_child, &copy, &ret->child);
    if (r == 0)
        (void)fcntl(ret->child.fd, F_SETPIPE_SZ, PIPE_BYTES);
    return r;
}

/* ---- the reader ---- */

/* 0: all was said; -ETIMEDOUT; -EIO: the child died, or said what it should not. */
static int read_report(const struct nvml_child *child, struct nvml_report *report) {
    _cleanup_(freep) struct nvml_frames *in = xcalloc(1, sizeof *in);
    char bytes[PIPE_BYTES / LATE_READS];
    for (uint32_t late = 0; !in->ended;) {
        uint64_t now = now_ns();
        if (now >= child->end_ns && late++ >= LATE_READS)
            return -ETIMEDOUT;
        /* What is in the pipe already counts, also when the time was used up elsewhere. */
        int ms = now < child->end_ns
                     ? (int)MIN2((child->end_ns - now) / NS_PER_MS + 1, (uint64_t)INT32_MAX)
                     : 0;
        struct pollfd pfd = {.fd = child->child.fd, .events = POLLIN};
        int r = poll(&pfd, 1, ms);
        if (r < 0 && errno == EINTR)
            continue;
        if (r == 0)
            return -ETIMEDOUT;
        ssize_t n = r < 0 ? -1 : read(child->child.fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || nvml_frames_add(in, bytes, (size_t)n, report) < 0)
            return -EIO;
    }
    return 0;
}

int nvml_end(struct nvml_child *child, struct nvml_report *ret) {
    memset(ret, 0, sizeof *ret);
    int r = -EIO;
    if (child->child.pid > 0) {
        r = read_report(child, ret);
        topo_child_end(&child->child);
    }
    if (r == 0)
        return 0;
    char at[NVML_TEXT_MAX + 4] = "";
    if (ret->at[0] != '\0')
        (void)snprintf(at, sizeof at, " (%.60s)", ret->at);
    uint64_t ms = child->allowed_ns / NS_PER_MS;
    if (r == -ETIMEDOUT)
        (void)snprintf(ret->why_not, sizeof ret->why_not, DISCOVERY_NVML_LATE " in %u.%u s%.64s",
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
static int look(struct nvml_report *ret) {
    struct nvml_config config = {.deadline_ns = NVML_DEADLINE_NS, .names_only = true};
    struct nvml_child child;
    (void)nvml_begin(&config, &child); /* nvml_end() says it */
    int r = nvml_end(&child, ret);
    if (r < 0)
        ret->found = false;
    if (!ret->found)
        ret->n = count_proc();
    return r == -ETIMEDOUT ? r : 0;
}

void nvml_discover(struct nvml_report *ret) { (void)look(ret); }

int nvml_count_visible(const char *visible, uint32_t *ret, struct err *err) {
    /* Without a kernel driver there is nothing to ask NVML about. */
    if (!nvml_may_answer()) {
        *ret = 0;
        return 0;
    }
    _cleanup_(freep) struct nvml_report *report = xcalloc(1, sizeof *report);
    int r = look(report);
    if (r < 0 && report->n == 0)
        return err_set(err, r, "%s", report->why_not);
    struct gpu_inventory inventory = {
        .n = report->n,
        .uuids = report->found ? report->uuids : NULL,
    };
    *ret = gpu_count_visible(visible, &inventory);
    return 0;
}
