/* OpenSSL: the only place that knows it. For now it only tells which one there is; nothing of
 * muster speaks TLS yet, so the library is not loaded unless this asks for it. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

#define TLS_TEXT_MAX 64

/* "OpenSSL 3.0.11 19 Sep 2023", of the headers. */
const char *tls_built_version(void);
/* The same of the library found at run time; it stays loaded. False: there is none. */
_must_use_ bool tls_found_version(char out[TLS_TEXT_MAX]);
