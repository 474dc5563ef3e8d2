/* Between listener_io.c and server_io.c. Nobody else includes this. */
#pragma once

#include "rendezvous/conn_io.h"
#include "rendezvous/server_io.h"

/* Takes the connection on which this JOIN came, checked for version and run id. */
void rdzv_server_take(struct rdzv_server *s, struct conn *conn, const struct wire_join *join);
