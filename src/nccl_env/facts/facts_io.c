#include "nccl_env/facts/facts_io.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "io/file.h"

#define FOLDERS_MAX 256 /* below the root */

/* NCCL's library in one folder; begins with {0}. */
struct nccl_library {
    char name[64]; /* "": none */
    uint32_t version;
};

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

static void list_fini(struct words *w) { words_free(w->list); }

/* By name; none if it can't be read. */
static struct words names_in(const char *root, const char *folder) {
    _cleanup_(freep) char *path = xasprintf("%s%s", root, folder);
    struct words names = {0};
    _cleanup_(freep) struct dirent **entries = NULL;
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        words_add(&names.list, &names.n, xstrdup(entries[i]->d_name));
        free(entries[i]);
    }
    return names;
}

/* Each once, because one of a shared file system can be slow to list. Takes path. */
static void folders_add(struct words *f, char *path) {
    bool out = f->n == FOLDERS_MAX;
    for (size_t i = 0; i < f->n && !out; i++)
        out = strcmp(f->list[i], path) == 0;
    if (out)
        free(path);
    else
        words_add(&f->list, &f->n, path);
}

/* PREFIX/lib/python3*, with both names that distributions give the folder below it. */
static void add_pythons(struct words *f, const char *root, const char *prefix) {
    _cleanup_(freep) char *lib = xasprintf("%s%s/lib", root, prefix);
    _cleanup_(list_fini) struct words names = names_in(lib, "");
    for (size_t i = 0; i < names.n; i++) {
        if (!text_begins(names.list[i], "python3"))
            continue;
        folders_add(f, xasprintf("%s/%s/site-packages", lib, names.list[i]));
        folders_add(f, xasprintf("%s/%s/dist-packages", lib, names.list[i]));
    }
}

static void packages_find(const char *root, const struct nccl_facts_config *config,
                          struct words *f) {
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

/* Each folder that can have a library: of LD_LIBRARY_PATH, Python's, the known ones. */
static void library_folders(const char *root, const struct nccl_facts_config *config,
                            const struct words *packages, struct words *ret) {
    const char *path = env_get(config->envp, "LD_LIBRARY_PATH");
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        if (path[0] == '/')
            folders_add(ret, xasprintf("%s%.*s", root, (int)n, path));
        path += n + (path[n] == ':');
    }
    for (uint32_t i = 0; i < packages->n; i++)
        folders_add(ret, xasprintf("%s/nvidia/nccl/lib", packages->list[i]));
    for (size_t i = 0; i < ARRAY_SIZE(known_folders); i++)
        folders_add(ret, xasprintf("%s%s", root, known_folders[i]));
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

/* Of a package in site-packages whose name begins so, as in nvidia_nccl_cu12-2.30.7.dist-info. */
static bool package_version(const char *packages, const char *name, char *ret, size_t size) {
    _cleanup_(list_fini) struct words names = names_in(packages, "");
    for (size_t i = 0; i < names.n; i++) {
        const char *entry = names.list[i], *dash = strchr(entry, '-');
        const char *end = strstr(entry, ".dist-info");
        end = end != NULL ? end : strstr(entry, ".egg-info");
        if (!text_begins(entry, name) || dash == NULL || end == NULL || end < dash + 2)
            continue;
        (void)snprintf(ret, size, "%.*s", (int)(end - dash - 1), dash + 1);
        return true;
    }
    return false;
}

/* FOLDER/../../.. is site-packages. */
static uint32_t version_in_metadata(const char *folder) {
    const char *end = strstr(folder, "/nvidia/nccl/lib");
    _cleanup_(freep) char *packages = end != NULL ? xstrndup(folder, (size_t)(end - folder)) : NULL;
    char version[64];
    bool known =
        end != NULL && package_version(packages, "nvidia_nccl_cu", version, sizeof version);
    return known ? version_code(version) : 0;
}

/* Of several libraries in a folder, the newest by its name. */
static void nccl_library_see(struct nccl_library *l, const char *name) {
    if (strncmp(name, "libnccl.so.", 11) != 0 || strlen(name) >= sizeof l->name)
        return;
    uint32_t code = version_code(name + 11);
    if (code > l->version || l->name[0] == '\0')
        (void)snprintf(l->name, sizeof l->name, "%s", name);
    l->version = MAX2(l->version, code);
}

/* Fills nccl_version and nccl_path (below the root, too), if no folder before has filled them. */
static void nccl_library_take(const struct nccl_library *l, const char *folder,
                              struct nccl_facts *f) {
    if (l->name[0] == '\0' || f->nccl_path[0] != '\0')
        return;
    (void)snprintf(f->nccl_path, sizeof f->nccl_path, "%s/%s", folder, l->name);
    f->nccl_version = l->version;
    if (f->nccl_version == 0)
        f->nccl_version = version_in_metadata(folder);
    if (f->nccl_version == 0)
        f->nccl_version = version_in_bytes(f->nccl_path);
}

#define SMALL_FILE_MAX ((size_t)64 << 10)
#define TOPO_FILE_MAX ((size_t)1 << 20)
#define PASSWD_MAX ((size_t)16 << 20)

static bool exists(const char *root, const char *path) {
    _cleanup_(freep) char *full = xasprintf("%s%s", root, path);
    return access(full, F_OK) == 0;
}

static int read_below(const char *root, const char *path, size_t max, char **ret, size_t *ret_len) {
    _cleanup_(freep) char *full = xasprintf("%s%s", root, path);
    return file_read_text(full, max, ret, ret_len);
}

static int read_conf(const char *root, const char *path, struct nccl_conf *ret) {
    _cleanup_(freep) char *text = NULL;
    size_t len;
    int r = read_below(root, path, NCCL_CONF_MAX, &text, &len);
    if (r == 0)
        nccl_conf_parse(path, text, len, ret); /* the path as workers see it */
    return r;
}

/* NCCL asks getpwuid(), not HOME (src/misc/param.cc, userHomeDir). Sources other than this file can
 * be slow to answer: for a user who is not in the file, HOME is used. */
static char *home_of_user(const char *root, char *const *envp) {
    _cleanup_(freep) char *text = NULL;
    const char *home = env_get(envp, "HOME");
    size_t len;
    bool read = read_below(root, "/etc/passwd", PASSWD_MAX, &text, &len) == 0 && len > 0;
    FILE *users = read ? fmemopen(text, len, "r") : NULL;
    const struct passwd *user = NULL;
    while (users != NULL && (user = fgetpwent(users)) != NULL)
        if (user->pw_uid == getuid() && user->pw_dir[0] == '/')
            break;
    home = user != NULL ? user->pw_dir : home;
    char *ret = home != NULL && home[0] == '/' ? xstrdup(home) : NULL;
    if (users != NULL)
        (void)fclose(users);
    return ret;
}

static void read_confs(const char *root, char *const *envp, struct nccl_facts *f) {
    const char *named = env_get(envp, "NCCL_CONF_FILE");
    if (named != NULL && named[0] != '\0') {
        f->conf_file_error = read_conf(root, named, &f->user_conf);
    } else {
        _cleanup_(freep) char *home = home_of_user(root, envp);
        _cleanup_(freep) char *path = home != NULL ? xasprintf("%s/.nccl.conf", home) : NULL;
        if (path != NULL)
            (void)read_conf(root, path, &f->user_conf);
    }
    (void)read_conf(root, "/etc/nccl.conf", &f->system_conf);
}

/* A container with the same configuration can lack the file that it names. */
static void look_for_topo_file(const char *root, char *const *envp, struct nccl_facts *f) {
    const char *path = env_get(envp, "NCCL_TOPO_FILE");
    const struct nccl_conf_entry *e = nccl_facts_conf(f, "NCCL_TOPO_FILE", NULL);
    if (path == NULL && e != NULL)
        path = e->value;
    f->topo_file_gone = path != NULL && path[0] == '/' && !exists(root, path);
}

static void read_dmi(const char *root, const char *name, char *ret, size_t size) {
    _cleanup_(freep) char *path = xasprintf("/sys/class/dmi/id/%s", name), *text = NULL;
    size_t len;
    if (read_below(root, path, SMALL_FILE_MAX, &text, &len) == 0)
        (void)snprintf(ret, size, "%.*s", (int)strcspn(text, "\n"), text);
}

static bool file_contains(const char *root, const char *path, const char *word) {
    _cleanup_(freep) char *text = NULL;
    size_t len;
    return read_below(root, path, SMALL_FILE_MAX, &text, &len) == 0 &&
           strcasestr(text, word) != NULL;
}

/* udev names an EFA device rdmap197s0, the kernel names it efa_0. */
static bool has_efa(const char *root) {
    static const char *const beginnings[] = {"rdmap", "efa_"};
    _cleanup_(list_fini) struct words names = names_in(root, "/sys/class/infiniband");
    bool efa = false;
    for (size_t i = 0; i < names.n; i++)
        efa |= text_begins_with_any(names.list[i], beginnings, ARRAY_SIZE(beginnings));
    return efa;
}

static void read_signs(const char *root, struct cloud_signs *s) {
    read_dmi(root, "sys_vendor", s->sys_vendor, sizeof s->sys_vendor);
    read_dmi(root, "product_name", s->product_name, sizeof s->product_name);
    read_dmi(root, "bios_vendor", s->bios_vendor, sizeof s->bios_vendor);
    read_dmi(root, "chassis_asset_tag", s->chassis_asset_tag, sizeof s->chassis_asset_tag);
    read_dmi(root, "chassis_vendor", s->chassis_vendor, sizeof s->chassis_vendor);
    s->efa = has_efa(root);
    s->tcpx = exists(root, "/var/lib/tcpx") || exists(root, "/usr/local/tcpx");
    s->tcpxo = exists(root, "/dev/aperture_devices");
    s->gib = exists(root, "/usr/local/gib");
    /* CoreWeave's name is in its kernels' names, "6.8.12-680-6063-coreweave-amd64-f81899c8", and in
     * the labels of its nodes, if a pod gets these. */
    s->coreweave = file_contains(root, "/proc/sys/kernel/osrelease", "coreweave") ||
                   file_contains(root, "/etc/podinfo/labels", "coreweave");
}

static bool is_plugin(const char *name) {
    static const char *const beginnings[] = {"libnccl-net", "libnccl-tuner", "libnccl-env",
                                             "libnccl-ofi-tuner"};
    return text_begins_with_any(name, beginnings, ARRAY_SIZE(beginnings)) && text_ends(name, ".so");
}

/* folder: as workers see it. */
static void add_plugin(struct nccl_facts *f, const char *folder, const char *name) {
    _cleanup_(freep) char *path = xasprintf("%s/%s", folder, name);
    for (uint32_t i = 0; i < f->n_plugins; i++)
        if (strcmp(f->plugins[i], path) == 0)
            return;
    f->signs.ofi_plugin = f->signs.ofi_plugin || strstr(path, "ofi") != NULL;
    f->signs.tcpx = f->signs.tcpx || strstr(path, "/tcpx/") != NULL;
    f->signs.tcpxo = f->signs.tcpxo || strstr(path, "/fastrak/") != NULL;
    if (f->n_plugins < NCCL_PLUGINS_MAX)
        f->plugins[f->n_plugins++] = TAKE_PTR(path);
}

static void look_for_libraries(struct nccl_facts *f, const char *folder, size_t root_len) {
    struct nccl_library nccl = {0};
    _cleanup_(list_fini) struct words names = names_in(folder, "");
    for (size_t i = 0; i < names.n; i++) {
        f->signs.tcpxo |= strcmp(names.list[i], "nccl-env-profile.sh") == 0;
        nccl_library_see(&nccl, names.list[i]);
        if (is_plugin(names.list[i]))
            add_plugin(f, folder + root_len, names.list[i]);
    }
    nccl_library_take(&nccl, folder, f);
}

static void read_libraries(const char *root, const struct nccl_facts_config *config,
                           struct nccl_facts *f) {
    _cleanup_(list_fini) struct words packages = {0}, libraries = {0};
    size_t n = strlen(root);
    packages_find(root, config, &packages);
    library_folders(root, config, &packages, &libraries);
    for (uint32_t i = 0; i < libraries.n; i++)
        look_for_libraries(f, libraries.list[i], n);
    if (f->nccl_path[0] != '\0') /* the path as workers see it */
        memmove(f->nccl_path, f->nccl_path + n, strlen(f->nccl_path + n) + 1);
    for (size_t i = 0; i < packages.n && f->torch_version[0] == '\0'; i++)
        (void)package_version(packages.list[i], "torch-", f->torch_version,
                              sizeof f->torch_version);
}

static void add_topo_file(const char *root, const char *path, struct nccl_facts *f) {
    char *text = NULL;
    size_t len;
    if (f->n_topo_files == NCCL_TOPO_FILES_MAX ||
        read_below(root, path, TOPO_FILE_MAX, &text, &len) < 0)
        return;
    if (f->signs.topo_file[0] == '\0')
        (void)snprintf(f->signs.topo_file, sizeof f->signs.topo_file, "%s", path);
    f->topo_files[f->n_topo_files++] = (struct nccl_topo_file){xstrdup(path), text};
}

/* /opt/microsoft/ndv5/topo.xml and its like: Azure's images have one for each machine type. */
static void read_topo_files(const char *root, struct nccl_facts *f) {
    _cleanup_(list_fini) struct words names = names_in(root, "/opt/microsoft");
    for (size_t i = 0; i < names.n; i++) {
        _cleanup_(freep) char *path = xasprintf("/opt/microsoft/%s/topo.xml", names.list[i]);
        if (names.list[i][0] != '.')
            add_topo_file(root, path, f);
    }
}

static uint64_t limit_value(rlim_t v) { return v == RLIM_INFINITY ? UINT64_MAX : (uint64_t)v; }

void nccl_limits_read(struct nccl_facts *f) {
    struct rlimit r;
    if (getrlimit(RLIMIT_MEMLOCK, &r) == 0)
        f->memlock_hard = limit_value(r.rlim_max);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0)
        f->nofile_hard = limit_value(r.rlim_max);
    if (getrlimit(RLIMIT_STACK, &r) == 0)
        f->stack = limit_value(r.rlim_cur);
}

static void read_shm(struct nccl_facts *f) {
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0)
        f->shm_bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
}

/* The environment that workers will have. */
static void merge_env(const struct nccl_facts_config *config, struct envlist *to) {
    envlist_copy(to, config->envp);
    for (char *const *e = config->set; e != NULL && *e != NULL; e++) {
        _cleanup_(freep) char *name = xstrndup(*e, strcspn(*e, "="));
        envlist_set(to, name, *e + strlen(name) + ((*e)[strlen(name)] == '='));
    }
}

void nccl_facts_read(const struct nccl_facts_config *given, struct nccl_facts *ret) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    struct nccl_facts_config merged = *given, *config = &merged;
    merge_env(given, &env);
    merged.envp = envlist_items(&env);
    const char *sysroot = config->sysroot != NULL ? config->sysroot : "";
    size_t n = strlen(sysroot);
    while (n > 0 && sysroot[n - 1] == '/')
        n--;
    _cleanup_(freep) char *root = xstrndup(sysroot, n);
    *ret = (struct nccl_facts){0};
    read_confs(root, config->envp, ret);
    look_for_topo_file(root, config->envp, ret);
    read_signs(root, &ret->signs);
    read_libraries(root, config, ret);
    read_topo_files(root, ret);
    ret->cloud = cloud_detect(&ret->signs);
    if (config->sysroot == NULL) {
        nccl_limits_read(ret);
        read_shm(ret);
    }
}
