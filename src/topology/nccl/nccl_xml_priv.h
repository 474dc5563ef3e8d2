/* Private to nccl_xml: a parsed file as a table of elements, in the order of the file. */
#pragma once

#include "topology/nccl/nccl_xml.h"

#define NCCL_XML_ELEMENTS_MAX 256 /* NCCL_TOPO_XML_MAX_NODES; its parser fails when it is full */
#define NCCL_XML_ATTRS_MAX 16     /* MAX_ATTR_COUNT; more are ignored */
#define NCCL_XML_TEXT_MAX 254     /* MAX_STR_LEN 255 with the NUL; names and values are shorter */

enum nccl_xml_kind {
    NCCL_XML_SYSTEM = 1,
    NCCL_XML_CPU,
    NCCL_XML_PCI,
    NCCL_XML_GPU,
    NCCL_XML_NVLINK,
    NCCL_XML_C2C,
    NCCL_XML_NIC,
    NCCL_XML_NET,
    NCCL_XML_PCILINK,
};
const char *nccl_xml_kind_name(enum nccl_xml_kind k);

struct nccl_xml_element {
    enum nccl_xml_kind kind;
    uint32_t line;   /* of its '<' */
    uint32_t parent; /* TOPO_NONE: system */
    uint32_t n_attrs;
    const char *keys[NCCL_XML_ATTRS_MAX], *values[NCCL_XML_ATTRS_MAX]; /* in the text */
};
struct nccl_xml {
    char *text; /* owned: the file's, with a NUL after each name and value */
    uint32_t n;
    struct nccl_xml_element elements[NCCL_XML_ELEMENTS_MAX];
};

struct nccl_xml_log {
    nccl_xml_message_fn *fn; /* may be NULL */
    void *arg;
    unsigned errors;
    struct err *err; /* why NCCL refuses the file */
    uint32_t failed; /* the line of that; 0: none */
};
/* Takes text. */
void nccl_xml_add(struct nccl_xml_log *log, enum nccl_xml_level level, uint32_t line, char *text);
#define nccl_xml_report(log, level, line, ...) \
    nccl_xml_add(log, level, line, xasprintf(__VA_ARGS__))
/* Sets both; is the code. */
#define NCCL_XML_FAIL(log, code, at, ...) \
    ((log)->failed = (at), err_set((log)->err, code, __VA_ARGS__))

/* Parses by NCCL's grammar into a zeroed *ret. */
_must_use_ int nccl_xml_parse(const char *text, size_t len, struct nccl_xml *ret,
                              struct nccl_xml_log *log);
void nccl_xml_freep(struct nccl_xml **x);

/* The value of an attribute; NULL: it is missing. */
const char *nccl_xml_attr(const struct nccl_xml *x, uint32_t element, const char *key);
/* The same, "" if it is missing. */
const char *nccl_xml_text(const struct nccl_xml *x, uint32_t element, const char *key);
/* The value as strtol(value, NULL, 0) reads it; `otherwise` if it is missing. */
long nccl_xml_int(const struct nccl_xml *x, uint32_t element, const char *key, long otherwise);
/* First child of a kind; TOPO_NONE. */
uint32_t nccl_xml_sub(const struct nccl_xml *x, uint32_t element, enum nccl_xml_kind kind);
/* What NCCL concludes from the class of a PCI device (src/graph/topo.cc, kvDictPciClass). */
enum nccl_xml_class {
    NCCL_CLASS_PCI = 1,
    NCCL_CLASS_NVS,
    NCCL_CLASS_CPU,
    NCCL_CLASS_GPU,
    NCCL_CLASS_NIC
};
enum nccl_xml_class nccl_xml_class_of(const char *value);
/* For each element the `pci` because of which NCCL ignores it, or TOPO_NONE. NCCL ignores a `pci`
 * below a `pci` that is a NIC, a GPU or of a class without children, and a `gpu` beside a `nic`. */
void nccl_xml_find_lost(const struct nccl_xml *x, uint32_t lost[NCCL_XML_ELEMENTS_MAX]);
