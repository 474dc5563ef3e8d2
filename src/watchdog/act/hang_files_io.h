/* Where what is known of a hang is kept: below the folder of the run's logs,
 *
 *     DIR/hangs/20261124-031038.123-1.1/{hang.txt,hang.json}      time (UTC), generation
 *
 * The oldest are removed, so that there are never more than HANG_FILES_KEPT, with at most
 * HANG_FILES_BYTES. mode: of the files (--log-mode); folders get own_folder_mode() of it. These
 * calls block as long as the file system does. */
#pragma once

#include "base/err.h"
#include "rendezvous/protocol/messages.h"

#define HANG_FILES_KEPT 16
#define HANG_FILES_BYTES (UINT64_C(64) << 20)
#define HANG_FILES_NAME_MAX 64

/* The name of a folder; it sorts by time. */
void hang_files_name(uint64_t wall_ns, struct generation generation, char ret[HANG_FILES_NAME_MAX]);
/* "2026-11-24T03:10:38.123Z" */
void hang_files_time(uint64_t wall_ns, char ret[HANG_FILES_NAME_MAX]);

struct hang_files_text {
    const char *data;
    size_t len;
};
/* *ret_path: of hang.txt, malloc'ed. Otherwise an errno, and what was tried, on what; what could be
 * written stays. */
_must_use_ int hang_files_write(const char *dir, const char *name, uint32_t mode,
                                const struct hang_files_text *text,
                                const struct hang_files_text *json, char **ret_path,
                                struct err *err);
/* Adds to files that are there: the text at the end of this hang.txt, and members (",\"key\":…") to
 * the object in the hang.json beside it. The same. */
_must_use_ int hang_files_amend(const char *path, const struct hang_files_text *text,
                                const struct hang_files_text *json, struct err *err);
