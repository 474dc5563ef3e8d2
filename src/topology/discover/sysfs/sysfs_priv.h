/* Reading below a root prefix, shared by the sysfs_*_io files. Paths are those of the machine
 * itself ("/sys/class/net"); they never lead out of the root. */
#pragma once

#include <stdbool.h>

#include "topology/model/topology.h"

#define SYSFS_PATH_MAX 1024   /* the longest seen is some 200; with the root */
#define SYSFS_TEXT_MAX 4096   /* one attribute: the kernel writes a page at most */
#define SYSFS_NAMES_MAX 16384 /* entries of one folder */

struct sysfs {
    char root[SYSFS_PATH_MAX]; /* "" this machine */
};

/* Removes trailing slashes. A root that is too long becomes one in which nothing is found. */
struct sysfs sysfs_at(const char *root);

/* The path without symlinks, from the root ("/sys/devices/pci0000:00/…"). Returns 0 or -errno:
 * -ENOENT, -ELOOP, -ENAMETOOLONG. */
_must_use_ int sysfs_resolve(const struct sysfs *s, const char *path, char ret[SYSFS_PATH_MAX]);
bool sysfs_exists(const struct sysfs *s, const char *path, ...) _printf_(2, 3);

/* A file's text without its line end. -EINVAL: longer than `size`, with other characters than
 * printable ones, blanks and line ends, or no plain file; -ENODATA: empty. *ret is written only on
 * 0. */
_must_use_ int sysfs_read(const struct sysfs *s, char *ret, size_t size, const char *path, ...)
    _printf_(4, 5);
/* The first bytes of a file that may be long, followed by a NUL; control characters are kept.
 * Returns -EINVAL for anything that is not a plain file. */
_must_use_ int sysfs_head(const struct sysfs *s, char *ret, size_t size, const char *path);
/* A decimal number, or one of 0x…; *ret is written only on 0. */
_must_use_ int sysfs_number(const struct sysfs *s, int64_t *ret, const char *path, ...)
    _printf_(3, 4);
/* The number, or 0 where it is unknown or wider than 32 bits. */
uint32_t sysfs_u32(const struct sysfs *s, const char *path, ...) _printf_(2, 3);
/* The last part of a symlink's target: for ".../driver" the driver's name. "" if there is none. */
void sysfs_link_name(const struct sysfs *s, char ret[TOPO_NAME_MAX], const char *path, ...)
    _printf_(3, 4);
/* xasprintf() for paths. A path that was cut does not exist, so the readers refuse it. */
void sysfs_path(char ret[SYSFS_PATH_MAX], const char *fmt, ...) _printf_(2, 3);

/* The names in a folder, in natural order. Names that are longer than TOPO_NAME_MAX - 1, are not
 * text or have several lines are left out and counted. */
struct sysfs_names {
    char (*names)[TOPO_NAME_MAX];
    uint32_t n;
    bool cut; /* there were more than SYSFS_NAMES_MAX */
    uint32_t n_odd;
};
_must_use_ int sysfs_list(const struct sysfs *s, struct sysfs_names *ret, const char *path, ...)
    _printf_(3, 4);
void sysfs_names_fini(struct sysfs_names *n);
/* Warns about entries that are left out of a folder of devices. */
void sysfs_names_warn(const struct sysfs_names *n, const char *path, struct topology *t);

/* As above for the device that a class entry's `device` link leads to ("/sys/class/net/eth0");
 * TOPO_NONE where that is not a PCI function. */
uint32_t sysfs_pci_of_class(const struct sysfs *s, struct topology *t, const char *entry);
