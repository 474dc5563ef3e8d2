/* Finds what is wrong with values that users set themselves. Pure. */
#pragma once

#include "nccl_env/facts/facts.h"
#include "topology/model/topology.h"

/* Checks all NCCL_*, GLOO_*, TORCH_NCCL_*, CUDA_* of an environment, and all variables of the
 * files. If t is NULL, names are not checked. Adds a sentence for each finding. */
void nccl_lint_all(char *const *envp, const struct nccl_facts *f, const struct topology *t,
                   struct words *to);
