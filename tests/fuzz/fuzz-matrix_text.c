/* A matrix is refused, or read into a complete table that finds its own words again. A node in JSON is shown in every
 * form. */
#include <string.h>

#include "topology/json/topology_json.h"
#include "topology/render/matrix_text.h"
#include "topology/render/render.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_matrix(const char *text, size_t len) {
    struct matrix_text m;
    struct err err = {0};
    if (matrix_text_parse(text, len, &m, &err) < 0) {
        if (err.text[0] == '\0')
            abort();
        return;
    }
    for (uint32_t i = 0; i < m.n * m.n; i++) {
        struct topo_link again;
        char word[16];
        if (m.cells[i].path == 0) {
            if (m.complete)
                abort();
            continue;
        }
        topo_link_text(m.cells[i], word);
        if (topo_link_parse(word, &again) < 0 || again.path != m.cells[i].path || again.nvlinks != m.cells[i].nvlinks)
            abort();
    }
    matrix_text_fini(&m);
}

static void show(const char *text, size_t len) {
    struct topology t = {0};
    struct err err = {0};
    struct nccl_graph *g = NULL;
    struct nccl_options none = {0};
    if (topology_json_read(text, len, &t, &err) < 0)
        return;
    (void)!nccl_graph_new(&t, &none, &g, &err);
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    render_matrix(&t, g, &out);
    render_tree(&t, g, 40, true, &out);
    render_svg(&t, g, &out);
    for (size_t i = 0; i < out.len; i++)
        if ((unsigned char)out.data[i] < ' ' && out.data[i] != '\n')
            abort();
    nccl_graph_free(g);
    topology_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    read_matrix(text, size);
    if (size > 0 && text[0] == '{')
        show(text, size);
    free(text);
    return 0;
}
