#include "nccl_env/facts/facts_version_io.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "io/file.h"

#define SCAN_MAX ((off_t)64 << 20) /* how many bytes of a library are searched for its version */
#define SCAN_STEP ((size_t)256 << 10)

static const char *const known_folders[] = {
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/ofi-nccl/lib/aarch64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/usr/local/gib/lib64",
    "/usr/local/tcpx/lib64",
    "/var/lib/tcpx/lib64",
    "/usr/local/fastrak/lib64",
    "/var/lib/fastrak/lib64",
    "/usr/local/nvidia/lib64",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
};

void packages_fini(struct package_folders *p) {
    for (uint32_t i = 0; i < p->n; i++)
        free(p->list[i]);
    p->n = 0;
}

static void closedirp(DIR **d) {
    if (*d != NULL)
        (void)closedir(*d);
}

static void folders_add(struct package_folders *f, char *path) {
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->list[i], path) == 0) {
            free(path);
            return;
        }
    if (f->n < PACKAGE_FOLDERS_MAX)
        f->list[f->n++] = path;
    else
        free(path);
}

/* PREFIX/lib/python3*, with both names that distributions give the folder below it. */
static void add_pythons(struct package_folders *f, const char *root, const char *prefix) {
    _cleanup_(freep) char *lib = xasprintf("%s%s/lib", root, prefix);
    _cleanup_(closedirp) DIR *d = opendir(lib);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "python3", 7) != 0)
            continue;
        folders_add(f, xasprintf("%s/%s/site-packages", lib, e->d_name));
        folders_add(f, xasprintf("%s/%s/dist-packages", lib, e->d_name));
    }
}

void packages_find(const char *root, const struct nccl_facts_config *config,
                   struct package_folders *f) {
    const char *venv = env_get(config->envp, "VIRTUAL_ENV"), *home = env_get(config->envp, "HOME");
    const char *bin = config->python != NULL ? strstr(config->python, "/bin/") : NULL;
    for (const char *next; bin != NULL && (next = strstr(bin + 1, "/bin/")) != NULL;)
        bin = next; /* this is the last one */
    if (bin != NULL) {
        _cleanup_(freep) char *prefix = xstrndup(config->python, (size_t)(bin - config->python));
        add_pythons(f, root, prefix);
    } else if (venv != NULL && venv[0] == '/') {
        add_pythons(f, root, venv);
    }
    if (home != NULL && home[0] == '/') {
        _cleanup_(freep) char *local = xasprintf("%s/.local", home);
        add_pythons(f, root, local);
    }
    add_pythons(f, root, "/usr/local");
    add_pythons(f, root, "/usr");
}

static void each_of_path(const char *root, const char *path,
                         void (*each)(void *arg, const char *folder), void *arg) {
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        _cleanup_(freep) char *folder = xasprintf("%s%.*s", root, (int)n, path);
        if (path[0] == '/')
            each(arg, folder);
        path += n + (path[n] == ':');
    }
}

void library_folders(const char *root, const struct nccl_facts_config *config,
                     const struct package_folders *packages,
                     void (*each)(void *arg, const char *folder), void *arg) {
    each_of_path(root, env_get(config->envp, "LD_LIBRARY_PATH"), each, arg);
    for (uint32_t i = 0; i < packages->n; i++) {
        _cleanup_(freep) char *folder = xasprintf("%s/nvidia/nccl/lib", packages->list[i]);
        each(arg, folder);
    }
    for (size_t i = 0; i < ARRAY_SIZE(known_folders); i++) {
        _cleanup_(freep) char *folder = xasprintf("%s%s", root, known_folders[i]);
        each(arg, folder);
    }
}

/* "2.30.7" to 23007, the form of NCCL_VERSION_CODE since 2.9; text after the number is ignored. */
static uint32_t version_code(const char *text) {
    unsigned major = 0, minor = 0, patch = 0;
    if (sscanf(text, "%2u.%2u.%2u", &major, &minor, &patch) < 2)
        return 0;
    return major * 10000 + minor * 100 + patch;
}

/* The library contains the text "NCCL version 2.30.7+cuda12.9" for its log. */
static uint32_t version_in_bytes(const char *path) {
    static const char mark[] = "NCCL version ";
    _cleanup_(file_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    _cleanup_(freep) char *buf = xmalloc(SCAN_STEP + 1);
    size_t keep = 0; /* bytes kept from the last step, because the text can cross its end */
    for (off_t at = 0; fd >= 0 && at < SCAN_MAX;) {
        ssize_t n = pread(fd, buf + keep, SCAN_STEP - keep, at);
        if (n <= 0)
            return 0;
        at += n;
        size_t len = keep + (size_t)n;
        buf[len] = '\0';
        for (char *p = buf; (p = memmem(p, len - (size_t)(p - buf), mark, sizeof mark - 1)) != NULL;
             p++) {
            uint32_t code =
                isdigit((unsigned char)p[sizeof mark - 1]) ? version_code(p + sizeof mark - 1) : 0;
            if (code != 0)
                return code;
        }
        keep = MIN2(len, (size_t)64);
        memmove(buf, buf + len - keep, keep);
    }
    return 0;
}

/* FOLDER/../../.. is site-packages, which contains nvidia_nccl_cu12-2.30.7.dist-info. */
static uint32_t version_in_metadata(const char *folder) {
    if (strstr(folder, "/nvidia/nccl/lib") == NULL)
        return 0;
    _cleanup_(freep) char *packages =
        xstrndup(folder, (size_t)(strstr(folder, "/nvidia/nccl/lib") - folder));
    _cleanup_(closedirp) DIR *d = opendir(packages);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        const char *dash = strchr(e->d_name, '-');
        if (strncmp(e->d_name, "nvidia_nccl_cu", 14) == 0 && dash != NULL &&
            strstr(dash, ".dist-info") != NULL && version_code(dash + 1) != 0)
            return version_code(dash + 1);
    }
    return 0;
}

/* Of several libraries in a folder, the newest by its name. */
void nccl_library_see(struct nccl_library *l, const char *name) {
    if (strncmp(name, "libnccl.so.", 11) != 0 || strlen(name) >= sizeof l->name)
        return;
    uint32_t code = version_code(name + 11);
    if (code > l->version || l->name[0] == '\0')
        (void)snprintf(l->name, sizeof l->name, "%s", name);
    l->version = MAX2(l->version, code);
}

void nccl_library_take(const struct nccl_library *l, const char *folder, struct nccl_facts *f) {
    if (l->name[0] == '\0' || f->nccl_path[0] != '\0')
        return;
    (void)snprintf(f->nccl_path, sizeof f->nccl_path, "%s/%s", folder, l->name);
    f->nccl_version = l->version;
    if (f->nccl_version == 0)
        f->nccl_version = version_in_metadata(folder);
    if (f->nccl_version == 0)
        f->nccl_version = version_in_bytes(f->nccl_path);
}

static bool read_torch(const char *folder, char *ret, size_t size) {
    _cleanup_(closedirp) DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        const char *end = strstr(e->d_name, ".dist-info");
        end = end != NULL ? end : strstr(e->d_name, ".egg-info");
        if (strncmp(e->d_name, "torch-", 6) != 0 || end == NULL || end < e->d_name + 7)
            continue;
        (void)snprintf(ret, size, "%.*s", (int)(end - e->d_name - 6), e->d_name + 6);
        return true;
    }
    return false;
}

void torch_version_read(const struct package_folders *packages, struct nccl_facts *ret) {
    for (uint32_t i = 0; i < packages->n; i++)
        if (read_torch(packages->list[i], ret->torch_version, sizeof ret->torch_version))
            return;
}
