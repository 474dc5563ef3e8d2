/* Matrices as nvidia-smi prints them, as users paste them, and as recorded. */
#include "topology/render/matrix_text.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../model/node_rig.h"
#include "../recorded.h"
#include "topology/render/render.h"

static void parse(const char *text, struct matrix_text *m) {
    struct err err = {0};
    cr_assert_eq(matrix_text_parse(text, strlen(text), m, &err), 0, "%s", err.text);
}

static const char *cell(const struct matrix_text *m, const char *a, const char *b) {
    static char text[16];
    for (uint32_t i = 0; i < m->n; i++)
        for (uint32_t k = 0; k < m->n; k++)
            if (strcmp(m->names[i], a) == 0 && strcmp(m->names[k], b) == 0) {
                struct topo_link link = m->cells[i * m->n + k];
                if (link.path == 0)
                    return "";
                topo_link_text(link, text);
                return text;
            }
    cr_assert(false, "no %s or %s", a, b);
    return "";
}

static const char smi[] =
    "\t\033[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n"
    "GPU0\t X \tNV4\tPXB\tSYS\t0-15,32-47\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\tPIX\t16-31\t1\t\tN/A\n"
    "NIC0\tPXB\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t\n"
    "\n"
    "Legend:\n\n"
    "  X    = Self\n"
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
    "\nNIC Legend:\n\n"
    "  NIC0: mlx5_0\n"
    "  NIC1: mlx5_1\n";

static void check_smi(const struct matrix_text *m) {
    cr_assert_eq(m->n, 4);
    cr_assert(m->complete);
    cr_assert_str_eq(cell(m, "GPU0", "GPU0"), "X");
    cr_assert_str_eq(cell(m, "GPU0", "GPU1"), "NV4");
    cr_assert_str_eq(cell(m, "NIC0", "GPU0"), "PXB");
    cr_assert_str_eq(cell(m, "GPU1", "NIC1"), "PIX");
    cr_assert_str_eq(m->cpus[0], "0-15,32-47");
    cr_assert_str_eq(m->numa[1], "1");
    cr_assert_str_eq(m->cpus[2], "");
}

Test(matrix_text, what_nvidia_smi_prints_is_read) {
    struct matrix_text m;
    parse(smi, &m);
    check_smi(&m);
    matrix_text_fini(&m);
}

Test(matrix_text, a_paste_with_blanks_and_carriage_returns_is_read) {
    static const char *const around[] = {"", "$ nvidia-smi topo -m\r\n"};
    for (size_t k = 0; k < ARRAY_SIZE(around); k++) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        strbuf_add(&text, around[k]);
        for (const char *p = smi; *p != '\0'; p++) {
            if (*p == '\n')
                strbuf_add_char(&text, '\r');
            strbuf_add(&text, (char[2]){*p == '\t' ? ' ' : *p, '\0'});
        }
        struct matrix_text m;
        parse(strbuf_text(&text), &m);
        check_smi(&m);
        matrix_text_fini(&m);
    }
}

Test(matrix_text, halves_that_differ_and_rows_that_lack_are_not_complete) {
    static const struct {
        const char *text;
        bool complete;
    } cases[] = {
        {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n", true},
        {"\tGPU0\tGPU1\nGPU1\tNV4\tX\nGPU0\tX\tNV4\n", true}, /* rows in any order */
        {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV2\tX\n", false},
        {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tSYS\tX\n", false},
        {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\n", false},
        {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\t\tX\n", false},
        {"\tGPU0\tGPU1\nGPU0\tX\tNV4\n", false},
        {"\tGPU0\tGPU1\nGPU0\tX\tX\nGPU1\tX\tX\n", false},
        {"\tGPU0\tGPU1\nGPU0\tSYS\tNV4\nGPU1\tNV4\tX\n", false},
        {"\tGPU0\tGPU1\n", false},
        {"\tGPU0\nGPU0\tX", true}, /* without a newline at its end */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct matrix_text m;
        parse(cases[i].text, &m);
        cr_assert_eq(m.complete, cases[i].complete, "%s", cases[i].text);
        matrix_text_fini(&m);
    }
}

Test(matrix_text, what_is_no_matrix_is_refused_with_its_line) {
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "no header"},
        {"# only a comment\n\n", "no header"},
        {"hello\nworld\n", "no header"},
        {"\tGPU0\tGPU0\nGPU0\tX\tX\n", "line 1"},
        {"# c\n\tCPU Affinity\n", "line 2"},
        {"\tGPU0\tGPU1\nGPU0\tX\tNVX\n", "\"NVX\""},
        {"\tGPU0\tGPU1\nGPU0\tX\tSYS\nGPU0\tX\tSYS\n", "line 3: a second row"},
        {"\taaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", "too long"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct matrix_text m = {0};
        struct err err = {0};
        cr_assert_eq(matrix_text_parse(cases[i].text, strlen(cases[i].text), &m, &err), -EINVAL, "%s", cases[i].text);
        cr_assert_not_null(strstr(err.text, cases[i].said), "%s", err.text);
        cr_assert_null(m.names);
    }
}

Test(matrix_text, more_devices_than_a_node_can_have_are_refused) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (int i = 0; i < TOPO_GPUS_MAX + TOPO_NICS_MAX + 1; i++)
        strbuf_printf(&text, "\tGPU%d", i);
    struct matrix_text m = {0};
    struct err err = {0};
    cr_assert_eq(matrix_text_parse(strbuf_text(&text), text.len, &m, &err), -EINVAL);
    cr_assert_not_null(strstr(err.text, "more than 768"), "%s", err.text);
}

Test(matrix_text, our_own_matrix_is_read_back) {
    struct topology t = {0};
    rig_dgx(&t);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    render_matrix(&t, NULL, &text);
    struct matrix_text m;
    parse(strbuf_text(&text), &m);
    cr_assert_eq(m.n, 8);
    cr_assert(m.complete);
    cr_assert_str_eq(cell(&m, "GPU0", "GPU3"), "NV18");
    cr_assert_str_eq(cell(&m, "GPU2", "mlx5_2"), "PIX");
    cr_assert_str_eq(cell(&m, "mlx5_3", "mlx5_0"), "SYS");
    cr_assert_str_eq(m.cpus[2], "8-15");
    cr_assert_str_eq(m.numa[2], "1");
    matrix_text_fini(&m);
    topology_fini(&t);
}

/* ---- recorded ---- */

static void load(const char *name, struct matrix_text *m) {
    char path[RECORDED_PATH_MAX], part[300], text[1 << 16];
    (void)snprintf(part, sizeof part, "topo-m/%s", name);
    if (!recorded_path(path, part))
        cr_skip_test("%s is not there", part);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f);
    size_t len = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    cr_assert_lt(len, sizeof text);
    struct err err = {0};
    cr_assert_eq(matrix_text_parse(text, len, m, &err), 0, "%s: %s", name, err.text);
}

Test(matrix_text, every_recorded_matrix_is_as_complete_as_its_name_says) {
    char path[RECORDED_PATH_MAX];
    if (!recorded_path(path, "topo-m"))
        cr_skip_test("topo-m is not there");
    DIR *d = opendir(path);
    cr_assert_not_null(d);
    unsigned complete = 0, partial = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strstr(e->d_name, ".tsv") == NULL)
            continue;
        struct matrix_text m;
        load(e->d_name, &m);
        bool is_partial = strstr(e->d_name, ".partial.") != NULL;
        cr_assert_eq(m.complete, !is_partial, "%s", e->d_name);
        complete += !is_partial;
        partial += is_partial;
        matrix_text_fini(&m);
    }
    (void)closedir(d);
    cr_assert_geq(complete, 10);
    cr_assert_geq(partial, 5);
}

/* The nearest NICs of each GPU: their numbers, "0 1", with the path. */
static void nearest(const struct matrix_text *m, uint32_t gpu, char out[256]) {
    enum topo_path best = TOPO_PATH_SYS;
    for (uint32_t i = 0; i < m->n; i++)
        if (strncmp(m->names[i], "GPU", 3) != 0)
            best = MIN2(best, m->cells[gpu * m->n + i].path);
    char word[16];
    topo_link_text((struct topo_link){best, 0}, word);
    (void)snprintf(out, 256, "%s", word);
    for (uint32_t i = 0; i < m->n; i++)
        if (strncmp(m->names[i], "GPU", 3) != 0 && m->cells[gpu * m->n + i].path == best && best != TOPO_PATH_SYS)
            (void)snprintf(out + strlen(out), 256 - strlen(out), " %s",
                           m->names[i] + strcspn(m->names[i], "0123456789") +
                               (strncmp(m->names[i], "mlx5_", 5) == 0 ? 2 : 0));
}

static void check_nearest(const char *name, const char *const *expected, uint32_t n) {
    struct matrix_text m;
    load(name, &m);
    for (uint32_t i = 0; i < n; i++) {
        char found[256];
        nearest(&m, i, found);
        cr_assert_str_eq(found, expected[i], "%s: GPU%u: %s, not %s", name, i, found, expected[i]);
    }
    matrix_text_fini(&m);
}
#define NEAREST(name, ...)                                     \
    do {                                                       \
        const char *const expected_[] = {__VA_ARGS__};         \
        check_nearest(name, expected_, ARRAY_SIZE(expected_)); \
    } while (0)

Test(matrix_text, the_pairs_of_the_recorded_matrices_are_those_their_headers_tell) {
    NEAREST("h200-epyc9534-8gpu-8nic-scrambled.tsv", "PIX 4", "PIX 1", "PIX 0", "PIX 3", "PIX 6", "PIX 7", "PIX 5",
            "PIX 2");
    NEAREST("h100-numa-off-8gpu-12nic.tsv", "PIX 0", "PIX 1", "PIX 2", "PIX 5", "PIX 6", "PIX 7", "PIX 8", "PIX 11");
    NEAREST("dgx-h100-8gpu-12nic.tsv", "PXB 0", "PXB 3", "PXB 4", "PXB 5", "PXB 6", "PXB 9", "PXB 10", "PXB 11");
    NEAREST("h100-xd670-8gpu-12nic.tsv", "PIX 0", "PIX 1", "PIX 2", "PIX 3", "PIX 6", "PIX 7", "PIX 8", "PIX 9");
    NEAREST("dgx-a100-8gpu-12nic.tsv", "PXB 0 1", "PXB 0 1", "PXB 2 3", "PXB 2 3", "PXB 6 7", "PXB 6 7", "PXB 8 9",
            "PXB 8 9");
    NEAREST("a100-8gpu-2nic.tsv", "PXB 0", "PXB 0", "NODE 0", "NODE 0", "PXB 1", "PXB 1", "NODE 1", "NODE 1");
    NEAREST("a100-8gpu-4nic-unbalanced.tsv", "PXB 0 1", "PXB 0 1", "PXB 2 3", "PXB 2 3", "SYS", "SYS", "SYS", "SYS");
    NEAREST("3gpu-2nic-phb.tsv", "NODE 0 1", "NODE 0 1", "PHB 0 1");
    NEAREST("rtx4090-8gpu-2nic-allsys.tsv", "SYS", "SYS", "SYS", "SYS", "SYS", "SYS", "PHB 0 1", "SYS");
    NEAREST("h800-8gpu-9nic.partial.tsv", "PIX 2", "PIX 4", "PIX 6", "PIX 8", "PIX 1", "PIX 3", "PIX 5");
}

Test(matrix_text, nvlinks_and_nodes_of_the_recorded_matrices_are_those_their_headers_tell) {
    struct matrix_text m;
    load("b200-nvlink-lost-on-gpu2.partial.tsv", &m);
    cr_assert_str_eq(cell(&m, "GPU0", "GPU1"), "NV18");
    cr_assert_str_eq(cell(&m, "GPU0", "GPU2"), "NODE");
    cr_assert_str_eq(cell(&m, "GPU2", "GPU4"), "SYS");
    cr_assert_str_eq(cell(&m, "GPU6", "GPU0"), "");
    matrix_text_fini(&m);
    load("hgx-nvlink-all-down.partial.tsv", &m);
    cr_assert_str_eq(cell(&m, "GPU0", "GPU5"), "SYS");
    matrix_text_fini(&m);
    load("gb200-4gpu-6nic.partial.tsv", &m);
    cr_assert_str_eq(m.numa[0], "0,3-9,11-17");
    cr_assert_str_eq(m.cpus[2], "72-143");
    matrix_text_fini(&m);
    load("3gpu-2nic-phb.tsv", &m);
    cr_assert_str_eq(cell(&m, "GPU0", "GPU1"), "NV4");
    cr_assert_str_eq(cell(&m, "mlx5_0", "mlx5_1"), "PIX");
    matrix_text_fini(&m);
}
