/* One job's folder in a shared directory: how its files are read and replaced; the rules of claims
 * are in arbiter_dir_io. Calls may block: only the arbiter's child process makes them.
 *
 *     <path>/muster-<run id>/     0700, ours
 *         epoch-3      the record of epoch 3 (arbiter_record.h); made once, exclusively
 *         beat-3       16 hexadecimal digits, rewritten in place by epoch 3's leader
 *         latest       a number: where to begin the search. Only a hint
 *         key          the job's key (auth.h), 0600; the first node creates it
 *         claim-…  mark-…  latest-…  owner-…  key-…
 *                      files that are being written; removed when an hour old
 *
 * Network file systems cache names, and their absence, for up to a minute. On Linux an open() of
 * the folder itself ends that, and contents are requested with each open(). So the folder is opened
 * again for each request, and what supersedes an epoch is written into that epoch's own file. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <sys/types.h>

#include "rendezvous/arbiter/arbiter_record.h"
#include "rendezvous/auth/auth.h"

#define ARBITER_PATH_MAX 2048
/* The limit of files that are examined when the folder has to be listed. */
#define ARBITER_LIST_MAX 100000
#define ARBITER_STALE_NS (3600 * NS_PER_S)

struct arbiter_folder {
    const char *path; /* the shared directory; borrowed */
    char *name;       /* of the folder in it */
    int fd;           /* the folder, while a request is served; else -1 */
    bool read_only;   /* only read, create nothing */
    uint64_t asker;   /* incarnation of the request: names the files that are being written */
    bool swept;
    bool squashed; /* files that we create there belong to `squashed_uid`, not to us */
    uid_t squashed_uid;
};

void arbiter_folder_init(struct arbiter_folder *f, const char *path, const char *run_id,
                         bool read_only);
void arbiter_folder_fini(struct arbiter_folder *f);

/* All functions below return 0, or a negative errno and a sentence. */

/* The data is certainly gone, or can't be read. No file system returns this errno. */
#define ARBITER_FOLDER_RUINED (-ENOTUNIQ)
enum { ARBITER_FOLDER_E_NONE = 1 }; /* there is no such folder, and `look` */

/* Opens the folder, and creates it if it is missing. Refuses a folder that others could change. */
_must_use_ int arbiter_folder_open(struct arbiter_folder *f, struct err *err);
void arbiter_folder_close(struct arbiter_folder *f);
/* Of the folder; if it is missing, of the nearest existing directory above it. 0: not known. */
uint64_t arbiter_folder_device(const struct arbiter_folder *f);

/* One epoch. */
struct arbiter_entry {
    struct arbiter_record record, mark; /* mark.epoch 0: none */
    bool found;                         /* false: there is no such epoch; the rest is zero */
    bool leftover;                      /* the claim's temporary file is still there */
};
/* ARBITER_FOLDER_RUINED: the file exists, but it is not ours, or is of another version. */
_must_use_ int arbiter_folder_read(const struct arbiter_folder *f, uint32_t epoch,
                                   struct arbiter_entry *ret, struct err *err);
/* To a temporary file, which arbiter_folder_link() gives the epoch's name if that is free. */
_must_use_ int arbiter_folder_prepare(struct arbiter_folder *f, const struct arbiter_record *record,
                                      struct err *err);
/* -EEXIST: there is one, perhaps our own. Removes the temporary file. 0: the epoch's file will
 * survive a crash of the server. */
_must_use_ int arbiter_folder_link(const struct arbiter_folder *f, uint32_t epoch, struct err *err);
void arbiter_folder_unprepare(const struct arbiter_folder *f, uint32_t epoch);
/* Replaces an epoch's file with one that has a mark. Durable after arbiter_folder_sync(). */
_must_use_ int arbiter_folder_mark(const struct arbiter_folder *f,
                                   const struct arbiter_entry *entry,
                                   const struct arbiter_record *mark, struct err *err);
_must_use_ int arbiter_folder_sync(const struct arbiter_folder *f, struct err *err);

/* Reads the beat; 0 if there is no beat file. */
_must_use_ int arbiter_folder_read_beat(const struct arbiter_folder *f, uint32_t epoch,
                                        uint64_t *ret, struct err *err);
/* Needs no free space. only_new: makes the file with all its space, or leaves it as it is. */
_must_use_ int arbiter_folder_write_beat(const struct arbiter_folder *f, uint32_t epoch,
                                         bool only_new, uint64_t beat, struct err *err);

/* The key, made if it is missing, the same for all; read only: ARBITER_FOLDER_E_NONE. -EINVAL: the
 * file holds something else; -EPERM: it is another user's, or others may read it. */
_must_use_ int arbiter_folder_key(const struct arbiter_folder *f, uint8_t ret[AUTH_SECRET_BYTES],
                                  struct err *err);

/* Where to begin the search; 0: not known. */
uint32_t arbiter_folder_hint(const struct arbiter_folder *f);
/* The highest epoch that has a name in the folder; 0: none. */
_must_use_ int arbiter_folder_highest(const struct arbiter_folder *f, uint32_t *ret,
                                      struct err *err);
/* Best effort. */
void arbiter_folder_set_hint(const struct arbiter_folder *f, uint32_t epoch);
