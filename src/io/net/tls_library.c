#include "io/net/tls_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <openssl/opensslv.h>
#include <stdio.h>
#include <string.h>

#include "io/net/tls.h"

#define STRING(x) #x
#define TEXT_OF(x) STRING(x)
/* The sonames are OpenSSL's major version since 3.0. */
#define LIBRARY "libcrypto.so." TEXT_OF(OPENSSL_VERSION_MAJOR)
#define LIBRARY_SSL "libssl.so." TEXT_OF(OPENSSL_VERSION_MAJOR)

struct tls_library tls_library;

const char *tls_built_version(void) { return OPENSSL_VERSION_TEXT; }

#ifdef MUSTER_LINKED
bool tls_found_version(char out[TLS_TEXT_MAX]) {
    (void)snprintf(out, TLS_TEXT_MAX, "%s", OpenSSL_version(OPENSSL_VERSION));
    return true;
}
#else
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
#endif

#ifdef MUSTER_LINKED

int tls_library_load(struct err *err) {
    (void)err;
#define SET(name) tls_library.name = name;
    TLS_LIBRARY_CALLS(SET)
#undef SET
    return 0;
}

#else

static bool loaded;

static int find(void *handle, const char *name, void *ret, struct err *err) {
    void *symbol = dlsym(handle, name); /* libcrypto, on which libssl depends, is searched too */
    if (symbol == NULL)
        return err_set(err, -ELIBACC, "%s has no %s", LIBRARY_SSL, name);
    memcpy(ret, &symbol, sizeof symbol);
    return 0;
}

int tls_library_load(struct err *err) {
    if (loaded)
        return 0;
    void *handle = dlopen(LIBRARY_SSL, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return err_set(err, -ELIBACC, "TLS needs OpenSSL %d: %s", OPENSSL_VERSION_MAJOR, dlerror());
    int r = 0;
#define FIND(name) \
    if (r == 0)    \
        r = find(handle, #name, &tls_library.name, err);
    TLS_LIBRARY_CALLS(FIND)
#undef FIND
    loaded = r == 0;
    return r;
}

#endif

const char *tls_library_reason(void) {
    const char *text = tls_library.ERR_reason_error_string(tls_library.ERR_get_error());
    tls_library.ERR_clear_error();
    return text != NULL ? text : "of an unknown error";
}
