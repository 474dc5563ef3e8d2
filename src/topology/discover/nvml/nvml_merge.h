/* Merges NVML's data into a topology that the file system has filled. Pure.
 *
 * GPUs are matched by PCI address; a GPU that NVML knows and the file system does not is added with
 * its PCI device. A GPU from NVIDIA that NVML does not know (one of another container, or one that
 * the driver could not start) can't be used by CUDA and has no index: it is removed from gpus[],
 * with a warning; its PCI device stays. GPUs from AMD and Intel are not changed.
 *
 * NVLinks become one bundle for each GPU and other end, as NCCL counts them (src/graph/xml.cc of
 * 2.30.7): a link that is down, or whose other end is not reported, does not count; an end with an
 * address of all ones is an NVSwitch. Links to a GPU that is not here are left out. nvlinks_known
 * is set only if every GPU that is not lost was asked completely. */
#pragma once

#include "topology/discover/nvml/nvml_report.h"
#include "topology/model/topology.h"

/* Fills t and sorts it; problems are warnings in t. If NVML was not found, it only warns, and only
 * if t has GPUs from NVIDIA. */
void nvml_merge(const struct nvml_report *r, struct topology *t);
