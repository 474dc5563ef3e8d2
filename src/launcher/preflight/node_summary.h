/* A node's hardware and configuration in a few short texts, and what differs between many nodes.
 * Pure: node_summary_io.h gathers a node summary, and the rendezvous sends it to the leader, which
 * stores all of them in an index, and compares those of a group.
 *
 * An index stores each value once, however many nodes have it, and a few numbers for each node. The
 * time of a comparison is proportional to the number of nodes. */
#pragma once

#include "base/err.h"
#include "base/text/strbuf.h"
#include "topology/discover/nvml/nvml_report.h"

#define NODE_SUMMARY_VALUE_MAX 512
#define NODE_SUMMARY_HOST_MAX 128
#define NODE_SUMMARY_FINDINGS_MAX 16
#define NODE_SUMMARY_TEXT_MAX 256
#define NODE_SUMMARY_ROWS_MAX 64       /* of one comparison; further rows are only counted */
#define NODE_SUMMARY_NAMES_MAX 8       /* nodes named in one row */
#define NODE_SUMMARY_FAILURES_MAX 1024 /* of one comparison; further ones are only counted */
/* Wall clocks further apart than this are reported. */
#define NODE_SUMMARY_CLOCK_MAX_NS (1 * NS_PER_S)

struct json_table;

enum node_summary_fact {
    NODE_SUMMARY_GPUS = 0, /* "8 x NVIDIA H100 80GB HBM3", "4 x A, 4 x B (1 in MIG mode)", "none" */
    NODE_SUMMARY_DRIVER,
    NODE_SUMMARY_CUDA, /* what the driver supports */
    NODE_SUMMARY_NCCL,
    NODE_SUMMARY_TORCH,
    NODE_SUMMARY_HCAS,  /* "mlx5_0 400 Gb/s IB ACTIVE, …" in rail order; "none" */
    NODE_SUMMARY_RAILS, /* the first adapter of each GPU by NCCL's rules: "GPU0 mlx5_0, …" */
    NODE_SUMMARY_NETIF, /* interface that the workers use between nodes */
    NODE_SUMMARY_MTU,   /* of that interface */
    NODE_SUMMARY_FAST,  /* interface of a faster network, which is taken where all have one; "none"
                         */
    NODE_SUMMARY_FAST_MTU, /* of that interface */
    NODE_SUMMARY_MEMLOCK,
    NODE_SUMMARY_SHM,
    NODE_SUMMARY_NAME, /* what the node's own name resolves to */
    NODE_SUMMARY_KERNEL,
    /* every node has its own; not compared: */
    NODE_SUMMARY_DISK,      /* free bytes of the log directory's disk, "123 GiB" */
    NODE_SUMMARY_PROCESSES, /* processes that already hold GPUs: "0" */
    /* judged together, by the NVLink domain: */
    NODE_SUMMARY_DOMAIN,  /* "nvl-UUID.CLIQUE" */
    NODE_SUMMARY_IMEX,    /* IMEX channel: "present", "missing", "missing in this pod" */
    NODE_SUMMARY_STACK,   /* limit of the stack: "8 MiB", "unlimited" */
    NODE_SUMMARY_WORKERS, /* of this node: "4" */
    NODE_SUMMARY_FACT_COUNT,
};
const char *node_summary_fact_name(enum node_summary_fact f); /* "mtu": in JSON and in messages */
const char *node_summary_fact_code(enum node_summary_fact f); /* "MTU-DIFFERS" */
/* Whether workers of one job should not differ in this: --preflight=strict refuses it. */
bool node_summary_fact_matters(enum node_summary_fact f);
/* Whether the leader keeps it. */
bool node_summary_fact_kept(enum node_summary_fact f);

enum node_summary_level { NODE_SUMMARY_OK = 1, NODE_SUMMARY_WARN, NODE_SUMMARY_FAIL };
const char *node_summary_level_name(enum node_summary_level l); /* "ok", "warn", "fail" */

enum node_summary_subject { NODE_SUMMARY_OF_NODE = 0, NODE_SUMMARY_OF_NEIGHBOUR };

/* The result of one check of this node. */
struct node_summary_finding {
    enum node_summary_level level;
    enum node_summary_subject about;  /* not sent */
    char code[24];                    /* "MEMLOCK-LOW" */
    char text[NODE_SUMMARY_TEXT_MAX]; /* one sentence */
};

struct node_summary {
    char values[NODE_SUMMARY_FACT_COUNT]
               [NODE_SUMMARY_VALUE_MAX]; /* "": not known, and not compared */
    bool has_clock;
    int64_t clock_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
    uint32_t n_findings;
    struct node_summary_finding findings[NODE_SUMMARY_FINDINGS_MAX];
};
/* JSON tables of one finding, and of the values by their names. */
extern const struct json_table node_summary_finding, node_summary_facts;

#define node_summary_set(d, f, ...) node_summary_put(d, f, xasprintf(__VA_ARGS__))
/* Takes text, as node_summary_add_text() does. */
void node_summary_put(struct node_summary *d, enum node_summary_fact f, char *text);
/* If there is no room, the finding replaces a less severe one. NULL: it was dropped. */
#define node_summary_add(d, level, code, ...) \
    node_summary_add_text(d, level, code, xasprintf(__VA_ARGS__))
struct node_summary_finding *node_summary_add_text(struct node_summary *d,
                                                   enum node_summary_level level, const char *code,
                                                   char *text);
enum node_summary_level
node_summary_worst(const struct node_summary *d); /* NODE_SUMMARY_OK if there are no findings */

/* Writes a JSON object of less than `max` bytes: "facts", "clock_ns", and those findings that are
 * not NODE_SUMMARY_OK and for which there is room. */
void node_summary_write(const struct node_summary *d, size_t max, struct strbuf *to);
/* -EINVAL: not a node summary. Facts of another version of muster that are not known here are left
 * out. Bytes that are unsafe on a terminal are removed from texts. */
_must_use_ int node_summary_read(const char *text, size_t len, struct node_summary *ret,
                                 struct err *err);

struct summary_index;
struct summary_index *summary_index_new(uint64_t seed);
void summary_index_free(struct summary_index *b);
/* Adds, or replaces, the summary of node `id` (not 0). Copies. */
void summary_index_put(struct summary_index *b, uint64_t id, const char *host,
                       const struct node_summary *d);
void summary_index_drop(struct summary_index *b, uint64_t id);
bool summary_index_has(const struct summary_index *b, uint64_t id);
size_t summary_index_nodes(const struct summary_index *b);
size_t summary_index_values(const struct summary_index *b); /* distinct ones, for tests */

/* The offset of a node's monotonic clock from the leader's: leader's = node's + offset. */
struct node_summary_clock {
    bool known;
    int64_t offset_ns;
    uint64_t error_ns;
};

struct node_summary_row {
    const char *what, *code;
    bool matters;
    /* that have `value`; that have `others`, or 0: `others` is a sentence */
    uint32_t n_nodes, n_others;
    char *nodes;          /* "host3, host5 and 2 more"; owned */
    char *value, *others; /* owned */
};
struct node_summary_comparison {
    uint32_t n_nodes;              /* compared */
    struct node_summary_row *rows; /* owned; by fact, then in the order of the nodes */
    uint32_t n;
    uint32_t n_left_out; /* rows beyond NODE_SUMMARY_ROWS_MAX */
    bool matters;        /* whether any row matters */
    struct node_summary_failure {
        const char *host; /* borrowed from the index, as the next one */
        const struct node_summary_finding *finding;
    } * failures; /* what failed on which node; owned; in the order of the nodes */
    uint32_t n_failures, n_failures_left_out;
};
/* ids in rank order; clocks: one for each, or NULL: wall clocks are not compared, with
 * leader_clock_ns as the leader's node_summary.clock_ns. Nodes that are not in the index are
 * skipped. The usual value is the most frequent; of several, that of the lowest rank. */
void summary_index_compare(struct summary_index *b, const uint64_t *ids, size_t n,
                           const struct node_summary_clock *clocks, int64_t leader_clock_ns,
                           struct node_summary_comparison *ret);
/* Adds a failure that is in no summary. Borrows both. */
void node_summary_comparison_fail(struct node_summary_comparison *c, const char *host,
                                  const struct node_summary_finding *finding);
void node_summary_comparison_fini(struct node_summary_comparison *c);
/* Writes the lines of a table: a header, and one for each row; nothing without rows. */
void node_summary_comparison_table(const struct node_summary_comparison *c, struct strbuf *to);
/* "MTU-DIFFERS: host3 mtu 1400, the other 3: 1500; …"; the rows that matter. */
void node_summary_comparison_line(const struct node_summary_comparison *c, struct strbuf *to);

/* ==== the GPUs ==== */

struct node_summary_gpus {           /* borrowed */
    const struct topology *topology; /* with NVML's data merged in */
    /* NULL: NVML was not asked, because the driver does not exist */
    const struct nvml_report *report;
    uint32_t n_nvidia;              /* how many NVIDIA GPUs the PCI bus has, without NVML */
    struct nvml_xid xids[GPUS_MAX]; /* node_summary_add_xid(), by NVML's numbers; xid 0: none */
    uint64_t now_ns;                /* CLOCK_MONOTONIC, for these */
};
void node_summary_gpus(const struct node_summary_gpus *in, struct node_summary *d);
/* Whether a finding of this code is about a GPU that answers and is not well. */
bool node_summary_is_gpu_health(const char *code);
/* A kernel_log_fn for a struct node_summary_gpus: the last fatal Xid of each GPU counts, unless
 * NVML now reports that the GPU needs no recovery. */
void node_summary_add_xid(void *gpus, const char *record, size_t len);

/* A process that holds a GPU, or that NVML reports. */
struct node_summary_process {
    uint64_t pid;  /* 0: not reported */
    uint32_t gpu;  /* NVML's number; TOPO_NONE: not reported */
    bool seen;     /* this process can see it; else it is in another container, or hidden */
    char name[17]; /* "" if it is not seen */
};
/* A process that is listed twice counts once. */
void node_summary_busy(const struct node_summary_process *all, uint32_t n, struct node_summary *d);
