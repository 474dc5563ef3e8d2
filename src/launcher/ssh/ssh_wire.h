/* What passes between the head of a job that is started over ssh and its relay on each node
 * (`muster ssh-node`), on ssh's stdin and stdout. Pure; specified in muster-protocol(7),
 * OVER SSH.
 *
 *     head                            node
 *              <-------------------   anything that a login prints, then the line MUSTER-SSH 1
 *              <-------------------   HELLO: who I am
 *     LISTEN   ------------------->   node 0 only: where the others will meet it
 *              <-------------------   PORT: the relay listens there, for its agent
 *     BOOT     ------------------->   what to start; large ones as several BOOT_PART and one BOOT
 *              <-------------------   OUT, ERR: what the agent has written
 *              <-------------------   LEAD, VERDICT: of this node's agent (starter_wire.h)
 *     ACK, STOP, SIGNAL, EXPECT, PING, DROP_OUT, DROP_ERR  --->
 *              <-------------------   EXIT: the agent has ended; FAIL: it could not be started.
 *                                     One of them is the last frame
 *
 * A frame (base/frame.h) is a byte that says its kind, then a JSON object, or raw bytes in OUT, ERR
 * and the BOOTs. These last ones are NUL-terminated texts, because words and variables need not be
 * UTF-8. The end of the head's stream is the end of the job on that node, and so is a head that
 * has sent nothing for SSH_SILENCE_NS.
 *
 *     r = ssh_find_begin(data, len, &n);           the head, once
 *     while ((r = ssh_take(data, len, &m, &n, &err)) == 0) … data += n, len -= n */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "launcher/starter/starter_wire.h"

#define SSH_BEGIN "\nMUSTER-SSH 1\n"      /* the node's first bytes */
#define SSH_NOISE_MAX ((size_t)64 * 1024) /* before them: from files that a login shell reads */
#define SSH_DATA_MAX ((size_t)64 * 1024)  /* bytes in one OUT, ERR, BOOT_PART or BOOT */
#define SSH_PAYLOAD_MAX (SSH_DATA_MAX + 1)
#define SSH_FRAME_MAX (SSH_PAYLOAD_MAX + 4)
/* All parts of a BOOT. Linux starts no program with more than 6 MiB of words and environment, and
 * usually none with more than 2 (execve(2), "Limits on size of arguments and environment"). */
#define SSH_BOOT_MAX ((size_t)6 << 20)
#define SSH_PING_NS (5 * NS_PER_S)     /* the head sends a PING this often */
#define SSH_SILENCE_NS (60 * NS_PER_S) /* then it is gone, also if its end has not come */

#define SSH_VERSION_MAX 64
#define SSH_ADDRS_MAX 1024

/* The first byte of a payload. */
enum ssh_kind {
    SSH_HELLO = 'H',
    SSH_OUT = 'o',
    SSH_ERR = 'e',
    SSH_LEAD = 'L',
    SSH_VERDICT = 'V',
    SSH_EXIT = 'X',
    SSH_FAIL = 'F',
    SSH_PORT = 'p',
    /* from the head */
    SSH_BOOT_PART = 'b',
    SSH_BOOT = 'B',
    SSH_LISTEN = 'l',
    SSH_ACK = 'A',
    SSH_STOP = 'S',   /* end the job, as if the agent had got this signal */
    SSH_SIGNAL = 'U', /* for the workers */
    SSH_EXPECT = 'N', /* for the agent, if it leads */
    SSH_PING = 'P',
    SSH_DROP_OUT = 'd', /* nobody reads OUT any more; the agent notices as of a closed pipe */
    SSH_DROP_ERR = 'D',
};

struct ssh_hello {
    char version[SSH_VERSION_MAX]; /* of muster: both must be the same */
    char host[STARTER_HOST_MAX];   /* the node's own name, for people */
    uint32_t pid;                  /* of the relay */
    /* where other nodes may reach this one, the best first: "10.0.0.1,fd77::1" */
    char addrs[SSH_ADDRS_MAX];
};

struct ssh_lead {
    char host[STARTER_HOST_MAX];
};

struct ssh_exit {
    bool signalled;
    uint32_t code; /* the signal, or the exit status */
};

struct ssh_fail {
    char text[STARTER_TEXT_MAX]; /* one sentence */
};

/* Where the nodes of the job meet: the relay takes a port that is free there, and its agent
 * inherits the socket. */
struct ssh_listen {
    char addr[STARTER_HOST_MAX]; /* a literal, one of HELLO */
    uint16_t low, high;          /* the ports to choose from; 0: the kernel's */
};

struct ssh_port {
    uint16_t port;
};

struct ssh_message {
    enum ssh_kind kind;
    union {
        char body; /* where each of those that are JSON begins */
        struct ssh_hello hello;
        struct ssh_lead lead;
        struct starter_verdict verdict;
        struct ssh_exit exit;
        struct ssh_fail fail;
        struct ssh_listen listen;
        struct ssh_port port;
        struct starter_signal signal; /* STOP, SIGNAL */
        struct starter_expect expect;
        struct { /* OUT, ERR, BOOT_PART, BOOT; borrowed from what was received */
            const uint8_t *bytes;
            size_t len; /* at most SSH_DATA_MAX */
        } data;
    };
};

bool ssh_is_from_node(enum ssh_kind kind);

/* Appends the whole frame. The message is ours and valid. */
void ssh_add(const struct ssh_message *m, struct strbuf *to);

/* Takes the first message off the bytes that have arrived. 0: *ret, and how many bytes it had;
 * FRAME_E_MORE: it is not complete; a negative errno and a sentence: the peer breaks the protocol.
 */
_must_use_ int ssh_take(const uint8_t *data, size_t len, struct ssh_message *ret, size_t *ret_bytes,
                        struct err *err);

/* Looks for the node's first line. 0: the frames begin behind *ret_bytes; FRAME_E_MORE: it has not
 * come yet; -EMSGSIZE: it is not within SSH_NOISE_MAX; -EPROTONOSUPPORT: there is one of another
 * version. */
_must_use_ int ssh_find_begin(const uint8_t *data, size_t len, size_t *ret_bytes);

/* What the relay is to start: itself as `muster run`, in a folder, with these variables over those
 * that the login there has. The agent reads the job, and no command line. */
struct ssh_boot {
    char *cwd;         /* owned; absolute */
    uint64_t grace_ns; /* --shutdown-timeout: how long an agent that was told to stop may take */
    char *job;   /* owned; JSON, as the agent reads it; NULL: the words are its command line */
    char **args; /* owned, NULL-terminated: all words behind "run", for ps(1) and muster ps */
    size_t n_args;
    struct envlist env;
};
void ssh_boot_fini(struct ssh_boot *boot);
/* Copies one more word. */
void ssh_boot_word(struct ssh_boot *boot, const char *word);
/* Appends the frames. -E2BIG, and a sentence: more than SSH_BOOT_MAX. */
_must_use_ int ssh_boot_add(const struct ssh_boot *boot, struct strbuf *to, struct err *err);
/* Gathers BOOT_PART and BOOT. FRAME_E_MORE: more parts follow; 0: *ret, which the caller owns, is
 * whole; -EINVAL or -EMSGSIZE and a sentence. */
_must_use_ int ssh_boot_take(struct strbuf *parts, const struct ssh_message *m,
                             struct ssh_boot *ret, struct err *err);
