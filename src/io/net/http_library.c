#include "io/net/http_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <event2/event.h>
#include <string.h>

static struct http_library library;

/* libevent's messages are dropped: its return values report the errors, and so do ours. */
static void drop_log(int severity, const char *text) {
    (void)severity;
    (void)text;
}

#ifdef MUSTER_LINKED /* meson's option `portable`: both are in this program */

int http_library_load(bool tls, const struct http_library **ret, struct err *err) {
    (void)tls;
    (void)err;
#define SET(name) library.name = name;
    HTTP_LIBRARY_CALLS(SET)
    HTTP_LIBRARY_TLS_CALLS(SET)
#undef SET
    event_set_log_callback(drop_log);
    *ret = &library;
    return 0;
}

#else

/* libevent names its libraries by its minor version; the number is libtool's "current - age". */
#define LIBRARY_EXTRA "libevent_extra-2.1.so.7"
#define LIBRARY_OPENSSL "libevent_openssl-2.1.so.7"

static bool have_http, have_tls;

static int find(void *handle, const char *name, void *ret, const char *file, struct err *err) {
    void *symbol = dlsym(handle, name);
    if (symbol == NULL)
        return err_set(err, -ELIBACC, "%s has no %s", file, name);
    memcpy(ret, &symbol, sizeof symbol);
    return 0;
}

/* The library passes our loop to its own libevent_core, so that must be the one that our loop
 * uses. */
static int open_library(const char *file, const char *package, void **ret, struct err *err) {
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return err_set(err, -ELIBACC, "cannot load %s (Debian's package %s): %s", file, package,
                       dlerror());
    const char *(*version)(void) = NULL;
    int r = find(handle, "event_get_version", &version, file, err);
    if (r == 0 && version() != event_get_version())
        r = err_set(err, -ELIBACC, "%s uses another libevent than this program does", file);
    if (r < 0) {
        (void)dlclose(handle);
        return r;
    }
    *ret = handle;
    return 0;
}

static int load_http(struct err *err) {
    void *handle;
    int r = open_library(LIBRARY_EXTRA, "libevent-extra-2.1-7", &handle, err);
#define FIND(name) \
    if (r == 0)    \
        r = find(handle, #name, &library.name, LIBRARY_EXTRA, err);
    HTTP_LIBRARY_CALLS(FIND)
#undef FIND
    if (r == 0)
        event_set_log_callback(drop_log);
    have_http = r == 0;
    return r;
}

static int load_tls(struct err *err) {
    void *handle;
    int r = open_library(LIBRARY_OPENSSL, "libevent-openssl-2.1-7", &handle, err);
#define FIND(name) \
    if (r == 0)    \
        r = find(handle, #name, &library.name, LIBRARY_OPENSSL, err);
    HTTP_LIBRARY_TLS_CALLS(FIND)
#undef FIND
    have_tls = r == 0;
    return r;
}

int http_library_load(bool tls, const struct http_library **ret, struct err *err) {
    int r = have_http ? 0 : load_http(err);
    if (r == 0 && tls && !have_tls)
        r = load_tls(err);
    if (r == 0)
        *ret = &library;
    return r;
}

#endif
