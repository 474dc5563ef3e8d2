/* What a node is made of and how it is set up, in a few short texts, and what differs between many
 * nodes. Pure: digest_io.h gathers a digest, the rendezvous carries it to the leader, who keeps
 * all of them in a book and compares those of a group.
 *
 *     digest_write(&d, &json);                                      on each node
 *     digest_read(text, len, &d, &err); digest_book_put(book, id, host, &d);    on the leader
 *     digest_book_compare(book, ids, n, &cmp);
 *     for each cmp.rows: "host3 mtu 1400, the other 3: 1500"
 *
 * A book keeps each value once, however many nodes have it, and a few numbers for each node;
 * comparing takes time in proportion to the number of nodes. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define DIGEST_VALUE_MAX 512
#define DIGEST_HOST_MAX 128
#define DIGEST_FINDINGS_MAX 16
#define DIGEST_TEXT_MAX 256
#define DIGEST_ROWS_MAX 64        /* of one comparison; what is beyond is counted */
#define DIGEST_NAMES_MAX 8        /* nodes named in one row */
#define DIGEST_CLOCK_MAX_NS (1 * NS_PER_S) /* wall clocks further apart than this are said */

enum digest_fact {
    DIGEST_GPUS = 0, /* "8 x NVIDIA H100 80GB HBM3", "4 x A, 4 x B (1 in MIG mode)", "none" */
    DIGEST_DRIVER,
    DIGEST_CUDA,     /* what the driver supports */
    DIGEST_NCCL,
    DIGEST_TORCH,
    DIGEST_HCAS,     /* "mlx5_0 400 Gb/s IB ACTIVE, …" in rail order; "none" */
    DIGEST_RAILS,    /* the first adapter of each GPU by NCCL's rules: "GPU0 mlx5_0, …" */
    DIGEST_NETIF,    /* interface that the workers use between nodes */
    DIGEST_MTU,      /* of that interface */
    DIGEST_FAST,     /* interface of a faster network, which is taken where all have one; "none" */
    DIGEST_FAST_MTU, /* of that interface */
    DIGEST_MEMLOCK,
    DIGEST_SHM,
    DIGEST_NAME,     /* what the node's own name resolves to */
    DIGEST_KERNEL,
    /* every node has its own; not compared: */
    DIGEST_DISK,      /* free bytes of the log directory's disk, "123 GiB" */
    DIGEST_PROCESSES, /* that hold GPUs already: "0" */
    DIGEST_FACT_COUNT,
};
const char *digest_fact_name(enum digest_fact f); /* "mtu": in JSON, and for people */
const char *digest_fact_code(enum digest_fact f); /* "MTU-DIFFERS" */
/* Workers of one job can't well do with a difference in this: --preflight=strict refuses it. */
bool digest_fact_matters(enum digest_fact f);
bool digest_fact_compared(enum digest_fact f);

enum digest_level { DIGEST_OK = 1, DIGEST_WARN, DIGEST_FAIL };
const char *digest_level_name(enum digest_level l); /* "ok", "warn", "fail" */

/* What one check of this node says. */
struct digest_finding {
    enum digest_level level;
    char code[24];                 /* "MEMLOCK-LOW" */
    char text[DIGEST_TEXT_MAX];    /* one sentence */
};

struct digest {
    char values[DIGEST_FACT_COUNT][DIGEST_VALUE_MAX]; /* "": not known, and not compared */
    bool has_clock;
    int64_t clock_ns;              /* CLOCK_REALTIME - CLOCK_MONOTONIC */
    uint32_t n_findings;
    struct digest_finding findings[DIGEST_FINDINGS_MAX];
};
void digest_set(struct digest *d, enum digest_fact f, const char *fmt, ...) _printf_(3, 4);
/* Where there is no room, one that weighs less makes it, or nothing is done. */
void digest_add(struct digest *d, enum digest_level level, const char *code, const char *fmt, ...)
    _printf_(4, 5);
enum digest_level digest_worst(const struct digest *d); /* DIGEST_OK without findings */

/* As a JSON object of less than `max` bytes: "facts", "clock_ns", and of the findings those that
 * are no DIGEST_OK and for which there is room. */
void digest_write(const struct digest *d, size_t max, struct strbuf *to);
/* -EINVAL: no digest. Facts of another version of muster that are not known here are left out.
 * Texts are cleaned of what is not for a terminal. */
_must_use_ int digest_read(const char *text, size_t len, struct digest *ret, struct err *err);

struct digest_book;
struct digest_book *digest_book_new(uint64_t seed);
void digest_book_free(struct digest_book *b);
/* Takes in, or replaces, what node `id` (not 0) says. Copies. */
void digest_book_put(struct digest_book *b, uint64_t id, const char *host, const struct digest *d);
void digest_book_drop(struct digest_book *b, uint64_t id);
bool digest_book_has(const struct digest_book *b, uint64_t id);
size_t digest_book_nodes(const struct digest_book *b);
size_t digest_book_values(const struct digest_book *b); /* distinct ones, for tests */

/* How far a node's monotonic clock is behind the leader's: leader's = node's + offset. */
struct digest_clock {
    bool known;
    int64_t offset_ns;
    uint64_t error_ns;
};

struct digest_row {
    const char *what, *code;
    bool matters;
    uint32_t n_nodes, n_others;   /* that have `value`; that have `others` */
    char *nodes;                  /* "host3, host5 and 2 more"; owned */
    char *value, *others;         /* owned */
};
struct digest_comparison {
    uint32_t n_nodes;             /* compared */
    struct digest_row *rows;      /* owned; by fact, then as the nodes come */
    uint32_t n;
    uint32_t n_left_out;          /* rows beyond DIGEST_ROWS_MAX */
    bool matters;                 /* any of them does */
};
/* ids in rank order; clocks: one for each, or NULL: wall clocks are not compared, with
 * leader_clock_ns as digest.clock_ns of the leader's machine. Nodes that have not been put are
 * passed over. A value that most of the nodes have is the usual one; of equals, that of the lowest
 * rank. */
void digest_book_compare(struct digest_book *b, const uint64_t *ids, size_t n,
                         const struct digest_clock *clocks, int64_t leader_clock_ns,
                         struct digest_comparison *ret);
void digest_comparison_fini(struct digest_comparison *c);
/* Lines of a table, each with its end: a head, and one for each row. Nothing without rows. */
void digest_comparison_table(const struct digest_comparison *c, struct strbuf *to);
/* In one line: "MTU-DIFFERS: host3 mtu 1400, the other 3: 1500; …"; only rows that matter, or all.
 */
void digest_comparison_line(const struct digest_comparison *c, bool only_matters,
                            struct strbuf *to);
