#include "launcher/ssh/ssh_job.h"

#include <string.h>

struct job_spec ssh_job_of(const struct job_spec *spec, const struct ssh_place *place) {
    const struct hosts *hosts = &spec->hosts.list;
    const uint32_t slots = hosts->items[place->host].slots;
    struct job_spec job = *spec;
    if (!job_is_given(spec, "node-rank"))
        job.node_rank = (int32_t)((place->host + hosts->n - place->first) % hosts->n);
    if (!job_is_given(spec, "nproc-per-node") && slots > 0)
        job.nproc = slots;
    if (!job_meets_at_host(spec))
        return job;
    job.endpoint_host = (char *)(uintptr_t)place->addr;
    job.endpoint_port = place->port;
    /* two hosts may have one address (names of one machine, NAT), so addresses don't decide */
    if (job.is_host < 0)
        job.is_host = place->host == place->first;
    return job;
}

/* Those of this machine itself, or of a link that no other host has. */
static bool is_narrow(const char *addr, size_t len) {
    return strncmp(addr, "127.", 4) == 0 || (len == 3 && strncmp(addr, "::1", 3) == 0) ||
           strncmp(addr, "169.254.", 8) == 0 || strncmp(addr, "fe80:", 5) == 0;
}

char *ssh_meeting_addr(const char *addrs) {
    for (const char *at = addrs; *at != '\0';) {
        size_t n = strcspn(at, ",");
        if (n > 0 && !is_narrow(at, n))
            return xstrndup(at, n);
        at += n + (at[n] == ',');
    }
    size_t n = strcspn(addrs, ",");
    return n > 0 ? xstrndup(addrs, n) : xstrdup("127.0.0.1");
}
