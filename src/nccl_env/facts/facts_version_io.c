#include "nccl_env/facts/facts_version_io.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/envlist.h"

#define SCAN_MAX ((off_t)64 << 20) /* how many bytes of a library are searched for its version */
#define SCAN_STEP ((size_t)256 << 10)
#define FOLDERS_MAX 64 /* of Python's packages */

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

struct folders {
    char *list[FOLDERS_MAX];
    uint32_t n;
};

static void folders_fini(struct folders *f) {
    for (uint32_t i = 0; i < f->n; i++)
        free(f->list[i]);
}

static void closedirp(DIR **d) {
    if (*d != NULL)
        (void)closedir(*d);
}

static void folders_add(struct folders *f, char *path) {
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->list[i], path) == 0) {
            free(path);
            return;
        }
    if (f->n < FOLDERS_MAX)
        f->list[f->n++] = path;
    else
        free(path);
}

/* PREFIX/lib/python3*, with both names that distributions give the folder below it. */
static void add_pythons(struct folders *f, const char *root, const char *prefix) {
    _cleanup_(freep) char *lib = xasprintf("%s%s/lib", root, prefix);
    _cleanup_(closedirp) DIR *d = opendir(lib);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "python3", 7) != 0)
            continue;
        folders_add(f, xasprintf("%s/%s/site-packages", lib, e->d_name));
        folders_add(f, xasprintf("%s/%s/dist-packages", lib, e->d_name));
    }
}

static void packages_find(const char *root, const struct nccl_facts_config *config,
                          struct folders *f) {
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

static bool each_of_path(const char *root, const char *path,
                         bool (*each)(void *arg, const char *folder), void *arg) {
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        _cleanup_(freep) char *folder = xasprintf("%s%.*s", root, (int)n, path);
        if (path[0] == '/' && !each(arg, folder))
            return false;
        path += n + (path[n] == ':');
    }
    return true;
}

void library_folders(const char *root, const struct nccl_facts_config *config,
                     bool (*each)(void *arg, const char *folder), void *arg) {
    _cleanup_(folders_fini) struct folders packages = {0};
    if (!each_of_path(root, env_get(config->envp, "LD_LIBRARY_PATH"), each, arg))
        return;
    packages_find(root, config, &packages);
    for (uint32_t i = 0; i < packages.n; i++) {
        _cleanup_(freep) char *folder = xasprintf("%s/nvidia/nccl/lib", packages.list[i]);
        if (!each(arg, folder))
            return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(known_folders); i++) {
        _cleanup_(freep) char *folder = xasprintf("%s%s", root, known_folders[i]);
        if (!each(arg, folder))
            return;
    }
}

/* "2.30.7" to 23007, the form of NCCL_VERSION_CODE since 2.9; text after the number is ignored. */
static uint32_t version_code(const char *text) {
    unsigned major = 0, minor = 0, patch = 0;
    if (sscanf(text, "%2u.%2u.%2u", &major, &minor, &patch) < 2)
        return 0;
    return major * 10000 + minor * 100 + patch;
}

static void closep(int *fd) {
    if (*fd >= 0)
        (void)close(*fd);
}

/* The library contains the text "NCCL version 2.30.7+cuda12.9" for its log. */
static uint32_t version_in_bytes(const char *path) {
    static const char mark[] = "NCCL version ";
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

/* The library in a folder: the version in its name is enough. */
static bool look_for_nccl(void *arg, const char *folder) {
    struct nccl_facts *f = arg;
    char name[64] = "";
    _cleanup_(closedirp) DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "libnccl.so.", 11) != 0 || strlen(e->d_name) >= sizeof name)
            continue;
        uint32_t code = version_code(e->d_name + 11);
        if (code > f->nccl_version || name[0] == '\0')
            (void)snprintf(name, sizeof name, "%.63s", e->d_name);
        f->nccl_version = MAX2(f->nccl_version, code);
    }
    if (name[0] == '\0')
        return true;
    (void)snprintf(f->nccl_path, sizeof f->nccl_path, "%s/%s", folder, name);
    if (f->nccl_version == 0)
        f->nccl_version = version_in_metadata(folder);
    if (f->nccl_version == 0)
        f->nccl_version = version_in_bytes(f->nccl_path);
    return false;
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

void nccl_versions_read(const char *root, const struct nccl_facts_config *config,
                        struct nccl_facts *ret) {
    library_folders(root, config, look_for_nccl, ret);
    size_t n = strlen(root); /* the path as workers see it */
    if (ret->nccl_path[0] != '\0')
        memmove(ret->nccl_path, ret->nccl_path + n, strlen(ret->nccl_path + n) + 1);
    _cleanup_(folders_fini) struct folders packages = {0};
    packages_find(root, config, &packages);
    for (uint32_t i = 0; i < packages.n; i++)
        if (read_torch(packages.list[i], ret->torch_version, sizeof ret->torch_version))
            return;
}
