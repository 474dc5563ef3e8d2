/* An answer of HTTP/1.1 as text (RFC 9112). Pure; http.c sends the request and receives this. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define HTTP_HEAD_MAX 65536 /* bytes of its headers */

struct http_text {
    int status;
    bool stays_open; /* the connection can be used again */
};

enum { HTTP_TEXT_E_MORE = 1 }; /* it is not complete */
/* Decodes what has come so far; `ended`: nothing more will come. Sets *body, which has at most
 * max_body bytes, if it is complete. -EPROTO: this is not HTTP; -EMSGSIZE: it is too long;
 * -ECONNRESET: it ended before it was complete. */
_must_use_ int http_text_read(const char *text, size_t len, bool ended, size_t max_body,
                              struct http_text *ret, struct strbuf *body, struct err *err);
