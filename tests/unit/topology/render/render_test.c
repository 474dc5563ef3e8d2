/* What users see of a node. The matrix and the tree are compared word by word; the picture is checked by rules for any
 * picture. */
#include "topology/render/render.h"

#include <ctype.h>

#include "../model/node_rig.h"
#include "../recorded.h"
#include "rig/unit.h"
#include "topology/discover/discovery_io.h"
#include "topology/render/render_plan.h"

static struct topology t;
static struct strbuf shown;

static void fini(void) {
    topology_fini(&t);
    strbuf_fini(&shown);
}
TestSuite(render, .fini = fini);

enum nics { NO_NICS, NICS }; /* whether the NICs that NCCL takes are shown, too */
enum form { MATRIX, TREE, SVG };

static const char *show(enum form form, enum nics nics, uint32_t width, bool utf8) {
    struct nccl_graph *g = NULL;
    struct err err = {0};
    if (nics == NICS)
        cr_assert_eq(nccl_graph_new(&t, &g, &err), 0, "%s", err.text);
    strbuf_clear(&shown);
    if (form == MATRIX)
        render_matrix(&t, g, &shown);
    else if (form == TREE)
        render_tree(&t, g, width, utf8, &shown);
    else
        render_svg(&t, g, &shown);
    nccl_graph_free(g);
    return strbuf_text(&shown);
}
static const char *matrix(enum nics nics) { return show(MATRIX, nics, 0, false); }
static const char *tree(enum nics nics, uint32_t width, bool utf8) { return show(TREE, nics, width, utf8); }
static const char *svg(enum nics nics) { return show(SVG, nics, 0, false); }

#define HAS(part) cr_assert_not_null(strstr(strbuf_text(&shown), part), "%s in\n%s", part, strbuf_text(&shown))

static void expect_text(const char *found, const char *expected) {
    size_t same = 0, line = 1;
    while (found[same] != '\0' && found[same] == expected[same])
        line += found[same++] == '\n';
    cr_assert_str_eq(found, expected, "line %zu:\n%s", line, found);
}

/* ---- the NVLink domain ---- */

Test(render, a_domain_has_a_line_and_no_domain_has_none) {
    rig_dgx(&t);
    cr_assert_null(strstr(matrix(NO_NICS), "domain"));
    for (uint32_t i = 0; i < t.n_gpus; i++) {
        t.gpus[i].fabric = TOPO_FABRIC_IN_PROGRESS;
        t.gpus[i].vendor = TOPO_VENDOR_NVIDIA;
    }
    tree(NO_NICS, 0, false);
    HAS("\nNVLink domain none: fabric in progress, IMEX channel none\n");
    for (uint32_t i = 0; i < t.n_gpus; i++) {
        t.gpus[i].fabric = TOPO_FABRIC_COMPLETED;
        (void)strcpy(t.gpus[i].fabric_uuid, "3f8e2a10");
    }
    t.imex = TOPO_IMEX_MISSING;
    matrix(NO_NICS);
    HAS("\nNVLink domain nvl-3f8e2a10.0: health unknown, IMEX channel missing\n");
    t.gpus[1].fabric_health = 0x9a;
    (void)strcpy(t.gpus[0].chassis, "18\x1b");
    matrix(NO_NICS);
    HAS("\nNVLink domain nvl-3f8e2a10.0: not healthy, IMEX channel missing, chassis 18?, slot 0, tray 0\n");
}

/* ---- the matrix ---- */

Test(render, the_matrix_has_devices_affinities_legend_and_chosen_nics) {
    rig_dgx(&t);
    t.gpus[3].memory_numa = 12;
    t.nics[1].ports[0].state = TOPO_PORT_DOWN;
    (void)strcpy(t.nics[0].netdev, "ib0");
    expect_text(
        matrix(NICS),
        "        GPU0  GPU1  GPU2  GPU3  mlx5_0  mlx5_1  mlx5_2  mlx5_3  CPU Affinity  NUMA Affinity  GPU NUMA ID\n"
        "GPU0    X     NV18  NV18  NV18  PIX     NODE    SYS     SYS     0-7           0              N/A\n"
        "GPU1    NV18  X     NV18  NV18  NODE    PIX     SYS     SYS     0-7           0              N/A\n"
        "GPU2    NV18  NV18  X     NV18  SYS     SYS     PIX     NODE    8-15          1              N/A\n"
        "GPU3    NV18  NV18  NV18  X     SYS     SYS     NODE    PIX     8-15          1              12\n"
        "mlx5_0  PIX   NODE  SYS   SYS   X       NODE    SYS     SYS     0-7           0\n"
        "mlx5_1  NODE  PIX   SYS   SYS   NODE    X       SYS     SYS     0-7           0\n"
        "mlx5_2  SYS   SYS   PIX   NODE  SYS     SYS     X       NODE    8-15          1\n"
        "mlx5_3  SYS   SYS   NODE  PIX   SYS     SYS     NODE    X       8-15          1\n"
        "\n"
        "Legend:\n"
        "  X     the device itself\n"
        "  NV#   # NVLinks\n"
        "  PIX   one PCIe switch, or one bridge\n"
        "  PXB   several PCIe switches, but not the CPU\n"
        "  PHB   the CPU's PCIe host bridge\n"
        "  NODE  several host bridges of one NUMA node\n"
        "  SYS   from one NUMA node to another, or not known\n"
        "\n"
        "GPUs, and the NIC that NCCL takes (path, bandwidth):\n"
        "  GPU0  0000:13:00.0  NVIDIA H100 80GB HBM3  mlx5_0                PIX  48.0 GB/s\n"
        "  GPU1  0000:33:00.0  NVIDIA H100 80GB HBM3  mlx5_0,mlx5_2,mlx5_3  PXN  48.0 GB/s\n"
        "  GPU2  0000:53:00.0  NVIDIA H100 80GB HBM3  mlx5_2                PIX  48.0 GB/s\n"
        "  GPU3  0000:73:00.0  NVIDIA H100 80GB HBM3  mlx5_3                PIX  48.0 GB/s\n"
        "\n"
        "NICs:\n"
        "  mlx5_0  0000:14:00.0  ACTIVE  400 Gb/s InfiniBand  ib0\n"
        "  mlx5_1  0000:34:00.0  DOWN    400 Gb/s InfiniBand\n"
        "  mlx5_2  0000:54:00.0  ACTIVE  400 Gb/s InfiniBand\n"
        "  mlx5_3  0000:74:00.0  ACTIVE  400 Gb/s InfiniBand\n");
}

Test(render, gpus_of_every_vendor_are_listed_and_what_nobody_knows_is_said) {
    t.source = TOPO_SYSROOT;
    static const enum topo_vendor vendors[] = {TOPO_VENDOR_AMD, TOPO_VENDOR_INTEL, TOPO_VENDOR_NVIDIA,
                                               TOPO_VENDOR_NVIDIA, TOPO_VENDOR_OTHER};
    for (uint32_t i = 0; i < ARRAY_SIZE(vendors); i++) {
        const char *at = rig_text("0000:%02x:00.0", i + 1);
        (void)rig_gpu(&t, at, TOPO_NONE, -1);
        t.gpus[i].vendor = vendors[i];
        t.gpus[i].name[0] = '\0';
    }
    t.gpus[2].mig = t.gpus[3].lost = true;
    t.pci[t.gpus[0].pci].vendor = 0x1002;
    (void)matrix(NO_NICS);
    static const char *const wanted[] = {"GPU0  0000:01:00.0  AMD GPU 1002:2330\n",
                                         "GPU1  0000:02:00.0  Intel GPU 10de:2330\n",
                                         "GPU2  0000:03:00.0  NVIDIA GPU 10de:2330  MIG\n",
                                         "GPU3  0000:04:00.0  NVIDIA GPU 10de:2330  LOST\n",
                                         "GPU4  0000:05:00.0  GPU 10de:2330\n",
                                         "NVLinks are not known here",
                                         "  N/A           N/A            N/A\n"};
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        HAS(wanted[i]);
    cr_assert_null(strstr(strbuf_text(&shown), "NCCL"));
}

Test(render, nics_with_long_names_are_numbered_and_many_of_a_gpu_counted) {
    t.source = TOPO_SYSROOT;
    rig_cpus(&t, 1, 8, 1);
    (void)rig_gpu(&t, "0000:01:00.0", TOPO_NONE, 0);
    for (uint32_t i = 0; i < 6; i++) {
        const char *at = rig_text("0000:%02x:00.0", 0x20 + i), *name = rig_text("rdmap%us27", 16 + i);
        (void)rig_nic(&t, name, at, TOPO_NONE, 0);
    }
    topology_sort(&t);
    (void)matrix(NICS);
    static const char *const wanted[] = {
        "      GPU0  NIC0  NIC1  NIC2  NIC3  NIC4  NIC5  CPU Affinity  NUMA Affinity  GPU NUMA ID\n",
        "\nNIC5  NODE  NODE  NODE  NODE  NODE  NODE  X     0-7           0\n",
        "  rdmap16s27,rdmap17s27,rdmap18s27 +3  PHB  ",
        "\n  NIC5  rdmap21s27  0000:25:00.0  ACTIVE  400 Gb/s InfiniBand\n"};
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        HAS(wanted[i]);
    (void)tree(NICS, 0, true);
    HAS("  → rdmap16s27,rdmap17s27,rdmap18s27 +3 (PHB, ");
}

Test(render, a_node_without_gpus_and_nics_says_so_and_shows_its_cpus) {
    t.source = TOPO_SYSROOT;
    rig_cpus(&t, 2, 4, 1);
    t.numa[1].bytes = 0;
    expect_text(matrix(NO_NICS), "The node has no GPUs and no RDMA NICs.\n\n"
                                 "CPUs 0-7 (8) in 2 packages:\n"
                                 "  NUMA node 0  CPUs 0-3  256 GiB\n"
                                 "  NUMA node 1  CPUs 4-7\n");
    topology_fini(&t);
    expect_text(matrix(NO_NICS), "The node has no GPUs and no RDMA NICs.\n");
    t.source = TOPO_NCCL_XML;
    topology_add_numa(&t)->index = 0;
    (void)rig_pci(&t, "0000:10:00.0", TOPO_NONE, true, 0);
    expect_text(matrix(NO_NICS), "The file describes 1 PCI bridges and devices, but names no GPU or NIC: NCCL itself "
                                 "detects which of them are there.\n");
    (void)svg(NO_NICS);
    HAS("The file describes 1 PCI bridges and devices");
    cr_assert_null(strstr(strbuf_text(&shown), "no GPUs"));
}

/* ---- the tree ---- */

static const char drawn_tree[] = "node7 (a rig): 2 packages, 2 NUMA nodes, 16 CPUs, 4 GPUs, 4 NICs\n"
                                 "├─ package 0\n"
                                 "│  └─ NUMA node 0: CPUs 0-7, 256 GiB\n"
                                 "│     ├─ Broadcom switch  0000:11:00.0  PCIe 5.0 x16\n"
                                 "│     │  ├─ GPU0  0000:13:00.0  NVIDIA H100 80GB HBM3  → mlx5_0 (PIX, 48.0 GB/s)\n"
                                 "│     │  └─ mlx5_0  0000:14:00.0  400 Gb/s InfiniBand\n"
                                 "│     └─ Broadcom switch  0000:31:00.0  PCIe 5.0 x16\n"
                                 "│        ├─ GPU1  0000:33:00.0  NVIDIA H100 80GB HBM3  → mlx5_1 (PIX, 48.0 GB/s)\n"
                                 "│        └─ mlx5_1  0000:34:00.0  400 Gb/s InfiniBand\n"
                                 "└─ package 1\n"
                                 "   └─ NUMA node 1: CPUs 8-15, 256 GiB\n"
                                 "      ├─ Broadcom switch  0000:51:00.0  PCIe 5.0 x16\n"
                                 "      │  ├─ GPU2  0000:53:00.0  NVIDIA H100 80GB HBM3  → mlx5_2 (PIX, 48.0 GB/s)\n"
                                 "      │  └─ mlx5_2  0000:54:00.0  400 Gb/s InfiniBand\n"
                                 "      └─ Broadcom switch  0000:71:00.0  PCIe 5.0 x16\n"
                                 "         ├─ GPU3  0000:73:00.0  NVIDIA H100 80GB HBM3  → mlx5_3 (PIX, 48.0 GB/s)\n"
                                 "         └─ mlx5_3  0000:74:00.0  400 Gb/s InfiniBand\n";

Test(render, the_tree_shows_what_is_below_what) {
    rig_dgx(&t);
    expect_text(tree(NICS, 0, true), drawn_tree);
}

Test(render, the_tree_is_ascii_where_that_is_asked_and_no_wider_than_the_terminal) {
    rig_dgx(&t);
    (void)tree(NO_NICS, 40, false);
    size_t lines = 0, cut = 0;
    for (const char *p = strbuf_text(&shown); *p != '\0'; p += strcspn(p, "\n") + 1, lines++) {
        size_t n = strcspn(p, "\n");
        cr_assert_leq(n, 40, "%.*s", (int)n, p);
        cut += n == 40 && strncmp(p + 37, "...", 3) == 0;
        for (size_t i = 0; i < n; i++)
            cr_assert(isprint((unsigned char)p[i]));
    }
    cr_assert_eq(lines, 17);
    cr_assert_gt(cut, 4);
    HAS("\n   `- NUMA node 1: CPUs 8-15, 256 GiB\n");
    (void)tree(NO_NICS, 30, true);
    HAS("\n│     ├─ Broadcom switch  000…\n");
}

Test(render, what_is_alike_is_folded) {
    t.source = TOPO_SYSROOT;
    rig_cpus(&t, 6, 2, 6);
    for (uint32_t i = 0; i < 20; i++) {
        const char *at = rig_text("0000:05:%02x.%u", i / 8, i % 8), *name = rig_text("mlx5_%u", i);
        (void)rig_nic(&t, name, at, TOPO_NONE, 2);
        t.nics[i].virtual_function = i >= 2;
    }
    t.nics[0].ports[0].state = TOPO_PORT_DOWN;
    expect_text(tree(NO_NICS, 0, false),
                "this node: 1 package, 6 NUMA nodes, 12 CPUs, 20 NICs\n"
                "`- package 0\n"
                "   |- NUMA nodes 0-1: CPUs 0-3, 2 each\n"
                "   |- NUMA node 2: CPUs 4-5, 256 GiB\n"
                "   |  `- host bridge 0000:05\n"
                "   |     |- mlx5_0  0000:05:00.0  400 Gb/s InfiniBand  port DOWN\n"
                "   |     |- mlx5_1  0000:05:00.1  400 Gb/s InfiniBand\n"
                "   |     `- mlx5_2 ... mlx5_19 (18)  0000:05:00.2  400 Gb/s InfiniBand  virtual functions\n"
                "   `- NUMA nodes 3-5: CPUs 6-11, 2 each\n");
}

Test(render, no_name_brings_control_characters_to_a_terminal) {
    rig_dgx(&t);
    (void)strcpy(t.host, "a\033[2Jb\n");
    (void)strcpy(t.nics[0].name, "m \033]0;x\a\xff\xc2\x9b");
    (void)strcpy(t.nics[0].netdev, "\x7f\t");
    (void)strcpy(t.gpus[0].name, "GPU\r\n");
    for (enum form form = MATRIX; form <= SVG; form++) {
        for (const char *p = show(form, NICS, 0, true); *p != '\0'; p++) {
            cr_assert((unsigned char)*p >= ' ' || *p == '\n', "%d: %02x", (int)form, *p);
            cr_assert_neq(*p, 0x7f);
            cr_assert(!(p[0] == '\xc2' && (unsigned char)p[1] >= 0x80 && (unsigned char)p[1] < 0xa0));
        }
    }
}

/* ---- the picture ---- */

#define PAGE 1200 /* its width */
struct box {
    int x, y, w, h;
};
struct text_at {
    int x, y, w, size;
    char text[256];
};
#define TEXTS_MAX 20000
static struct text_at texts[TEXTS_MAX];
static unsigned n_texts;
static struct box chips[TEXTS_MAX]; /* devices */
static unsigned n_chips;
static struct box nodes[TEXTS_MAX];
static unsigned n_nodes;
struct line {
    int x, y, to_x, to_y;
    unsigned path; /* which one it is a part of */
};
static struct line lines[TEXTS_MAX]; /* the lines from GPUs to NICs; corners count as sharp */
static unsigned n_lines, n_paths;

static int attribute(const char *tag, size_t len, const char *name) {
    char copy[1024];
    (void)snprintf(copy, sizeof copy, "%.*s", (int)MIN2(len, sizeof copy - 1), tag);
    const char *key = rig_text(" %s=\"", name);
    const char *at = strstr(copy, key);
    cr_assert_not_null(at, "%s in %s", name, copy);
    return atoi(at + strlen(key));
}

static void unescape(const char *in, size_t len, char out[256]) {
    static const struct {
        const char *name, *c;
    } entities[] = {{"&#38;", "&"}, {"&#60;", "<"}, {"&#62;", ">"}, {"&#34;", "\""}};
    size_t n = 0;
    for (size_t i = 0; i < len && n < 250;) {
        size_t e = 0;
        while (in[i] == '&' && e < ARRAY_SIZE(entities) &&
               strncmp(in + i, entities[e].name, strlen(entities[e].name)) != 0)
            e++;
        cr_assert(in[i] != '&' || e < ARRAY_SIZE(entities), "an entity that XML does not have: %.10s", in + i);
        if (in[i] == '&') {
            out[n++] = entities[e].c[0];
            i += strlen(entities[e].name);
        } else {
            out[n++] = in[i++];
        }
    }
    out[n] = '\0';
}

/* "M10 20L10 35Q10 40 15 40L90 40": each Q is a rounded corner. */
static void read_way(const char *d) {
    int x = 0, y = 0, to_x, to_y, used;
    char what;
    n_paths++;
    while (sscanf(d, "%c%d %d%n", &what, &to_x, &to_y, &used) == 3) {
        cr_assert(strchr("MLQ", what) != NULL && n_lines < TEXTS_MAX);
        if (what != 'M')
            lines[n_lines++] = (struct line){x, y, to_x, to_y, n_paths};
        x = to_x;
        y = to_y;
        d += used;
        if (what == 'Q') {
            cr_assert_eq(sscanf(d, "%d %d%n", &x, &y, &used), 2);
            lines[n_lines++] = (struct line){to_x, to_y, x, y, n_paths};
            d += used;
        }
    }
    cr_assert_eq(*d, '"', "%.20s", d);
}

/* Checks that the XML is well-formed: every element ends, in order; there is no bare < or &. Collects the texts. */
static void read_svg(const char *svg) {
    char open[64][16];
    unsigned depth = 0;
    n_texts = n_chips = n_nodes = n_lines = n_paths = 0;
    cr_assert_eq(strncmp(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 40), 0);
    for (const char *p = svg; *p != '\0';) {
        if (*p != '<') {
            size_t len = strcspn(p, "<");
            char plain[256];
            cr_assert(depth > 0 || strspn(p, "\n") == len);
            if (depth > 0 && strcmp(open[depth - 1], "style") != 0)
                unescape(p, MIN2(len, 255), plain);
            if (depth > 0 && strcmp(open[depth - 1], "text") == 0)
                (void)strcpy(texts[n_texts - 1].text, plain);
            p += len;
            continue;
        }
        const char *end = strchr(p, '>');
        cr_assert_not_null(end);
        cr_assert_null(memchr(p + 1, '<', (size_t)(end - p - 1)));
        if (p[1] == '/') {
            cr_assert_gt(depth, 0);
            depth--;
            cr_assert_eq(strncmp(p + 2, open[depth], strlen(open[depth])), 0, "%.20s ends %s", p, open[depth]);
        } else if (end[-1] != '/') {
            cr_assert_lt(depth, 64);
            (void)snprintf(open[depth], sizeof open[depth], "%.*s", (int)strcspn(p + 1, " >"), p + 1);
            if (strcmp(open[depth++], "text") == 0) {
                cr_assert_lt(n_texts, TEXTS_MAX);
                size_t len = (size_t)(end - p);
                texts[n_texts++] = (struct text_at){attribute(p, len, "x"), attribute(p, len, "y"), 0,
                                                    attribute(p, len, "font-size"), ""};
                texts[n_texts - 1].w = memmem(p, len, " bold", 5) != NULL;
            }
        }
        if (strncmp(p, "<path class=\"w s", 15) == 0 && memmem(p, (size_t)(end - p), "h28", 3) == NULL)
            read_way(strstr(p, " d=\"") + 4);
        bool node = strncmp(p, "<rect class=\"numa", 17) == 0;
        if (node || strncmp(p, "<rect class=\"gpu", 16) == 0 || strncmp(p, "<rect class=\"nic\"", 18) == 0 ||
            strncmp(p, "<rect class=\"netif", 18) == 0) {
            size_t len = (size_t)(end - p);
            cr_assert(n_chips < TEXTS_MAX && n_nodes < TEXTS_MAX);
            struct box *b = node ? &nodes[n_nodes++] : &chips[n_chips++];
            *b = (struct box){attribute(p, len, "x"), attribute(p, len, "y"), attribute(p, len, "width"),
                              attribute(p, len, "height")};
        }
        p = end + 1;
    }
    cr_assert_eq(depth, 0);
    for (unsigned i = 0; i < n_texts; i++)
        texts[i].w = render_width(texts[i].text, texts[i].size, texts[i].w);
}

/* No text overlaps another, or crosses the edge of the page or of a device. */
static void check_texts(const char *name) {
    for (unsigned i = 0; i < n_texts; i++) {
        const struct text_at *a = &texts[i];
        cr_assert(a->x >= 0 && a->x + a->w <= PAGE, "%s: \"%s\" leaves the page", name, a->text);
        for (unsigned k = 0; k < n_chips; k++) {
            const struct box *b = &chips[k];
            int top = a->y - a->size * 3 / 4;
            bool apart = a->x + a->w <= b->x || b->x + b->w <= a->x || a->y <= b->y || b->y + b->h <= top;
            bool within = a->x >= b->x && a->x + a->w <= b->x + b->w && top >= b->y && a->y <= b->y + b->h;
            cr_assert(apart || within, "%s: \"%s\" at %d,%d crosses the edge of a device at %d,%d", name, a->text, a->x,
                      a->y, b->x, b->y);
        }
        for (unsigned k = i + 1; k < n_texts; k++) {
            const struct text_at *b = &texts[k];
            bool apart = a->x + a->w <= b->x || b->x + b->w <= a->x || a->y <= b->y - b->size * 3 / 4 ||
                         b->y <= a->y - a->size * 3 / 4;
            cr_assert(apart, "%s: \"%s\" and \"%s\" at %d,%d and %d,%d", name, a->text, b->text, a->x, a->y, b->x,
                      b->y);
        }
    }
}

/* No line runs under a device: it would look as if it ended there. */
static void check_lines(const char *name) {
    for (unsigned i = 0; i < n_lines; i++)
        for (unsigned k = 0; k < n_chips; k++) {
            const struct line *l = &lines[i];
            const struct box *b = &chips[k];
            cr_assert(l->x == l->to_x || l->y == l->to_y, "%s: a line goes up and down, or across", name);
            cr_assert(MAX2(l->x, l->to_x) <= b->x || MIN2(l->x, l->to_x) >= b->x + b->w ||
                          MAX2(l->y, l->to_y) <= b->y || MIN2(l->y, l->to_y) >= b->y + b->h,
                      "%s: the line from %d,%d to %d,%d runs under the device at %d,%d", name, l->x, l->y, l->to_x,
                      l->to_y, b->x, b->y);
        }
}

static bool crosses(const struct line *l, const struct box *b) {
    return MAX2(l->x, l->to_x) > b->x && MIN2(l->x, l->to_x) < b->x + b->w && MAX2(l->y, l->to_y) > b->y &&
           MIN2(l->y, l->to_y) < b->y + b->h;
}

/* No line crosses a NUMA node in which it neither begins nor ends. */
static void check_nodes(const char *name) {
    for (unsigned i = 0; i < n_lines; i++)
        for (unsigned k = 0; k < n_nodes; k++) {
            const struct line *l = &lines[i];
            unsigned first = i, last = i;
            while (first > 0 && lines[first - 1].path == l->path)
                first--;
            while (last + 1 < n_lines && lines[last + 1].path == l->path)
                last++;
            bool own = crosses(&lines[first], &nodes[k]) || crosses(&lines[last], &nodes[k]);
            cr_assert(own || !crosses(l, &nodes[k]), "%s: the line from %d,%d to %d,%d crosses the node at %d,%d", name,
                      l->x, l->y, l->to_x, l->to_y, nodes[k].x, nodes[k].y);
        }
}

static const struct text_at *find_text(const char *text) {
    for (unsigned i = 0; i < n_texts; i++)
        if (strcmp(texts[i].text, text) == 0)
            return &texts[i];
    cr_assert(false, "no \"%s\"", text);
    return NULL;
}

static void check_svg(const char *name) {
    struct nccl_graph *g = NULL;
    _cleanup_(strbuf_fini) struct strbuf text = {0}, again = {0};
    (void)!nccl_graph_new(&t, &g, NULL);
    render_svg(&t, g, &text);
    render_svg(&t, g, &again);
    cr_assert_str_eq(strbuf_text(&text), strbuf_text(&again));
    read_svg(strbuf_text(&text));
    check_texts(name);
    check_lines(name);
    check_nodes(name);
    nccl_graph_free(g);
}

Test(render, the_picture_has_each_device_its_pair_and_no_text_over_another) {
    rig_dgx(&t);
    t.nics[3].ports[0].state = TOPO_PORT_DOWN;
    (void)strcpy(t.driver, "550.54");
    check_svg("dgx");
    for (size_t i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "GPU%zu", i);
        (void)find_text(name);
        (void)snprintf(name, sizeof name, "mlx5_%zu", i);
        (void)find_text(name);
    }
    cr_assert_eq(find_text("GPU0")->x, find_text("mlx5_0")->x, "a pair stands under each other");
    cr_assert_lt(find_text("GPU0")->y, find_text("mlx5_0")->y);
    (void)find_text("→ mlx5_0");
    (void)find_text("PIX · 48.0 GB/s");
    (void)find_text("port DOWN");
    (void)find_text("Package 1");
    (void)find_text("CPUs 8-15");
    (void)find_text("node7");
    (void)find_text(
        "4 GPUs, 4 NICs, 2 packages, 2 NUMA nodes, 16 CPUs · NVLink: NV18 between all GPUs · driver 550.54 · a rig");
}

static unsigned count(const char *text, const char *word) {
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        n++;
    return n;
}

Test(render, a_pair_has_a_colour_of_its_own) {
    rig_dgx(&t);
    (void)svg(NICS);
    for (unsigned i = 1; i <= 4; i++) {
        const char *drawn = rig_text("<rect class=\"f%u\" ", i);
        cr_assert_eq(count(strbuf_text(&shown), drawn), 2, "%s: the GPU and its NIC", drawn);
    }
}

Test(render, a_long_list_of_cpus_is_cut_to_its_pattern) {
    static const struct {
        uint32_t first, step, run; /* RUN CPUs at every STEP from FIRST on, below 400 */
        const char *drawn;
    } rows[] = {{0, 2, 1, ">CPUs 0, 2, 4 … 398 (200)</text>"},
                {1, 2, 1, ">CPUs 1, 3, 5 … 399 (200)</text>"},
                {3, 5, 1, ">CPUs 3, 8, 13 … 398 (80)</text>"},
                {0, 8, 4, ">CPUs 0-3 … 392-395 (200)</text>"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        t.source = TOPO_SYSROOT;
        rig_cpus(&t, 1, 400, 1);
        t.numa[0].cpus = (struct cpuset){0};
        for (uint32_t cpu = rows[i].first; cpu < 400; cpu += rows[i].step)
            for (uint32_t k = cpu; k < cpu + rows[i].run; k++)
                cpuset_add(&t.numa[0].cpus, k);
        (void)svg(NO_NICS);
        cr_assert_eq(count(strbuf_text(&shown), rows[i].drawn), 1, "%s in\n%s", rows[i].drawn, strbuf_text(&shown));
        topology_fini(&t);
    }
}

Test(render, nvlinks_that_are_not_all_alike_stand_in_the_gpus) {
    rig_dgx(&t);
    (void)svg(NO_NICS);
    cr_assert_null(strstr(strbuf_text(&shown), "GPU 1"));
    t.nvlinks[3].count = 0;
    (void)svg(NO_NICS);
    cr_assert_eq(count(strbuf_text(&shown), ">NV18: GPU 1-2<"), 1);
    cr_assert_eq(count(strbuf_text(&shown), ">NV18: GPU "), 3);
    HAS("NVLink: NV18 between 3 of 6 pairs");
    t.nvlinks[2].count = 12;
    (void)svg(NO_NICS);
    HAS("NVLink: NV12 to NV18 between 3 of 6 pairs");
    cr_assert_eq(count(strbuf_text(&shown), ">NV12: GPU 0-1<"), 1, "GPU2");
    cr_assert_eq(count(strbuf_text(&shown), ">NV12: GPU 2<"), 2);
}

Test(render, the_picture_draws_a_line_for_each_pair) {
    rig_dgx(&t);
    t.nics[0].ports[0].state = TOPO_PORT_DOWN;
    struct nccl_graph *g;
    cr_assert_eq(nccl_graph_new(&t, &g, NULL), 0);
    struct nccl_prediction *p = calloc(1, sizeof *p);
    unsigned ways = 0;
    for (uint32_t i = 0; i < t.n_gpus; i++) {
        nccl_graph_predict(g, i, p);
        ways += p->n_nets;
    }
    (void)svg(NICS);
    read_svg(strbuf_text(&shown));
    cr_assert_eq(n_paths, ways);
    cr_assert_gt(ways, 4);
    cr_assert_eq(count(strbuf_text(&shown), "\"nic off\""), 2, "the one that is down, and the legend's");
    (void)find_text("that of another channel");
    (void)find_text(
        "PIX: one switch · PXN: through another GPU, by NVLink · +n after a name: n more in other channels");
    free(p);
    nccl_graph_free(g);
}

/* Each line ends at a NIC that its GPU names. */
Test(render, many_nics_of_a_gpu_are_counted_and_the_first_is_drawn) {
    t.source = TOPO_SYSROOT;
    rig_cpus(&t, 1, 8, 1);
    uint32_t above = rig_pci(&t, "0000:10:00.0", TOPO_NONE, true, 0);
    (void)rig_gpu(&t, "0000:11:00.0", above, 0);
    for (uint32_t i = 0; i < 8; i++) {
        const char *at = rig_text("0000:%02x:00.0", 0x20 + i), *name = rig_text("mlx5_%u", i);
        (void)rig_nic(&t, name, at, above, 0);
    }
    topology_sort(&t);
    check_svg("8 NICs");
    cr_assert_eq(n_paths, 1);
    (void)find_text("→ mlx5_0 +7");
    (void)find_text("PHB: through the CPU · +n after a name: n more in other channels");
}

/* Two packages of three nodes, in rows of two. One is higher, by a device in its last row. */
Test(render, an_odd_node_is_neither_wider_nor_higher_than_the_others) {
    t.source = TOPO_SYSROOT;
    rig_cpus(&t, 6, 16, 3);
    (void)rig_nic(&t, "mlx5_0", "0000:20:00.0", TOPO_NONE, 5);
    topology_sort(&t);
    check_svg("odd");
    cr_assert_eq(n_nodes, 6);
    for (unsigned i = 0; i < n_nodes; i++)
        cr_expect_eq(nodes[i].w, nodes[0].w, "node %u is %d wide", i, nodes[i].w);
    for (unsigned i = 0; i < 5; i++)
        cr_expect_eq(nodes[i].h, nodes[0].h, "node %u is %d high", i, nodes[i].h);
    cr_assert(nodes[2].y > nodes[1].y && nodes[2].x == nodes[0].x, "a row of its own");
    cr_assert_gt(nodes[5].h, nodes[4].h);
}

/* The line's GPU is right of one node, its NIC left of another, and nodes are between them. */
Test(render, a_line_goes_around_other_nodes) {
    t.source = TOPO_SYSROOT;
    rig_cpus(&t, 12, 4, 6);
    (void)rig_nic(&t, "mlx5_0", "0000:20:00.0", rig_pci(&t, "0000:1f:00.0", TOPO_NONE, true, 4), 4);
    for (uint32_t i = 0; i < 12; i++) {
        const char *at = rig_text("%04x:40:00.0", i + 1);
        (void)rig_gpu(&t, at, TOPO_NONE, (int32_t)i);
    }
    topology_sort(&t);
    check_svg("around");
    cr_assert_eq(n_paths, 12);
}

Test(render, the_title_is_the_host_and_never_a_path) {
    rig_dgx(&t);
    (void)strcpy(t.from, "/home/somebody/cluster/node.xml");
    for (unsigned named = 0; named < 2; named++) {
        (void)strcpy(t.host, named != 0 ? "node7" : "");
        check_svg("title");
        cr_expect_str_eq(texts[0].text, named != 0 ? "node7" : "A node");
        cr_expect_eq(texts[0].size, 20);
        for (unsigned i = 0; i < n_texts; i++)
            cr_expect_null(strstr(texts[i].text, "/cluster"), "%s", texts[i].text);
        expect_has(texts[1].text, " · node.xml");
    }
}

Test(render, the_memory_of_a_gpu_names_it) {
    rig_dgx(&t);
    for (int32_t i = 10; i < 12; i++) {
        struct topo_numa *n = topology_add_numa(&t);
        n->index = i;
        n->gpu_memory = true;
    }
    t.numa[t.n_numa - 1].bytes = UINT64_C(64) << 30; /* the tree would fold two alike */
    t.numa[t.n_numa - 1].package = 1;
    t.gpus[2].memory_numa = 11;
    check_svg("memory");
    (void)find_text("memory of a GPU");
    (void)find_text("memory of GPU2");
    (void)tree(NO_NICS, 0, false);
    HAS("NUMA node 10: memory of a GPU\n");
    HAS("NUMA node 11: memory of GPU2, 64 GiB\n");
}

Test(render, names_with_the_letters_of_xml_are_only_text) {
    rig_dgx(&t);
    (void)strcpy(t.host, "<script>\"&\xef\xbf\xbf</script>");
    (void)strcpy(t.nics[0].name, "a<b&c>\"d");
    (void)strcpy(t.gpus[0].name, "</text></svg>");
    check_svg("letters");
    (void)find_text("<script>\"&?</script>");
    (void)find_text("a<b&c>\"d");
    (void)find_text("</text></svg>");
}

Test(render, long_names_and_many_devices_keep_apart) {
    t.source = TOPO_SYSROOT;
    rig_cpus(&t, 8, 64, 4);
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t c = 1; c < 64; c += 2)
            cpuset_remove(&t.numa[i].cpus, i * 64 + c);
    uint32_t above = TOPO_NONE;
    for (uint32_t i = 0; i < 24; i++) { /* switches within switches */
        const char *at = rig_text("0000:%02x:00.0", i);
        above = rig_pci(&t, at, above, true, 5);
    }
    for (uint32_t i = 0; i < 48; i++) {
        const char *name = rig_text("mlx5_with_a_name_of_%u_ßßßßßßßß@@@@@@@@@@@@", i);
        (void)rig_gpu(&t, rig_text("%05x:%02x:00.0", 0x10000 + i, 0x20 + i), i % 3 == 0 ? above : TOPO_NONE,
                      (int32_t)i % 8);
        (void)snprintf(t.gpus[i].name, sizeof t.gpus[i].name, "NVIDIA WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW %u", i);
        (void)rig_nic(&t, name, rig_text("%05x:%02x:00.0", 0x20000 + i, 0x20 + i), i % 5 == 0 ? above : TOPO_NONE,
                      (int32_t)i % 9 - 1);
        (void)strcpy(t.nics[i].netdev, "interface_of_it");
    }
    topology_sort(&t);
    check_svg("many");
}

Test(render, nothing_at_all_makes_a_picture_and_a_tree) {
    check_svg("nothing");
    (void)find_text("no GPUs, no RDMA NICs");
    expect_text(tree(NO_NICS, 0, true), "this node\n");
}

Test(render, every_recorded_machine_makes_a_picture_a_tree_and_a_matrix) {
    static const char *const files[] = {"hwloc/prrte-turin-4xH200-nvml.xml",
                                        "hwloc/flux-ipa20.xml",
                                        "hwloc/flux-sierra.xml",
                                        "hwloc/flux-corona.xml",
                                        "hwloc/flux-tuo.SPX.xml",
                                        "hwloc/flux-sched-chimera.xml",
                                        "hwloc/mpibind-coral-lassen.xml",
                                        "hwloc/mpibind-cts1-pascal.xml",
                                        "hwloc/mpibind-g4dnmetal.xml",
                                        "hwloc/hwloc-nvidiaDGX2.xml",
                                        "hwloc/mpibind-eas-tioga.xml",
                                        "hwloc/hwloc-power8gpudistances.xml",
                                        "hwloc/hwloc-16intel64-manyVFs.xml",
                                        "hwloc/hwloc-32em64t-2n8c2t-pci-wholeio.xml",
                                        "hwloc/hwloc-96em64t-4n4d3ca2co-pci.xml",
                                        "nccl-xml/azure-ncv4-topo.xml",
                                        "nccl-xml/modal-b200vm-1-5554632f9.xml",
                                        "nccl-xml/modal-b200vm-2-bd9eaa8d4.xml",
                                        "nccl-xml/modal-b200vm-3-63d40870d.xml",
                                        "nccl-xml/sugarlxn-4x4090-calico.xml",
                                        "nccl-xml/derived/turin-4xH200-nccl.xml",
                                        "nccl-xml/derived/ipa20-4xH100-nccl.xml"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        char path[RECORDED_PATH_MAX];
        struct err err = {0};
        if (!recorded_path(path, files[i]))
            cr_skip_test("%s is not there", files[i]);
        cr_assert_eq(topology_load(path, &t, &err), 0, "%s: %s", files[i], err.text);
        check_svg(files[i]);
        for (unsigned k = 0; k < n_texts; k++) {
            size_t len = strlen(texts[k].text);
            cr_assert(len < 3 || strcmp(texts[k].text + len - 3, "…") != 0, "%s: \"%s\" is cut", files[i],
                      texts[k].text);
        }
        for (uint32_t k = 0; k < t.n_gpus; k++)
            (void)find_text(rig_text("GPU%" PRIu32, t.gpus[k].index));
        (void)tree(NO_NICS, 80, true);
        cr_assert_eq(count(strbuf_text(&shown), "─ GPU"), t.n_gpus, "%s:\n%s", files[i], strbuf_text(&shown));
        (void)matrix(NO_NICS);
        cr_assert_gt(shown.len, 20);
        topology_fini(&t);
    }
}
