#include "rendezvous/operate/registry_io.h"

#include <sched.h>

#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "rig/tree.h"

static struct tree tree;
static char run_dir[160];
static struct err err;
static struct registry_own own; /* the last one that was added */
static struct registry_entry *list;
static size_t n;

static void begin(void) {
    tree_new(&tree);
    (void)snprintf(run_dir, sizeof run_dir, "%s/run", tree.root);
    (void)setenv("MUSTER_RUN_DIR", run_dir, 1);
    err = (struct err){0};
    list = NULL;
    n = 0;
}

static void finish(void) {
    free(list);
    tree_remove(&tree);
}

TestSuite(registry_io, .init = begin, .fini = finish);

static void look(void) {
    free(list);
    list = NULL;
    n = 0;
    cr_assert_eq(registry_list(&list, &n, &err), 0, "%s", err.text);
}

static void look_for(size_t expected) {
    look();
    cr_assert_eq(n, expected);
}

static void add(const char *run_id, uint16_t port) {
    cr_assert_eq(registry_add(run_id, "127.0.0.1", port, &own, &err), 0, "%s", err.text);
}

static unsigned count_files(void) {
    FILE *f = popen(rig_text("ls -A '%s' | wc -l", run_dir), "r");
    unsigned files = 999;
    cr_assert_eq(fscanf(f, "%u", &files), 1);
    (void)pclose(f);
    return files;
}

/* Registers in a child that then waits to be killed. */
static pid_t add_in_child(const char *run_id, uint16_t port) {
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char ok = registry_add(run_id, "127.0.0.1", port, &own, NULL) == 0;
        (void)!write(fds[1], &ok, 1);
        for (;;)
            (void)pause();
    }
    char ok = 0;
    cr_assert_eq(read(fds[0], &ok, 1), 1);
    cr_assert(ok);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return pid;
}

static void end_child(pid_t pid) {
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

Test(registry_io, what_was_added_is_listed_until_it_is_removed) {
    look_for(0); /* no directory, no agents */
    add("digits \"1\"", 4711);
    look_for(1);
    cr_assert_str_eq(list[0].run_id, "digits \"1\"");
    cr_assert_str_eq(list[0].addr, "127.0.0.1");
    cr_assert_eq(list[0].port, 4711);
    cr_assert_eq(list[0].pid, getpid());
    cr_assert_not(list[0].foreign);
    cr_assert_gt(list[0].since_wall_ns, UINT64_C(1700000000) * NS_PER_S);
    cr_assert_eq(count_files(), 1, "nothing beside it");
    registry_remove(&own);
    look_for(0);
    cr_assert_eq(count_files(), 0);
    registry_remove(&own);
}

Test(registry_io, a_head_is_listed_only_with_all) {
    cr_assert_eq(registry_add_head("emu.28", 4, "srun muster", &own, &err), 0, "%s", err.text);
    look_for(0); /* nobody can ask it */
    free(list);
    list = NULL;
    cr_assert_eq(registry_list_all(&list, &n, &err), 0, "%s", err.text);
    size_t found = 0;
    for (size_t i = 0; i < n; i++) /* root sees what others run, too */
        found += list[i].pid == getpid() && list[i].head_nodes == 4 && list[i].port == 0 &&
                 strcmp(list[i].head_ask, "srun muster") == 0 && strcmp(list[i].run_id, "emu.28") == 0;
    cr_assert_eq(found, 1);
    registry_remove(&own);
    cr_assert_eq(count_files(), 0);
}

static const uint8_t secret[AUTH_SECRET_BYTES] = {1, 2, [31] = 0xa5};

/* How many keys of this run are here, and are the one above. */
static uint32_t keys_of(const char *run_id) {
    _cleanup_(keyring_freep) struct keyring *ring = NULL;
    cr_assert_eq(keyring_new(&ring, &err), 0, "%s", err.text);
    registry_load_keys(geteuid(), run_id, ring);
    for (uint32_t i = 0; i < keyring_n(ring); i++) {
        cr_assert_arr_eq(keyring_at(ring, i)->secret, secret, sizeof secret);
        cr_assert_eq(keyring_at(ring, i)->source, AUTH_FROM_RUN_DIR);
    }
    return keyring_n(ring);
}

Test(registry_io, a_key_is_there_as_long_as_its_job) {
    struct stat st;
    cr_assert_eq(registry_add_head("emu.28", 4, "srun muster", &own, &err), 0, "%s", err.text);
    cr_assert_eq(registry_add_key(&own, secret, &err), 0, "%s", err.text);
    cr_assert_eq(stat(rig_text("%s/key-%d", run_dir, (int)getpid()), &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    cr_assert_eq(keys_of(NULL), 1);
    cr_assert_eq(keys_of("emu.28"), 1);
    cr_assert_eq(keys_of("emu.28.0"), 1, "of a step of it");
    cr_assert_eq(keys_of("emu.280"), 0);
    cr_assert_eq(keys_of("emu"), 0);
    look();
    registry_sweep(TIME_NEVER);
    cr_assert_eq(count_files(), 2);
    registry_remove(&own);
    cr_assert_eq(count_files(), 0);
    cr_assert_eq(registry_add_key(&own, secret, &err), 0, "nothing is there to add it to");
    cr_assert_eq(keys_of(NULL), 0);
}

Test(registry_io, keys_of_processes_that_are_gone_are_removed) {
    for (int sweeps = 0; sweeps < 2; sweeps++) {
        pid_t pid = add_in_child("r", 1);
        _cleanup_(freep) char *path = xasprintf("%s/key-%d", run_dir, (int)pid);
        cr_assert_eq(keyring_write_file(path, secret, false, &err), 0, "%s", err.text);
        cr_assert_eq(keys_of("r"), 1);
        end_child(pid);
        cr_assert_eq(keys_of("r"), 0);
        if (sweeps)
            registry_sweep(TIME_NEVER);
        else
            look();
        cr_assert_eq(count_files(), 0);
    }
    cr_assert_eq(keyring_write_file(rig_text("%s/key-1", run_dir), secret, false, &err), 0, "%s", err.text);
    cr_assert_eq(keys_of(NULL), 0, "of nobody");
    registry_sweep(TIME_NEVER);
    cr_assert_eq(count_files(), 0);
}

Test(registry_io, the_directory_is_for_its_user_alone) {
    mode_t before = umask(0);
    add("r", 1);
    (void)umask(before);
    struct stat st;
    cr_assert_eq(stat(run_dir, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0700);
    cr_assert_eq(stat(own.path, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
}

Test(registry_io, a_process_that_is_gone_is_dropped) {
    pid_t a = add_in_child("a", 1), b = add_in_child("b", 2);
    look_for(2);
    cr_assert_str_eq(list[0].run_id, "a", "oldest first");
    end_child(a);
    look_for(1);
    cr_assert_str_eq(list[0].run_id, "b");
    cr_assert_eq(count_files(), 1);
    end_child(b);
}

/* Replaces a part of the file that was added last. */
static void change_file(const char *from, const char *to) {
    char *text;
    size_t len;
    cr_assert_eq(file_read_text(own.path, 4096, &text, &len), 0);
    char *at = strstr(text, from);
    cr_assert_not_null(at, "%s in %s", from, text);
    _cleanup_(strbuf_fini) struct strbuf changed = {0};
    strbuf_add_bytes(&changed, text, (size_t)(at - text));
    strbuf_add(&changed, to);
    strbuf_add(&changed, at + strlen(from));
    cr_assert_eq(file_write_atomic(own.path, strbuf_text(&changed), changed.len), 0);
    free(text);
}

Test(registry_io, a_pid_that_was_given_again_is_another_process) {
    add("r", 1);
    change_file("\"pid_start\":\"", "\"pid_start\":\"1");
    look_for(0);
    cr_assert_eq(count_files(), 0);
}

/* As a process of another pid namespace would have written it. */
static void make_foreign(const char *path) {
    char *text;
    size_t len;
    cr_assert_eq(file_read_text(path, 4096, &text, &len), 0);
    char *digit = strstr(text, "\"pid_namespace\":\"");
    cr_assert_not_null(digit);
    digit += strlen("\"pid_namespace\":\"");
    char other = *digit == '1' ? '2' : '1';
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, &other, 1, digit - text), 1);
    (void)close(fd);
    free(text);
}

Test(registry_io, in_another_pid_namespace_the_lock_tells_who_lives) {
    pid_t child = add_in_child("r", 1);
    make_foreign(rig_text("%s/agent-%d", run_dir, (int)child));
    registry_sweep(clock_now_ns() + 10 * NS_PER_S);
    look_for(1);
    cr_assert_not(list[0].foreign, "it lives for sure");
    end_child(child);
    registry_sweep(clock_now_ns() + 10 * NS_PER_S);
    cr_assert_eq(count_files(), 0);
}

Test(registry_io, a_sweep_leaves_what_lives_and_what_is_not_ours) {
    add("r", 1);
    pid_t gone = add_in_child("gone", 2);
    siginfo_t si;
    (void)kill(gone, SIGKILL);
    (void)waitid(P_PID, (id_t)gone, &si, WEXITED | WNOWAIT); /* a zombie is gone, too */
    char path[256];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", run_dir, i == 0 ? "other" : ".new-7");
        cr_assert_eq(file_write_atomic(path, "x", 1), 0);
    }
    registry_sweep(clock_now_ns() + 10 * NS_PER_S);
    cr_assert_eq(count_files(), 3, "a file that is being written may be so young");
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    registry_sweep(clock_now_ns() + 10 * NS_PER_S);
    cr_assert_eq(count_files(), 2);
    look_for(1);
    registry_remove(&own);
    end_child(gone);
}

Test(registry_io, what_cannot_be_looked_up_is_kept_and_marked) {
    add("r", 1);
    change_file("\"locked\":true", "\"locked\":false");
    change_file("\"pid_namespace\":\"", "\"pid_namespace\":\"1");
    change_file("\"pid_start\":\"", "\"pid_start\":\"1");
    look_for(1);
    cr_assert(list[0].foreign);
}

Test(registry_io, another_boot_of_this_host_is_gone_one_of_another_host_is_kept) {
    add("r", 1);
    change_file("\"boot\":\"", "\"boot\":\"0");
    change_file("\"host\":\"", "\"host\":\"x");
    look_for(1);
    cr_assert(list[0].foreign);
    change_file("\"host\":\"x", "\"host\":\"");
    look_for(0);
}

static void put(const char *name, const char *text) {
    cr_assert_eq(file_write_atomic(rig_text("%s/%s", run_dir, name), text, strlen(text)), 0);
}

Test(registry_io, other_files_are_let_alone) {
    add("r", 1);
    put("agent-x", "{}");
    put("agent-1", "not JSON");
    put("agent-2", "{\"run_id\":\"r\"}");
    put("mark-digits", "{}");
    cr_assert_eq(symlink(own.path, rig_text("%s/agent-3", run_dir)), 0);
    cr_assert_eq(mkfifo(rig_text("%s/agent-4", run_dir), 0600), 0);
    cr_assert_eq(mkdir(rig_text("%s/agent-5", run_dir), 0700), 0);
    look_for(1);
    cr_assert_eq(count_files(), 8, "nothing was removed");
}

Test(registry_io, a_directory_that_others_can_write_is_refused) {
    cr_assert_eq(mkdir(run_dir, 0700), 0);
    cr_assert_eq(chmod(run_dir, 0770), 0);
    cr_assert_eq(registry_add("r", "127.0.0.1", 1, &own, &err), -EPERM);
    assert_has(err.text, run_dir);
    registry_remove(&own);
    cr_assert_eq(registry_list(&list, &n, &err), -EPERM);
    cr_assert_eq(chmod(run_dir, 0750), 0);
    cr_assert_eq(registry_add("r", "127.0.0.1", 1, &own, &err), 0);
}

Test(registry_io, what_is_no_directory_of_ours_is_refused) {
    cr_assert_eq(symlink("/tmp", run_dir), 0);
    cr_assert_lt(registry_add("r", "127.0.0.1", 1, &own, &err), 0, "a link");
    (void)unlink(run_dir);
    cr_assert_eq(close(open(run_dir, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    cr_assert_lt(registry_add("r", "127.0.0.1", 1, &own, &err), 0, "a file");
    (void)setenv("MUSTER_RUN_DIR", "/nonexistent/muster", 1);
    cr_assert_eq(registry_add("r", "127.0.0.1", 1, &own, &err), -ENOENT);
    cr_assert_str_eq(own.path, "");
    cr_assert_neq(err.text[0], '\0');
    if (geteuid() == 0) {
        (void)unlink(run_dir);
        (void)setenv("MUSTER_RUN_DIR", run_dir, 1);
        cr_assert_eq(mkdir(run_dir, 0700), 0);
        cr_assert_eq(chown(run_dir, 12345, 12345), 0);
        cr_assert_eq(registry_add("r", "127.0.0.1", 1, &own, &err), -EPERM);
        assert_has(err.text, "user 12345");
    }
}

/* A user without a run directory of systemd: /tmp/muster-UID. Root sees it, nobody else. */
Test(registry_io, root_sees_the_agents_of_all_users) {
    const uint32_t uid = 2000000000u + (uint32_t)getpid();
    const char *other = rig_text("/tmp/muster-%u", uid);
    (void)setenv("MUSTER_RUN_DIR", other, 1);
    add("theirs", 7);
    bool root = geteuid() == 0 && chown(other, uid, uid) == 0;
    (void)setenv("MUSTER_RUN_DIR", run_dir, 1);
    struct registry_own mine;
    cr_assert_eq(registry_add("mine", "127.0.0.1", 8, &mine, &err), 0, "%s", err.text);
    look_for(1);
    free(list);
    cr_assert_eq(registry_list_all(&list, &n, &err), 0, "%s", err.text);
    bool seen = false;
    for (size_t i = 0; i < n; i++) {
        seen = seen || (strcmp(list[i].run_id, "theirs") == 0 && list[i].uid == uid);
        cr_assert(strcmp(list[i].run_id, "mine") != 0 || list[i].uid == geteuid());
    }
    cr_assert_eq(seen, root);
    registry_remove(&mine);
    registry_remove(&own);
    cr_assert_eq(rmdir(other), 0);
}
