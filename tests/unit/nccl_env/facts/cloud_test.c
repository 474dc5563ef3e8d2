#include "nccl_env/facts/facts.h"

#include "rig/unit.h"

static enum cloud detect(struct cloud_signs s) { return cloud_detect(&s); }

Test(cloud, a_machine_without_signs_is_nobodys) {
    cr_assert_eq(detect((struct cloud_signs){0}), CLOUD_NONE);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Dell Inc."}), CLOUD_NONE);
    cr_assert_not(cloud_owns_tuning(CLOUD_NONE));
}

Test(cloud, aws_needs_efa_or_its_plugin) {
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Amazon EC2", .efa = true}), CLOUD_AWS);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Amazon EC2", .ofi_plugin = true}), CLOUD_AWS);
    cr_assert_eq(detect((struct cloud_signs){.efa = true}), CLOUD_AWS);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Amazon EC2"}), CLOUD_NONE);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "HPE", .ofi_plugin = true}), CLOUD_NONE);
    cr_assert(cloud_owns_tuning(CLOUD_AWS));
}

Test(cloud, googles_machines_are_told_apart) {
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Google", .tcpx = true}), CLOUD_GCP_TCPX);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Google", .tcpxo = true}), CLOUD_GCP_TCPXO);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Google", .gib = true}), CLOUD_GCP_GIB);
    cr_assert_eq(detect((struct cloud_signs){.gib = true, .tcpxo = true, .tcpx = true}), CLOUD_GCP_GIB);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Google"}), CLOUD_NONE);
}

Test(cloud, chassis_names_azure_and_oracle) {
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Microsoft Corporation",
                                             .chassis_asset_tag = "7783-7084-3265-9085-8269-3286-77"}),
                 CLOUD_AZURE);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "Microsoft Corporation"}), CLOUD_NONE,
                 "Hyper-V at home is no Azure");
    cr_assert_eq(detect((struct cloud_signs){.chassis_asset_tag = "OracleCloud.com"}), CLOUD_ORACLE);
    cr_assert_eq(detect((struct cloud_signs){.chassis_vendor = "OracleCloud.com"}), CLOUD_ORACLE);
}

Test(cloud, ibm_cloud_is_not_every_machine_of_ibm) {
    cr_assert_eq(detect((struct cloud_signs){.chassis_vendor = "IBM:Cloud Compute Server 1.0:gx3d"}), CLOUD_IBM);
    cr_assert_eq(detect((struct cloud_signs){.chassis_asset_tag = "ibmcloud"}), CLOUD_IBM);
    cr_assert_eq(detect((struct cloud_signs){.sys_vendor = "IBM"}), CLOUD_NONE);
    cr_assert_eq(detect((struct cloud_signs){.coreweave = true}), CLOUD_COREWEAVE);
}

Test(cloud, each_has_a_name) {
    for (int c = CLOUD_NONE; c <= CLOUD_IBM; c++)
        cr_assert_gt(strlen(cloud_name((enum cloud)c)), 3u);
}
