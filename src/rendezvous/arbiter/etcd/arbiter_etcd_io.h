/* The arbiter over etcd v3, by its JSON gateway (etcd 3.4 and later): arbiter_io.h, arbiter_etcd.h.
 *
 * It keeps using the endpoint that answered last. If that does not answer, or can't (no leader, a
 * status of 5xx), the next one is tried within the same request's time. Names are looked up in a
 * child process, and connections are kept open. No TLS library is loaded unless `tls` is set. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "rendezvous/arbiter/arbiter_io.h"

#define ARBITER_ETCD_ENDPOINTS_MAX 16
#define ARBITER_ETCD_PREFIX_MAX 512   /* bytes */
#define ARBITER_ETCD_PREFIX "/muster" /* used if none is given */

/* All texts are copied; NULL if not given. */
struct arbiter_etcd_config {
    /* "host", "host:2379", "10.0.0.1:2379", "[fd00::1]:2379", each may begin with http:// or, with
     * tls, https://; 1 … ARBITER_ETCD_ENDPOINTS_MAX */
    const char *const *endpoints;
    size_t n;
    const char *prefix;          /* keys are <prefix>/<run id>/…; or NULL */
    const char *run_id;          /* 1 … RDZV_RUN_ID_MAX - 1 bytes */
    const char *user, *password; /* both or neither */
    bool tls;                    /* also where an endpoint begins with https:// */
    /* PEM files. cacert: NULL means the system's. cert and key: both or neither */
    const char *cacert, *cert, *key;
    uint64_t timeout_ns; /* of a request, for all endpoints together; 0: ARBITER_TIMEOUT_NS */
};

/* 0; -EINVAL: the configuration is wrong; -ENOENT, -EACCES, …: one of its files can't be read;
 * -ELIBACC: a library of TLS or HTTP can't be loaded. The loop must outlive it. */
_must_use_ int arbiter_etcd_new(struct loop *loop, const struct arbiter_etcd_config *config,
                                struct arbiter **ret, struct err *err);
