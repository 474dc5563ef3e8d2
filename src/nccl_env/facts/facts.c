#include "nccl_env/facts/facts.h"

void nccl_facts_fini(struct nccl_facts *f) {
    nccl_conf_fini(&f->user_conf);
    nccl_conf_fini(&f->system_conf);
    for (uint32_t i = 0; i < f->n_plugins; i++)
        free(f->plugins[i]);
    for (uint32_t i = 0; i < f->n_topo_files; i++) {
        free(f->topo_files[i].path);
        free(f->topo_files[i].text);
    }
    *f = (struct nccl_facts){0};
}
