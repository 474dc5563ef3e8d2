#include "io/tls.h"

#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/opensslv.h>
#include <stdio.h>
#include <string.h>

#define STRING(x) #x
#define TEXT_OF(x) STRING(x)
/* libcrypto's soname is its major version since 3.0. */
#define LIBRARY "libcrypto.so." TEXT_OF(OPENSSL_VERSION_MAJOR)

const char *tls_built_version(void) { return OPENSSL_VERSION_TEXT; }

bool tls_found_version(char out[TLS_TEXT_MAX]) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "OpenSSL_version") : NULL;
    if (symbol == NULL)
        return false;
    const char *(*version)(int);
    memcpy(&version, &symbol, sizeof version);
    (void)snprintf(out, TLS_TEXT_MAX, "%s", version(OPENSSL_VERSION));
    return true;
}
