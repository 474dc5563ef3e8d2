/* Pictures of a topology for people: the matrix of nvidia-smi topo -m, a tree, SVG. Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "topology/nccl/nccl_graph.h"

/* Columns: GPUs, NICs, CPU affinity, NUMA affinity; a legend; for each GPU the NIC that NCCL would
 * choose for it. g: NULL: without that. */
void render_matrix(const struct topology *t, const struct nccl_graph *g, struct strbuf *to);
/* Packages, NUMA nodes, bridges, devices; equal ones are shown as one. width: columns of the
 * terminal, longer lines are cut; 0: no limit. utf8: with lines and dots that are not in ASCII. */
void render_tree(const struct topology *t, const struct nccl_graph *g, uint32_t width, bool utf8,
                 struct strbuf *to);
/* One SVG document, self-contained, readable in light and dark: NUMA nodes, switches, GPUs and
 * NICs, and lines between the chosen pairs. */
void render_svg(const struct topology *t, const struct nccl_graph *g, struct strbuf *to);
