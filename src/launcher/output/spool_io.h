/* A queue of bytes in a file without a name. It holds output that its reader has not taken yet.
 *
 * The file is made in $TMPDIR or /tmp when it is first needed (O_TMPFILE, else it is unlinked at
 * once), so nothing is left even after SIGKILL. It never grows above `size`: the space of bytes
 * that were taken is used again, and is given back to the disk when the spool is empty. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

struct spool {
    int fd;              /* -1: not made yet */
    uint64_t size;       /* the most bytes; 0: nothing can be added */
    uint64_t begin, end; /* positions in the stream of all bytes; the file's are modulo `size` */
    int error;           /* why nothing can be added any more, an errno; 0: it can */
};

void spool_init(struct spool *s, uint64_t size);
void spool_fini(struct spool *s);

static inline uint64_t spool_pending(const struct spool *s) { return s->end - s->begin; }
/* Whether `len` bytes can be added, unless the disk is full. */
bool spool_has_room(const struct spool *s, size_t len);
/* 0; -ENOBUFS: no room now, as above; other errors of the file: nothing can be added from now on,
 * and what was added before can still be taken. Then the state is as before. */
_must_use_ int spool_add(struct spool *s, const void *data, size_t len);
/* Takes at most `len` of the oldest bytes. 0: it is empty; -errno: the file can't be read, and all
 * its bytes are lost. */
_must_use_ ssize_t spool_take(struct spool *s, void *data, size_t len);
