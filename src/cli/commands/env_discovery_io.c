#include "cli/commands/env_discovery_io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Only the host, without brackets and port. */
static char *host_of(const char *endpoint) {
    const char *close = strchr(endpoint, ']');
    if (endpoint[0] == '[' && close != NULL)
        return xstrndup(endpoint + 1, (size_t)(close - endpoint - 1));
    const char *colon = strchr(endpoint, ':');
    /* with two colons it is an IPv6 address */
    bool port = colon != NULL && strchr(colon + 1, ':') == NULL;
    return xstrndup(endpoint, port ? (size_t)(colon - endpoint) : strlen(endpoint));
}

int env_leader_address(const char *endpoint, char ret[46], struct err *err) {
    _cleanup_(freep) char *host = host_of(endpoint);
    if (endpoint[0] == '/' || strncmp(endpoint, "dir:", 4) == 0 || strstr(endpoint, "://") != NULL)
        return err_set(err, -EINVAL,
                       "--rdzv-endpoint=%s: there any node may lead; give one of them", endpoint);
    if (host[0] == '\0')
        return err_set(err, -EINVAL, "--rdzv-endpoint=%s: which host?", endpoint);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int r = getaddrinfo(host, NULL, &hints, &list);
    if (r != 0)
        return err_set(err, -ENOENT, "--rdzv-endpoint=%s: can't find the address of %s: %s",
                       endpoint, host, gai_strerror(r));
    r = getnameinfo(list->ai_addr, list->ai_addrlen, ret, 46, NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(list);
    return r != 0 ? err_set(err, -EINVAL, "--rdzv-endpoint=%s: %s", endpoint, gai_strerror(r)) : 0;
}

char *const *env_own(void) { return environ; }
