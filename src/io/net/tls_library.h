/* OpenSSL's calls, for the tls*.c files only: no other file includes this or OpenSSL. The libraries
 * are loaded when TLS is first used; with meson's option `portable` they are in the program. */
#pragma once

#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>

#include "base/err.h"

#define TLS_LIBRARY_CALLS(X)                 \
    X(BIO_clear_flags)                       \
    X(BIO_get_data)                          \
    X(BIO_meth_new)                          \
    X(BIO_meth_set_ctrl)                     \
    X(BIO_meth_set_read)                     \
    X(BIO_meth_set_write)                    \
    X(BIO_new)                               \
    X(BIO_set_data)                          \
    X(BIO_set_flags)                         \
    X(BIO_set_init)                          \
    X(CRYPTO_get_ex_new_index)               \
    X(ERR_clear_error)                       \
    X(ERR_get_error)                         \
    X(ERR_peek_error)                        \
    X(ERR_reason_error_string)               \
    X(EVP_sha256)                            \
    X(HMAC)                                  \
    X(OPENSSL_init_crypto)                   \
    X(OPENSSL_init_ssl)                      \
    X(OpenSSL_version)                       \
    X(SSL_CIPHER_find)                       \
    X(SSL_CTX_check_private_key)             \
    X(SSL_CTX_ctrl)                          \
    X(SSL_CTX_clear_options)                 \
    X(SSL_CTX_free)                          \
    X(SSL_CTX_get_ex_data)                   \
    X(SSL_CTX_load_verify_locations)         \
    X(SSL_CTX_new)                           \
    X(SSL_CTX_set_ciphersuites)              \
    X(SSL_CTX_set_default_passwd_cb)         \
    X(SSL_CTX_set_default_verify_paths)      \
    X(SSL_CTX_set_ex_data)                   \
    X(SSL_CTX_set_num_tickets)               \
    X(SSL_CTX_set_options)                   \
    X(SSL_CTX_set_psk_find_session_callback) \
    X(SSL_CTX_set_psk_use_session_callback)  \
    X(SSL_CTX_set_verify)                    \
    X(SSL_CTX_use_PrivateKey_file)           \
    X(SSL_CTX_use_certificate_chain_file)    \
    X(SSL_SESSION_free)                      \
    X(SSL_SESSION_new)                       \
    X(SSL_SESSION_set1_master_key)           \
    X(SSL_SESSION_set_cipher)                \
    X(SSL_SESSION_set_protocol_version)      \
    X(SSL_SESSION_up_ref)                    \
    X(SSL_ctrl)                              \
    X(SSL_do_handshake)                      \
    X(SSL_free)                              \
    X(SSL_get0_param)                        \
    X(SSL_get_SSL_CTX)                       \
    X(SSL_get_error)                         \
    X(SSL_get_ex_data)                       \
    X(SSL_get_session)                       \
    X(SSL_get_verify_result)                 \
    X(SSL_is_init_finished)                  \
    X(SSL_is_server)                         \
    X(SSL_new)                               \
    X(SSL_pending)                           \
    X(SSL_read)                              \
    X(SSL_session_reused)                    \
    X(SSL_set1_host)                         \
    X(SSL_set_accept_state)                  \
    X(SSL_set_bio)                           \
    X(SSL_set_connect_state)                 \
    X(SSL_set_ex_data)                       \
    X(SSL_set_hostflags)                     \
    X(SSL_set_verify)                        \
    X(SSL_shutdown)                          \
    X(SSL_write)                             \
    X(TLS_client_method)                     \
    X(TLS_method)                            \
    X(X509_VERIFY_PARAM_set1_ip_asc)         \
    X(X509_verify_cert_error_string)

#ifndef SSL_R_UNEXPECTED_EOF_WHILE_READING /* OpenSSL 1.1.1, where this is not an error */
#define SSL_R_UNEXPECTED_EOF_WHILE_READING 294
#endif

struct tls_library {
#define FIELD(name) __typeof__(name) *name;
    TLS_LIBRARY_CALLS(FIELD)
#undef FIELD
};

/* NULL pointers until tls_library_load() has succeeded. */
extern struct tls_library tls_library;

/* Loads it, the first time. -ELIBACC: OpenSSL is not installed, or has other calls. */
_must_use_ int tls_library_load(struct err *err);
/* The reason of the oldest error in OpenSSL's queue, which is emptied: static text. */
const char *tls_library_reason(void);
/* The same of this code: the number, where OpenSSL has no text. Valid until the next call. */
const char *tls_library_text(unsigned long code);
