/* The two small languages of torchrun's rendezvous options: HOST:PORT and KEY=VALUE,KEY=VALUE.
 * (torch/distributed/elastic/rendezvous/utils.py of 2.13, by its behaviour.) Pure. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/strbuf.h"

/* "host", "host:29500", "[::1]", "[::1]:29500", "::1:29500" (split at the last colon; "::1" and
 * "fe80::1" are whole). Brackets are removed. 0; -EINVAL; -ENODATA, without an error text, when
 * there is nothing but blanks. *ret_host is malloc'ed; *ret_port is -1 when none was given. */
_must_use_ int rdzv_endpoint_parse(const char *text, char **ret_host, int32_t *ret_port,
                                   struct err *err);

/* What --rdzv-conf says; times are 0 when they were not given. */
struct rdzv_conf {
    uint64_t join_timeout_ns, last_call_ns, close_timeout_ns;
    uint64_t regroup_ns; /* ours: a lost node's place is kept so long for another */
    uint64_t read_timeout_ns;
    uint64_t keep_alive_interval_ns;
    uint32_t keep_alive_max_attempt; /* 0: not given */
    uint64_t timeout_ns;             /* static: the whole meeting */
    int is_host;                     /* 1, 0, -1: not given */
    int32_t rank;                    /* static: node rank; -1: not given */
};

/* Unknown keys, and keys without effect here, add a line to `warnings`; of a key given twice the
 * last counts. -EINVAL: no value, a number that is none or is not above 0, store_type=file. */
_must_use_ int rdzv_conf_parse(const char *text, struct rdzv_conf *ret, struct strbuf *warnings,
                               struct err *err);
