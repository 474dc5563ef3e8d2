/* The door to the workers' store for clients that come to one of muster's own ports (by
 * init_method=tcp://HOST:PORT, by --master-port, through a firewall with one open port). They are
 * served here if this agent has the store of the running generation, else connected to that of the
 * node that has it, or wait for one. The first of another machine that comes before all generations
 * is logged: it may be torchrun.
 *
 *     door = store_door_new(loop, gate);
 *     store_door_client(door, fd);            of rdzv_listener_config.store_client
 *     store_door_serve(door, store);          the leader: a generation's store was opened …
 *     store_door_unserve(door, store);        … and before it is closed
 *     store_door_pass(door, &addr, own_only); any other node: a generation runs, its store is there
 *     store_door_pass(door, NULL, false);     … and it no longer runs
 *
 * A client that is passed on reaches the store from this agent, which vouches for it: by own_only,
 * where the store judges other machines (store_guard_io.h), only clients of this user on this
 * machine are passed on. Of too many that wait, the one that waits for longest is closed. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "io/peer/peer_gate.h"
#include "rendezvous/store/store_io.h"

#define STORE_DOOR_WAITING_MAX 4096
#define STORE_DOOR_PASSED_MAX 1024
#define STORE_DOOR_UNSENT_MAX ((size_t)256 * 1024)

struct store_door;

/* gate: borrowed; NULL: all clients of this machine are ours. log: one line; may be NULL. */
struct store_door *store_door_new(struct loop *loop, struct peer_gate *gate,
                                  void (*log)(void *arg, const char *line), void *arg);
/* Ends all connections that the door still has. NULL is fine. */
void store_door_free(struct store_door *door);
/* Takes ownership of fd, of which nothing was read. */
void store_door_client(struct store_door *door, int fd);
/* `store` is borrowed until store_door_unserve(). */
void store_door_serve(struct store_door *door, struct store_server *store);
/* Does nothing if another store is served. */
void store_door_unserve(struct store_door *door, const struct store_server *store);
/* Clients that are being passed on stay connected; their store ends them. */
void store_door_pass(struct store_door *door, const struct addr *to, bool own_only);
