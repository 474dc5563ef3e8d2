/* A matrix as nvidia-smi topo -m prints it, or as a table of tab-separated cells, read back. Pure.
 * For tests against recorded machines, and for text that users paste. */
#pragma once

#include "topology/model/distance.h"

struct matrix_text {
    uint32_t n;                   /* rows and columns with links between devices */
    char (*names)[TOPO_NAME_MAX]; /* [n] "GPU0", "NIC3", "mlx5_4" */
    struct topo_link *cells;      /* [n * n]; path 0: the cell is empty or cut off */
    char (*cpus)[TOPO_TEXT_MAX];  /* [n] CPU affinity, "" none */
    char (*numa)[TOPO_NAME_MAX];  /* [n] NUMA affinity, "" none */
    bool complete;                /* every cell is present, and both halves agree */
};
/* Lines that begin with '#' are comments. Returns 0, or -EINVAL with a sentence. */
_must_use_ int matrix_text_parse(const char *text, size_t len, struct matrix_text *ret,
                                 struct err *err);
void matrix_text_fini(struct matrix_text *m);
