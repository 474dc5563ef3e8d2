#include "launcher/node/snapshot_codec.h"

#include "rig/unit.h"

static void make(struct topology *t, struct nccl_facts *f) {
    for (uint32_t i = 0; i < 5; i++) {
        struct topo_core *core = topology_add_core(t);
        cpuset_add(&core->cpus, i);
        core->package = (int32_t)i;
    }
    struct topo_nic *nic = topology_add_nic(t);
    (void)snprintf(nic->name, sizeof nic->name, "mlx5_0");
    nic->n_ports = 2;
    topo_port_add_gid(&nic->ports[1])->index = 7;
    topo_port_add_gid(&nic->ports[1])->index = 9;
    topology_add_gpu(t)->sm = 90;
    topology_add_pci(t)->at.bus = 0x1b;
    topology_add_numa(t)->bytes = 42;
    topology_add_cache(t)->level = 3;
    topology_add_nvlink(t)->count = 18;
    topology_add_netif(t)->mtu = 9000;
    topology_warn(t, "link speed of %s is not known", "0000:1b:00.0");
    (void)snprintf(t->driver, sizeof t->driver, "550.54.15");

    static const char text[] = "NCCL_DEBUG=WARN\n#no\nNCCL_IB_HCA==mlx5_0\n";
    nccl_conf_parse("/etc/nccl.conf", text, strlen(text), &f->system_conf);
    f->plugins[f->n_plugins++] = xstrdup("/opt/libnccl-net.so");
    f->topo_files[f->n_topo_files++] = (struct nccl_topo_file){xstrdup("/topo.xml"), xstrdup("<system/>")};
    f->nccl_version = 23007;
}

Test(snapshot_codec, comes_out_as_it_went_in) {
    struct topology t = {0}, back = {0};
    struct nccl_facts f = {0}, facts = {0};
    _cleanup_(strbuf_fini) struct strbuf b = {0};
    make(&t, &f);
    snapshot_encode(&t, &f, &b);
    cr_assert_eq(snapshot_decode(b.data, b.len, &back, &facts), 0);
    cr_expect_eq(back.n_cores, 5);
    cr_expect(cpuset_has(&back.cores[4].cpus, 4));
    cr_expect_eq(back.cores[4].package, 4);
    cr_expect_str_eq(back.nics[0].name, "mlx5_0");
    cr_expect_eq(back.nics[0].ports[1].n_gids, 2);
    cr_expect_eq(back.nics[0].ports[1].gids[1].index, 9);
    cr_expect_null(back.nics[0].ports[0].gids);
    cr_expect_eq(back.gpus[0].sm, 90);
    cr_expect_eq(back.pci[0].at.bus, 0x1b);
    cr_expect_eq(back.numa[0].bytes, 42);
    cr_expect_eq(back.caches[0].level, 3);
    cr_expect_eq(back.nvlinks[0].count, 18);
    cr_expect_eq(back.netifs[0].mtu, 9000);
    cr_assert_eq(back.n_warnings, 1);
    cr_expect_str_eq(back.warnings[0], "link speed of 0000:1b:00.0 is not known");
    cr_expect_str_eq(back.driver, "550.54.15");
    cr_expect_null(facts.user_conf.path);
    cr_expect_str_eq(facts.system_conf.path, "/etc/nccl.conf");
    cr_expect_str_eq(nccl_conf_find(&facts.system_conf, "NCCL_IB_HCA")->value, "=mlx5_0");
    cr_expect_eq(nccl_conf_find(&facts.system_conf, "NCCL_IB_HCA")->line, 3);
    cr_expect_str_eq(facts.plugins[0], "/opt/libnccl-net.so");
    cr_expect_str_eq(facts.topo_files[0].text, "<system/>");
    cr_expect_eq(facts.nccl_version, 23007);
    cr_expect_not_null(topology_add_core(&back), "what was read may grow");
    topology_fini(&t), topology_fini(&back);
    nccl_facts_fini(&f), nccl_facts_fini(&facts);
}

/* However much is missing at the end, no memory of the other process is touched or freed. */
Test(snapshot_codec, what_is_cut_short_is_nothing) {
    struct topology t = {0};
    struct nccl_facts f = {0};
    _cleanup_(strbuf_fini) struct strbuf b = {0};
    make(&t, &f);
    snapshot_encode(&t, &f, &b);
    for (size_t n = 0; n < b.len; n += n + 400 < b.len && n > 400 ? 97 : 1) {
        struct topology back = {0};
        struct nccl_facts facts = {0};
        cr_assert_eq(snapshot_decode(b.data, n, &back, &facts), -EBADMSG, "%zu of %zu bytes", n, b.len);
        cr_assert_null(back.cores);
        cr_assert_null(facts.system_conf.path);
    }
    strbuf_add_char(&b, 'x');
    struct topology back = {0};
    struct nccl_facts facts = {0};
    cr_expect_eq(snapshot_decode(b.data, b.len, &back, &facts), -EBADMSG);
    topology_fini(&t);
    nccl_facts_fini(&f);
}
