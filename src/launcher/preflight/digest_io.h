/* Gathers this node's digest: looks at GPUs, adapters, interfaces, versions, limits and names, and
 * checks what it finds. In a child process with a deadline, because libraries of sick GPUs and name
 * servers can block; what was found by then is the digest. On a node without GPUs no library is
 * loaded.
 *
 *     digest_start(loop, &config, on_digest, me, &d);
 *     … on_digest(me, &digest, whole)                    or digest_stop(d) */
#pragma once

#include "io/loop.h"
#include "launcher/preflight/digest.h"

#define DIGEST_GATHER_NS (8 * NS_PER_S)

struct digest_config { /* borrowed for the call */
    char *const *envp;
    const char *python;   /* of the workers; NULL: none */
    const char *log_dir;  /* whose disk must have room; NULL: none */
    const char *netif;    /* that the workers use between nodes; "": not chosen */
    const char *fast_netif; /* of a faster network; "": there is none; NULL: not looked for */
    const char *host;     /* this node's name */
    uint64_t timeout_ns;  /* 0: DIGEST_GATHER_NS */
};

struct digest_gathering;
/* whole: false when the deadline came first. The object is freed then. */
typedef void digest_fn(void *arg, const struct digest *d, bool whole);

/* fn is called later, never from inside. 0, or a negative errno. */
_must_use_ int digest_start(struct loop *loop, const struct digest_config *config, digest_fn *fn,
                            void *arg, struct digest_gathering **ret);
/* Gives it up: the child is killed, fn is not called. NULL is fine. */
void digest_stop(struct digest_gathering *g);
