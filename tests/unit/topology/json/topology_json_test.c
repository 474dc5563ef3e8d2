#include "topology/json/topology_json.h"

#include "../model/node_rig.h"
#include "rig/unit.h"

/* One of every kind. */
static void make(struct topology *t) {
    *t = (struct topology){0};
    rig_dgx(t);
    (void)strcpy(t->host, "node\"1\\");
    t->numa[1].index = 2; /* one is missing */
    struct topo_core *core = topology_add_core(t);
    cpuset_add(&core->cpus, 3);
    struct topo_cache *cache = topology_add_cache(t);
    cache->level = 3;
    cache->cpus = t->numa[0].cpus;
    t->nvlinks[0] = (struct topo_nvlink){
        .end = TOPO_NVLINK_GPU, .peer = 1, .target = PCI_ADDR_UNKNOWN, .count = 18, .bandwidth = 26.562500000000004};
    t->nics[0].node_guid = UINT64_C(0xfedcba9876543210);
    struct topo_gid *gid = topo_port_add_gid(&t->nics[0].ports[0]);
    gid->gid[0] = 0xfe;
    gid->gid[15] = 1;
    gid->type = TOPO_GID_IB;
    struct topo_netif *f = topology_add_netif(t);
    (void)strcpy(f->name, "eth0");
    f->kind = TOPO_NETIF_PHYSICAL;
    f->speed_mbps = -1;
    f->addrs[f->n_addrs++] = (struct topo_netaddr){.addr = "fd00::1", .prefix = 64, .ipv6 = true};
    topology_warn(t, "eth0 has no %s", "speed");
    topology_sort(t);
}

static void assert_reads_back(const struct topology *t) {
    _cleanup_(strbuf_fini) struct strbuf first = {0}, second = {0};
    _cleanup_(topology_fini) struct topology back = {0};
    struct err err = {0};
    topology_json_write(t, &first);
    cr_assert_eq(topology_json_read(strbuf_text(&first), first.len, &back, &err), 0, "%s\n%s", err.text,
                 strbuf_text(&first));
    back.source = t->source; /* only this may change by reading */
    topology_json_write(&back, &second);
    cr_assert_str_eq(strbuf_text(&first), strbuf_text(&second));
}

Test(topology_json, what_is_written_reads_back_as_it_was) {
    _cleanup_(topology_fini) struct topology t;
    make(&t);
    assert_reads_back(&t);
}

Test(topology_json, nothing_at_all_reads_back_too) {
    _cleanup_(topology_fini) struct topology t = {.source = TOPO_LIVE};
    assert_reads_back(&t);
}

Test(topology_json, the_words_of_the_documentation_are_there) {
    _cleanup_(topology_fini) struct topology t;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    make(&t);
    topology_json_write(&t, &text);
    static const char *const words[] = {
        "\"format\":1",
        "\"bus_id\":\"0000:13:00.0\",\"index\":0,\"vendor\":\"nvidia\"",
        "\"cpus\":\"0-7\"",
        "\"state\":\"ACTIVE\",\"rate\":400",
        "\"node_guid\":\"fedcba9876543210\"",
        "\"gid\":\"fe000000000000000000000000000001\"",
        "\"host\":\"node\\\"1\\\\\"",
        "\"target\":null",
    };
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        cr_assert(strstr(strbuf_text(&text), words[i]) != NULL, "%s\nis not in\n%s", words[i], strbuf_text(&text));
}

Test(topology_json, the_order_is_that_of_the_bus_and_indices_follow) {
    _cleanup_(topology_fini) struct topology t = {.source = TOPO_LIVE};
    for (uint32_t i = 3; i-- > 0;) { /* backwards */
        topology_add_gpu(&t)->pci = rig_pci(&t, rig_text("0000:%02x:00.0", 0x10 + i), TOPO_NONE, false, -1);
    }
    topology_add_nvlink(&t)->gpu = 0; /* the last one on the bus */
    t.nvlinks[0].end = TOPO_NVLINK_GPU;
    t.nvlinks[0].peer = 2;
    topology_sort(&t);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(t.gpus[i].index, i);
        cr_assert_eq(t.pci[t.gpus[i].pci].at.bus, 0x10 + i);
    }
    cr_assert_eq(t.nvlinks[0].gpu, 2);
    cr_assert_eq(t.nvlinks[0].peer, 0);
}

Test(topology_json, bridges_stand_before_what_hangs_on_them_whatever_their_addresses) {
    _cleanup_(topology_fini) struct topology t = {.source = TOPO_LIVE};
    (void)rig_pci(&t, "0000:01:00.0", TOPO_NONE, false, -1);
    (void)rig_pci(&t, "0000:ff:00.0", TOPO_NONE, true, -1);
    (void)rig_pci(&t, "0000:00:02.0", TOPO_NONE, true, -1);
    t.pci[0].parent = 1;
    topology_sort(&t);
    cr_assert_eq(t.pci[0].at.bus, 0);
    cr_assert_eq(t.pci[1].at.bus, 0xff);
    cr_assert_eq(t.pci[2].parent, 1);
}

Test(topology_json, what_is_not_right_is_refused_with_its_key) {
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "JSON"},
        {"[]", "format"},
        {"{}", "format"},
        {"{\"format\":2}", "format 2"},
        {"{\"format\":1,\"allowed\":\"0-99999999\"}", "allowed"},
        {"{\"format\":1,\"numa\":{}}", "numa"},
        {"{\"format\":1,\"numa\":[7]}", "object"},
        {"{\"format\":1,\"numa\":[{\"index\":1.5}]}", "index"},
        {"{\"format\":1,\"cores\":[{\"cpus\":\"\"}]}", "cores"},
        {"{\"format\":1,\"gpus\":[{\"bus_id\":\"0000:01:00.0\"}]}", "bus_id"},
        {"{\"format\":1,\"gpus\":[{\"vendor\":\"acme\"}]}", "vendor"},
        {"{\"format\":1,\"nvlinks\":[{\"gpu\":0,\"end\":\"switch\"}]}", "nvlinks"},
        {"{\"format\":1,\"pci\":[{\"bus_id\":\"0000:01:00.0\"}],\"gpus\":[{\"bus_id\":\"0000:01:00.0\",\"vendor\":"
         "\"nvidia\"}],\"nvlinks\":[{\"gpu\":0}]}",
         "nvlinks"},
        {"{\"format\":1,\"pci\":[{\"bus_id\":\"0000:01:00.0\"},{\"bus_id\":\"0000:01:00.0\"}]}", "twice"},
        {"{\"format\":1,\"pci\":[{\"bus_id\":\"0000:01:00.0\",\"parent\":\"0000:01:00.0\"}]}", "parent"},
        {"{\"format\":1,\"pci\":[{\"bus_id\":\"0000:01:00.0\",\"parent\":\"0000:02:00.0\"},"
         "{\"bus_id\":\"0000:02:00.0\",\"parent\":\"0000:01:00.0\"}]}",
         "parent"},
        {"{\"format\":1,\"nics\":[{\"name\":\"x\",\"node_guid\":\"12\"}]}", "node_guid"},
        {"{\"format\":1,\"nics\":[{\"ports\":[{},{},{},{},{},{},{},{},{}]}]}", "ports"},
        {"{\"format\":1,\"warnings\":[1]}", "warnings"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct topology t = {0};
        struct err err = {0};
        int r = topology_json_read(cases[i].text, strlen(cases[i].text), &t, &err);
        cr_assert(r == -EINVAL || r == -E2BIG, "%s: %d", cases[i].text, r);
        cr_assert(strstr(err.text, cases[i].said) != NULL, "%s: %s", cases[i].text, err.text);
        cr_assert_eq(t.n_pci, 0);
    }
}
