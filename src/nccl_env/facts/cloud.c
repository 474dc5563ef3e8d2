#include <string.h>

#include "nccl_env/facts/facts.h"

/* Microsoft's fixed asset tag of Azure's virtual machines. */
#define AZURE_CHASSIS "7783-7084-3265-9085-8269-3286-77"
#define ORACLE_CHASSIS "OracleCloud.com"

const char *cloud_name(enum cloud c) {
    switch (c) {
    case CLOUD_NONE: return "no cloud that tunes NCCL";
    case CLOUD_AWS: return "AWS (EFA)";
    case CLOUD_GCP_TCPX: return "Google Cloud (GPUDirect-TCPX)";
    case CLOUD_GCP_TCPXO: return "Google Cloud (GPUDirect-TCPXO)";
    case CLOUD_GCP_GIB: return "Google Cloud (gIB)";
    case CLOUD_AZURE: return "Azure";
    case CLOUD_ORACLE: return "Oracle Cloud";
    case CLOUD_COREWEAVE: return "CoreWeave";
    case CLOUD_IBM: return "IBM Cloud";
    }
    assert_not_reached();
}

/* "IBM:Cloud Compute Server 1.0", "ibmcloud"; a POWER server of IBM has only "IBM". */
static bool is_ibm_cloud(const char *text) {
    const char *ibm = strcasestr(text, "ibm");
    return ibm != NULL && strcasestr(ibm, "cloud") != NULL;
}

enum cloud cloud_detect(const struct cloud_signs *s) {
    /* An image for several machine types can hold more than one of Google's plugins. The newest
     * machine is checked first, by something that only it has. */
    if (s->gib)
        return CLOUD_GCP_GIB;
    if (s->tcpxo)
        return CLOUD_GCP_TCPXO;
    if (s->tcpx)
        return CLOUD_GCP_TCPX;
    /* Only AWS has EFA devices, and a container can hide the DMI. Without one an EC2 machine is
     * like any other. */
    if (s->efa || (s->ofi_plugin && strcmp(s->sys_vendor, "Amazon EC2") == 0))
        return CLOUD_AWS;
    if (strcmp(s->chassis_asset_tag, AZURE_CHASSIS) == 0)
        return CLOUD_AZURE;
    if (strcmp(s->chassis_asset_tag, ORACLE_CHASSIS) == 0 ||
        strcmp(s->chassis_vendor, ORACLE_CHASSIS) == 0)
        return CLOUD_ORACLE;
    if (s->coreweave)
        return CLOUD_COREWEAVE;
    const char *const ibm[] = {s->sys_vendor, s->product_name, s->bios_vendor, s->chassis_asset_tag,
                               s->chassis_vendor};
    for (size_t i = 0; i < ARRAY_SIZE(ibm); i++)
        if (is_ibm_cloud(ibm[i]))
            return CLOUD_IBM;
    return CLOUD_NONE;
}

bool cloud_owns_tuning(enum cloud c) { return c != CLOUD_NONE && c != 0; }
