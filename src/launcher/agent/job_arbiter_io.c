#include "launcher/agent/job_arbiter_io.h"

#include "rendezvous/arbiter/dir/arbiter_dir_io.h"
#include "rendezvous/arbiter/etcd/arbiter_etcd_io.h"

int job_arbiter_new(struct loop *loop, const struct job_spec *spec, bool read_only,
                    uint64_t timeout_ns, struct arbiter **ret, struct err *err) {
    struct arbiter_dir_config dir = {.path = spec->arbiter_dir,
                                     .run_id = spec->run_id,
                                     .read_only = read_only,
                                     .timeout_ns = timeout_ns};
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
        .timeout_ns = timeout_ns,
    };
    switch (spec->backend) {
    case JOB_BACKEND_DIR: return arbiter_dir_new(loop, &dir, ret, err);
    case JOB_BACKEND_ETCD:
        while (spec->etcd_endpoints[etcd.n] != NULL)
            etcd.n++;
        return arbiter_etcd_new(loop, &etcd, ret, err);
    case JOB_BACKEND_STATIC:
    case JOB_BACKEND_C10D:
    case JOB_BACKEND_COUNT: break;
    }
    assert_not_reached();
}
