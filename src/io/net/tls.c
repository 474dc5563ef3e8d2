#include "io/net/tls.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/net/addr.h"
#include "io/net/tls_library.h"

/* --- what all sessions share ------------------------------------------------------------------ */

struct tls_client {
    SSL_CTX *ctx;
};

static int no_password(char *buf, int size, int writing, void *arg) {
    return -1; /* don't ask on the terminal */
}

/* OpenSSL's error text for a missing file is not helpful. */
static int check_readable(const char *what, const char *path, struct err *err) {
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return err_set(err, -errno, "cannot read the %s '%s': %s", what, path, strerror(errno));
    (void)fclose(f);
    return 0;
}

/* An OpenSSL that was built for one system looks where that system keeps its authorities. The one
 * in a portable program looks where the others keep theirs, too. */
static void use_other_places(struct tls_client *t) {
#ifdef MUSTER_LINKED
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch: update-ca-certificates(8) */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, Red Hat: update-ca-trust(8) */
        "/etc/ssl/ca-bundle.pem",             /* SUSE */
    };
    if (getenv("SSL_CERT_FILE") != NULL) /* OpenSSL obeys it */
        return;
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (tls_library.SSL_CTX_load_verify_locations(t->ctx, places[i], NULL) == 1)
            break;
    tls_library.ERR_clear_error();
#endif
}

static int use_ca(struct tls_client *t, const char *path, struct err *err) {
    if (path == NULL)
        use_other_places(t);
    if (path == NULL)
        return tls_library.SSL_CTX_set_default_verify_paths(t->ctx) == 1
                   ? 0
                   : err_set(err, -EIO, "cannot use the system's certificate authorities: %s",
                             tls_library_reason());
    int r = check_readable("file of certificate authorities", path, err);
    if (r == 0 && tls_library.SSL_CTX_load_verify_locations(t->ctx, path, NULL) != 1)
        r = err_set(err, -EINVAL, "no certificate authority in '%s' (PEM is expected): %s", path,
                    tls_library_reason());
    return r;
}

static int use_own(struct tls_client *t, const char *cert, const char *key, struct err *err) {
    if ((cert == NULL) != (key == NULL))
        return err_set(err, -EINVAL,
                       "a client certificate needs its key, and a key its "
                       "certificate: give both files");
    if (cert == NULL)
        return 0;
    int r = check_readable("client certificate", cert, err);
    if (r == 0)
        r = check_readable("key of the client certificate", key, err);
    if (r < 0)
        return r;
    tls_library.SSL_CTX_set_default_passwd_cb(t->ctx, no_password);
    if (tls_library.SSL_CTX_use_certificate_chain_file(t->ctx, cert) != 1)
        return err_set(err, -EINVAL, "no certificate in '%s' (PEM is expected): %s", cert,
                       tls_library_reason());
    if (tls_library.SSL_CTX_use_PrivateKey_file(t->ctx, key, SSL_FILETYPE_PEM) != 1)
        return err_set(err, -EINVAL,
                       "no usable key in '%s' (PEM without a password is expected, "
                       "and it must belong to '%s'): %s",
                       key, cert, tls_library_reason());
    return tls_library.SSL_CTX_check_private_key(t->ctx) == 1
               ? 0
               : err_set(err, -EINVAL, "the key '%s' does not belong to '%s'", key, cert);
}

void tls_client_free(struct tls_client *t) {
    if (t == NULL)
        return;
    tls_library.SSL_CTX_free(t->ctx);
    free(t);
}

int tls_client_new(const struct tls_config *config, struct tls_client **ret, struct err *err) {
    int r = tls_library_load(err);
    if (r < 0)
        return r;
    SSL_CTX *ctx = tls_library.SSL_CTX_new(tls_library.TLS_client_method());
    if (ctx == NULL)
        return err_set(err, -ENOMEM, "TLS cannot be set up: %s", tls_library_reason());
    struct tls_client *t = xcalloc(1, sizeof *t);
    t->ctx = ctx;
    /* SSL_CTX_set_min_proto_version() */
    (void)tls_library.SSL_CTX_ctrl(ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
    tls_library.SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    r = use_ca(t, config->cacert, err);
    if (r == 0)
        r = use_own(t, config->cert, config->key, err);
    if (r < 0)
        tls_client_free(t);
    else
        *ret = t;
    return r;
}

/* --- one session ------------------------------------------------------------------------------ */

static bool set_name(SSL *s, const char *host) {
    struct addr literal;
    if (addr_from_literal(host, 1, &literal) == 0) {
        char text[ADDR_TEXT_MAX];
        addr_host_text(&literal, text);
        text[strcspn(text, "%")] = '\0'; /* a zone has a meaning only on this machine */
        return tls_library.X509_VERIFY_PARAM_set1_ip_asc(tls_library.SSL_get0_param(s), text) == 1;
    }
    char name[TLSEXT_MAXLEN_host_name + 1];
    size_t len = strlen(host);
    if (len > 1 && host[len - 1] == '.') /* certificates and SNI don't have the trailing dot */
        len--;
    if (len >= sizeof name)
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    tls_library.SSL_set_hostflags(s, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return tls_library.SSL_set1_host(s, name) == 1 &&
           tls_library.SSL_ctrl(s, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name) ==
               1;
}

int tls_session_new(struct tls_client *t, const char *host, struct ssl_st **ret, struct err *err) {
    SSL *s = tls_library.SSL_new(t->ctx);
    if (s == NULL)
        return err_set(err, -ENOMEM, "no TLS session: %s", tls_library_reason());
    if (!set_name(s, host)) {
        tls_library.SSL_free(s);
        return err_set(err, -EINVAL, "'%.128s' is not a valid host name for a certificate", host);
    }
    *ret = s;
    return 0;
}

void tls_session_free(struct ssl_st *session) { tls_library.SSL_free(session); }

/* The server's alerts about our certificate (RFC 8446 §6), by OpenSSL's numbers. */
static bool refuses_certificate(unsigned long code) {
    switch (code != 0 ? ERR_GET_REASON(code) : 0) {
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED: return true;
    default: return false;
    }
}

void tls_session_why(const struct ssl_st *session, unsigned long code, int error,
                     char out[TLS_WHY_MAX]) {
    /* libevent uses this code if only errno has the reason */
    code = code == SSL_ERROR_SYSCALL ? 0 : code;
    long verdict = tls_library.SSL_get_verify_result(session);
    const char *text = code != 0 ? tls_library.ERR_reason_error_string(code) : NULL;
    bool shaken = tls_library.SSL_is_init_finished(session) != 0;
    bool ended = code != 0 && ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    tls_library.ERR_clear_error();
    if (verdict != X509_V_OK)
        (void)snprintf(out, TLS_WHY_MAX, "certificate verify failed: %s",
                       tls_library.X509_verify_cert_error_string(verdict));
    else if (code != 0 && ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
        (void)snprintf(out, TLS_WHY_MAX, "the server does not speak TLS");
    else if ((ended || (code == 0 && (error == 0 || error == ECONNRESET))) && !shaken)
        (void)snprintf(out, TLS_WHY_MAX,
                       "the connection ended in the TLS handshake (does the server speak TLS?)");
    else if (ended || (code == 0 && error == 0))
        (void)snprintf(out, TLS_WHY_MAX, "the connection ended");
    else if (text != NULL)
        (void)snprintf(out, TLS_WHY_MAX, "%s: %s",
                       refuses_certificate(code)
                           ? "the server wants a client certificate that it knows"
                           : "TLS",
                       text);
    else
        (void)snprintf(out, TLS_WHY_MAX, "%s", strerror(error));
}
