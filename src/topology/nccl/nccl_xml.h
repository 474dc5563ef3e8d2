/* NCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): reading, writing, checking. Pure.
 * The grammar is NCCL's own (src/graph/xml.cc, 2.30.7): elements, attributes, comments; no
 * entities, CDATA, prolog, tabs, or line ends between attributes. Limits: its table of 256 elements
 * must not become full, 16 attributes for each element, 253 bytes for each text, 640 children. */
#pragma once

#include "base/text/strbuf.h"
#include "topology/model/topology.h"

enum nccl_xml_level { NCCL_XML_NOTICE = 1, NCCL_XML_WARNING, NCCL_XML_ERROR };
/* One finding: what is wrong, and in which line of the file (from 1; 0: the whole file). */
typedef void nccl_xml_message_fn(void *arg, enum nccl_xml_level level, uint32_t line,
                                 const char *text);

/* Reads a file into a topology as NCCL would: what NCCL loses is lost here, too. Elements that it
 * would not know are reported as findings. Returns 0, or -EINVAL or -E2BIG with a sentence if NCCL
 * refuses the file (not NCCL's grammar, another root element, a version that is not 1, over a
 * limit). fn may be NULL. */
_must_use_ int nccl_xml_read(const char *text, size_t len, struct topology *ret,
                             nccl_xml_message_fn *log, void *arg, struct err *err);

/* Checks all of NCCL's rules, and mistakes with which NCCL still loads the file: GPUs lost beside a
 * NIC, more NVLinks than the GPU has or links to itself, link speeds of an unknown form, bus ids
 * that `machine` does not have (NULL: not compared), many elements. Returns the number of errors.
 */
unsigned nccl_xml_check(const char *text, size_t len, const struct topology *machine,
                        nccl_xml_message_fn *log, void *arg);

/* Writes the file that NCCL would dump on this node: system, cpu, pci (upstream ports, devices),
 * gpu, nvlink, nic, net. -E2BIG: more than NCCL would read back. */
_must_use_ int nccl_xml_write(const struct topology *t, struct strbuf *to, struct err *err);
