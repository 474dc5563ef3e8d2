/* OpenSSL, for sessions with servers that have certificates. No file but tls*.c uses it directly
 * (sessions with a pre-shared key: tls_psk.h). It is loaded when TLS is first used, not when the
 * program starts: most runs don't use TLS, and loading takes as long as the whole rest of a start.
 * With meson's option `portable` it is in the program.
 *
 *     struct tls_config config = {.cacert = "ca.pem"};
 *     r = tls_client_new(&config, &client, &err);
 *     r = tls_session_new(client, "etcd1.example", &session, &err);
 *     … the session is used (http.c gives it to libevent, which frees it); if that failed:
 *     tls_session_why(session, code, errno, text)
 *
 * A server needs a certificate with its name that the CA signed. TLS 1.2 and later. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define TLS_TEXT_MAX 64
#define TLS_WHY_MAX 256

/* Such as "OpenSSL 3.0.11 19 Sep 2023": the version of the headers. */
const char *tls_built_version(void);
/* The version of the library found at run time, which stays loaded. False: there is no library. */
_must_use_ bool tls_found_version(char out[TLS_TEXT_MAX]);

struct tls_config {
    const char *cacert;     /* PEM file of the authorities; NULL: the system's */
    const char *cert, *key; /* PEM files of our own certificate; both or neither (NULL) */
};

struct tls_client; /* what all sessions share */
struct ssl_st;     /* one session: OpenSSL's SSL */

/* -ELIBACC: OpenSSL is not installed; -ENOENT, -EACCES, …: a file can't be read; -EINVAL: a file
 * has something else, or the key is encrypted or not the certificate's. */
_must_use_ int tls_client_new(const struct tls_config *config, struct tls_client **ret,
                              struct err *err);
/* Sessions can outlive it. Takes NULL. */
void tls_client_free(struct tls_client *t);
/* Creates a session with the server of this name or address, which its certificate must have. */
_must_use_ int tls_session_new(struct tls_client *t, const char *host, struct ssl_st **ret,
                               struct err *err);
void tls_session_free(struct ssl_st *session); /* if you still own it */
/* Writes why the session failed: from the result of the certificate check ("certificate verify
 * failed: …"), else from OpenSSL's error code (0: none), else from an errno (0: none). */
void tls_session_why(const struct ssl_st *session, unsigned long code, int error,
                     char out[TLS_WHY_MAX]);
