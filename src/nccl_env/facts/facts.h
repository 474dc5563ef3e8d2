/* What the rules know of a node besides its topology: which cloud it belongs to and what is
 * configured there. Plain data; facts_io.h reads it. */
#pragma once

#include "base/text/strbuf.h"

/* NCCL's configuration files, by NCCL's own grammar (src/misc/param.cc, 2.30.7): one NAME=value per
 * line, split at the first '='; nothing is trimmed, and there are no quotes. A line with '#' in
 * column 0 is a comment; a line without '=' is ignored. */
#define NCCL_CONF_MAX ((size_t)1 << 20) /* bytes of a file */
#define NCCL_CONF_ENTRIES_MAX 1024

struct nccl_conf_entry {
    char *name, *value; /* owned */
    uint32_t line;
};
struct nccl_conf {
    char *path;                      /* owned; NULL: there is none */
    struct nccl_conf_entry *entries; /* owned */
    uint32_t n;
};
void nccl_conf_parse(const char *path, const char *text, size_t len, struct nccl_conf *ret);
/* Or NULL. */
const struct nccl_conf_entry *nccl_conf_find(const struct nccl_conf *c, const char *name);

enum cloud { /* whose plugin or image owns NCCL's tuning, if any */
             CLOUD_NONE = 1,
             CLOUD_AWS,
             CLOUD_GCP_TCPX,
             CLOUD_GCP_TCPXO,
             CLOUD_GCP_GIB,
             CLOUD_AZURE,
             CLOUD_ORACLE,
             CLOUD_COREWEAVE,
             CLOUD_IBM,
};
/* "AWS (EFA)"; NULL: none, whose plugin or image sets the tuning, so that muster must not. */
const char *cloud_name(enum cloud c);

#define NCCL_PLUGINS_MAX 16
#define NCCL_TOPO_FILES_MAX 8 /* topology files that an image contains */

/* What cloud_detect() examines. Texts are "" if there is none. */
struct cloud_signs {
    char sys_vendor[64], product_name[64], bios_vendor[64];
    char chassis_asset_tag[64], chassis_vendor[64];
    bool efa;            /* an EFA device: /sys/class/infiniband/rdmap*, or efa_* */
    bool ofi_plugin;     /* libnccl-net-ofi.so or the like is found */
    bool tcpx;           /* libnccl-net.so of GPUDirectTCPX, /var/lib/tcpx */
    bool tcpxo;          /* /dev/aperture_devices, or a plugin's nccl-env-profile.sh */
    bool gib;            /* /usr/local/gib */
    bool coreweave;      /* labels or files that CoreWeave leaves in a pod */
    char topo_file[256]; /* an /opt/microsoft/…/topo.xml or the like; "" none */
};
enum cloud cloud_detect(const struct cloud_signs *signs);

struct nccl_topo_file {
    char *path, *text; /* owned */
};

#define NCCL_HCAS_MAX 32     /* the most that NCCL uses */
#define NCCL_GID_SINCE 22100 /* NCCL 2.21 finds RoCE's GID itself */

struct nccl_facts {
    struct nccl_conf user_conf;   /* NCCL_CONF_FILE, else ~/.nccl.conf */
    struct nccl_conf system_conf; /* /etc/nccl.conf */
    int conf_file_error;          /* -errno if the file of NCCL_CONF_FILE can't be read; else 0 */
    enum cloud cloud;
    struct cloud_signs signs;
    char *plugins[NCCL_PLUGINS_MAX]; /* owned: paths of libnccl-net*.so, -tuner, -env found */
    uint32_t n_plugins;
    struct nccl_topo_file topo_files[NCCL_TOPO_FILES_MAX];
    uint32_t n_topo_files;
    bool topo_file_gone;    /* the file of NCCL_TOPO_FILE (environment, files) is missing */
    uint32_t nccl_version;  /* 23007 for 2.30.7; 0: not found */
    char nccl_path[256];    /* of the library from which nccl_version was read; "" */
    char torch_version[64]; /* "2.13.0+cpu", "" */
    uint64_t memlock_hard, nofile_hard, stack; /* the soft one; UINT64_MAX: unlimited; 0: unknown */
    uint64_t shm_bytes;                        /* size of /dev/shm; 0: not there */
};

/* Calls it with each text that the facts own, up to the counts in the facts. */
typedef void nccl_facts_text_fn(void *arg, char **text);
void nccl_facts_each_text(struct nccl_facts *f, nccl_facts_text_fn *fn, void *arg);
/* The first of that name in the user's file, then the system's; or NULL. ret_path may be NULL. */
const struct nccl_conf_entry *nccl_facts_conf(const struct nccl_facts *f, const char *name,
                                              const char **ret_path);
/* The facts that people should see: "; NCCL 2.30.7; PyTorch 2.13.0+cpu; AWS (EFA)". */
void nccl_facts_describe(const struct nccl_facts *f, struct strbuf *to);
void nccl_facts_fini(struct nccl_facts *f);
