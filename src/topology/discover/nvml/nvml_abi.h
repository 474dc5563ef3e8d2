/* The part of NVML's ABI that is used: only numbers and structures, so that the build needs no
 * header from NVIDIA. Results are ints, 0 is success; a structure with a `version` holds
 * NVML_VERSION(). (NVML API Reference Guide, versions 11 to 13; sizes, offsets and numbers are
 * those of NVIDIA's header, and of nvidia-ml-py 13.) */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define NVML_VERSION(type, n) ((uint32_t)sizeof(type) | (uint32_t)(n) << 24)

enum { /* nvmlReturn_t */
       NVML_R_OK = 0,
       NVML_R_INVALID_ARGUMENT = 2,
       NVML_R_TIMEOUT = 10,
       NVML_R_FUNCTION_NOT_FOUND = 13,
       NVML_R_GPU_LOST = 15,
       NVML_R_RESET_REQUIRED = 16,
};

enum { /* fields of nvmlDeviceGetFieldValues; C2C and NVLink state have the link as their scope */
       NVML_FIELD_ECC_UNCORRECTED = 4, /* since the driver was loaded */
       NVML_FIELD_PAGES_PENDING = 31,
       NVML_FIELD_NVLINK_COUNT = 91,
       NVML_FIELD_NVLINK_SENT = 138, /* KiB */
       NVML_FIELD_NVLINK_RECEIVED = 139,
       NVML_FIELD_REMAP_PENDING = 144,
       NVML_FIELD_REMAP_FAILED = 145,
       NVML_FIELD_NVLINK_STATE = 165,
       NVML_FIELD_C2C_COUNT = 170,
       NVML_FIELD_C2C_STATUS = 171, /* 1: active */
       NVML_FIELD_C2C_MAX_BW = 172, /* MB/s */
       NVML_FIELD_PCIE_SENT = 197,  /* bytes */
       NVML_FIELD_PCIE_RECEIVED = 198,
       NVML_FIELD_RECOVERY = 230, /* nvmlDeviceGpuRecoveryAction_t; driver r570 and newer */
};

#define NVML_CAP_P2P_SUPPORTED 0u /* nvmlNvLinkCapability_t */
#define NVML_SCOPE_NODE 0u        /* nvmlAffinityScope_t */
#define NVML_CLOCK_SM 1u          /* nvmlClockType_t */
#define NVML_VALUE_UINT 1u        /* nvmlValueType_t; larger ones have 64 bits here */
#define NVML_SCOPE_ALL_LINKS UINT32_MAX
enum { /* nvmlIntNvLinkDeviceType_t */
       NVML_REMOTE_TYPE_GPU = 0,
       NVML_REMOTE_TYPE_NPU = 1, /* POWER9's end */
       NVML_REMOTE_TYPE_SWITCH = 2,
};

struct nvml_device; /* nvmlDevice_t points to one */

struct nvml_pci_info { /* nvmlPciInfo_t */
    char bus_id_legacy[16];
    uint32_t domain, bus, device;
    uint32_t device_id; /* device << 16 | vendor */
    uint32_t subsystem_id;
    char bus_id[32];
};
static_assert(sizeof(struct nvml_pci_info) == 68, "nvmlPciInfo_t");
static_assert(offsetof(struct nvml_pci_info, device_id) == 28, "nvmlPciInfo_t");
static_assert(offsetof(struct nvml_pci_info, bus_id) == 36, "nvmlPciInfo_t");

struct nvml_memory { /* nvmlMemory_t */
    uint64_t total, free, used;
};
static_assert(sizeof(struct nvml_memory) == 24, "nvmlMemory_t");

struct nvml_utilization { /* nvmlUtilization_t: percent */
    uint32_t gpu, memory;
};

struct nvml_process_info { /* of the calls with _v2 and _v3 */
    uint32_t pid;
    uint64_t used_bytes; /* all ones: not known */
    uint32_t gpu_instance, compute_instance;
};
static_assert(sizeof(struct nvml_process_info) == 24, "nvmlProcessInfo_t");
static_assert(offsetof(struct nvml_process_info, used_bytes) == 8, "nvmlProcessInfo_t");

struct nvml_field { /* nvmlFieldValue_t */
    uint32_t id, scope;
    int64_t timestamp, latency;
    uint32_t value_type;
    int32_t result;
    union {
        uint32_t u32;
        uint64_t u64;
        double number;
    } value;
};
static_assert(sizeof(struct nvml_field) == 40, "nvmlFieldValue_t");
static_assert(offsetof(struct nvml_field, result) == 28, "nvmlFieldValue_t");
static_assert(offsetof(struct nvml_field, value) == 32, "nvmlFieldValue_t");

#define NVML_EVENT_XID 8ull /* nvmlEventTypeXidCriticalError: each Xid */
struct nvml_event {         /* nvmlEventData_t */
    struct nvml_device *device;
    unsigned long long type, data; /* data: the Xid */
    uint32_t gpu_instance, compute_instance;
};
static_assert(sizeof(struct nvml_event) == 32, "nvmlEventData_t");

struct nvml_fabric_v1 { /* nvmlGpuFabricInfo_t */
    uint8_t uuid[16];
    int32_t status;
    uint32_t clique;
    uint8_t state; /* nvmlGpuFabricState_t is one byte */
};
static_assert(sizeof(struct nvml_fabric_v1) == 28, "nvmlGpuFabricInfo_t");

struct nvml_fabric_v2 { /* nvmlGpuFabricInfo_v2_t */
    uint32_t version;
    uint8_t uuid[16];
    int32_t status;
    uint32_t clique;
    uint8_t state;
    uint32_t health_mask;
};
static_assert(NVML_VERSION(struct nvml_fabric_v2, 2) == 0x02000024, "nvmlGpuFabricInfo_v2_t");
static_assert(offsetof(struct nvml_fabric_v2, state) == 28, "nvmlGpuFabricInfo_v2_t");

#define NVML_CLIQUE_UNICAST_POINTER 0u /* GPUs that can address each other's memory */
struct nvml_fabric_v4 {                /* nvmlGpuFabricInfo_v4_t: a call of its own, no version */
    uint8_t uuid[16];
    int32_t status;
    struct {
        uint8_t type;
        uint32_t id;
    } cliques[64]; /* by type, then by id */
    uint32_t n_cliques;
    uint8_t state;
    uint32_t health_mask;
    uint8_t health_summary;
};
static_assert(sizeof(struct nvml_fabric_v4) == 548, "nvmlGpuFabricInfo_v4_t");
static_assert(offsetof(struct nvml_fabric_v4, state) == 536, "nvmlGpuFabricInfo_v4_t");

struct nvml_platform_v2 { /* nvmlPlatformInfo_v2_t; Blackwell and newer */
    uint32_t version;
    uint8_t ib_guid[16];
    uint8_t chassis[16]; /* serial number, without a NUL if it has 16 characters */
    uint8_t slot, tray, host, peer_type, module;
};
static_assert(NVML_VERSION(struct nvml_platform_v2, 2) == 0x0200002c, "nvmlPlatformInfo_v2_t");
static_assert(offsetof(struct nvml_platform_v2, slot) == 36, "nvmlPlatformInfo_v2_t");
