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

/* What was found, each between blanks. */
static const char *found(void) {
    static struct strbuf text;
    strbuf_clear(&text);
    strbuf_printf(&text, " user:%s system:%s error:%d %s nccl:%u at:%s torch:%s %s topo:%s%s ",
                  f.user_conf.path != NULL ? f.user_conf.path : "",
                  f.system_conf.path != NULL ? f.system_conf.path : "", f.conf_file_error,
                  f.topo_file_gone ? "gone" : "there", f.nccl_version, f.nccl_path, f.torch_version,
                  f.cloud == CLOUD_NONE ? "none" : cloud_name(f.cloud), f.signs.topo_file,
                  f.n_topo_files > 1 ? f.topo_files[1].text : "");
    for (uint32_t i = 0; i < f.n_plugins; i++)
        strbuf_printf(&text, "plugin:%s ", f.plugins[i]);
    return strbuf_text(&text);
}

#define CONFS "/home/u/.nccl.conf=A=1 /etc/nccl.conf=B=2 /site/nccl.conf=C=3"
#define VENV                                                                 \
    "/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2 "       \
    "/venv/lib/python3.11/site-packages/nvidia_nccl_cu12-2.27.5.dist-info/ " \
    "/venv/lib/python3.11/site-packages/torch-2.9.1+cu128.dist-info/ "       \
    "/venv/lib/python3.11/site-packages/torchvision-0.1.dist-info/"
#define OFI                                                                                  \
    "/opt/amazon/ofi-nccl/lib/libnccl-net.so /opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so " \
    "/opt/amazon/ofi-nccl/lib/libnccl-net.so.0 /mine/libnccl-env.so /mine/libnccl.so "
#define LIBRARY "/usr/lib/x86_64-linux-gnu/libnccl.so."

Test(facts_io, files_of_a_machine) {
    static const struct {
        const char *files, *env, *python, *found;
    } cases[] = {
        {"", "HOME=/home/u", NULL, "user: system: nccl:0 torch: none there topo: "},
        /* the file that the environment names replaces that of the user */
        {CONFS, "HOME=/home/u", NULL, "user:/home/u/.nccl.conf system:/etc/nccl.conf error:0"},
        {CONFS, "HOME=/home/u NCCL_CONF_FILE=/site/nccl.conf", NULL, "user:/site/nccl.conf error:0"},
        {CONFS, "HOME=/home/u NCCL_CONF_FILE=", NULL, "user:/home/u/.nccl.conf"},
        {CONFS, "HOME=/home/u NCCL_CONF_FILE=/gone", NULL, "user: error:-2"},
        {CONFS, "HOME=/home/u NCCL_CONF_FILE=/etc", NULL, "user: error:-22"},
        /* a topology file */
        {"/etc/nccl.conf=NCCL_TOPO_FILE=/opt/topo.xml", "HOME=/", NULL, "gone"},
        {"/etc/nccl.conf=NCCL_TOPO_FILE=/opt/topo.xml /opt/topo.xml", "HOME=/", NULL, "there"},
        {"/opt/topo.xml", "NCCL_TOPO_FILE=/other.xml", NULL, "gone"},
        {"/opt/topo.xml", "NCCL_TOPO_FILE=", NULL, "there"}, /* switched off */
        {"/opt/microsoft/ndv5/topo.xml=<b/> /opt/microsoft/ndv4/topo.xml=<a/> /opt/microsoft/powershell/", "HOME=/",
         NULL, "topo:/opt/microsoft/ndv4/topo.xml<b/>"},
        /* a version stands in the library's name, or in the metadata of Python's package */
        {LIBRARY "2.18.3 " LIBRARY "2", "HOME=/", NULL, "nccl:21803 at:" LIBRARY "2.18.3"},
        {LIBRARY "2.18.3 /opt/nccl/lib/libnccl.so.2.30.7", "LD_LIBRARY_PATH=/none:/opt/nccl/lib", NULL, "nccl:23007"},
        {VENV, "HOME=/", "/venv/bin/python3", "nccl:22705 torch:2.9.1+cu128"},
        {VENV, "VIRTUAL_ENV=/venv", NULL, "nccl:22705"},
        {"/u/.local/lib/python3.11/site-packages/torch-2.9.1+cu128.dist-info/", "HOME=/u", NULL, "torch:2.9.1+cu128"},
        {VENV, "VIRTUAL_ENV=/venv", "/usr/bin/python3", "nccl:0"}, /* another python runs the workers */
        /* plug-ins on the library path and in known folders */
        {OFI, "LD_LIBRARY_PATH=/mine:relative:", NULL,
         "plugin:/mine/libnccl-env.so plugin:/opt/amazon/ofi-nccl/lib/libnccl-net.so "
         "plugin:/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so none"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char env[256], *envp[8] = {NULL}, wanted[256], *rest = env;
        tree_remove(&tree);
        tree_new(&tree);
        tree_files(&tree, cases[i].files);
        (void)snprintf(env, sizeof env, "%s", cases[i].env);
        for (size_t n = 0; rest != NULL; n++)
            envp[n] = strsep(&rest, " ");
        look(envp, cases[i].python);
        (void)snprintf(wanted, sizeof wanted, "%s", cases[i].found);
        rest = wanted;
        for (const char *word; (word = strsep(&rest, " ")) != NULL;) {
            _cleanup_(freep) char *whole = xasprintf(" %s ", word);
            cr_expect(word[0] == '\0' || strstr(found(), whole) != NULL, "%zu: %s: %s", i, word, found());
        }
        cr_expect_eq(f.memlock_hard, 0u, "limits of this process are not those of the tree");
    }
    cr_assert_eq(f.n_plugins, 3u);
    cr_assert(f.signs.ofi_plugin);
    tree_write(&tree, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
    look(ENV(TEXT("HOME=/")), NULL);
    cr_assert_eq(f.cloud, CLOUD_AWS);
    /* an option of muster run comes before the environment */
    tree_write(&tree, "/site/nccl.conf", "C=3\n");
    nccl_facts_fini(&f);
    nccl_facts_read(&(struct nccl_facts_config){.sysroot = tree.root,
                                                .envp = ENV(TEXT("NCCL_CONF_FILE=/gone")),
                                                .set = ENV(TEXT("NCCL_CONF_FILE=/site/nccl.conf"))},
                    &f);
    cr_assert_str_eq(nccl_conf_find(&f.user_conf, "C")->value, "3");
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
