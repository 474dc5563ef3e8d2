#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/addr.h"
#include "watchdog/look/ras.h"
#include "watchdog/look/socket_io.h"

#define REPLY_MAX 1024 /* of the lines before the answer */

/* "localhost:28028", "10.0.0.1:28028", "[::1]:28028". Returns how many addresses it has:
 * "localhost" is two, because NCCL listens on the one that its resolver returned. -EINVAL. */
static int find_addrs(const char *address, struct addr ret[2], struct err *err) {
    const char *colon = strrchr(address, ':');
    uint16_t port = 0;
    if (colon == NULL || parse_port(colon + 1, &port) < 0 || port == 0)
        return err_set(err, -EINVAL, "NCCL_RAS_ADDR=%s is not HOST:PORT", address);
    _cleanup_(freep) char *host = xstrndup(address, (size_t)(colon - address));
    int n = strcmp(host, "localhost") == 0 ? 2 : 1;
    if (addr_from_literal(n == 2 ? "127.0.0.1" : host, port, &ret[0]) < 0 ||
        addr_from_literal("::1", port, &ret[1]) < 0)
        return err_set(err, -EINVAL,
                       "NCCL_RAS_ADDR=%s: muster asks only IP addresses and localhost", address);
    return n;
}

static int dial(const struct addr *addrs, int n, uint64_t deadline_ns, int *ret) {
    int r = -EINVAL;
    for (int i = 0; i < n; i++) {
        r = socket_dial((const struct sockaddr *)&addrs[i].ss, addrs[i].len, deadline_ns, ret);
        if (r != -ECONNREFUSED && r != -EADDRNOTAVAIL && r != -EAFNOSUPPORT)
            return r;
    }
    return r == -EADDRNOTAVAIL || r == -EAFNOSUPPORT ? -ECONNREFUSED : r;
}

/* Sends a line and reads the line with which the service replies. 1: the reply begins as expected.
 */
static int command(int fd, const char *line, const char *expected, uint64_t deadline_ns) {
    _cleanup_(strbuf_fini) struct strbuf reply = {0};
    int r = socket_send_text(fd, line, deadline_ns);
    while (r == 0 && strchr(strbuf_text(&reply), '\n') == NULL) {
        r = socket_receive(fd, &reply, REPLY_MAX, deadline_ns);
        r = r == 0 ? -ECONNRESET : r == 1 ? 0 : r;
    }
    if (r == -EMSGSIZE)
        return -EPROTO;
    return r < 0 ? r : strncmp(strbuf_text(&reply), expected, strlen(expected)) == 0;
}

/* -EPROTO: the program that listens there is not RAS; -ENOTSUP: it does not know JSON. */
static int question(int fd, uint64_t deadline_ns, struct strbuf *answer) {
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    char line[64];
    int r = command(fd, "CLIENT PROTOCOL 2\n", "SERVER PROTOCOL ", deadline_ns);
    if (r <= 0)
        return r < 0 ? r : -EPROTO;
    /* How long it waits for other processes, twice: they have a second left to answer in. */
    uint64_t seconds = left * 2 / 5 / NS_PER_S;
    (void)snprintf(line, sizeof line, "TIMEOUT %u\n", (unsigned)MAX2(seconds, (uint64_t)1));
    r = command(fd, line, "OK", deadline_ns);
    if (r >= 0)
        r = command(fd, "SET FORMAT json\n", "OK", deadline_ns);
    if (r <= 0)
        return r < 0 ? r : -ENOTSUP;
    r = socket_send_text(fd, "VERBOSE STATUS\n", deadline_ns);
    return r < 0 ? r : socket_receive_all(fd, answer, RAS_ANSWER_MAX, deadline_ns);
}

static int explain(int r, const char *address, struct err *err) {
    if (r == -ECONNREFUSED)
        return err_set(err, r,
                       "no answer on %s: no worker uses NCCL 2.28.7 or newer, or NCCL_RAS_ENABLE "
                       "is 0",
                       address);
    if (r == -ETIMEDOUT)
        return err_set(err, r, "NCCL's RAS service on %s did not answer in time", address);
    if (r == -EMSGSIZE)
        return err_set(err, r, "NCCL's RAS service on %s answered with more than %u bytes", address,
                       RAS_ANSWER_MAX);
    if (r == -ENOTSUP)
        return err_set(err, r,
                       "NCCL's RAS service on %s cannot answer in JSON: NCCL 2.28.7 or newer is "
                       "needed",
                       address);
    if (r == -EPROTO)
        return err_set(err, -EINVAL, "the program listening on %s is not NCCL's RAS service",
                       address);
    return err_set(err, r, "cannot ask NCCL's RAS service on %s: %s", address, strerror(-r));
}

int source_ras(const char *address, uint64_t deadline_ns, struct ras *ret, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf answer = {0};
    struct addr addrs[2];
    int fd = -1;
    *ret = (struct ras){0};
    int n = find_addrs(address, addrs, err);
    if (n < 0)
        return n;
    int r = dial(addrs, n, deadline_ns, &fd);
    if (r == 0)
        r = question(fd, deadline_ns, &answer);
    file_close(&fd);
    if (r < 0)
        return explain(r, address, err);
    r = ras_read(strbuf_text(&answer), answer.len, ret, err);
    if (r < 0)
        err_prefix(err, "the answer of NCCL's RAS service on %s cannot be read", address);
    return r;
}
