/* NVIDIA's driver and GPUs, asked for through NVML (libnvidia-ml.so.1), which is loaded in a child
 * process with a deadline: NVML may block for long on a sick GPU, and nothing of it stays in this
 * process. Where NVML is not there the kernel driver's /proc folder is counted. CUDA is never
 * loaded. (NVML API Reference Guide.) */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "topology/gpu_count.h"

#define NVML_DEADLINE_NS (30 * NS_PER_S)
#define NVML_TEXT_MAX 96

struct nvml_report {
    bool found;                  /* the library is there and answered */
    char why_not[NVML_TEXT_MAX]; /* when not: one phrase */
    char driver[NVML_TEXT_MAX];  /* "535.183.01", "" unknown */
    char version[NVML_TEXT_MAX]; /* of NVML */
    uint32_t n;                  /* GPUs; from /proc when NVML was not found */
    char uuids[GPUS_MAX][GPU_UUID_MAX];
    char names[GPUS_MAX][NVML_TEXT_MAX];
};

/* Waits up to NVML_DEADLINE_NS. Always fills *ret; absence is no error. */
void nvml_look(struct nvml_report *ret);

/* GPUs that a worker would see with this CUDA_VISIBLE_DEVICES (NULL: not set). 0, or -ETIMEDOUT
 * with a sentence when NVML hangs and nothing can be said. No GPU at all is a count of 0. */
_must_use_ int nvml_count_visible(const char *visible, uint32_t *ret, struct err *err);
