
#include "../skip.h"
#include "io/file.h"
#include "rig/tree.h"

#define STRANGER 4321 /* no user of this machine needs this number */

static struct tree tree;
static char shared[160];

/* `shared` is world-writable, as /tmp. */
static void begin(void) {
    tree_new(&tree);
    (void)snprintf(shared, sizeof shared, "%s/shared", tree.root);
    cr_assert_eq(mkdir(shared, 0700), 0);
    cr_assert_eq(chmod(shared, 01777), 0);
}

static void finish(void) { tree_remove(&tree); }

TestSuite(own_path, .init = begin, .fini = finish);

static const char *at(const char *name) { return rig_text("%s/%s", shared, name); }

static mode_t mode_of(const char *path) {
    struct stat st;
    cr_assert_eq(lstat(path, &st), 0, "%s", path);
    return st.st_mode & 07777;
}

static void make_strange(const char *path) {
    if (lchown(path, STRANGER, (gid_t)-1) < 0)
        SKIP_AFTER(finish, "only root can give files to another user");
}

#define EXPECT_REFUSED(path)                                                          \
    do {                                                                              \
        struct err err_ = {0};                                                        \
        cr_expect_eq(own_path_check(path, &err_), -EPERM, "%s", path);                \
        expect_has(err_.text, "uid 4321");                                            \
        err_ = (struct err){0};                                                       \
        cr_expect_eq(own_path_open(path, O_WRONLY, 0600, &err_), -EPERM, "%s", path); \
        expect_has(err_.text, "uid 4321");                                            \
    } while (0)

#define EXPECT_TAKEN(path)                                                       \
    do {                                                                         \
        struct err err_ = {0};                                                   \
        cr_expect_eq(own_path_check(path, &err_), 0, "%s: %s", path, err_.text); \
        int fd_ = own_path_open(path, O_WRONLY, 0600, &err_);                    \
        cr_expect(fd_ >= 0, "%s: %s %s", path, strerror(-fd_), err_.text);       \
        file_close(&fd_);                                                        \
    } while (0)

Test(own_path, modes_are_exact_whatever_the_umask_is) {
    static const mode_t umasks[] = {0, 022, 077, 0277};
    for (size_t i = 0; i < ARRAY_SIZE(umasks); i++) {
        (void)umask(umasks[i]);
        int fd = own_file_make(at("file"), O_WRONLY, 0640);
        cr_assert(fd >= 0);
        file_close(&fd);
        cr_expect_eq(mode_of(at("file")), 0640);
        cr_assert_eq(own_folder_make(at("folder"), own_folder_mode(0640)), 0);
        cr_expect_eq(mode_of(at("folder")), 0750);
        cr_expect_eq(own_folder_make(at("folder"), 0700), -EEXIST);
        cr_expect_eq(umask(022), umasks[i], "it is as before");
        cr_assert_eq(unlink(at("file")), 0);
        cr_assert_eq(rmdir(at("folder")), 0);
    }
    cr_expect_eq(own_folder_mode(0600), 0700);
    cr_expect_eq(own_folder_mode(0664), 0775);
}

Test(own_path, an_old_file_keeps_its_mode) {
    int fd = open(at("old"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(fchmod(fd, 0644), 0);
    file_close(&fd);
    EXPECT_TAKEN(at("old"));
    cr_expect_eq(mode_of(at("old")), 0644);
}

Test(own_path, links_of_the_user_are_followed_where_the_user_gave_the_path) {
    cr_assert_eq(symlink("target", at("link")), 0);
    EXPECT_TAKEN(at("link"));
    cr_expect_eq(mode_of(at("target")), 0600);
    cr_expect_eq(own_file_make(at("link"), O_WRONLY, 0600), -ELOOP);
    EXPECT_TAKEN("/dev/null");
}

Test(own_path, pipes_below_dev_fd_are_taken) {
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    EXPECT_TAKEN(rig_text("/dev/fd/%d", fds[1]));
    file_close(&fds[0]);
    file_close(&fds[1]);
}

Test(own_path, what_is_not_there_can_be_made) {
    cr_expect_eq(own_path_check(at("no/such/folder"), NULL), 0);
    cr_expect_eq(own_path_check("", NULL), 0);
    cr_expect_eq(own_path_check("/", NULL), 0);
    cr_assert_eq(chdir(shared), 0);
    EXPECT_TAKEN("new");
    cr_expect_eq(mode_of(at("new")), 0600);
    cr_assert_eq(chdir("/"), 0);
}

Test(own_path, a_file_a_folder_and_a_link_of_another_user_are_refused) {
    int fd = own_file_make(at("file"), O_WRONLY, 0666);
    file_close(&fd);
    cr_assert_eq(own_folder_make(at("folder"), 0777), 0);
    cr_assert_eq(symlink("/dev/null", at("link")), 0);
    make_strange(at("file"));
    make_strange(at("folder"));
    make_strange(at("link"));
    EXPECT_REFUSED(at("file"));
    EXPECT_REFUSED(at("folder/below"));
    EXPECT_REFUSED(at("folder//below/deeper/"));
    EXPECT_REFUSED(at("link"));
    cr_assert_eq(chdir(shared), 0);
    EXPECT_REFUSED("file");
    EXPECT_REFUSED("./folder/below");
    cr_assert_eq(chdir("/"), 0);
}

Test(own_path, a_link_of_the_user_does_not_lead_to_them_either) {
    cr_assert_eq(own_folder_make(at("folder"), 0777), 0);
    make_strange(at("folder"));
    _cleanup_(freep) char *link = xasprintf("%s/link", tree.root);
    cr_assert_eq(symlink(at("folder"), link), 0);
    EXPECT_REFUSED(rig_text("%s/below", link));
}

Test(own_path, where_only_some_may_make_files_nobody_is_asked) {
    int fd = own_file_make(at("file"), O_WRONLY, 0666);
    file_close(&fd);
    make_strange(at("file"));
    cr_assert_eq(chmod(shared, 0775), 0);
    EXPECT_TAKEN(at("file"));
    cr_assert_eq(chmod(shared, 01775), 0);
    EXPECT_TAKEN(at("file"));
    cr_assert_eq(chmod(shared, 01777), 0);
    EXPECT_REFUSED(at("file"));
    make_strange(shared); /* the owner of the folder is trusted there, as root is in /tmp */
    EXPECT_TAKEN(at("file"));
}
