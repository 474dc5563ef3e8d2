#include "launcher/agent/job_arbiter_io.h"

#include "rendezvous/arbiter/dir/arbiter_dir_io.h"
#include "rendezvous/arbiter/etcd/arbiter_etcd_io.h"

static int new_dir(struct loop *loop, const struct job_arbiter_config *config, struct arbiter **ret,
                   struct err *err) {
    const struct job_spec *spec = config->spec;
    struct arbiter_dir_config dir = {.path = spec->arbiter_dir,
                                     .run_id = spec->run_id,
                                     .read_only = config->read_only,
                                     .timeout_ns = config->timeout_ns};
    return arbiter_dir_new(loop, &dir, ret, err);
}

static int new_etcd(struct loop *loop, const struct job_arbiter_config *config,
                    struct arbiter **ret, struct err *err) {
    const struct job_spec *spec = config->spec;
    struct arbiter_etcd_config etcd = {
        .endpoints = (const char *const *)spec->etcd_endpoints,
        .prefix = spec->etcd_prefix,
        .run_id = spec->run_id,
        .user = spec->etcd_user,
        .password = spec->etcd_password,
        .tls = spec->etcd_tls,
        .cacert = spec->etcd_cacert,
        .cert = spec->etcd_cert,
        .key = spec->etcd_key,
        .timeout_ns = config->timeout_ns,
    };
    while (spec->etcd_endpoints[etcd.n] != NULL)
        etcd.n++;
    return arbiter_etcd_new(loop, &etcd, ret, err);
}

int job_arbiter_new(struct loop *loop, const struct job_arbiter_config *config,
                    struct arbiter **ret, struct err *err) {
    switch (config->spec->backend) {
    case JOB_BACKEND_DIR: return new_dir(loop, config, ret, err);
    case JOB_BACKEND_ETCD: return new_etcd(loop, config, ret, err);
    case JOB_BACKEND_STATIC:
    case JOB_BACKEND_C10D:
    case JOB_BACKEND_COUNT: break;
    }
    assert_not_reached();
}
