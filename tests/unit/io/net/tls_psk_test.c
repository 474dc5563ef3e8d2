#include "io/net/tls_psk.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include "io/net/tls.h"
#include "rig/unit.h"
#include "tls_rig.h"

/* As in an agent. What is refused must be refused with OpenSSL's whole set-up, too: stream_tls_test.c has that. */
static void set_up_alone(void) {
    tls_psk_alone();
    rig_set_up();
}

TestSuite(tls_psk, .init = set_up_alone, .fini = rig_tear_down);

/* Looking a digest up would make up for what was left out, if that were still possible. */
Test(tls_psk, alone_it_sets_up_nothing_for_certificates) {
    cr_assert_null(EVP_get_digestbyname("RSA-SHA256"));
    cr_assert_null(ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, SSL_R_BAD_PACKET)));
}

Test(tls_first, it_is_not_alone_where_openssl_is_set_up_already, .init = rig_set_up, .fini = rig_tear_down) {
    struct tls_client *certificates;
    tls_psk_alone(); /* the rig has a key already */
    cr_assert_not_null(EVP_get_digestbyname("RSA-SHA256"));
    cr_assert_eq(tls_client_new(&(struct tls_config){0}, &certificates, NULL), 0);
    tls_client_free(certificates);
}

/* An alert that no sentence of ours is for. */
Test(tls_psk, without_texts_an_error_has_its_number) {
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 80}; /* internal_error */
    rig_start_one(&con);
    cr_assert_eq(write(rig_peer, alert, sizeof alert), (ssize_t)sizeof alert);
    rig_ends(&con, -EKEYREJECTED);
    cr_assert_str_eq(stream_tls_why(con.s), "TLS: OpenSSL's error 0A000438");
}

/* Keys must stay the same from one version to the next. The values are of Python's hmac. */
Test(tls_psk, derives_id_and_key_from_the_secret) {
    static const uint8_t id[] = {0xf6, 0x3f, 0xe2, 0xd6, 0xe2, 0x66, 0x6b, 0xe9};
    static const uint8_t psk[] = {0x7a, 0xa3, 0xeb, 0xf0, 0xb9, 0x70, 0xa8, 0x02, 0xd1, 0x66, 0xc6,
                                  0xbe, 0xcf, 0x5c, 0xbe, 0xb6, 0xe5, 0x1f, 0x9d, 0xc5, 0xc6, 0x8e,
                                  0x24, 0x94, 0x2b, 0x3b, 0xab, 0xa4, 0x72, 0x3a, 0xd5, 0x7d};
    uint8_t secret[TLS_SECRET_BYTES];
    struct tls_key key;
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)i;
    cr_assert_eq(tls_key_derive(secret, &key, NULL), 0);
    cr_assert_arr_eq(key.id, id, sizeof id);
    cr_assert_arr_eq(key.psk, psk, sizeof psk);
    struct tls_key other;
    secret[31] ^= 1;
    cr_assert_eq(tls_key_derive(secret, &other, NULL), 0);
    cr_assert_neq(memcmp(other.id, key.id, sizeof key.id), 0);
    cr_assert_neq(memcmp(other.psk, key.psk, sizeof key.psk), 0);
}

static void assert_what_was_agreed(SSL *ssl) {
    cr_assert_eq(SSL_version(ssl), TLS1_3_VERSION);
    cr_assert_str_eq(SSL_get_cipher_name(ssl), "TLS_AES_128_GCM_SHA256");
    cr_assert_eq(SSL_get_negotiated_group(ssl), NID_X25519);
    cr_assert_eq(SSL_session_reused(ssl), 1);
    cr_assert_null(SSL_get0_peer_certificate(ssl));
    cr_assert_eq(SSL_get_early_data_status(ssl), SSL_EARLY_DATA_NOT_SENT);
    cr_assert_eq(SSL_SESSION_has_ticket(SSL_get0_session(ssl)), 0);
}

Test(tls_psk, sides_with_the_same_key_agree_on_fresh_keys) {
    struct ssl_st *a, *c;
    cr_assert_eq(tls_psk_accept(rig_psk, &a, NULL), 0);
    cr_assert_eq(tls_psk_connect(rig_psk, &rig_key, &c, NULL), 0);
    rig_pair();
    stream_start_tls(acc.s, a);
    stream_start_tls(con.s, c);
    rig_until(acc.secured && con.secured);
    cr_assert_arr_eq(rig_asked, rig_key.id, sizeof rig_asked);
    assert_what_was_agreed(a);
    assert_what_was_agreed(c);
    cr_assert_null(stream_tls_why(acc.s));
}

static void run_until_both_closed(void) {
    rig_start_pair();
    stream_write(con.s, "secret", 6);
    rig_until(acc.closed && con.closed);
    cr_assert(acc.secured == 0 && con.secured == 0 && acc.len == 0 && con.len == 0);
    cr_assert_eq(acc.code, -EKEYREJECTED);
    cr_assert_eq(con.code, -EKEYREJECTED);
}

Test(tls_psk, an_unknown_key_is_refused_and_both_sides_say_so) {
    rig_find_key = NULL;
    run_until_both_closed();
    cr_assert_str_eq(stream_tls_why(acc.s), "the other side has no key that is known here");
    cr_assert_str_eq(stream_tls_why(con.s), "the other side does not know our key");
}

Test(tls_psk, another_key_with_the_same_name_is_refused_and_both_sides_say_so) {
    struct tls_key other = rig_key;
    other.psk[31] ^= 1;
    rig_find_key = &other;
    run_until_both_closed();
    cr_assert_str_eq(stream_tls_why(acc.s), "the other side has another key under the name of ours");
    cr_assert_str_eq(stream_tls_why(con.s), "the other side has another key under the name of ours");
}

Test(tls_psk, without_find_or_after_its_end_no_key_is_known) {
    rig_start_pair();
    tls_psk_free(TAKE_PTR(rig_psk)); /* sessions outlive it */
    rig_until(acc.closed && con.closed);
    cr_assert(acc.secured == 0 && con.secured == 0);
    rig_psk = tls_psk_new(NULL, NULL);
    struct ssl_st *ssl;
    cr_assert_eq(tls_psk_accept(rig_psk, &ssl, NULL), 0);
    rig_pair();
    stream_start_tls(acc.s, ssl);
    rig_start(&con);
    rig_until(acc.closed && con.closed);
    cr_assert(acc.secured == 0 && con.secured == 0);
}

Test(tls_psk, a_session_that_no_stream_took_is_freed) {
    struct ssl_st *ssl;
    cr_assert_eq(tls_psk_connect(rig_psk, &rig_key, &ssl, NULL), 0);
    tls_session_free(ssl);
}

static void step_until_closed(struct end *e) {
    for (; !e->closed; rig_turn())
        foreign_step();
    cr_assert_eq(e->secured, 0);
    cr_assert_eq(e->code, -EKEYREJECTED);
}

/* A server that has any certificate, and no key. A client that does not look at certificates is content with it.
 * Accepting sessions don't look at them. */
Test(tls_psk, a_server_with_a_certificate_and_no_key_is_refused) {
    struct ssl_st *accepting;
    cr_assert_eq(tls_psk_accept(rig_psk, &accepting, NULL), 0);
    foreign_new(true);
    SSL_CTX_set_psk_find_session_callback(foreign.ctx, NULL);
    foreign_use_certificate();
    rig_start_one(&con);
    foreign_begin();
    stream_write(con.s, "secret", 6);
    step_until_closed(&con);
    cr_assert_str_eq(stream_tls_why(con.s), "the other side shows a certificate instead of the key");
    tls_session_free(accepting);
}

Test(tls_psk, a_client_without_a_key_is_refused) {
    foreign_new(false);
    SSL_CTX_set_psk_use_session_callback(foreign.ctx, NULL);
    rig_start_one(&acc);
    foreign_begin();
    step_until_closed(&acc);
    cr_assert_str_eq(stream_tls_why(acc.s), "the other side has no key that is known here");
}

Test(tls_psk, older_versions_of_tls_are_refused) {
    for (int accepting = 0; accepting < 2; accepting++) {
        struct end *e = accepting ? &con : &acc;
        foreign_new(accepting != 0);
        cr_assert_eq(SSL_CTX_set_max_proto_version(foreign.ctx, TLS1_2_VERSION), 1);
        foreign_use_certificate();
        rig_start_one(e);
        foreign_begin();
        step_until_closed(e);
        cr_assert_str_eq(stream_tls_why(e->s), "the other side does not speak TLS 1.3");
    }
}

/* A client that would also do without the exchange on a curve; then a stolen key would open what was recorded. */
Test(tls_psk, there_is_always_an_exchange_on_a_curve) {
    foreign_new(false);
    SSL_CTX_set_options(foreign.ctx, SSL_OP_ALLOW_NO_DHE_KEX);
    rig_start_one(&acc);
    foreign_begin();
    foreign_secure(&acc);
    cr_assert_eq(SSL_get_negotiated_group(foreign.ssl), NID_X25519);
}

/* The client has sent a share for X25519, and is asked for another (HelloRetryRequest). */
Test(tls_psk, a_side_that_has_only_the_other_curve_is_understood) {
    int groups[] = {NID_X9_62_prime256v1};
    for (int accepting = 0; accepting < 2; accepting++) {
        struct end *e = accepting ? &con : &acc;
        foreign_new(accepting != 0);
        cr_assert_eq(SSL_CTX_set1_groups(foreign.ctx, groups, 1), 1);
        rig_start_one(e);
        foreign_begin();
        foreign_secure(e);
        cr_assert_eq(SSL_get_negotiated_group(foreign.ssl), NID_X9_62_prime256v1);
    }
}
