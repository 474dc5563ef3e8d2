/* NCCL's files: its grammar and limits, what it loses, what is reported, and that written files read back. */
#include "../model/node_rig.h"
#include "../recorded.h"
#include "nccl_between.h"
#include "rig/unit.h"
#include "topology/nccl/nccl_xml.h"

static struct topology t;
static struct err err;
static char said[32768];

static void hear(void *arg, enum nccl_xml_level level, uint32_t line, const char *text) {
    static const char *const levels[] = {"", "note", "warning", "error"};
    size_t n = strlen(said);
    (void)snprintf(said + n, sizeof said - n, "%s %u: %s\n", levels[level], (unsigned)line, text);
}

static int read_len(const char *text, size_t len) {
    said[0] = '\0';
    return nccl_xml_read(text, len, &t, hear, NULL, &err);
}
static int read_text(const char *text) { return read_len(text, strlen(text)); }
static unsigned check_with(const char *text, const struct topology *machine) {
    said[0] = '\0';
    return nccl_xml_check(text, strlen(text), machine, hear, NULL);
}
static unsigned check(const char *text) { return check_with(text, NULL); }

/* Checks a file: the number of its errors, and all that is said. */
static void judged(unsigned errors, const char *file, const char *messages) {
    cr_assert_eq(check(file), errors, "%s", said);
    cr_assert_str_eq(said, messages);
}

static void done(void) { topology_fini(&t); }
TestSuite(nccl_xml, .fini = done);

#define SAID(part) cr_assert(strstr(said, part) != NULL, "%s", said)
#define REFUSED(file, code, sentence)                        \
    do {                                                     \
        cr_assert_eq(read_text(file), code, "%s", err.text); \
        cr_assert_str_eq(err.text, sentence);                \
    } while (0)

#define PCI(id, more) "<pci busid=\"" id "\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"" more
#define GPU(id, dev, more)                                                                      \
    "<pci busid=\"" id "\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">" \
    "<gpu dev=\"" dev "\" sm=\"90\" rank=\"" dev "\" gdr=\"1\"" more
#define NIC(id, name, dev)                                                                           \
    "<pci busid=\"" id "\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><nic>" \
    "<net name=\"" name "\" dev=\"" dev                                                              \
    "\" speed=\"400000\" port=\"1\" guid=\"0x1f\" latency=\"1.5\" gdr=\"1\"/></nic></pci>"
#define CPU(id)                                                                                      \
    "<cpu numaid=\"" id "\" affinity=\"000000ff,00000001\" arch=\"x86_64\" vendor=\"GenuineIntel\" " \
    "familyid=\"6\" modelid=\"143\">"
#define FILE_OF(inner) "<system version=\"1\">" inner "</system>"

Test(nccl_xml, a_whole_file_becomes_a_topology) {
    cr_assert_eq(read_text("<!-- a comment = with > and / -->\n<system version='1'>\n  " CPU("1") "\r\n" PCI(
                     "0000:10:00.0", " vendor=\"0x1000\" device=\"0xc030\" subsystem_vendor=\"0x1028\""
                                     " subsystem_device=\"0x236b\">")
                               GPU("0000:11:00.0", "0",
                                   "><nvlink target=\"0000:21:00.0\" count=\"6\" tclass=\"0x030200\"/>"
                                   "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/>"
                                   "<c2c bw=\"40000\" count=\"10\"/></gpu></pci>")
                                   NIC("0000:12:00.0", "mlx5_3",
                                       "7") "</pci></cpu>"
                                            "<cpu numaid=\"0\">" GPU(
                                                "0000:21:00.0", "1",
                                                "></gpu></pci>") "<nic><net name=\"eth0\" dev=\"3\" speed=\"-1\" "
                                                                 "port=\"0\" maxconn=\"65536\" gdr=\"0\" keep=\"1\"/>"
                                                                 "</nic></cpu></system>\n<!---->"),
                 0, "%s", err.text);
    cr_assert_str_eq(said, "");
    JSON_HAS(
        &t, "'source':'nccl',", "'arch':'x86_64','cpu_vendor':'GenuineIntel','cpu_family':6,'cpu_model':143,",
        "'allowed':'0,32-39',", "'nvlinks_known':true,", "'numa':[{'index':0,'cpus':''", "{'index':1,'cpus':'0,32-39',",
        "'pci':[{'bus_id':'0000:10:00.0','root':'0000:10:00.0','bridge':true,'class':'060400','vendor':'1000',"
        "'device':'c030','subvendor':'1028','subdevice':'236b',",
        "{'bus_id':'0000:11:00.0','root':'0000:10:00.0','bridge':false,'class':'030200',",
        "'numa':1,'link_speed':'32.0 GT/s PCIe','link_width':16,",
        "'gpus':[{'bus_id':'0000:11:00.0','index':0,'vendor':'nvidia','name':'','uuid':'','numa':1,'sm':90,'gdr':1,"
        "'rank':0,",
        "{'bus_id':'0000:21:00.0','index':1,",
        "'nvlinks':[{'gpu':0,'end':'gpu','peer':1,'target':'0000:21:00.0','count':6,'c2c':false,'bandwidth':0},"
        "{'gpu':0,'end':'switch','peer':null,'target':null,'count':18,'c2c':false,'bandwidth':0},"
        "{'gpu':0,'end':'cpu','peer':null,'target':null,'count':10,'c2c':true,'bandwidth':400}]",
        /* in the order of the file, not of dev */
        "'nics':[{'bus_id':'0000:12:00.0','name':'mlx5_3','kind':'rdma','numa':1,'netdev':'','driver':'',"
        "'virtual_function':false,'node_guid':'000000000000001f','sys_image_guid':'0000000000000000','dev':7,"
        "'latency':1.5,'gdr':1,'port':1,'keep':false,'state':'ACTIVE','rate':400,'ports':[{'number':1,",
        "{'bus_id':null,'name':'eth0','kind':'socket','numa':0,",
        "'dev':3,'latency':0,'gdr':0,'port':0,'keep':true,'state':'ACTIVE','rate':10,");
    cr_assert(t.n_pci == 4 && t.n_gpus == 2 && t.n_nics == 2 && t.nics[0].n_ports == 1);
}

Test(nccl_xml, the_grammar_is_nccls_own) {
    REFUSED("", -EINVAL, "there is no element in it: no NCCL topology file");
    REFUSED("<?xml version=\"1.0\"?>\n<system version=\"1\"/>", -EINVAL,
            "line 1: <?xml is not an element: NCCL reads elements and comments only; leave it out");
    REFUSED("<system version=\"1\">\n<![CDATA[x]]></system>", -EINVAL,
            "line 2: <![CDATA[x]] is not an element: NCCL reads elements and comments only; leave it out");
    REFUSED("\t<system version=\"1\"/>", -EINVAL, "line 1: '<' is expected; NCCL knows no tabs");
    REFUSED("<system version=\"1\">\ntext</system>", -EINVAL, "line 2: '<' is expected");
    REFUSED("<system version=1/>", -EINVAL, "line 1: a value stands without quotes");
    REFUSED("<system version=\"1\">\n<cpu numaid=\"0\"\n>", -EINVAL,
            "line 3: '>' is expected here; NCCL allows single blanks between attributes, and no end of a line");
    REFUSED("<system version=\"1\">\n<cpu numaid=\"0\">\n</system>", -EINVAL, "line 3: </system> where cpu is open");
    REFUSED("<system version=\"1\"><cpu numaid=\"0\">", -EINVAL, "line 1: the file ends while cpu is open");
    REFUSED("</system>", -EINVAL, "line 1: </system> where nothing is open");
    REFUSED("<system version=\"1", -EINVAL, "line 1: the file ends in the middle of an element");
    REFUSED("<system version=\"1\"/><!-- --", -EINVAL, "line 1: a comment does not end");
    REFUSED("<!--a=b--><system version=\"1\"/>", -EINVAL, "line 1: '=' where a name is expected");
    cr_assert_eq(read_text("<system version=\"1\"><!--a--><cpu numaid='0' /><cpu numaid=\"1\"/></system>"), 0);
    cr_assert_eq(t.n_numa, 2);
    cr_assert_eq(
        read_text("<system version=\"1\">\n<foo><bar></foo></baz><!-- x --><cpu numaid=\"0\"><gpu/></cpu></system>"), 0,
        "%s", err.text); /* NCCL compares no names inside elements that it ignores */
    cr_assert_str_eq(said, "warning 2: foo is ignored: NCCL does not know it below system\n"
                           "warning 2: gpu is ignored: NCCL does not know it below cpu\n");
    cr_assert_eq(t.n_numa, 1);
}

Test(nccl_xml, other_files_are_refused_with_their_reason) {
    REFUSED("<graphs version=\"1\"></graphs>", -EINVAL,
            "line 1: this is a graph file (NCCL_GRAPH_FILE), no topology: its root is graphs, not system");
    REFUSED("<topology></topology>", -EINVAL, "line 1: the root is topology, not system: no NCCL topology file");
    REFUSED("\n<system version=\"2\">", -EINVAL, "line 2: version 2 is RCCL's, AMD's library; NCCL reads version 1");
    REFUSED("<system version=\"3\">", -EINVAL, "line 1: version 3; NCCL reads version 1");
    REFUSED("<system>", -EINVAL, "line 1: system has no version");
    REFUSED(FILE_OF("<cpu/>"), -EINVAL, "line 1: cpu has no numaid");
    REFUSED(FILE_OF("<cpu numaid=\"9999\"/>"), -EINVAL, "line 1: numaid 9999");
    REFUSED(FILE_OF("<cpu numaid=\"0\"><pci/></cpu>"), -EINVAL, "line 1: pci has no busid");
    REFUSED(FILE_OF("<cpu numaid=\"0\"><pci busid=\"1:2:3\"/></cpu>"), -EINVAL,
            "line 1: busid \"1:2:3\" is not a PCI address");
}

static char big[1 << 17];

static size_t many(unsigned cpus) {
    size_t n = (size_t)snprintf(big, sizeof big, "<system version=\"1\">");
    for (unsigned i = 0; i < cpus; i++)
        n += (size_t)snprintf(big + n, sizeof big - n, "<cpu numaid=\"%u\"/>\n", i);
    return n + (size_t)snprintf(big + n, sizeof big - n, "</system>");
}

Test(nccl_xml, the_limits_are_nccls) {
    (void)many(254);
    cr_assert_eq(read_text(big), 0, "%s", err.text); /* 255 elements */
    cr_assert_eq(t.n_numa, 254);
    (void)many(255);
    REFUSED(big, -E2BIG, "line 255: NCCL's table of 256 elements is full"); /* before its end */
    char value[300];
    for (int longer = 0; longer <= 1; longer++) {
        memset(value, '0', sizeof value);
        value[253 + longer] = '\0';
        (void)snprintf(big, sizeof big, "<system version=\"1\" name=\"%s\"/>", value);
        cr_assert_eq(read_text(big), longer ? -E2BIG : 0, "%s", err.text);
    }
    cr_assert_str_eq(err.text, "line 1: a value is longer than the 253 bytes that NCCL reads");
    (void)snprintf(big, sizeof big, "<system version=\"1\" %s/>", value);
    REFUSED(big, -E2BIG, "line 1: a name is longer than the 253 bytes that NCCL reads");
    size_t n = (size_t)snprintf(big, sizeof big, "<system");
    for (int i = 0; i < 16; i++)
        n += (size_t)snprintf(big + n, sizeof big - n, " a%d=\"\"", i);
    (void)snprintf(big + n, sizeof big - n, " version=\"1\"/>"); /* the 17th is not kept */
    REFUSED(big, -EINVAL, "line 1: system has no version");
    SAID("warning 1: 1 attributes are ignored: NCCL keeps 16");
}

Test(nccl_xml, a_bytes_end_anywhere_is_no_accident) {
    static const char text[] =
        "<!-- c --><system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:10:00.0\"><gpu rank=\"0\"/>"
        "</pci></cpu></system>";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n + 1); /* exact, so that a sanitizer detects an overread of one byte */
        memcpy(copy, text, n);
        cr_assert_lt(read_len(copy, n), 0, "%zu", n);
        free(copy);
    }
    cr_assert_eq(read_text(text), 0, "%s", err.text);
    char nul[] = "<system version=\"1\"><cpu numaid=\"0\0\"/></system>";
    cr_assert_eq(read_len(nul, sizeof nul - 1), 0, "%s", err.text);
}

Test(nccl_xml, processors_have_nccls_names_in_the_file_and_the_kernels_here) {
    cr_assert_eq(read_text(FILE_OF("<cpu numaid=\"0\" arch=\"arm64\"/>")), 0);
    cr_assert_str_eq(t.arch, "aarch64");
    cr_assert_eq(read_text(FILE_OF("<cpu numaid=\"0\" arch=\"ppc64\"/>")), 0);
    cr_assert_str_eq(t.arch, "ppc64le");
}

Test(nccl_xml, what_is_not_filled_in_is_skipped_and_said) {
    cr_assert_eq(read_text(FILE_OF(
                     CPU("0") "<pci busid=\"0000:10:00.0\" class=\"0x030200\"/>\n"
                              "<pci busid=\"0000:11:00.0\" class=\"0x030200\"><gpu dev=\"0\"/></pci>\n"
                              "<pci busid=\"0000:12:00.0\"><nic><net name=\"x\"/><net dev=\"1\" net=\"0\"/></nic></pci>"
                              "</cpu>")),
                 0, "%s", err.text);
    cr_assert(t.n_gpus == 0 && t.n_nics == 0 && t.n_pci == 3);
    cr_assert_str_eq(said,
                     "note 2: gpu without a rank is skipped: NCCL fills it in on a machine that has it\n"
                     "note 3: net without a dev is skipped: NCCL fills it in on a machine that has it\n"
                     "note 0: 1 GPUs and 0 NICs, by their class, have no gpu or nic element: NCCL fills them in on a "
                     "machine that has them\n");
}

Test(nccl_xml, a_pci_with_a_nic_loses_the_gpus_in_it) {
    static const char text[] = FILE_OF(CPU("0") "\n" PCI("0000:10:00.0", ">") "\n" GPU(
        "0000:11:00.0", "0", "/></pci>") "\n<nic><net name=\"n\" dev=\"0\" speed=\"1000\"/></nic></pci></cpu>");
    cr_assert_eq(read_text(text), 0);
    cr_assert(t.n_gpus == 0 && t.n_nics == 1 && t.n_pci == 1);
    cr_assert_str_eq(said,
                     "error 3: GPU 0000:11:00.0 is lost: NCCL takes the pci of line 2 around it for a NIC and looks "
                     "at no device in it; put it beside that pci\n");
    cr_assert_eq(check(text), 1, "%s", said);
    /* It is the same below a GPU and below a class without children; lower ones are not reported again. */
    cr_assert_eq(check(FILE_OF(CPU("0") "<pci busid=\"0000:10:00.0\" class=\"0x020000\">\n" PCI(
                     "0000:11:00.0", ">") "\n" GPU("0000:12:00.0", "0", "/></pci>") "</pci></pci></cpu>")),
                 1, "%s", said);
    SAID("error 2: pci 0000:11:00.0 is lost: NCCL takes the pci of line 1 around it for a device");
    cr_assert_eq(check(FILE_OF(CPU("0") PCI("0000:10:00.0", ">") "<gpu dev=\"0\" rank=\"0\"/><nic/></pci></cpu>")), 1);
    cr_assert_eq(
        read_text(FILE_OF(CPU("0") "<pci busid=\"0000:10:00.0\">" GPU("0000:12:00.0", "0", "/></pci>") "</pci></cpu>")),
        0);
    cr_assert_eq(t.n_gpus, 1); /* no class: treated as a bridge */
}

Test(nccl_xml, nvlinks_are_judged) {
    static const char to_itself[] = FILE_OF(
        CPU("0") "\n" GPU("0000:11:00.0", "0",
                          ">\n<nvlink target=\"0000:11:00.0\" count=\"12\" tclass=\"0x030200\"/>"
                          "\n<nvlink target=\"0000:77:00.0\" count=\"1\" tclass=\"0x030200\"/></gpu></pci>") "</cpu>");
    judged(0, to_itself,
           "warning 3: nvlink to 0000:11:00.0 does nothing: that is the GPU itself\n"
           "warning 4: nvlink to 0000:77:00.0 does nothing: no such GPU is in the file\n");
    judged(1,
           FILE_OF(CPU("0") "\n" GPU("0000:11:00.0", "0",
                                     ">"
                                     "<nvlink target=\"f\" count=\"10\" tclass=\"0x068000\"/><nvlink "
                                     "target=\"f\" count=\"9\" tclass=\"0x068000\"/>"
                                     "</gpu></pci>") "</cpu>"),
           "error 2: GPU 0000:11:00.0 has 19 NVLinks here; a GPU of compute capability 9.0 has 18 at most\n");
    judged(1,
           FILE_OF(CPU("0") GPU("0000:11:00.0", "0",
                                "><nvlink target=\"0000:12:00.0\" count=\"18\" "
                                "tclass=\"0x030200\"/></gpu></pci>") GPU("0000:12:00.0", "1", "/></pci>") "</cpu>"),
           "error 1: the GPU of line 1 has no nvlink from 0000:12:00.0 back to 0000:11:00.0: NCCL fails on "
           "this; add it there, or leave this one out\n");
    cr_assert_eq(
        check(FILE_OF(CPU("0") GPU(
            "0000:11:00.0", "0",
            "><nvlink target=\"0000:12:00.0\" count=\"2\" "
            "tclass=\"0x030200\"/></gpu></pci>") "\n" GPU("0000:12:00.0", "1",
                                                          "><nvlink target=\"0000:11:00.0\" "
                                                          "count=\"3\" tclass=\"0x020000\"/></gpu></pci>") "</cpu>")),
        1);
    SAID("error 1: the GPU of line 2 has no nvlink from 0000:12:00.0 back");
    SAID("warning 2: tclass \"0x020000\" is of no GPU");
    judged(0, FILE_OF(CPU("0") GPU("0000:11:00.0", "0", ">\n<c2c bw=\"0\" count=\"1\"/></gpu></pci>") "</cpu>"),
           "warning 2: c2c without a bw and a count above 0 has no bandwidth\n");
    judged(
        1,
        FILE_OF(CPU("0") GPU("0000:11:00.0", "0", "><nvlink target=\"f\" tclass=\"0x068000\"/></gpu></pci>") "</cpu>"),
        "error 1: nvlink without a count above 0: write it, or leave the nvlink out\n");
}

Test(nccl_xml, values_that_nccl_takes_otherwise_are_told) {
    judged(0, FILE_OF("<cpu numaid=\"1\"/>\n<cpu numaid=\"1\"/>"), "warning 2: numaid 1 is in line 1, too\n");
    judged(0,
           FILE_OF(CPU("0") "<nic><net dev=\"0\" speed=\"-1\"/>\n<net name=\"a&amp;b\" dev=\"1\" sped=\"5\"/></nic>\n"
                            "<pci busid=\"0000:10:00.0\" link_width=\"64\"/>\n"
                            "<pci busid=\"0000:11:00.0\" class=\"0x030200\"><gpu rank=\"0\"/></pci></cpu>"),
           "warning 1: net without a name: NCCL looks for its NETs by name, and adds them once more\n"
           "warning 1: speed \"-1\" of the net: NCCL counts 10 Gb/s\n"
           "warning 2: \"a&amp;b\" stays as it is: NCCL knows no entities\n"
           "note 2: NCCL does not look at sped of net\n"
           "note 2: net without a speed: NCCL fills it in on a machine that has it\n"
           "warning 3: link_width \"64\" of 0000:10:00.0: PCIe has 32 lanes at most\n"
           "note 4: gpu without a dev: NCCL fills it in on a machine that has it\n");
}

Test(nccl_xml, link_speeds_of_no_known_form_are_told) {
    judged(0,
           FILE_OF(CPU("0") "<pci busid=\"0000:10:00.0\" link_speed=\"32.0 GT/s\" link_width=\"0\"/>\n"
                            "<pci busid=\"0000:11:00.0\" link_speed=\"32 GT/s PCIe/s\" link_width=\"16\"/>\n"
                            "<pci busid=\"0000:12:00.0\" link_speed=\"8 GT/s\" link_width=\"16\"/></cpu>"),
           "warning 1: link_speed \"32.0 GT/s\" of 0000:10:00.0 is of no form that NCCL knows: it counts 8 "
           "GT/s (write \"32.0 GT/s PCIe\")\n"
           "warning 1: link_width \"0\" of 0000:10:00.0: NCCL counts 16 lanes\n");
}

Test(nccl_xml, devices_of_another_machine_are_told) {
    struct topology machine = {0};
    struct topo_pci *d = topology_add_pci(&machine);
    d->at = (struct pci_addr){0, 0x11, 0, 0};
    static const char text[] = FILE_OF(CPU("0") "<pci busid=\"ffff:ff:01.0\" class=\"0x060400\">\n" GPU(
        "0000:11:00.0", "0", "/></pci>") "\n" NIC("0000:12:00.0", "n", "0") "</pci></cpu>");
    cr_assert_eq(check_with(text, &machine), 1);
    cr_assert_str_eq(said, "error 3: 0000:12:00.0 is not on this machine: the file is of another one\n");
    topology_fini(&machine);
    judged(0, text, "");
}

Test(nccl_xml, repetitions_are_told) {
    judged(0,
           FILE_OF("<cpu numaid=\"0\" host_hash=\"0x1\"><nic><net name=\"a\" dev=\"0\" speed=\"1\"/>"
                   "<net name=\"b\" dev=\"1\" speed=\"1\"/></nic></cpu>\n<cpu numaid=\"1\" host_hash=\"0x1\">"
                   "<nic><net name=\"a\" dev=\"0\" speed=\"1\"/><net name=\"b\" dev=\"1\" speed=\"1\"/></nic></cpu>"),
           "");
    cr_assert_eq(
        check(FILE_OF("<cpu numaid=\"0\" host_hash=\"0x1\">" NIC("0000:10:00.0", "a", "0") "\n" NIC(
            "0000:10:00.0", "b", "0") "\n" NIC("0000:11:00.0", "a", "0") GPU("0000:12:00.0", "0", "/></pci>")
                          GPU("0000:13:00.0", "0", "/></pci>") "</cpu>\n<cpu numaid=\"1\" host_hash=\"0x2\"/>")),
        3, "%s", said);
    SAID("error 2: dev 0 is b here and a in line 1\n");
    SAID("warning 2: 0000:10:00.0 is in line 1, too\n");
    SAID("error 3: dev 0 is the GPU of line 3, too\n");
    SAID("error 4: host_hash 0x2, and 0x1 in line 1: a file is for one node\n");
    judged(0, FILE_OF("<cpu numaid=\"0\"/>") "\n<system version=\"1\"/>",
           "warning 2: a second system is ignored: a file is for one node\n");
}

Test(nccl_xml, many_elements_are_told_and_a_refusal_has_its_line) {
    (void)many(119);
    cr_assert_eq(check(big), 0);
    SAID("warning 0: 120 elements: ");
    (void)many(118);
    judged(0, big, "");
    judged(1, "<system version=\"1\">\n\n<cpu>", "error 3: the file ends while cpu is open\n");
    cr_assert_eq(nccl_xml_check("", 0, NULL, NULL, NULL), 1);
}

static char *predictions(const struct topology *of) {
    struct nccl_graph *g = NULL;
    cr_assert_eq(nccl_graph_new(of, &g, &err), 0, "%s", err.text);
    struct strbuf s = {0};
    static struct nccl_prediction p;
    for (uint32_t i = 0; i < of->n_gpus; i++) {
        nccl_graph_predict(g, i, &p);
        strbuf_printf(&s, "%u %s %.3f", (unsigned)of->gpus[i].index, nccl_path_name(p.path), p.bandwidth);
        for (uint32_t k = 0; k < p.n_nets; k++)
            strbuf_printf(&s, " %s", p.nets[k]);
        for (uint32_t k = 0; k < of->n_gpus; k++) {
            struct nccl_route route = nccl_between(g, i, k);
            strbuf_printf(&s, " %s:%.2f", nccl_path_name(route.kind), route.bandwidth);
        }
        strbuf_add(&s, "\n");
    }
    nccl_graph_free(g);
    return strbuf_take(&s);
}

/* Writes, reads, writes and reads again. The second text can put a card before a GPU; after that the order stays. */
static void round_trip(struct topology *of, const char *name) {
    struct strbuf first = {0}, second = {0}, third = {0};
    struct topology back = {0};
    cr_assert_eq(nccl_xml_write(of, &first, &err), 0, "%s: %s", name, err.text);
    said[0] = '\0';
    cr_assert_eq(nccl_xml_read(strbuf_text(&first), first.len, &back, hear, NULL, &err), 0, "%s: %s", name, err.text);
    char *before = predictions(of), *after = predictions(&back);
    cr_assert_str_eq(after, before, "%s:\n%s%s%s", name, before, after, strbuf_text(&first));
    cr_assert_eq(nccl_xml_write(&back, &second, &err), 0);
    cr_assert_eq(second.len, first.len, "%s:\n%s%s", name, strbuf_text(&first), strbuf_text(&second));
    cr_assert_eq(nccl_xml_read(strbuf_text(&second), second.len, &back, hear, NULL, &err), 0);
    cr_assert_eq(nccl_xml_write(&back, &third, &err), 0);
    cr_assert_str_eq(strbuf_text(&third), strbuf_text(&second), "%s", name);
    cr_assert_str_eq(said, "");
    free(before);
    free(after);
    topology_fini(&back);
    strbuf_fini(&first);
    strbuf_fini(&second);
    strbuf_fini(&third);
}

/* A tree as in sysfs: root port, upstream and downstream ports; a GPU and a dual-port card on each of two sockets. */
static void live_machine(void) {
    t.source = TOPO_SYSROOT;
    (void)strcpy(t.arch, "x86_64");
    (void)strcpy(t.cpu_vendor, "AuthenticAMD");
    t.cpu_family = 25;
    t.cpu_model = 1;
    for (int32_t n = 0; n < 2; n++) {
        struct topo_numa *numa = topology_add_numa(&t);
        numa->index = n;
        cpuset_add(&numa->cpus, (uint32_t)n * 40);
        unsigned bus = 0x80 - (unsigned)n * 0x40; /* node 1 has the lower addresses */
        uint32_t root = rig_pci(&t, rig_text("0000:%02x:00.0", bus), TOPO_NONE, true, n);
        uint32_t up = rig_pci(&t, rig_text("0000:%02x:00.0", bus + 1), root, true, n);
        uint32_t a = rig_pci(&t, rig_text("0000:%02x:00.0", bus + 2), up, true, n);
        uint32_t b = rig_pci(&t, rig_text("0000:%02x:00.0", bus + 4), up, true, n);
        uint32_t gpu = rig_gpu(&t, rig_text("0000:%02x:00.0", bus + 3), a, n);
        t.gpus[gpu].index = TOPO_NONE; /* by its address */
        for (unsigned port = 0; port < 2; port++) {
            const char *name = rig_text("mlx5_%u", (unsigned)n * 2 + port);
            uint32_t nic = rig_nic(&t, name, rig_text("0000:%02x:00.%u", bus + 5, port), b, n);
            t.nics[nic].ports[0].rate_mbps = 200000;
        }
    }
    topology_sort(&t);
}

Test(nccl_xml, what_nccl_would_dump_is_written) {
    live_machine();
    struct strbuf s = {0};
    cr_assert_eq(nccl_xml_write(&t, &s, &err), 0, "%s", err.text);
    size_t len;
    _cleanup_(freep) char *expected = own_text("nccl/live.xml", &len);
    cr_assert_str_eq(strbuf_text(&s), expected);
    strbuf_fini(&s);
    round_trip(&t, "live");
}

Test(nccl_xml, all_that_predictions_need_is_written) {
    live_machine();
    for (uint32_t i = 0; i < 2; i++) {
        struct topo_nvlink *l = topology_add_nvlink(&t);
        *l = (struct topo_nvlink){.gpu = i, .end = TOPO_NVLINK_GPU, .peer = 1 - i, .count = 6};
        l = topology_add_nvlink(&t);
        *l = (struct topo_nvlink){.gpu = i, .end = TOPO_NVLINK_CPU, .peer = TOPO_NONE, .c2c = true, .bandwidth = 360};
    }
    t.gpus[1].gdr = 0;
    t.nics[0].gdr = 0;
    t.nics[2].ports[0].rate_mbps = 0; /* its speed is not known */
    round_trip(&t, "NVLink and C2C");
    t.nvlinks[0].end = t.nvlinks[2].end = TOPO_NVLINK_SWITCH;
    (void)snprintf(t.arch, sizeof t.arch, "aarch64");
    t.cpu_vendor[0] = '\0';
    round_trip(&t, "NVSwitch on ARM");
    for (uint32_t i = 0; i < t.n_nics; i++)
        t.nics[i].ports[0].state = TOPO_PORT_DOWN;
    static const char *const names[] = {"eth0", "br-\"x", "tunl0"};
    for (uint32_t i = 0; i < 3; i++) {
        struct topo_netif *f = topology_add_netif(&t);
        (void)snprintf(f->name, sizeof f->name, "%s", names[i]);
        f->up = f->running = true;
        f->speed_mbps = i == 0 ? 25000 : 0;
        f->pci = i == 0 ? t.gpus[0].pci + 2 : TOPO_NONE;
    }
    struct strbuf s = {0};
    cr_assert_eq(nccl_xml_write(&t, &s, &err), 0, "%s", err.text);
    assert_has(strbuf_text(&s), "<net name=\"br-'x\" dev=\"1\" latency=\"0\" speed=\"10000\" port=\"0\" guid=\"0x1\" "
                                "maxconn=\"65536\" gdr=\"0\"/>");
    strbuf_fini(&s);
    t.netifs[1].name[3] = 'y';
    round_trip(&t, "sockets");
}

Test(nccl_xml, the_nets_of_a_file_keep_their_order_when_it_is_written) {
    cr_assert_eq(read_text(FILE_OF(CPU("0") NIC("0000:20:00.0", "a", "1") "</cpu>" CPU("1")
                                       GPU("0000:10:00.0", "0", "/></pci>") NIC("0000:11:00.0", "b", "0") "</cpu>")),
                 0, "%s", err.text);
    struct strbuf s = {0};
    cr_assert_eq(nccl_xml_write(&t, &s, &err), 0, "%s", err.text);
    cr_assert_eq(read_text(strbuf_text(&s)), 0);
    cr_assert_str_eq(t.nics[0].name, "a");
    cr_assert_str_eq(t.nics[1].name, "b");
    strbuf_fini(&s);
}

Test(nccl_xml, more_than_nccl_reads_is_not_written) {
    t.source = TOPO_SYSROOT;
    for (uint32_t i = 0; i < 128; i++) {
        struct topo_pci *d = topology_add_pci(&t);
        d->at.domain = i;
        struct topo_gpu *g = topology_add_gpu(&t);
        g->pci = i;
        g->index = i;
        g->vendor = TOPO_VENDOR_NVIDIA;
        if (i == 125 || i == 126) { /* system, cpu, two elements a GPU */
            struct strbuf s = {0};
            strbuf_add(&s, "before");
            cr_assert_eq(nccl_xml_write(&t, &s, &err), i == 125 ? 0 : -E2BIG, "%s", err.text);
            cr_assert(i == 125 || strcmp(strbuf_text(&s), "before") == 0);
            strbuf_fini(&s);
        }
    }
}

Test(nccl_xml, recorded_files_load_or_are_refused_with_the_reason) {
    static const struct {
        const char *name;
        uint32_t gpus, nics, pci;
        unsigned errors;
        const char *part; /* part of a message, or of the error if gpus is TOPO_NONE */
    } rows[] = {
        {"aws-g5.48xl-topo.xml", 0, 0, 9, 0, ""},
        {"aws-p4d-24xl-topo.xml", 0, 0, 16, 0, "8 GPUs and 4 NICs"},
        {"aws-p4de-24xl-topo.xml", 0, 0, 16, 0, "8 GPUs and 4 NICs"},
        {"aws-p5.48xl-topo-2024.xml", 0, 0, 40, 0, ""},
        {"aws-p5.48xl-topo-pr1226-toobig.xml", 8, 32, 48, 0, "warning 0: 122 elements"},
        {"azure-ncv4-graph.xml", TOPO_NONE, 0, 0, 1, "this is a graph file"},
        {"azure-ncv4-topo.xml", 4, 1, 4, 0, "warning 5: nvlink to 0001:00:00.0 does nothing: that is the GPU itself"},
        {"azure-ndv2-topo.xml", 0, 0, 9, 0, "8 GPUs and 1 NICs"},
        {"azure-ndv4-topo.xml", 0, 0, 20, 0, "8 GPUs and 8 NICs"},
        {"azure-ndv5-topo.xml", 0, 0, 24, 0, "8 GPUs and 8 NICs"},
        {"modal-b200vm-1-5554632f9.xml", 8, 13, 11, 0, "warning 3: link_width \"0\" of 0000:00:00.0"},
        {"modal-b200vm-2-bd9eaa8d4.xml", 8, 13, 11, 0, ""},
        {"modal-b200vm-3-63d40870d.xml", 8, 13, 11, 8, "GPU 0002:00:01.0 has 126 NVLinks here"},
        {"modal-b200vm-4-86859751d.xml", 0, 13, 9, 16, "error 13: GPU 0002:00:01.0 is lost"},
        {"rccl-topo_16p1h.xml", TOPO_NONE, 0, 0, 1, "RCCL"},
        {"rccl-topo_8p_940.xml", TOPO_NONE, 0, 0, 1, "RCCL"},
        {"rccl-topo_8p_940vm.xml", TOPO_NONE, 0, 0, 1, "RCCL"},
        {"rccl-topo_8p_rome_4nics.xml", TOPO_NONE, 0, 0, 1, "RCCL"},
        {"rccl-topo_8p_ts1_n4_2.xml", TOPO_NONE, 0, 0, 1, "RCCL"},
        {"sugarlxn-4x4090-calico.xml", 4, 61, 5, 0, ""},
        {"derived/ipa20-4xH100-nccl.xml", 4, 4, 11, 0, ""},
        {"derived/turin-4xH200-nccl.xml", 4, 6, 17, 0, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t len;
        char *text = recorded_text(rig_text("nccl-xml/%s", rows[i].name), &len);
        int r = read_len(text, len);
        cr_assert_eq(check(text), rows[i].errors, "%s: %s", rows[i].name, said);
        SAID(rows[i].part);
        cr_assert_eq(r, rows[i].gpus == TOPO_NONE ? -EINVAL : 0, "%s: %s", rows[i].name, err.text);
        if (r == 0) {
            cr_assert_eq(t.n_gpus, rows[i].gpus, "%s", rows[i].name);
            cr_assert_eq(t.n_nics, rows[i].nics, "%s", rows[i].name);
            cr_assert_eq(t.n_pci, rows[i].pci, "%s", rows[i].name);
            round_trip(&t, rows[i].name);
        } else {
            cr_assert(strstr(err.text, rows[i].part) != NULL, "%s: %s", rows[i].name, err.text);
        }
        free(text);
    }
}
