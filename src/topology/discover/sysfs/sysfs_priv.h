/* Reading below a root prefix, shared by the sysfs_*_io files. Paths given here are as on the
 * machine itself ("/sys/class/net"); they never leave the root. */
#pragma once

#include <stdbool.h>

#include "topology/model/topology.h"

#define SYSFS_PATH_MAX 1024   /* the longest seen is some 200; with the root */
#define SYSFS_TEXT_MAX 4096   /* one attribute: the kernel writes a page at most */
#define SYSFS_NAMES_MAX 16384 /* entries of one folder */

struct sysfs {
    char root[SYSFS_PATH_MAX]; /* "" this machine */
};

/* Cuts trailing slashes; a root that is too long gives one where nothing is found. */
void sysfs_init(struct sysfs *s, const char *root);

/* The path without symlinks, from the root ("/sys/devices/pci0000:00/…"). 0 or -errno: -ENOENT,
 * -ELOOP, -ENAMETOOLONG. */
_must_use_ int sysfs_resolve(const struct sysfs *s, const char *path, char ret[SYSFS_PATH_MAX]);
bool sysfs_exists(const struct sysfs *s, const char *path);

/* A file's text without its line end; the path is a format. Text of more than `size` or with
 * anything but printable characters, blanks and line ends is -EINVAL, an empty one -ENODATA, what
 * is no plain file -EINVAL. *ret is written only on 0. */
_must_use_ int sysfs_read(const struct sysfs *s, char *ret, size_t size, const char *path, ...)
    _printf_(4, 5);
/* The first bytes of a file that may be long, with a NUL after them; control characters and all.
 * What is no plain file is -EINVAL. */
_must_use_ int sysfs_head(const struct sysfs *s, char *ret, size_t size, const char *path);
/* Decimal (or 0x…) numbers; *ret is written only on 0. */
_must_use_ int sysfs_read_u64(const struct sysfs *s, uint64_t *ret, const char *path, ...)
    _printf_(3, 4);
_must_use_ int sysfs_read_i64(const struct sysfs *s, int64_t *ret, const char *path, ...)
    _printf_(3, 4);
/* The number, or 0 where it is unknown or wider than 32 bits. */
uint32_t sysfs_u32(const struct sysfs *s, const char *path, ...) _printf_(2, 3);
/* Last part of what a symlink points to: the driver's name of ".../driver". "" where there is
 * none. */
void sysfs_link_name(const struct sysfs *s, char ret[TOPO_NAME_MAX], const char *path, ...)
    _printf_(3, 4);
/* xasprintf() for paths: cuts are refused by the readers as names that are not there. */
void sysfs_path(char ret[SYSFS_PATH_MAX], const char *fmt, ...) _printf_(2, 3);

/* The names in a folder, in natural order. Those longer than TOPO_NAME_MAX - 1, and those that are
 * no text or of several lines, are left out and counted. */
struct sysfs_names {
    char (*names)[TOPO_NAME_MAX];
    uint32_t n;
    bool cut; /* there were more than SYSFS_NAMES_MAX */
    uint32_t n_odd;
};
_must_use_ int sysfs_list(const struct sysfs *s, const char *path, struct sysfs_names *ret);
void sysfs_names_fini(struct sysfs_names *n);
/* Warns of what is left out of a folder whose entries are devices. */
void sysfs_names_warn(const struct sysfs_names *n, const char *path, struct topology *t);

/* The PCI function at or below which a resolved device path lies: "/sys/devices/pci0000:00/
 * 0000:00:03.0/virtio2" gives 0000:00:03.0. */
_must_use_ int sysfs_pci_of_path(const char *resolved, struct pci_addr *ret);
/* Index of this function in t->pci, added with all data from files and the bridges above it;
 * TOPO_NONE at the bound. */
uint32_t sysfs_pci_ensure(const struct sysfs *s, struct topology *t, struct pci_addr at);
/* As above for the device that a class entry's `device` link leads to ("/sys/class/net/eth0");
 * TOPO_NONE where that is no PCI function. */
uint32_t sysfs_pci_of_class(const struct sysfs *s, struct topology *t, const char *entry);
