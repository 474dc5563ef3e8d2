/* Any bytes as an NCCL file: it is read or refused, checked, and made into a graph. What was read is written and read
 * again, with the same number of GPUs and nets. */
#include <string.h>

#include "topology/nccl/nccl_graph.h"
#include "topology/nccl/nccl_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void hear(void *arg, enum nccl_xml_level level, uint32_t line, const char *text) {
    unsigned *errors = arg;
    *errors += level == NCCL_XML_ERROR ? 1 : 0;
    if (text[0] == '\0' || line > 1 << 20)
        abort();
}

static void ask(const struct topology *t) {
    struct nccl_graph *g = NULL;
    struct err err = {0};
    int r = nccl_graph_new(t, &g, &err);
    if (r < 0 && (g != NULL || err.code != r || err.text[0] == '\0'))
        abort();
    if (r < 0)
        return;
    static struct nccl_prediction p;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        nccl_graph_predict(g, i, &p);
        if (p.n_nets > NCCL_NETS_MAX || (p.n_nets > 0) != (p.nic != TOPO_NONE) || p.bandwidth < 0)
            abort();
    }
    struct words words = {0};
    nccl_graph_warnings(g, &words);
    for (size_t i = 0; i < words.n; i++)
        if (words.list[i][0] == '\0')
            abort();
    words_free(words.list);
    nccl_graph_free(g);
}

static void write_back(const struct topology *t) {
    struct strbuf s = {0};
    struct topology back = {0};
    struct err err = {0};
    unsigned errors = 0;
    if (nccl_xml_write(t, &s, &err) == 0) {
        if (nccl_xml_read(strbuf_text(&s), s.len, &back, hear, &errors, &err) < 0 || back.n_gpus != t->n_gpus)
            abort();
        topology_fini(&back);
    }
    strbuf_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct topology t = {0};
    struct err err = {0};
    unsigned heard = 0, told = 0;
    int r = nccl_xml_read((const char *)data, size, &t, hear, &heard, &err);
    unsigned errors = nccl_xml_check((const char *)data, size, r == 0 ? &t : NULL, hear, &told);
    if (errors != told || (r < 0 && (errors == 0 || err.text[0] == '\0')))
        abort();
    if (r == 0) {
        ask(&t);
        write_back(&t);
    }
    topology_fini(&t);
    return 0;
}
