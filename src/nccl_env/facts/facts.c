#include "nccl_env/facts/facts.h"

#include <inttypes.h>
#include <stddef.h>

void nccl_facts_each_text(struct nccl_facts *f, nccl_facts_text_fn *fn, void *arg) {
    struct nccl_conf *const confs[] = {&f->user_conf, &f->system_conf};
    for (size_t i = 0; i < ARRAY_SIZE(confs); i++) {
        fn(arg, &confs[i]->path);
        for (uint32_t k = 0; k < confs[i]->n; k++) {
            fn(arg, &confs[i]->entries[k].name);
            fn(arg, &confs[i]->entries[k].value);
        }
    }
    for (uint32_t i = 0; i < f->n_plugins; i++)
        fn(arg, &f->plugins[i]);
    for (uint32_t i = 0; i < f->n_topo_files; i++) {
        fn(arg, &f->topo_files[i].path);
        fn(arg, &f->topo_files[i].text);
    }
}

static void free_text(void *arg, char **text) {
    (void)arg;
    free(*text);
}

void nccl_facts_fini(struct nccl_facts *f) {
    nccl_facts_each_text(f, free_text, NULL);
    free(f->user_conf.entries);
    free(f->system_conf.entries);
    *f = (struct nccl_facts){0};
}

void nccl_facts_describe(const struct nccl_facts *f, struct strbuf *to) {
#define TEXT(field, size, heading) {heading, f->field},
    const struct { const char *heading, *text; } texts[] = {NCCL_FACT_TEXTS(TEXT)};
#undef TEXT
    uint32_t v = f->nccl_version;
    if (v > 0)
        strbuf_printf(to, "; NCCL %" PRIu32 ".%" PRIu32 ".%" PRIu32, v / 10000, v / 100 % 100,
                      v % 100);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (texts[i].heading != NULL && texts[i].text[0] != '\0')
            strbuf_printf(to, "; %s %s", texts[i].heading, texts[i].text);
    if (f->cloud != CLOUD_NONE)
        strbuf_printf(to, "; %s", cloud_name(f->cloud));
    for (uint32_t i = 0; i < f->n_plugins; i++)
        strbuf_printf(to, "%s%s", i == 0 ? "; plug-in " : ", ", f->plugins[i]);
}
