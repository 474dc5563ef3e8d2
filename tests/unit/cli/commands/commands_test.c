/* The commands as a shell calls them, in this process: words in; exit status, standard output and standard error out. */
#include <sys/un.h>

#include "rendezvous/operate/recent_runs_io.h"
#include "rig/tree.h"

int muster_main(int argc, char **argv); /* main() of src/cli/main.c */

static struct tree tree;
static char out[1 << 16], err[1 << 16];

static void begin(void) {
    tree_new(&tree);
    cr_assert_eq(chdir(tree.root), 0);
}
static void end(void) { tree_remove(&tree); }

static int capture(const char *name) { return open(name, O_RDWR | O_CREAT | O_TRUNC, 0600); }

static void read_back(int fd, char *text, size_t size) {
    ssize_t n = pread(fd, text, size - 1, 0);
    cr_assert_geq(n, 0);
    text[n] = '\0';
}

/* "muster run x" as words; returns the exit status and fills out[] and err[]. */
static int run(const char *line) {
    char copy[512], *words[32];
    int n = 0, fds[] = {capture("out"), capture("err")}, old[] = {dup(1), dup(2)};
    (void)snprintf(copy, sizeof copy, "%s", line);
    for (char *p = copy; p != NULL; n++)
        words[n] = strsep(&p, " ");
    words[n] = NULL;
    (void)fflush(NULL);
    (void)dup2(fds[0], 1);
    (void)dup2(fds[1], 2);
    int status = muster_main(n, words);
    (void)fflush(NULL);
    for (int i = 0; i < 2; i++) {
        (void)dup2(old[i], i + 1);
        (void)close(old[i]);
    }
    read_back(fds[0], out, sizeof out);
    read_back(fds[1], err, sizeof err);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return status;
}

TestSuite(commands, .init = begin, .fini = end);

static const struct {
    const char *line;
    int status;
    const char *in_out, *in_err; /* parts; NULL: nothing at all is written */
} calls[] = {
    {"muster version", 0, "muster ", NULL},
    {"muster --version", 0, "muster ", NULL},
    {"muster version -x", 2, NULL, "unknown argument \"-x\""},
    {"muster nothing", 2, NULL, "unknown command \"nothing\""},
    {"muster statsu", 2, NULL, "did you mean \"muster status\"?"},
    {"muster ./status -x", 2, NULL, "to start a job: muster run ./status -x\n"},
    {"muster --nnodes=2 run true", 2, NULL, "to start a job: muster run --nnodes=2 true\n"},
    {"muster --nnods=2 true", 2, NULL, "to start a job: muster run [OPTIONS] SCRIPT\n"},
    {"muster", 2, "usage: muster", NULL},
    {"torchrun --version", 0, "muster ", NULL},
    /* completion */
    {"muster completion fish", 0, "muster completion offer fish", NULL},
    {"muster completion offer bash muster comp", 0, "words\ncompletion\n", NULL},
    {"muster completion offer tcsh muster", 2, NULL, "which shell?"},
    /* env, of a machine in a file */
    {"muster env --from=machine --json", 0, "{\"ranks\":[{\"rank\":0,\"local_rank\":0,\"variables\":[", NULL},
    {"muster env --json --explain", 2, NULL, "leave out --explain"},
    {"muster env --from=machine --nnodes=2 --rdzv-endpoint=dir:/x", 1, NULL, "any node may lead"},
    {"muster env --from=machine --nnodes=2 --rdzv-endpoint=:29400", 1, NULL, "the host must be a name"},
    {"muster env --from=machine --nnodes=2 --rdzv-endpoint=[::1]:29400 --nccl-comm-id", 0, "NCCL_COMM_ID=[::1]:PORT",
     NULL},
    {"muster env --from=machine --nnodes=2 --rdzv-endpoint=10.0.0.9:1 --nccl-comm-id", 0, "NCCL_COMM_ID=10.0.0.9:PORT",
     NULL},
    {"muster env --from=machine --nnodes=0", 2, NULL, "--nnodes"},
    {"muster env --from=/nowhere", 1, NULL, "/nowhere"},
    {"muster env --from=machine more", 2, NULL, "unknown argument \"more\""},
    /* topo */
    {"muster topo --from=machine --json", 0, "\"format\":1", NULL},
    {"muster topo --nothing", 2, NULL, "unknown option --nothing"},
    {"muster topo --from=/nowhere", 1, NULL, "/nowhere"},
    {"muster topo --check-nccl-xml=machine", 1, "machine:1: error: ", NULL},
    {"muster topo --check-nccl-xml=bare.xml --from=machine", 1, "0000:01:00.0 is not on this machine", NULL},
    {"muster topo --check-nccl-xml=bare.xml", 0, "bare.xml: note: 1 GPUs and 0 NICs", NULL},
    /* commands about jobs, without a job */
    {"muster status --rdzv-id=none-such", 1, NULL, "none-such"},
    {"muster status", 1, NULL, "how the last one ended: muster status old"},
    {"muster exclude", 2, NULL, "which NODE?"},
    {"muster leave dir:/tmp", 2, NULL, "has no agent of its own"},
    {"muster stacks --timeout=0", 2, NULL, "--timeout=0"},
    {"muster ps --json", 0, "{\"agents\":[],\"heads\":[]}\n", NULL},
    {"muster logs none-such", 1, NULL, "none-such"},
    {"muster store", 2, NULL, "--listen"},
    {"muster store --listen=x", 2, NULL, "--listen"},
    {"muster check --nnodes=0", 2, NULL, "--nnodes"},
    {"muster run", 2, NULL, "SCRIPT"},
    {"muster run --nnods 2 x", 2, NULL, "did you mean --nnodes?"},
    {"muster run --print-config --no-python true", 0, "\"min_nodes\": 1", NULL},
    {"muster run --dry-run --nnodes=1:2 --node-rank=1 --master-addr=node1 --no-python true", 0, "MASTER_ADDR=node1 ",
     "static rendezvous waits for all 2 nodes"},
    {"muster run --dry-run --nproc-per-node=2 --no-python true", 0, "  true\n\n# rank 1, ", NULL},
    {"muster notify", 2, NULL, "missing argument"},
    {"muster notify MUSTER_STEP", 2, NULL, "must be VARIABLE=VALUE"},
    {"muster notify MUSTER_STEP=1", 1, NULL, "MUSTER_NOTIFY_SOCKET is not set"},
};

static const char machine[] =
    "{\"format\":1,\"source\":\"sysroot\",\"host\":\"n1\",\"arch\":\"x86_64\",\"packages\":1,\"allowed\":\"0-7\",\"o"
    "nline\":\"0-7\",\"nvlinks_known\":true,\"numa\":[{\"index\":0,\"cpus\":\"0-7\",\"memory_bytes\":1024,\"pac"
    "kage\":0}],\"cores\":[{\"cpus\":\"0,4\",\"numa\":0,\"package\":0}],\"caches\":[],\"pci\":[],\"gpus\":[],\"nv"
    "links\":[],\"nics\":[],\"interfaces\":[{\"name\":\"eth0\",\"ifindex\":2,\"kind\":\"physical\",\"addrs\":[{\""
    "addr\":\"10.0.0.1\",\"prefix\":24}]}],\"warnings\":[]}";

Test(commands, each_line_has_its_status_and_its_words) {
    tree_write(&tree, "machine", machine);
    tree_write(&tree, "bare.xml",
               "<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0' class='0x030200'/></cpu></system>");
    cr_assert_eq(setenv("MUSTER_RUN_DIR", tree.root, 1), 0);
    cr_assert_eq(recent_runs_add("old", 0, NULL, NULL), 0);
    cr_assert_eq(unsetenv("MUSTER_NOTIFY_SOCKET") | unsetenv("NOTIFY_SOCKET"), 0);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        cr_expect_eq(run(calls[i].line), calls[i].status, "%s: %s%s", calls[i].line, out, err);
        if (calls[i].in_out != NULL)
            cr_expect_not_null(strstr(out, calls[i].in_out), "%s: %s", calls[i].line, out);
        else if (calls[i].in_err != NULL)
            cr_expect_str_empty(out, "%s", calls[i].line);
        if (calls[i].in_err != NULL)
            cr_expect_not_null(strstr(err, calls[i].in_err), "%s: %s", calls[i].line, err);
    }
}

Test(commands, help_is_all_that_is_printed) {
    static const char *const names[] = {"check", "env",  "keygen", "logs",   "notify", "profile", "ps",
                                        "run",   "stop", "stacks", "status", "store",  "topo"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        cr_expect_eq(run(rig_text("muster %s --help", names[i])), 0);
        const char *last = strstr(out, "More: man muster-");
        cr_expect(last != NULL && strchr(last, '\n')[1] == '\0', "%s: %s", names[i], out);
    }
}

Test(commands, notify_sends_a_line_for_each_argument) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    static const char expected[] = "MUSTER_STEP=7\nSTATUS=good\n";
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)strcpy(to.sun_path, tree_at(&tree, "notify"));
    cr_assert_eq(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    cr_assert_eq(setenv("MUSTER_NOTIFY_SOCKET", to.sun_path, 1), 0);
    pid_t reader = fork(); /* the command waits until its message is read */
    if (reader == 0) {
        char got[128];
        ssize_t n = recv(fd, got, sizeof got, 0);
        _exit(n == (ssize_t)strlen(expected) && memcmp(got, expected, strlen(expected)) == 0 ? 0 : 1);
    }
    cr_assert_eq(run("muster notify MUSTER_STEP=7 STATUS=good"), 0, "%s", err);
    cr_assert_eq(rig_status(reader), 0);
    (void)close(fd);
    cr_assert_eq(setenv("MUSTER_NOTIFY_SOCKET", rig_text("/%0*d", (int)sizeof to.sun_path - 1, 0), 1), 0);
    cr_assert_eq(run("muster notify MUSTER_STEP=7"), 1, "there is no room for the NUL");
    assert_has(err, "is not the name of a notify socket");
}

Test(commands, keygen_writes_a_private_file_once) {
    struct stat st;
    const char *path = tree_at(&tree, "key"), *line = rig_text("muster keygen %s", path);
    cr_assert_eq(run(line), 0, "%s", err);
    assert_has(out, path);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    cr_assert_eq(run(line), 1, "it exists");
    cr_assert_str_empty(out);
    cr_assert_eq(run(rig_text("muster keygen --force %s", path)), 0, "%s", err);
}
