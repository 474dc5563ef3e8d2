/* Which cloud a machine belongs to, and NCCL's configuration files. */
#include "nccl_env/facts/facts.h"

#include "base/text/strbuf.h"
#include "rig/unit.h"

Test(facts, each_cloud_has_its_signs) {
    static const struct {
        struct cloud_signs signs;
        enum cloud cloud;
    } cases[] = {
        {{.sys_vendor = ""}, CLOUD_NONE},
        {{.sys_vendor = "Dell Inc."}, CLOUD_NONE},
        {{.sys_vendor = "Amazon EC2", .efa = true}, CLOUD_AWS},
        {{.sys_vendor = "Amazon EC2", .ofi_plugin = true}, CLOUD_AWS},
        {{.efa = true}, CLOUD_AWS},
        {{.sys_vendor = "Amazon EC2"}, CLOUD_NONE},
        {{.sys_vendor = "HPE", .ofi_plugin = true}, CLOUD_NONE},
        {{.sys_vendor = "Google", .tcpx = true}, CLOUD_GCP_TCPX},
        {{.sys_vendor = "Google", .tcpxo = true}, CLOUD_GCP_TCPXO},
        {{.sys_vendor = "Google", .gib = true}, CLOUD_GCP_GIB},
        {{.gib = true, .tcpxo = true, .tcpx = true}, CLOUD_GCP_GIB},
        {{.sys_vendor = "Google"}, CLOUD_NONE},
        {{.sys_vendor = "Microsoft Corporation", .chassis_asset_tag = "7783-7084-3265-9085-8269-3286-77"}, CLOUD_AZURE},
        {{.sys_vendor = "Microsoft Corporation"}, CLOUD_NONE}, /* Hyper-V at home is not Azure */
        {{.chassis_asset_tag = "OracleCloud.com"}, CLOUD_ORACLE},
        {{.chassis_vendor = "OracleCloud.com"}, CLOUD_ORACLE},
        {{.chassis_vendor = "IBM:Cloud Compute Server 1.0:gx3d"}, CLOUD_IBM},
        {{.chassis_asset_tag = "ibmcloud"}, CLOUD_IBM},
        {{.sys_vendor = "IBM"}, CLOUD_NONE}, /* not every machine of IBM */
        {{.coreweave = true}, CLOUD_COREWEAVE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_eq(cloud_detect(&cases[i].signs), cases[i].cloud, "%zu", i);
    cr_assert_null(cloud_name(CLOUD_NONE));
    for (enum cloud c = CLOUD_NONE + 1; c <= CLOUD_IBM; c++)
        cr_assert_gt(strlen(cloud_name(c)), 3u);
}

static struct nccl_conf parse(const char *text, size_t len) {
    struct nccl_conf c;
    nccl_conf_parse("/etc/nccl.conf", text, len, &c);
    return c;
}

/* As NCCL reads them: nothing is trimmed, there are no quotes, a line ends at a NUL, and the first entry counts. */
Test(facts, a_configuration_files_lines) {
    static const char nul[] = "A=1\0B=2\nC=3";
    static const struct {
        const char *text;
        size_t len;
        const char *name, *value; /* NULL: there is none */
        uint32_t line;
    } cases[] = {
#define TEXT(text) text, sizeof(text) - 1
        {TEXT("NCCL_SOCKET_IFNAME==eth0\n"), "NCCL_SOCKET_IFNAME", "=eth0", 1},
        {TEXT("A=1\nNCCL_IB_HCA=^=mlx5_2"), "NCCL_IB_HCA", "^=mlx5_2", 2},
        {TEXT("A="), "A", "", 1},
        {TEXT("X = 1\n"), "X ", " 1", 1},
        {TEXT("X=\"1\" \r\n"), "X", "\"1\" \r", 1},
        {TEXT(" #X=1\n"), " #X", "1", 1},
        {TEXT("#\nA=1\nA=2\n"), "A", "1", 2},
        {TEXT("#A=1\n\nB\n=2\n#\n"), "A", NULL, 0},
        {TEXT("#A=1\n\nB\n=2\n#\n"), "", NULL, 0},
        {nul, sizeof nul - 1, "A", "1", 1},
        {nul, sizeof nul - 1, "B", NULL, 0},
        {nul, sizeof nul - 1, "C", "3", 2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(nccl_facts_fini) struct nccl_facts f = {.user_conf = parse(cases[i].text, cases[i].len)};
        const struct nccl_conf_entry *e = nccl_conf_find(&f.user_conf, cases[i].name);
        cr_assert_eq(e != NULL, cases[i].value != NULL, "%zu", i);
        cr_expect(e == NULL || (strcmp(e->value, cases[i].value) == 0 && e->line == cases[i].line), "%zu", i);
    }
}

Test(facts, a_configuration_files_limits) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_printf(&text, "A=%02000d\n", 1); /* cut as NCCL cuts it */
    for (int i = 0; i < NCCL_CONF_ENTRIES_MAX + 5; i++)
        strbuf_printf(&text, "A%d=%d\n", i, i);
    _cleanup_(nccl_facts_fini) struct nccl_facts f = {.user_conf = parse(strbuf_text(&text), text.len)};
    cr_assert_eq(strlen(f.user_conf.entries[0].value), 1023u);
    cr_assert_eq(f.user_conf.n, (uint32_t)NCCL_CONF_ENTRIES_MAX);
    cr_assert_not_null(nccl_conf_find(&f.user_conf, "A1022"));
}
