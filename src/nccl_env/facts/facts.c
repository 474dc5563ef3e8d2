#include "nccl_env/facts/facts.h"

#include <inttypes.h>
#include <string.h>

void nccl_facts_each_text(struct nccl_facts *f, nccl_facts_text_fn *fn, void *arg) {
    struct nccl_conf *const confs[] = {&f->user_conf, &f->system_conf};
    for (size_t i = 0; i < ARRAY_SIZE(confs); i++) {
        fn(arg, &confs[i]->path);
        for (uint32_t k = 0; k < confs[i]->n; k++) {
            fn(arg, &confs[i]->entries[k].name);
            fn(arg, &confs[i]->entries[k].value);
        }
    }
    for (uint32_t i = 0; i < f->n_plugins; i++)
        fn(arg, &f->plugins[i]);
    for (uint32_t i = 0; i < f->n_topo_files; i++) {
        fn(arg, &f->topo_files[i].path);
        fn(arg, &f->topo_files[i].text);
    }
}

static void free_text(void *arg, char **text) { free(*text); }

void nccl_facts_fini(struct nccl_facts *f) {
    nccl_facts_each_text(f, free_text, NULL);
    free(f->user_conf.entries);
    free(f->system_conf.entries);
    *f = (struct nccl_facts){0};
}

const struct nccl_conf_entry *nccl_facts_conf(const struct nccl_facts *f, const char *name,
                                              const char **ret_path) {
    const struct nccl_conf *const files[] = {&f->user_conf, &f->system_conf};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const struct nccl_conf_entry *e = nccl_conf_find(files[i], name);
        if (e != NULL && ret_path != NULL)
            *ret_path = files[i]->path;
        if (e != NULL)
            return e;
    }
    return NULL;
}

void nccl_facts_describe(const struct nccl_facts *f, struct strbuf *to) {
    uint32_t v = f->nccl_version;
    if (v > 0)
        strbuf_printf(to, "; NCCL %" PRIu32 ".%" PRIu32 ".%" PRIu32, v / 10000, v / 100 % 100,
                      v % 100);
    if (f->torch_version[0] != '\0')
        strbuf_printf(to, "; PyTorch %s", f->torch_version);
    if (cloud_name(f->cloud) != NULL)
        strbuf_printf(to, "; %s", cloud_name(f->cloud));
    for (uint32_t i = 0; i < f->n_plugins; i++)
        strbuf_printf(to, "%s%s", i == 0 ? "; plug-in " : ", ", f->plugins[i]);
}

/* Microsoft's fixed asset tag of Azure's virtual machines. */
#define AZURE_CHASSIS "7783-7084-3265-9085-8269-3286-77"
#define ORACLE_CHASSIS "OracleCloud.com"

const char *cloud_name(enum cloud c) {
    static const char *const names[] = {
        [CLOUD_AWS] = "AWS (EFA)",
        [CLOUD_GCP_TCPX] = "Google Cloud (GPUDirect-TCPX)",
        [CLOUD_GCP_TCPXO] = "Google Cloud (GPUDirect-TCPXO)",
        [CLOUD_GCP_GIB] = "Google Cloud (gIB)",
        [CLOUD_AZURE] = "Azure",
        [CLOUD_ORACLE] = "Oracle Cloud",
        [CLOUD_COREWEAVE] = "CoreWeave",
        [CLOUD_IBM] = "IBM Cloud",
    };
    return names[c];
}

/* "IBM:Cloud Compute Server 1.0", "ibmcloud"; a POWER server of IBM has only "IBM". */
static bool is_ibm_cloud(const char *text) {
    const char *ibm = strcasestr(text, "ibm");
    return ibm != NULL && strcasestr(ibm, "cloud") != NULL;
}

enum cloud cloud_detect(const struct cloud_signs *s) {
    /* An image for several machine types can hold more than one of Google's plugins. The newest
     * machine is checked first, by something that only it has. */
    if (s->gib)
        return CLOUD_GCP_GIB;
    if (s->tcpxo)
        return CLOUD_GCP_TCPXO;
    if (s->tcpx)
        return CLOUD_GCP_TCPX;
    /* Only AWS has EFA devices, and a container can hide the DMI. Without one an EC2 machine is
     * like any other. */
    if (s->efa || (s->ofi_plugin && strcmp(s->sys_vendor, "Amazon EC2") == 0))
        return CLOUD_AWS;
    if (strcmp(s->chassis_asset_tag, AZURE_CHASSIS) == 0)
        return CLOUD_AZURE;
    if (strcmp(s->chassis_asset_tag, ORACLE_CHASSIS) == 0 ||
        strcmp(s->chassis_vendor, ORACLE_CHASSIS) == 0)
        return CLOUD_ORACLE;
    if (s->coreweave)
        return CLOUD_COREWEAVE;
    const char *const ibm[] = {s->sys_vendor, s->product_name, s->bios_vendor, s->chassis_asset_tag,
                               s->chassis_vendor};
    for (size_t i = 0; i < ARRAY_SIZE(ibm); i++)
        if (is_ibm_cloud(ibm[i]))
            return CLOUD_IBM;
    return CLOUD_NONE;
}

/* NCCL copies name and value into arrays of 1024 bytes, so the rest of a longer one is lost. */
#define PART_MAX ((size_t)1023)

static void add_line(struct nccl_conf *c, const char *line, size_t len, uint32_t number) {
    const char *nul = memchr(line, '\0', len);
    if (nul != NULL) /* the line is a C string for NCCL, so it ends there */
        len = (size_t)(nul - line);
    const char *equals = len > 0 && line[0] != '#' ? memchr(line, '=', len) : NULL;
    /* setenv(3) refuses an empty name */
    if (equals == NULL || equals == line || c->n == NCCL_CONF_ENTRIES_MAX)
        return;
    size_t name_len = (size_t)(equals - line);
    c->entries = xgrow(c->entries, c->n, sizeof *c->entries);
    struct nccl_conf_entry *e = &c->entries[c->n++];
    e->name = xstrndup(line, MIN2(name_len, PART_MAX));
    e->value = xstrndup(equals + 1, MIN2(len - name_len - 1, PART_MAX));
    e->line = number;
}

void nccl_conf_parse(const char *path, const char *text, size_t len, struct nccl_conf *ret) {
    len = MIN2(len, NCCL_CONF_MAX);
    *ret = (struct nccl_conf){.path = xstrdup(path)};
    uint32_t number = 1;
    for (size_t at = 0; at < len; number++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end != NULL ? (size_t)(end - text) - at : len - at;
        add_line(ret, text + at, n, number);
        at += n + 1;
    }
}

const struct nccl_conf_entry *nccl_conf_find(const struct nccl_conf *c, const char *name) {
    for (uint32_t i = 0; i < c->n; i++)
        if (strcmp(c->entries[i].name, name) == 0)
            return &c->entries[i];
    return NULL;
}
