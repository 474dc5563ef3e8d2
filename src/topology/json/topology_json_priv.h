/* The JSON of each struct of a topology is written and read by one table in topology_json_fields.c.
 * Values that can be derived from others are written by topology_json.c. */
#pragma once

#include "base/json/json_table.h"
#include "topology/model/topology.h"

extern const struct json_table topology_json_table;

void topology_json_write_cpus(struct json_writer *w, const char *key, const struct cpuset *set);
void topology_json_write_bus_id(struct json_writer *w, const char *key, const struct pci_addr *at);

/* Fields of the tables. A field for a device holds its index in pci[]. */
void topology_json_write_device(struct json_writer *w, const struct json_field *f, const void *of);
void topology_json_write_near_cpus(struct json_writer *w, const struct json_field *f,
                                   const void *of);
void topology_json_write_prediction(struct json_writer *w, const struct json_field *f,
                                    const void *of);
void topology_json_write_nic_state(struct json_writer *w, const struct json_field *f,
                                   const void *of);
void topology_json_write_nic_rate(struct json_writer *w, const struct json_field *f,
                                  const void *of);
void topology_json_write_links(struct json_writer *w, const struct json_field *f, const void *of);
