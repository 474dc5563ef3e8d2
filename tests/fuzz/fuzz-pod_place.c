/* An index in the first line, then any bytes as /etc/hosts: the names that are found fit together. */
#include <stdlib.h>
#include <string.h>

#include "launcher/place/place.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char index[64] = "JOB_COMPLETION_INDEX=", service[] = "KUBERNETES_SERVICE_HOST=10.96.0.1";
    const uint8_t *end = memchr(data, '\n', size);
    size_t n = end == NULL ? 0 : (size_t)(end - data);
    if (end == NULL || n > 16 || memchr(data, '\0', size) != NULL)
        return 0;
    (void)strncat(index, (const char *)data, n);
    char *hosts = malloc(size - n); /* without the newline, with a NUL */
    check(hosts != NULL);
    memcpy(hosts, end + 1, size - n - 1);
    hosts[size - n - 1] = '\0';
    char *envp[] = {index, service, NULL};
    struct place_pod p;
    place_read_pod(envp, hosts, &p);
    free(hosts);
    check((p.full_name[0] == '\0') == (p.first_host[0] == '\0') && (p.full_name[0] == '\0') == (p.job[0] == '\0'));
    check((p.n_addrs == 0) == (p.full_name[0] == '\0') && p.n_addrs <= PLACE_POD_ADDRS_MAX);
    if (p.full_name[0] == '\0')
        return 0;
    const char *domain = strchr(p.full_name, '.');
    check(p.kind == PLACE_POD_INDEXED && domain != NULL && strlen(p.full_name) < PLACE_POD_NAME_MAX);
    check(strncmp(p.first_host, p.job, strlen(p.job)) == 0 && strncmp(p.first_host + strlen(p.job), "-0.", 3) == 0);
    check(strcmp(strchr(p.first_host + strlen(p.job), '.'), domain) == 0);
    check((p.index == 0) == (strcmp(p.first_host, p.full_name) == 0));
    check(place_pod_is_own(&p, p.full_name) && place_pod_is_own(&p, p.addrs[p.n_addrs - 1]));
    return 0;
}
