/* Merges NVML's data into a topology that the file system has filled. Pure.
 *
 * GPUs are matched by PCI address; a GPU that NVML knows and the file system does not is added with
 * its PCI device. One of NVIDIA's that NVML does not know (of another container, or one that the
 * driver could not start) can't be used by CUDA and has no index: it leaves gpus[], with a warning,
 * its PCI device stays. AMD's and Intel's are not touched.
 *
 * NVLinks become one bundle for each GPU and other end, as NCCL counts them (src/graph/xml.cc of
 * 2.30.7): a link that is down, or whose other end is not told, is none; an end with an address of
 * all ones is an NVSwitch. Links to a GPU that is not here are left out. nvlinks_known only when
 * every GPU that is not lost was asked to the end. */
#pragma once

#include "topology/discover/nvml/nvml_report.h"
#include "topology/model/topology.h"

/* Fills t and sorts it; problems are warnings in t. Where NVML was not found it only warns, and
 * only if t has GPUs of NVIDIA's. */
void nvml_merge(const struct nvml_report *r, struct topology *t);
