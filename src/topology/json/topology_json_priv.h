/* One table for each struct of a topology, from which it is written and read. */
#pragma once

#include "topology/model/topology.h"

enum json_field_kind {
    JSON_FIELD_BOOL = 1,
    JSON_FIELD_I32,
    JSON_FIELD_U32, /* TOPO_NONE: null */
    JSON_FIELD_U64, /* up to 2^53 */
    JSON_FIELD_I64,
    JSON_FIELD_DOUBLE,
    JSON_FIELD_TEXT,
    JSON_FIELD_NAME,   /* an enum of 4 bytes; names[value] */
    JSON_FIELD_CPUS,   /* struct cpuset as a list */
    JSON_FIELD_BUS_ID, /* struct pci_addr */
    JSON_FIELD_HEX16,  /* uint16_t, "10de" */
    JSON_FIELD_HEX24,  /* uint32_t, "030200" */
    JSON_FIELD_HEX64,  /* 16 digits */
    JSON_FIELD_GID,    /* 16 bytes as 32 digits */
};

struct json_field {
    const char *key;
    enum json_field_kind kind;
    size_t offset, size;
    const char *const *names; /* NAME; holes are NULL */
    uint32_t n_names;
};

struct json_table {
    const struct json_field *fields;
    size_t n;
};
extern const struct json_table topology_json_whole, topology_json_numa, topology_json_cores,
    topology_json_caches, topology_json_pci, topology_json_gpus, topology_json_nvlinks,
    topology_json_nics, topology_json_ports, topology_json_gids, topology_json_netifs,
    topology_json_addrs;
