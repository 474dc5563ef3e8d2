/* Pictures of a topology for people: the matrix of nvidia-smi topo -m, a tree, SVG. Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "topology/nccl/nccl_graph.h"

/* Columns: GPUs, NICs, CPU affinity, NUMA affinity; a legend; for each GPU the NIC that NCCL would
 * give it. g: NULL: without that. */
void render_matrix(const struct topology *t, const struct nccl_graph *g, struct strbuf *to);
/* Packages, NUMA nodes, bridges, devices; what is alike is folded. width: columns of the terminal,
 * longer lines are cut; 0: any. utf8: with lines and dots that ASCII does not have. */
void render_tree(const struct topology *t, const struct nccl_graph *g, uint32_t width, bool utf8,
                 struct strbuf *to);
/* One SVG document, self-contained, readable in light and dark: NUMA nodes, switches, GPUs and
 * NICs, the chosen pairs drawn. */
void render_svg(const struct topology *t, const struct nccl_graph *g, struct strbuf *to);
