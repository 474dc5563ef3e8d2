/* Shared by the two files for the job's folder: arbiter_folder_open_io.c opens it,
 * arbiter_folder_io.c handles its files. */
#pragma once

#include "rendezvous/arbiter/dir/arbiter_folder_io.h"

#define NAME_LEN 64 /* of a file in the folder */

uint64_t arbiter_hash(const void *data, size_t len); /* FNV-1a: not a cryptographic hash */

/* Whether files of this owner are what we create there. */
bool arbiter_folder_is_ours(const struct arbiter_folder *f, uid_t owner);

/* Sets err to "cannot VERB PATH/NAME/FILE: …", with the text of errno. Returns -errno. */
int arbiter_folder_failed(const struct arbiter_folder *f, const char *verb, const char *file,
                          struct err *err);
