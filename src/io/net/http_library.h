/* evhttp and libevent's TLS, loaded when they are first used. If they were linked, every start of
 * muster would take 0.2 ms longer (evhttp), or 3 ms (with OpenSSL). With meson's option `portable`
 * they are linked all the same: that program has to run where there is no libevent. Only http.c
 * uses this. */
#pragma once

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/http.h>
#include <stdbool.h>

#include "base/err.h"

#define HTTP_LIBRARY_CALLS(X)                 \
    X(evhttp_connection_base_bufferevent_new) \
    X(evhttp_connection_free)                 \
    X(evhttp_connection_set_closecb)          \
    X(evhttp_connection_set_family)           \
    X(evhttp_connection_set_max_body_size)    \
    X(evhttp_connection_set_max_headers_size) \
    X(evhttp_request_new)                     \
    X(evhttp_request_free)                    \
    X(evhttp_request_set_error_cb)            \
    X(evhttp_request_get_output_headers)      \
    X(evhttp_request_get_output_buffer)       \
    X(evhttp_request_get_input_buffer)        \
    X(evhttp_request_get_response_code)       \
    X(evhttp_add_header)                      \
    X(evhttp_make_request)
#define HTTP_LIBRARY_TLS_CALLS(X)     \
    X(bufferevent_openssl_socket_new) \
    X(bufferevent_get_openssl_error)

struct http_library {
#define HTTP_LIBRARY_FIELD(name) __typeof__(name) *name;
    HTTP_LIBRARY_CALLS(HTTP_LIBRARY_FIELD)
    HTTP_LIBRARY_TLS_CALLS(HTTP_LIBRARY_FIELD) /* NULL until loaded with tls */
#undef HTTP_LIBRARY_FIELD
};

/* A library is never unloaded. -ELIBACC: err names the file and the reason. */
_must_use_ int http_library_load(bool tls, const struct http_library **ret, struct err *err);
