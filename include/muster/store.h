/* A client of PyTorch's TCPStore, for trainers that are not written in Python.
 *
 * `muster run` (as torchrun) gives every worker MASTER_ADDR and MASTER_PORT: the address of a small
 * key-value store that lives as long as the workers of one generation. Workers meet there. Any
 * server of the protocol works. Keys are shared with torch.distributed.TCPStore: the key "k" here
 * is the key "k" there.
 *
 *     struct muster_store *store;
 *     if (muster_store_connect_env(60 * 1000, &store) < 0)
 *         errx(1, "%s", muster_store_error());
 *     muster_store_set(store, "peer/0", "10.0.0.7:4711", 13);
 *     void *value; size_t len;
 *     int r = muster_store_get(store, "peer/1", 60 * 1000, &value, &len);
 *     ...
 *     free(value);
 *     muster_store_barrier(store, "ready", world_size, 60 * 1000);
 *     muster_store_close(store);
 *
 * It is not a server. It is not safe against a hostile network: the protocol has neither encryption
 * nor authentication. It is not made for bulk data.
 *
 * Calls block. Only one thread may use a store at a time; different stores are independent. No
 * signal is raised (not even SIGPIPE), and interrupted system calls are restarted.
 *
 * Calls return 0 or a negative errno; after an error muster_store_error() describes it. What a
 * `ret_` argument points to is written only on success. Errors that any call can return:
 *     -EMSGSIZE   a key, value or list is over the limits below; nothing was sent
 *     -EINVAL     an argument is NULL or makes no sense; nothing was sent
 *     -ENOMEM     nothing was sent, or the connection is closed as below
 * and these close the connection, so that every later call gives -ENOTCONN:
 *     -ECONNRESET, -EPIPE, ...  the server went away
 *     -EPROTO     the server sent an answer that the protocol does not allow
 *     -ECONNABORTED  the server had to answer at once, and did not within the reply timeout
 *
 * Time-outs are in milliseconds. Below 0 means no time-out; 0 means "do not wait". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MUSTER_STORE_API __attribute__((visibility("default")))

/* The version of this header. It is raised by one whenever something is added. What is declared
 * here does not change as long as the library's soname does not. */
#define MUSTER_STORE_API_VERSION 1

/* What PyTorch's libuv server accepts; it closes the connection above that. Its key limit is 8192
 * with the "/" that clients put in front. The same limit bounds what a server can make us allocate:
 * a longer value in an answer is -EPROTO. */
#define MUSTER_STORE_KEY_MAX 8191u
#define MUSTER_STORE_VALUE_MAX 8388608u
#define MUSTER_STORE_KEYS_MAX 131072u
/* Longest address that muster_store_local_address() writes, NUL included. */
#define MUSTER_STORE_ADDRESS_MAX 64
/* How long a server may take to answer a request that it should answer at once; see
 * muster_store_set_reply_timeout() */
#define MUSTER_STORE_REPLY_TIMEOUT_MS 60000

struct muster_store;

/* Connects to host (an IPv4 or IPv6 literal, or a name) and shakes hands. As long as no server
 * answers there, it tries again until timeout_ms have passed: at first every 20 ms, at last every
 * second. A name is looked up at each try, and the look-up itself can take longer than timeout_ms.
 * The caller owns *ret_store and closes it with muster_store_close(). -ETIMEDOUT: no server
 * answered in time; the error text has the last reason. -EPROTO: what answers there is not a store.
 */
MUSTER_STORE_API int muster_store_connect(const char *host, uint16_t port, int timeout_ms,
                                          struct muster_store **ret_store);
/* The same with MASTER_ADDR and MASTER_PORT of the environment (torchrun's contract with its
 * workers). -ENOENT: one of them is not set; -EINVAL: MASTER_PORT is not a port. */
MUSTER_STORE_API int muster_store_connect_env(int timeout_ms, struct muster_store **ret_store);
/* Disconnects and frees. Takes NULL. */
MUSTER_STORE_API void muster_store_close(struct muster_store *store);

/* Why this thread's last failed call failed, in one sentence; valid until its next call. */
MUSTER_STORE_API const char *muster_store_error(void);

/* Replaces MUSTER_STORE_REPLY_TIMEOUT_MS for this store; timeout_ms > 0. */
MUSTER_STORE_API int muster_store_set_reply_timeout(struct muster_store *store, int timeout_ms);

/* Writes this machine's address on the connection to the store, as a literal without
 * port. Others that can reach the store can most likely reach us at this address. */
MUSTER_STORE_API int muster_store_local_address(struct muster_store *store,
                                                char ret_text[MUSTER_STORE_ADDRESS_MAX]);

/* Stores the len bytes of value (copied; may be NULL if len is 0) and wakes all clients that
 * wait for the key. The protocol has no answer to this request: 0 means that it was sent. The
 * server handles later calls on the same connection after it. */
MUSTER_STORE_API int muster_store_set(struct muster_store *store, const char *key,
                                      const void *value, size_t len);

/* Waits until the key exists and reads it. *ret_value is malloc'ed and owned by the
 * caller; a NUL follows its *ret_len bytes. -ETIMEDOUT: the key does not exist yet; the connection
 * stays usable. */
MUSTER_STORE_API int muster_store_get(struct muster_store *store, const char *key, int timeout_ms,
                                      void **ret_value, size_t *ret_len);

/* Waits until all n keys exist. -ETIMEDOUT as above. */
MUSTER_STORE_API int muster_store_wait(struct muster_store *store, const char *const *keys,
                                       size_t n, int timeout_ms);

/* Do all n keys exist? */
MUSTER_STORE_API int muster_store_check(struct muster_store *store, const char *const *keys,
                                        size_t n, bool *ret_exist);

/* Adds delta to the key's number and returns the sum. The number is decimal text; a missing key
 * counts as 0. ret_sum may be NULL. A server closes the connection if the value is not a number. */
MUSTER_STORE_API int muster_store_add(struct muster_store *store, const char *key, int64_t delta,
                                      int64_t *ret_sum);

/* ret_existed may be NULL. */
MUSTER_STORE_API int muster_store_delete(struct muster_store *store, const char *key,
                                         bool *ret_existed);

/* Stores desired if the key's value is expected, or if the key is missing and expected is empty.
 * *ret_value is the value that the server returns, as muster_store_get() returns it:
 * desired if it was stored. But if the key is missing and expected is not empty, the protocol
 * answers expected, although nothing is stored. */
MUSTER_STORE_API int muster_store_compare_set(struct muster_store *store, const char *key,
                                              const void *expected, size_t expected_len,
                                              const void *desired, size_t desired_len,
                                              void **ret_value, size_t *ret_len);

/* Returns when world_size participants have called it with this name. The same name can be used
 * again. It uses only ADD, SET and WAIT, so it works with every server; its keys start with
 * "muster.barrier/". -ETIMEDOUT: the others did not come. This call is still counted, so the name
 * should not be used again. */
MUSTER_STORE_API int muster_store_barrier(struct muster_store *store, const char *name,
                                          unsigned world_size, int timeout_ms);

#ifdef __cplusplus
}
#endif
