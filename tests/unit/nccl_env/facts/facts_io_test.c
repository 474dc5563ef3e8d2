#include "nccl_env/facts/facts_io.h"

#include <sys/inotify.h>

#include "rig/tree.h"

#define TEXT(s) ((char *)(uintptr_t)(s))
#define ENV(...) ((char *const[]){__VA_ARGS__, NULL})

static struct nccl_facts f;
static struct tree tree;

static void init(void) { tree_new(&tree); }
static void fini(void) {
    nccl_facts_fini(&f);
    tree_remove(&tree);
}
TestSuite(facts_io, .init = init, .fini = fini);

static void look(char *const *envp, const char *python) {
    struct nccl_facts_config config = {.sysroot = tree.root, .envp = envp, .python = python};
    nccl_facts_fini(&f);
    nccl_facts_read(&config, &f);
}

Test(facts_io, an_empty_machine_has_nothing) {
    look(ENV(TEXT("HOME=/home/u")), NULL);
    cr_assert_eq(f.cloud, CLOUD_NONE);
    cr_assert_null(f.user_conf.path);
    cr_assert_null(f.system_conf.path);
    cr_assert_eq(f.n_plugins + f.nccl_version + f.n_topo_files, 0u);
    cr_assert_str_eq(f.torch_version, "");
    cr_assert_eq(f.memlock_hard, 0u, "limits of this process are none of the tree's");
}

Test(facts_io, the_file_that_the_environment_names_replaces_that_of_the_user) {
    tree_write(&tree, "/home/u/.nccl.conf", "A=1\n");
    tree_write(&tree, "/etc/nccl.conf", "B=2\n");
    tree_write(&tree, "/site/nccl.conf", "C=3\n");
    look(ENV(TEXT("HOME=/home/u")), NULL);
    cr_assert_str_eq(f.user_conf.path, "/home/u/.nccl.conf");
    cr_assert_str_eq(f.system_conf.path, "/etc/nccl.conf");
    cr_assert_str_eq(nccl_conf_find(&f.user_conf, "A")->value, "1");
    cr_assert_str_eq(nccl_conf_find(&f.system_conf, "B")->value, "2");
    look(ENV(TEXT("HOME=/home/u"), TEXT("NCCL_CONF_FILE=/site/nccl.conf")), NULL);
    cr_assert_str_eq(f.user_conf.path, "/site/nccl.conf");
    look(ENV(TEXT("HOME=/home/u"), TEXT("NCCL_CONF_FILE=")), NULL);
    cr_assert_str_eq(f.user_conf.path, "/home/u/.nccl.conf");
    look(ENV(TEXT("HOME=/home/u"), TEXT("NCCL_CONF_FILE=/gone")), NULL);
    cr_assert_null(f.user_conf.path);
    struct nccl_facts_config config = {.sysroot = tree.root,
                                       .envp = ENV(TEXT("NCCL_CONF_FILE=/gone")),
                                       .set = ENV(TEXT("NCCL_CONF_FILE=/site/nccl.conf"))};
    nccl_facts_fini(&f);
    nccl_facts_read(&config, &f);
    cr_assert_str_eq(f.user_conf.path, "/site/nccl.conf");
}

/* NCCL asks for the home of the user who runs it, and does not read HOME. */
Test(facts_io, the_users_home_is_that_of_passwd) {
    _cleanup_(freep) char *passwd =
        xasprintf("root:x::0:root:/wrong:/bin/sh\nbroken:x:%u:0\n+::::::\nx:x:%u1:0::/wrong:\n"
                  "me:x:%u:5:a,b:/home/me:/bin/bash\nme2:x:%u:5::/wrong:/bin/bash\n",
                  getuid(), getuid(), getuid(), getuid());
    tree_write(&tree, "/home/u/.nccl.conf", "A=1\n");
    tree_write(&tree, "/home/me/.nccl.conf", "A=2\n");
    tree_write(&tree, "/wrong/.nccl.conf", "A=3\n");
    tree_write(&tree, "/etc/passwd", passwd);
    look(ENV(TEXT("HOME=/home/u")), NULL);
    cr_assert_str_eq(f.user_conf.path, "/home/me/.nccl.conf");
    tree_write(&tree, "/etc/passwd", "nobody:x:4294967290:0::/wrong:/bin/sh");
    look(ENV(TEXT("HOME=/home/u")), NULL);
    cr_assert_str_eq(f.user_conf.path, "/home/u/.nccl.conf", "a user who comes from elsewhere");
}

Test(facts_io, a_configuration_file_that_cant_be_read) {
    tree_write(&tree, "/home/u/.nccl.conf", "A=1\n");
    tree_write(&tree, "/etc/mine.conf", "A=2\n");
    look(ENV(TEXT("HOME=/home/u"), TEXT("NCCL_CONF_FILE=/etc/mine.conf")), NULL);
    cr_assert_eq(f.conf_file_error, 0);
    look(ENV(TEXT("HOME=/home/u"), TEXT("NCCL_CONF_FILE=/etc/other.conf")), NULL);
    cr_assert_eq(f.conf_file_error, -ENOENT);
    cr_assert_eq(f.user_conf.n, 0, "nor another in its place");
    look(ENV(TEXT("HOME=/home/u"), TEXT("NCCL_CONF_FILE=/etc")), NULL);
    cr_assert_eq(f.conf_file_error, -EINVAL);
}

Test(facts_io, a_topology_file_that_is_not_there) {
    tree_write(&tree, "/etc/nccl.conf", "NCCL_TOPO_FILE=/opt/topo.xml\n");
    look(ENV(TEXT("HOME=/")), NULL);
    cr_assert(f.topo_file_gone);
    tree_write(&tree, "/opt/topo.xml", "");
    look(ENV(TEXT("HOME=/")), NULL);
    cr_assert_not(f.topo_file_gone);
    look(ENV(TEXT("NCCL_TOPO_FILE=/other.xml")), NULL);
    cr_assert(f.topo_file_gone);
    look(ENV(TEXT("NCCL_TOPO_FILE=")), NULL);
    cr_assert_not(f.topo_file_gone, "switched off");
}

Test(facts_io, a_version_stands_in_the_librarys_name) {
    tree_write(&tree, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.3", "");
    tree_write(&tree, "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "");
    look(ENV(TEXT("HOME=/")), NULL);
    cr_assert_eq(f.nccl_version, 21803u);
    cr_assert_str_eq(f.nccl_path, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.3");
    tree_write(&tree, "/opt/nccl/lib/libnccl.so.2.30.7", "");
    look(ENV(TEXT("LD_LIBRARY_PATH=/none:/opt/nccl/lib")), NULL);
    cr_assert_eq(f.nccl_version, 23007u, "LD_LIBRARY_PATH comes first");
}

Test(facts_io, a_version_stands_in_the_metadata_of_pythons_package) {
    tree_write(&tree, "/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "");
    tree_folder(&tree, "/venv/lib/python3.11/site-packages/nvidia_nccl_cu12-2.27.5.dist-info");
    tree_folder(&tree, "/venv/lib/python3.11/site-packages/torch-2.9.1+cu128.dist-info");
    tree_folder(&tree, "/venv/lib/python3.11/site-packages/torchvision-0.1.dist-info");
    look(ENV(TEXT("HOME=/")), "/venv/bin/python3");
    cr_assert_eq(f.nccl_version, 22705u);
    cr_assert_str_eq(f.torch_version, "2.9.1+cu128");
    look(ENV(TEXT("VIRTUAL_ENV=/venv")), NULL);
    cr_assert_eq(f.nccl_version, 22705u);
    look(ENV(TEXT("VIRTUAL_ENV=/venv")), "/usr/bin/python3");
    cr_assert_eq(f.nccl_version, 0u, "another python runs the workers");
}

Test(facts_io, a_version_stands_in_the_librarys_bytes) {
    enum { AT = (256 << 10) - 20, SIZE = 600 << 10 }; /* across the end of a step */
    static char bytes[SIZE];
    memset(bytes, 'x', sizeof bytes);
    memcpy(bytes + 100, "NCCL version %d", 15);
    memcpy(bytes + AT, "NCCL version 2.21.5+cuda12.4", 29);
    tree_write_bytes(&tree, "/usr/lib64/libnccl.so.2", bytes, sizeof bytes);
    look(ENV(TEXT("HOME=/")), NULL);
    cr_assert_eq(f.nccl_version, 22105u);
    memset(bytes + AT, 'x', 29);
    tree_write_bytes(&tree, "/usr/lib64/libnccl.so.2", bytes, sizeof bytes);
    look(ENV(TEXT("HOME=/")), NULL);
    cr_assert_eq(f.nccl_version, 0u);
    cr_assert_str_eq(f.nccl_path, "/usr/lib64/libnccl.so.2");
}

Test(facts_io, plugins_on_the_library_path_and_in_known_folders) {
    tree_write(&tree, "/opt/amazon/ofi-nccl/lib/libnccl-net.so", "");
    tree_write(&tree, "/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so", "");
    tree_write(&tree, "/opt/amazon/ofi-nccl/lib/libnccl-net.so.0", "");
    tree_write(&tree, "/mine/libnccl-env.so", "");
    tree_write(&tree, "/mine/libnccl.so", "");
    look(ENV(TEXT("LD_LIBRARY_PATH=/mine:relative:")), NULL);
    cr_assert_eq(f.n_plugins, 3u);
    cr_assert_str_eq(f.plugins[0], "/mine/libnccl-env.so");
    cr_assert_str_eq(f.plugins[1], "/opt/amazon/ofi-nccl/lib/libnccl-net.so");
    cr_assert_str_eq(f.plugins[2], "/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so");
    cr_assert(f.signs.ofi_plugin);
    cr_assert_eq(f.cloud, CLOUD_NONE, "it is no machine of Amazon's");
    tree_write(&tree, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
    look(ENV(TEXT("HOME=/")), NULL);
    cr_assert_eq(f.cloud, CLOUD_AWS);
}

Test(facts_io, topology_files_of_an_image) {
    tree_write(&tree, "/opt/microsoft/ndv5/topo.xml", "<b/>");
    tree_write(&tree, "/opt/microsoft/ndv4/topo.xml", "<a/>");
    tree_folder(&tree, "/opt/microsoft/powershell");
    look(ENV(TEXT("HOME=/")), NULL);
    cr_assert_eq(f.n_topo_files, 2u);
    cr_assert_str_eq(f.topo_files[0].path, "/opt/microsoft/ndv4/topo.xml");
    cr_assert_str_eq(f.topo_files[1].text, "<b/>");
    cr_assert_str_eq(f.signs.topo_file, "/opt/microsoft/ndv4/topo.xml");
}

Test(facts_io, this_machines_limits_are_known) {
    nccl_facts_read(&(struct nccl_facts_config){.envp = ENV(TEXT("HOME=/nowhere"))}, &f);
    cr_assert_gt(f.nofile_hard, 0u);
    cr_assert_gt(f.stack, 0u);
}

/* How often it was opened as a folder since inotify_add_watch(). */
static unsigned listings(int fd) {
    char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    unsigned n = 0;
    ssize_t len;
    while ((len = read(fd, buf, sizeof buf)) > 0)
        for (ssize_t at = 0; at < len;) {
            const struct inotify_event *e = (const void *)(buf + at);
            n += (e->mask & IN_OPEN) != 0;
            at += (ssize_t)sizeof *e + e->len;
        }
    return n;
}

/* A folder of libraries has thousands of names, and can lie on a shared file system. */
Test(facts_io, a_folder_of_libraries_is_listed_once) {
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu", "/site/lib"};
    tree_write(&tree, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.20.5", "");
    tree_write(&tree, "/usr/lib/x86_64-linux-gnu/libnccl-net.so", "");
    tree_write(&tree, "/site/lib/libc.so.6", "");
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        const char *path = rig_text("%s%s", tree.root, folders[i]);
        cr_assert(fd >= 0 && inotify_add_watch(fd, path, IN_OPEN | IN_ONLYDIR | IN_DONT_FOLLOW) >= 0);
        look(ENV(TEXT("LD_LIBRARY_PATH=/site/lib")), NULL);
        cr_assert_eq(listings(fd), 1u, "%s", folders[i]);
        (void)close(fd);
    }
    cr_assert_eq(f.nccl_version, 22005u);
    cr_assert_eq(f.n_plugins, 1u);
}
