#include "launcher/agent/start_keys_io.h"

#include <errno.h>
#include <string.h>

#include "base/text/log.h"
#include "io/net/addr.h"
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#define JOB_DIR_NS (10 * NS_PER_S)

bool start_is_local(const struct job_spec *spec) {
    struct addr at;
    if (job_backend(spec)->any_node_leads)
        return false;
    if (spec->endpoint_host == NULL || strcmp(spec->endpoint_host, "localhost") == 0)
        return true;
    return addr_from_literal(spec->endpoint_host, 0, &at) == 0 && addr_is_loopback(&at);
}

/* Whoever comes first makes it. A file system that does not answer now is waited for later, too;
 * meanwhile there may be another key, or munge. */
static int load_job_dir(const struct job_spec *spec, struct keyring *ring, struct err *err) {
    uint8_t secret[AUTH_SECRET_BYTES];
    struct err why = {0};
    if (!job_backend(spec)->own_key)
        return 0;
    int r = arbiter_dir_key(spec->arbiter_dir, spec->run_id, false, JOB_DIR_NS, secret, &why);
    if (r == -ETIMEDOUT || r == -EIO || r == -ESTALE) {
        log_warning("%s; the job's folder gives this node no key", why.text);
        return 0;
    }
    if (r < 0)
        return err_set(err, r, "--rdzv-endpoint: %s", why.text);
    r = keyring_add(ring, secret, AUTH_FROM_JOB_DIR, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}

static int find(const struct job_spec *spec, struct keyring *ring, struct err *err) {
    int r = load_job_dir(spec, ring, err);
    return r < 0 ? r : keyring_load_home(ring, KEYRING_HOME_NS, err);
}

int start_keys(const struct job_spec *spec, const struct keyring *given, struct keyring **ret,
               struct err *err) {
    struct keyring *ring;
    int r = keyring_new(&ring, err);
    if (r < 0)
        return r;
    r = keyring_add_all(ring, given, err);
    if (r == 0 && !keyring_is_given(ring) && spec->auth != AUTH_NONE && !start_is_local(spec))
        r = find(spec, ring, err);
    if (r < 0)
        keyring_free(ring);
    else
        *ret = ring;
    return r;
}
