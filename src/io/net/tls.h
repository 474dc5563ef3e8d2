/* OpenSSL: the only place that knows it. It is loaded when TLS is first used, not with the program:
 * most runs use none, and loading takes as long as all the rest of a start.
 *
 *     struct tls_config config = {.cacert = "ca.pem"};
 *     r = tls_client_new(&config, &client, &err);
 *     r = tls_session_new(client, "etcd1.example", &session, &err);
 *     … the session speaks (io/http hands it to libevent, which frees it); when that failed:
 *     tls_session_why(session, code, errno, text)
 *
 * A server must have a certificate that the CA vouches for and that names it. TLS 1.2 and later. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define TLS_TEXT_MAX 64
#define TLS_WHY_MAX 256

/* "OpenSSL 3.0.11 19 Sep 2023", of the headers. */
const char *tls_built_version(void);
/* The same of the library found at run time; it stays loaded. False: there is none. */
_must_use_ bool tls_found_version(char out[TLS_TEXT_MAX]);

struct tls_config {
    const char *cacert;     /* PEM file of the authorities; NULL: the system's */
    const char *cert, *key; /* PEM files of our own certificate; both or neither (NULL) */
};

struct tls_client; /* what all sessions share */
struct ssl_st;     /* one session: OpenSSL's SSL */

/* Reads the files. -ELIBACC: no OpenSSL 3 here; -ENOENT, -EACCES, …: a file can't be read; -EINVAL:
 * it holds something else, the key is encrypted, or is not the certificate's. */
_must_use_ int tls_client_new(const struct tls_config *config, struct tls_client **ret,
                              struct err *err);
/* Sessions may outlive it. NULL is fine. */
void tls_client_free(struct tls_client *t);
/* A session with the server of this name or literal address, which its certificate must have. */
_must_use_ int tls_session_new(struct tls_client *t, const char *host, struct ssl_st **ret,
                               struct err *err);
void tls_session_free(struct ssl_st *session); /* one that nobody has taken */
/* Why it failed, in words: from its verdict on the certificate ("certificate verify failed: …"),
 * else from OpenSSL's error code (0: none), else from an errno (0: none). */
void tls_session_why(const struct ssl_st *session, unsigned long code, int error,
                     char out[TLS_WHY_MAX]);
