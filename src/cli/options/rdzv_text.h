/* The small languages of the rendezvous options: torchrun's HOST:PORT and KEY=VALUE,KEY=VALUE (with
 * the behaviour of torch/distributed/elastic/rendezvous/utils.py in 2.13), and places like
 * dir:/path and etcd://host:2379. Pure. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"
#include "launcher/job/job.h"

/* The ports of an endpoint: one, from 0 on, or several, from 1 on, which torchrun refuses. */
struct rdzv_ports {
    uint16_t list[JOB_ENDPOINT_PORTS_MAX];
    unsigned n; /* 0: none was given */
};
/* "host", "host:29500", "[::1]", "[::1]:29500", "::1:29500" (split at the last colon; "::1" and
 * "fe80::1" are whole), "host:5,7-9" (port_list_parse()). Brackets are removed. Returns 0; -EINVAL
 * with a sentence; -ENODATA, without one, if there are only blanks. *ret_host is malloc'ed. */
_must_use_ int rdzv_endpoint_parse(const char *text, char **ret_host, struct rdzv_ports *ret_ports,
                                   struct err *err);

/* Where nodes meet, or where a job is asked about. Owns its texts: rdzv_place_fini(). */
struct rdzv_place {
    enum job_backend backend; /* C10D: a host; DIR; ETCD */
    char *host;               /* C10D; without brackets */
    struct rdzv_ports ports;  /* C10D */
    char *dir;                /* DIR: absolute, or as it was given: rdzv_place_absolute() */
    char **etcd_endpoints;    /* ETCD: "host:port" or "[v6]:port", NULL-terminated, at least one */
    bool etcd_tls;            /* ETCD: https */
    char *etcd_prefix;        /* ETCD: "/a/b" without '/' at its end; NULL: not given */
    char *user, *password;    /* ETCD: from USER:PASSWORD@; NULL: not given */
};
void rdzv_place_fini(struct rdzv_place *place);

#define RDZV_ETCD_PORT 2379
#define RDZV_ETCD_PREFIX "/muster" /* the default */
#define RDZV_PATH_MAX 3000         /* the limit for a directory's or a prefix's name, in bytes */

/* HOST[:PORTS] | dir:PATH | /PATH | etcd://[USER[:PASSWORD]@]HOST[:PORT],…[/PREFIX]; etcd: without
 * slashes means the same; etcds: and etcd+https: are etcd over TLS. A host can be called "dir" or
 * "etcd": then a port follows the colon. *ret is changed only on success. Returns 0; -EINVAL with a
 * sentence, which contains no password; -ENODATA, without one, if there are only blanks. */
_must_use_ int rdzv_place_parse(const char *text, struct rdzv_place *ret, struct err *err);
/* The same for a text whose backend, DIR or ETCD, is known from --rdzv-backend: the prefix "dir:"
 * or "etcd:" can be missing, and etcd can begin with http:// or https://. */
_must_use_ int rdzv_place_parse_as(enum job_backend backend, const char *text,
                                   struct rdzv_place *ret, struct err *err);
/* Makes a DIR absolute under `cwd`. Others are not changed. */
void rdzv_place_absolute(struct rdzv_place *place, const char *cwd);
/* `text` with *** in place of a password, for messages; malloc'ed. */
_must_use_ char *rdzv_place_shown(const char *text);
/* "a/b/" to "/a/b", "/" to "": as job_spec.etcd_prefix. malloc'ed; NULL: it is not a valid prefix
 * (too long, control characters, '?' or '#'). */
_must_use_ char *rdzv_prefix_normal(const char *text, size_t n);

/* The settings of --rdzv-conf; times are 0 if they were not given. */
struct rdzv_conf {
    uint64_t join_timeout_ns, last_call_ns, close_timeout_ns;
    uint64_t regroup_ns; /* ours: how long a lost node's place is kept for another node */
    uint64_t read_timeout_ns;
    uint64_t keep_alive_interval_ns;
    uint32_t keep_alive_max_attempt; /* 0: not given */
    uint64_t timeout_ns;             /* static, etcd: the whole meeting */
    char *bad_timeout;  /* malloc'ed: why static and etcd refuse its `timeout`; NULL: no reason */
    int is_host;        /* 1, 0, -1: not given */
    int32_t rank;       /* static: node rank; -1: not given */
    bool store_file;    /* store_type=file: the endpoint is a path */
    bool is_about_etcd; /* one of the following was given */
    int etcd_tls;       /* protocol: 1 https, 0 http, -1: not given */
    /* malloc'ed; NULL: not given */
    char *etcd_prefix; /* as it was written */
    char *etcd_cacert, *etcd_cert, *etcd_key;
    char *etcd_user, *etcd_password, *etcd_password_file;
};
void rdzv_conf_fini(struct rdzv_conf *conf);

/* Unknown keys, and keys without effect here, add a line to `warnings`. Of two values the last
 * counts. -EINVAL: no value, an invalid number or one that is not above 0, another store_type than
 * tcp and file. *ret is written only on success; rdzv_conf_fini() frees it. */
_must_use_ int rdzv_conf_parse(const char *text, struct rdzv_conf *ret, struct strbuf *warnings,
                               struct err *err);
