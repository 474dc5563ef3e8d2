#include "io/net/tls_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <openssl/opensslv.h>
#include <stdio.h>
#include <string.h>

#include "io/net/tls.h"
#include "io/net/tls_psk.h"

#define STRING(x) #x
#define TEXT_OF(x) STRING(x)
#ifdef OPENSSL_VERSION_MAJOR /* since 3.0, which is the soname, too */
#define SONAME TEXT_OF(OPENSSL_VERSION_MAJOR)
#else
#define SONAME "1.1"
#endif
#define LIBRARY_SSL "libssl.so." SONAME

struct tls_library tls_library;

const char *tls_built_version(void) { return OPENSSL_VERSION_TEXT; }

bool tls_found_version(char out[TLS_TEXT_MAX]) {
    if (tls_library_load(NULL) < 0)
        return false;
    (void)snprintf(out, TLS_TEXT_MAX, "%s", tls_library.OpenSSL_version(OPENSSL_VERSION));
    return true;
}

static bool loaded, alone;

void tls_psk_alone(void) { alone = !loaded; }

/* OPENSSL_init_crypto(3), OPENSSL_init_ssl(3): what is left out now is never made up for. The
 * tables of names serve certificates and old interfaces; TLS 1.3 asks for algorithms by another
 * way. The system's openssl.cnf is read as always. */
static void begin_alone(void) {
    (void)tls_library.OPENSSL_init_crypto(
        OPENSSL_INIT_NO_ADD_ALL_CIPHERS | OPENSSL_INIT_NO_ADD_ALL_DIGESTS |
            OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS | OPENSSL_INIT_NO_ATEXIT,
        NULL);
    (void)tls_library.OPENSSL_init_ssl(
        OPENSSL_INIT_NO_LOAD_SSL_STRINGS | OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS, NULL);
}

#ifdef MUSTER_LINKED

static int find_calls(struct err *err) {
#define SET(name) tls_library.name = name;
    TLS_LIBRARY_CALLS(SET)
#undef SET
    return 0;
}

#else

/* The libraries look for their 5,000 symbols in each other first: loading takes 2.9 million
 * instructions instead of 4.7. ASan can't do that. gcc's macro, then clang's. */
#define ORDER RTLD_DEEPBIND
#ifdef __SANITIZE_ADDRESS__
#undef ORDER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef ORDER
#endif
#endif
#ifndef ORDER
#define ORDER 0
#endif

static int find_calls(struct err *err) {
#define NAME(name) #name,
    static const char *const names[] = {TLS_LIBRARY_CALLS(NAME)};
#undef NAME
    void *handle = dlopen(LIBRARY_SSL, RTLD_NOW | RTLD_LOCAL | ORDER);
    if (handle == NULL)
        return err_set(err, -ELIBACC, "TLS needs OpenSSL %s: %s", SONAME, dlerror());
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        void *symbol = dlsym(handle, names[i]); /* also of libcrypto, on which libssl depends */
        if (symbol == NULL)
            return err_set(err, -ELIBACC, "%s has no %s", LIBRARY_SSL, names[i]);
        memcpy((char *)&tls_library + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return 0;
}

#endif

int tls_library_load(struct err *err) {
    if (loaded)
        return 0;
    int r = find_calls(err);
    loaded = r == 0;
    if (loaded && alone)
        begin_alone();
    return r;
}

const char *tls_library_text(unsigned long code) {
    static char number[48];
    const char *text = tls_library.ERR_reason_error_string(code);
    if (text != NULL)
        return text;
    (void)snprintf(number, sizeof number, "OpenSSL's error %08lX", code);
    return number;
}

const char *tls_library_reason(void) {
    unsigned long code = tls_library.ERR_get_error();
    tls_library.ERR_clear_error();
    return code != 0 ? tls_library_text(code) : "of an unknown error";
}
