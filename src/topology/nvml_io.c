#include "topology/nvml_io.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"
#define PROC_GPUS "/proc/driver/nvidia/gpus"

/* The part of NVML's ABI that is used; results are ints, 0 is success. (nvml.h, API version 12.) */
struct nvml_device;
struct nvml_api {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_text)(int result);
    int (*driver_version)(char *text, unsigned len);
    int (*nvml_version)(char *text, unsigned len);
    int (*device_count)(unsigned *ret);
    int (*device_by_index)(unsigned index, struct nvml_device **ret);
    int (*device_uuid)(struct nvml_device *device, char *text, unsigned len);
    int (*device_name)(struct nvml_device *device, char *text, unsigned len);
};

static bool load_api(void *library, struct nvml_api *ret) {
    static const char *const names[] = {
        "nvmlInit_v2",          "nvmlShutdown",           "nvmlErrorString",
        "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
    };
    /* dlsym() gives object pointers; POSIX lets their bytes be those of function pointers. */
    void *symbols[ARRAY_SIZE(names)];
    static_assert(sizeof symbols == sizeof *ret, "one symbol for each member");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        symbols[i] = dlsym(library, names[i]);
        if (symbols[i] == NULL)
            return false;
    }
    memcpy(ret, symbols, sizeof *ret);
    return true;
}

static void ask_devices(const struct nvml_api *api, struct nvml_report *ret) {
    unsigned n = 0;
    if (api->device_count(&n) != 0)
        n = 0;
    ret->n = MIN2(n, (unsigned)GPUS_MAX);
    for (unsigned i = 0; i < ret->n; i++) {
        struct nvml_device *device;
        if (api->device_by_index(i, &device) != 0)
            continue;
        (void)api->device_uuid(device, ret->uuids[i], GPU_UUID_MAX);
        (void)api->device_name(device, ret->names[i], NVML_TEXT_MAX);
    }
}

/* Runs in the child. */
static void ask_nvml(struct nvml_report *ret) {
    void *library = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    struct nvml_api api;
    if (library == NULL) {
        (void)snprintf(ret->why_not, sizeof ret->why_not, "no %s", NVML_LIBRARY);
        return;
    }
    if (!load_api(library, &api)) {
        (void)snprintf(ret->why_not, sizeof ret->why_not, "%s is too old", NVML_LIBRARY);
        return;
    }
    int r = api.init();
    if (r != 0) {
        (void)snprintf(ret->why_not, sizeof ret->why_not, "NVML: %s", api.error_text(r));
        return;
    }
    ret->found = true;
    (void)api.driver_version(ret->driver, sizeof ret->driver);
    (void)api.nvml_version(ret->version, sizeof ret->version);
    ask_devices(&api, ret);
    (void)api.shutdown();
}

_noreturn_ static void run_child(int fd, pid_t parent) {
    /* A parent that is gone must not leave a child that hangs in the driver. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    struct nvml_report report = {0};
    ask_nvml(&report);
    const char *p = (const char *)&report;
    for (size_t left = sizeof report; left > 0;) {
        ssize_t n = write(fd, p, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(1);
        p += n;
        left -= (size_t)n;
    }
    _exit(0);
}

static uint64_t now_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* 0: *ret was read whole; -ETIMEDOUT; -EIO: the child died. */
static int read_report(int fd, struct nvml_report *ret) {
    uint64_t end = now_ns() + NVML_DEADLINE_NS;
    char *p = (char *)ret;
    for (size_t left = sizeof *ret; left > 0;) {
        uint64_t now = now_ns();
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        int r = poll(&pfd, 1, now < end ? (int)((end - now) / NS_PER_MS) + 1 : 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r == 0)
            return -ETIMEDOUT;
        ssize_t n = r < 0 ? -1 : read(fd, p, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EIO;
        p += n;
        left -= (size_t)n;
    }
    return 0;
}

static int look_in_child(struct nvml_report *ret) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(fds[0]);
        run_child(fds[1], parent);
    }
    int r = pid < 0 ? -errno : 0;
    (void)close(fds[1]);
    if (r == 0) {
        r = read_report(fds[0], ret);
        (void)kill(pid, SIGKILL);
        /* Stuck in the kernel it can't be waited for; init reaps it when we are gone. */
        while (waitpid(pid, NULL, r == -ETIMEDOUT ? WNOHANG : 0) < 0 && errno == EINTR)
            ;
    }
    (void)close(fds[0]);
    return r;
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

/* 0, or -ETIMEDOUT. */
static int look(struct nvml_report *ret) {
    struct nvml_report report = {0};
    int r = look_in_child(&report);
    if (r < 0) {
        memset(&report, 0, sizeof report);
        (void)snprintf(report.why_not, sizeof report.why_not,
                       r == -ETIMEDOUT ? "NVML did not answer in %d s" : "NVML could not be asked",
                       (int)(NVML_DEADLINE_NS / NS_PER_S));
    }
    if (!report.found)
        report.n = count_proc();
    *ret = report;
    return r == -ETIMEDOUT ? r : 0;
}

void nvml_look(struct nvml_report *ret) { (void)look(ret); }

int nvml_count_visible(const char *visible, uint32_t *ret, struct err *err) {
    /* Without a kernel driver there is nothing to ask NVML about. */
    if (access("/proc/driver/nvidia", F_OK) < 0 && access("/dev/nvidiactl", F_OK) < 0 &&
        access("/dev/dxg", F_OK) < 0) {
        *ret = 0;
        return 0;
    }
    struct nvml_report report;
    int r = look(&report);
    if (r < 0 && report.n == 0)
        return err_set(err, r, "%s", report.why_not);
    struct gpu_inventory inventory = {
        .n = report.n,
        .uuids = report.found ? report.uuids : NULL,
    };
    *ret = gpu_count_visible(visible, &inventory);
    return 0;
}
