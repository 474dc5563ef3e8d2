/* Stands in for libnvidia-ml.so.1 where there is no GPU: two devices, or with FAKE_NVML=fail a driver that does not
 * start, or with FAKE_NVML=crash one that takes its process with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device {
    const char *uuid, *name;
};
static struct device devices[] = {{"GPU-aa-1", "Fake One"}, {"GPU-ab-2", "Fake Two"}};

static int is(const char *mode) { return getenv("FAKE_NVML") != NULL && strcmp(getenv("FAKE_NVML"), mode) == 0; }
static int put(char *text, unsigned len, const char *value) { return snprintf(text, len, "%s", value) < 0; }

int nvmlInit_v2(void);
int nvmlInit_v2(void) {
    if (is("crash"))
        abort();
    return is("fail") ? 9 : 0;
}
int nvmlShutdown(void);
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int result);
const char *nvmlErrorString(int result) { return result == 9 ? "Driver Not Loaded" : "other"; }
int nvmlSystemGetDriverVersion(char *text, unsigned len);
int nvmlSystemGetDriverVersion(char *text, unsigned len) { return put(text, len, "999.1"); }
int nvmlSystemGetNVMLVersion(char *text, unsigned len);
int nvmlSystemGetNVMLVersion(char *text, unsigned len) { return put(text, len, "12.999.1"); }
int nvmlDeviceGetCount_v2(unsigned *ret);
int nvmlDeviceGetCount_v2(unsigned *ret) {
    *ret = 2;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **ret) {
    *ret = &devices[index];
    return index > 1;
}
int nvmlDeviceGetUUID(struct device *device, char *text, unsigned len);
int nvmlDeviceGetUUID(struct device *device, char *text, unsigned len) { return put(text, len, device->uuid); }
int nvmlDeviceGetName(struct device *device, char *text, unsigned len);
int nvmlDeviceGetName(struct device *device, char *text, unsigned len) { return put(text, len, device->name); }
