/* NCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): reading, writing, judging. Pure.
 * The grammar is NCCL's own hand-made one (src/graph/xml.cc, 2.30.7): elements and attributes,
 * comments, no entities, no CDATA, no prolog, no tabs, no ends of lines between attributes. Its
 * table of 256 elements must not get full, so 255 fit; 16 attributes an element, 253 bytes a text,
 * 640 children. */
#pragma once

#include "base/text/strbuf.h"
#include "topology/model/topology.h"

enum nccl_xml_level { NCCL_XML_NOTE = 1, NCCL_XML_WARNING, NCCL_XML_ERROR };
/* One finding: what is wrong, and in which line of the file (1 on; 0: the whole). */
typedef void nccl_xml_say_fn(void *arg, enum nccl_xml_level level, uint32_t line, const char *text);

/* Into a topology, as NCCL would take it: what NCCL loses is lost here. Elements that it would not
 * know are reported as findings. 0; -EINVAL, -E2BIG with a sentence: NCCL refuses the file (not
 * NCCL's grammar, another root element, a version that is not 1, over a limit). say may be NULL. */
_must_use_ int nccl_xml_read(const char *text, size_t len, struct topology *ret,
                             nccl_xml_say_fn *say, void *arg, struct err *err);

/* All of NCCL's rules, and what people get wrong though NCCL loads it: GPUs lost beside a NIC,
 * NVLinks beyond what the GPU has or to itself, link speeds of no known form, bus ids that are not
 * of `machine` (NULL: not compared), many elements. Returns the number of errors. */
unsigned nccl_xml_check(const char *text, size_t len, const struct topology *machine,
                        nccl_xml_say_fn *say, void *arg);

/* The file that NCCL would dump on this node: system, cpu, pci (upstream ports, devices), gpu,
 * nvlink, nic, net. -E2BIG: more than NCCL would read back. */
_must_use_ int nccl_xml_write(const struct topology *t, struct strbuf *to, struct err *err);
