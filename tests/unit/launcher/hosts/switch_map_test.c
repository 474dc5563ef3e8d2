#include "launcher/hosts/switch_map.h"

#include "base/text/strbuf.h"
#include "rig/unit.h"

static char place[128], block[128];
static struct err err;

static int find(const char *text, const char *host) {
    place[0] = '\0';
    err = (struct err){0};
    return switch_map_find(text, strlen(text), host, place, block, sizeof place, &err);
}

Test(switch_map, host_lists_are_those_of_slurm) {
    static const struct {
        const char *list, *name;
        int result;
    } cases[] = {
        {"n1", "n1", 0},
        {"n1", "n10", SWITCH_MAP_E_ABSENT},
        {"n1,n2 n3", "n3", 0},
        {"n[08-12]", "n08", 0},
        {"n[08-12]", "n8", SWITCH_MAP_E_ABSENT},
        {"n[1-4", "n1", SWITCH_MAP_E_ABSENT},
        {"\"n1\"", "n1", SWITCH_MAP_E_ABSENT},
        {"n[1-100000000]", "n1", SWITCH_MAP_E_ABSENT},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *line = rig_text("s: %s\n", cases[i].list);
        cr_assert_eq(find(line, cases[i].name), cases[i].result, "%s in %s", cases[i].name, cases[i].list);
        cr_assert_eq(err.text[0] != '\0', cases[i].result < 0, "%s", err.text);
    }
}

/* 17 lists of 65,536 names. */
Test(switch_map, the_names_have_a_limit) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (int i = 0; i < 17; i++)
        strbuf_printf(&text, "s%d: n[1-65536]\n", i);
    cr_assert_eq(find(strbuf_text(&text), "x"), -E2BIG);
    assert_has(err.text, "more than 1048576 nodes");
}

static const char slurm[] = "# two leaves\n"
                            "SwitchName=leaf1 Nodes=node[1-2] LinkSpeed=100\n"
                            "switchname=leaf2 nodes=node[3-4],\\\nlogin\n"
                            "SwitchName=spine Switches=leaf[1-2]\r\n";

Test(switch_map, a_node_is_found_in_slurms_form) {
    cr_assert_eq(find(slurm, "node2"), 0, "%s", err.text);
    cr_assert_str_eq(place, "spine.leaf1.node2");
    cr_assert_eq(find(slurm, "node3.cluster.example"), 0, "%s", err.text);
    cr_assert_str_eq(place, "spine.leaf2.node3");
    cr_assert_eq(find(slurm, "node9"), SWITCH_MAP_E_ABSENT);
}

Test(switch_map, a_node_is_found_in_the_plain_form) {
    static const char plain[] = "sw1: a b\nsw2 : c d[1-3]\n\n  root: sw1 sw2 # the top\n";
    cr_assert_eq(find(plain, "d2"), 0, "%s", err.text);
    cr_assert_str_eq(place, "root.sw2.d2");
    cr_assert_eq(find(plain, "b"), 0);
    cr_assert_str_eq(place, "root.sw1.b");
    cr_assert_eq(find("sw1: a b\n", "a"), 0);
    cr_assert_str_eq(place, "sw1.a");
}

Test(switch_map, a_block_is_a_switch) {
    cr_assert_eq(find("BlockName=b1 Nodes=n[1-18]\nBlockName=b2 Nodes=n[19-36]\nBlockSizes=18\n", "n20"), 0, "%s",
                 err.text);
    cr_assert_str_eq(place, "b2.n20");
    cr_assert_str_eq(block, "b2");
    cr_assert_eq(find("BlockName=b1 BlockIndex=0 Nodes=n[1-18] BlockSize=18\nAggregatedBlock=b[1-2] BlockIndex=2 "
                      "Nodes=n[1-36] BlockSize=36\n",
                      "n7.cluster.example"),
                 0, "%s", err.text);
    cr_assert_str_eq(block, "b1");
    cr_assert_eq(find(slurm, "node2"), 0);
    cr_assert_str_eq(block, "", "a switch is not a block");
}

static const char yaml[] = "---\n"
                           "# as in topology.yaml(5)\n"
                           "- topology: topo1\n"
                           "  cluster_default: True\n"
                           "  tree:\n"
                           "    switches:\n"
                           "    - switch: root\n"
                           "      children: leaf[1-2]\n"
                           "    - switch: leaf1\n"
                           "      nodes: node[01-04]\n"
                           "    - switch: leaf2\n"
                           "      nodes: node[05-08],other\n"
                           "- topology: topo2\n"
                           "  cluster_default: False\n"
                           "  block:\n"
                           "    block_sizes:\n"
                           "      - 4\n"
                           "      - 16\n"
                           "    blocks:\n"
                           "    - block: b1\n"
                           "      nodes: node[01-06] # one rack\n"
                           "    - nodes: \"node[07-08],new[1-3]\"\n"
                           "      block: 'b2'\n"
                           "- topology: topo3\n"
                           "  flat: True\n";

Test(switch_map, topology_yaml_has_switches_and_blocks) {
    static const struct {
        const char *node, *place, *block;
    } cases[] = {{"node02", "root.leaf1.node02", "b1"},
                 {"node06", "root.leaf2.node06", "b1"},
                 {"node08", "root.leaf2.node08", "b2"},
                 {"other", "root.leaf2.other", ""},
                 {"new3", "b2.new3", "b2"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cr_assert_eq(find(yaml, cases[i].node), 0, "%s", err.text);
        cr_assert_str_eq(place, cases[i].place);
        cr_assert_str_eq(block, cases[i].block);
    }
    cr_assert_eq(find(yaml, "node09"), SWITCH_MAP_E_ABSENT);
}

Test(switch_map, other_yaml_is_refused_with_its_line) {
    static const char *const rest[] = {"  block: {block_sizes: [4], blocks: []}",
                                       "  - {block: b1, nodes: n1}",
                                       "    nodes: [n1, n2]",
                                       "    nodes:",
                                       "    nodes: >",
                                       "    n2]",
                                       "    n1, n2"};
    for (size_t i = 0; i < ARRAY_SIZE(rest); i++) {
        cr_assert_eq(find(rig_text("- topology: t\n%s\n", rest[i]), "n1"), -EINVAL, "%s", rest[i]);
        assert_has(err.text, "line 2 is not one key of topology.yaml");
    }
}

Test(switch_map, a_line_that_makes_no_sense_is_named) {
    cr_assert_eq(find("sw1: a\nnonsense here\n", "a"), -EINVAL);
    cr_assert(strstr(err.text, "line 2") != NULL && strstr(err.text, "nonsense here") != NULL, "%s", err.text);
    cr_assert_eq(find("SwitchName= Nodes=a\n", "a"), -EINVAL);
    cr_assert_eq(find("sw1:\n", "a"), -EINVAL);
    cr_assert_eq(find(": a\n", "a"), -EINVAL);
}

Test(switch_map, switches_in_a_circle_are_refused) {
    cr_assert_eq(find("s1: n1 s2\ns2: s1\n", "n1"), -EINVAL);
    assert_has(err.text, "circle");
}

Test(switch_map, a_place_that_is_too_long_is_refused) {
    char line[256] = "SwitchName=";
    memset(line + strlen(line), 's', 120);
    (void)strcat(line, " Nodes=node1000\n");
    cr_assert_eq(find(line, "node1000"), -E2BIG);
}
