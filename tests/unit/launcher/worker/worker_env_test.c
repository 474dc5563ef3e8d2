#include "launcher/worker/worker_env.h"

#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

static const int signals[] = {SIGTERM, SIGINT, SIGUSR1};

static struct job_spec spec;
static struct form form;

static struct worker_env_input input(void) {
    spec = (struct job_spec){.run_id = TEXT("job7"), .nproc = 4, .role = TEXT("trainer"), .n_signals = 3};
    memcpy(spec.signals, signals, sizeof signals);
    form = (struct form){.node_rank = 1,
                         .n_nodes = 2,
                         .first_rank = 4,
                         .world_size = 8,
                         .role_first_rank = 3,
                         .role_world_size = 7,
                         .restarts_used = 1,
                         .max_restarts = 3};
    return (struct worker_env_input){
        .spec = &spec,
        .form = &form,
        .local_rank = 2,
        .generation = "2.5",
        .epoch = 2,
        .master_addr = "10.0.0.1",
        .master_port = 4567,
        .error_file = "/l/error.json",
    };
}

static const char *value(char *const *base, const struct worker_env_input *in, const char *name) {
    static struct envlist e;
    envlist_fini(&e);
    struct err err = {0};
    cr_assert_eq(worker_env_build(base, in, &e, &err), 0, "%s", err.text);
    return envlist_get(&e, name);
}

Test(worker_env, tells_every_variable_of_the_contract) {
    static const char *const expected[][2] = {
        {"RANK", "6"},
        {"LOCAL_RANK", "2"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_NAME", "trainer"},
        {"ROLE_RANK", "5"},
        {"ROLE_WORLD_SIZE", "7"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "4567"},
        {"TORCHELASTIC_RESTART_COUNT", "1"},
        {"TORCHELASTIC_MAX_RESTARTS", "3"},
        {"TORCHELASTIC_RUN_ID", "job7"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", "/l/error.json"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGUSR1"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"OMP_NUM_THREADS", "1"},
        {"MUSTER_GENERATION", "2.5"},
        {"MUSTER_EPOCH", "2"},
        {"MUSTER_NODE_RANK", "1"},
        {"MUSTER_RUN_ID", "job7"},
        {"HOME", "/h"},
    };
    char *const base[] = {TEXT("HOME=/h"), NULL};
    struct worker_env_input in = input();
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
        cr_assert_str_eq(value(base, &in, expected[i][0]), expected[i][1], "%s", expected[i][0]);
    cr_assert_null(value(base, &in, "CUDA_VISIBLE_DEVICES"));
    cr_assert_null(value(base, &in, "MUSTER_WORKER_ID"));
    cr_assert_null(value(base, &in, "MUSTER_NOTIFY_SOCKET"));
    in.notify_socket = "@muster-notify-1";
    cr_assert_str_eq(value(base, &in, "MUSTER_NOTIFY_SOCKET"), "@muster-notify-1");
    cr_assert_str_eq(value(base, &in, "NOTIFY_SOCKET"), "@muster-notify-1");
    cr_assert_null(value(base, &in, "TORCH_WORKER_SERVER_SOCKET"));
    in.server_socket = "/tmp/muster-1/1.1-0.socket";
    cr_assert_str_eq(value(base, &in, "TORCH_WORKER_SERVER_SOCKET"), "/tmp/muster-1/1.1-0.socket");
    char *const users[] = {TEXT("TORCH_WORKER_SERVER_SOCKET=/run/mine"), NULL};
    cr_assert_str_eq(value(users, &in, "TORCH_WORKER_SERVER_SOCKET"), "/run/mine");
    char *const outers[] = {TEXT("TORCH_WORKER_SERVER_SOCKET=/run/outer"), TEXT("MUSTER_WORKER_ID=outer"), NULL};
    cr_assert_str_eq(value(outers, &in, "TORCH_WORKER_SERVER_SOCKET"), "/tmp/muster-1/1.1-0.socket");
    cr_assert_str_eq(value(base, &in, "PYTHONFAULTHANDLER"), "1");
    char *const without[] = {TEXT("PYTHONFAULTHANDLER="), NULL};
    cr_assert_str_eq(value(without, &in, "PYTHONFAULTHANDLER"), "");
    in.worker_id = "1.2.0123456789abcdef";
    cr_assert_str_eq(value(base, &in, "MUSTER_WORKER_ID"), "1.2.0123456789abcdef");
}

Test(worker_env, removes_what_an_outer_launcher_said_and_keeps_settings) {
    char *const base[] = {TEXT("MUSTER_WORKER_ID=outer"),
                          TEXT("MUSTER_ANYTHING=1"),
                          TEXT("RANK=99"),
                          TEXT("MUSTER_NOTIFY_SOCKET=@outer"),
                          TEXT("MUSTER_ETCD_PASSWORD=secret"),
                          TEXT("PMI_RANK=3"),
                          TEXT("PMI_FD=17"),
                          TEXT("PMIX_RANK=3"),
                          TEXT("PMIX_MCA_gds=hash"),
                          TEXT("SLURM_PROCID=3"),
                          TEXT("OMPI_COMM_WORLD_RANK=3"),
                          TEXT("OMPI_MCA_btl=tcp"),
                          TEXT("MPI_LOCALRANKID=3"),
                          TEXT("HYDI_CONTROL_FD=3"),
                          TEXT("_CONDOR_PROCNO=3"),
                          TEXT("NOTIFY_SOCKET=/run/systemd/notify"),
                          TEXT("TORCHELASTIC_ENABLE_FILE_TIMER=1"),
                          TEXT("TORCH_NCCL_ASYNC_ERROR_HANDLING=3"),
                          TEXT("OMP_NUM_THREADS=5"),
                          TEXT("PET_NNODES=2"),
                          TEXT("TORCHELASTIC_SIGNALS_TO_HANDLE=SIGHUP"),
                          NULL};
    struct worker_env_input in = *WITH(input(), .notify_socket = "@ours");
    cr_assert_str_eq(value(base, &in, "NOTIFY_SOCKET"), "/run/systemd/notify");
    in.notify_socket = NULL;
    static const char *const of_launchers[] = {"OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "HYDI_CONTROL_FD",
                                               "_CONDOR_PROCNO"};
    for (size_t i = 0; i < ARRAY_SIZE(of_launchers); i++)
        cr_assert_null(value(base, &in, of_launchers[i]), "%s", of_launchers[i]);
    cr_assert_str_eq(value(base, &in, "OMPI_MCA_btl"), "tcp");
    cr_assert_null(value(base, &in, "MUSTER_WORKER_ID"));
    cr_assert_null(value(base, &in, "MUSTER_ANYTHING"));
    cr_assert_null(value(base, &in, "MUSTER_NOTIFY_SOCKET"));
    cr_assert_null(value(base, &in, "MUSTER_ETCD_PASSWORD"));
    cr_assert_null(value(base, &in, "PMI_RANK"));
    cr_assert_null(value(base, &in, "PMI_FD"));
    cr_assert_null(value(base, &in, "PMIX_RANK"));
    cr_assert_str_eq(value(base, &in, "PMIX_MCA_gds"), "hash");
    cr_assert_str_eq(value(base, &in, "SLURM_PROCID"), "3");
    cr_assert_str_eq(value(base, &in, "NOTIFY_SOCKET"), "/run/systemd/notify");
    cr_assert_str_eq(value(base, &in, "RANK"), "6");
    cr_assert_str_eq(value(base, &in, "TORCHELASTIC_ENABLE_FILE_TIMER"), "1");
    cr_assert_str_eq(value(base, &in, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
    cr_assert_str_eq(value(base, &in, "OMP_NUM_THREADS"), "5");
    cr_assert_str_eq(value(base, &in, "PET_NNODES"), "2");
    cr_assert_str_eq(value(base, &in, "TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGINT,SIGUSR1");
}

Test(worker_env, sets_omp_threads_only_for_several_workers_of_a_silent_user) {
    char *const empty[] = {NULL};
    char *const set[] = {TEXT("OMP_NUM_THREADS="), NULL};
    cr_assert(worker_env_sets_omp(empty, 2));
    cr_assert_not(worker_env_sets_omp(empty, 1));
    cr_assert_not(worker_env_sets_omp(set, 2));
    struct worker_env_input in = input();
    spec.nproc = 1;
    cr_assert_null(value(empty, &in, "OMP_NUM_THREADS"));
}

Test(worker_env, has_an_empty_error_file_without_logs) {
    char *const empty[] = {NULL};
    cr_assert_str_eq(value(empty, WITH(input(), .error_file = NULL), "TORCHELASTIC_ERROR_FILE"), "");
}

Test(worker_env, each_worker_sees_as_many_devices_as_was_asked) {
    static const struct {
        const char *visible, *expected; /* of local rank 2; NULL: an error */
        uint32_t n;
    } cases[] = {
        {NULL, "2", 1},
        {NULL, "4,5", 2},
        {"CUDA_VISIBLE_DEVICES=7,6,5,4,3,2", "3,2", 2},
        {"CUDA_VISIBLE_DEVICES= GPU-a, GPU-b ,GPU-c", "GPU-c", 1},
        {"CUDA_VISIBLE_DEVICES=7,6,5,4,3", NULL, 2},
        {"CUDA_VISIBLE_DEVICES=", NULL, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *const base[] = {TEXT(cases[i].visible), NULL};
        struct worker_env_input in = input();
        spec.gpus_per_worker = cases[i].n;
        if (cases[i].expected != NULL) {
            cr_expect_str_eq(value(base, &in, "CUDA_VISIBLE_DEVICES"), cases[i].expected);
            continue;
        }
        _cleanup_(envlist_fini) struct envlist e = {0};
        struct err err = {0};
        cr_expect_eq(worker_env_build(base, &in, &e, &err), -EINVAL);
        cr_expect(strstr(err.text, "--gpus-per-worker: CUDA_VISIBLE_DEVICES=") == err.text, "%s", err.text);
    }
}

/* Then ROCm does not read CUDA_VISIBLE_DEVICES: all workers would use the same GPU. */
Test(worker_env, the_users_hip_list_is_narrowed_too) {
    char *const both[] = {TEXT("HIP_VISIBLE_DEVICES=7,6,5"), TEXT("CUDA_VISIBLE_DEVICES=0,1,2"), NULL};
    char *const empty[] = {TEXT("HIP_VISIBLE_DEVICES="), NULL};
    char *const few[] = {TEXT("HIP_VISIBLE_DEVICES=0,1"), NULL};
    struct worker_env_input in = input();
    cr_expect_str_eq(value(both, &in, "HIP_VISIBLE_DEVICES"), "7,6,5");
    spec.virtual_local_rank = true; /* of local rank 2 */
    cr_expect_str_eq(value(both, &in, "HIP_VISIBLE_DEVICES"), "5");
    cr_expect_str_eq(value(both, &in, "CUDA_VISIBLE_DEVICES"), "2");
    cr_expect_str_eq(value(empty, &in, "HIP_VISIBLE_DEVICES"), "");
    cr_expect_str_eq(value(empty, &in, "CUDA_VISIBLE_DEVICES"), "2");
    _cleanup_(envlist_fini) struct envlist e = {0};
    struct err err = {0};
    cr_expect_eq(worker_env_build(few, &in, &e, &err), -EINVAL);
    expect_has(err.text, "HIP_VISIBLE_DEVICES=0,1 has no device for local rank 2");
}

Test(worker_env, threads_as_many_as_cores_unless_the_user_says_how_many) {
    char *const none[] = {NULL}, *const own[] = {TEXT("OMP_NUM_THREADS=3"), NULL};
    struct worker_env_input in = *WITH(input(), .omp_threads = 16);
    cr_expect_str_eq(value(none, &in, "OMP_NUM_THREADS"), "16");
    cr_expect_str_eq(value(own, &in, "OMP_NUM_THREADS"), "3");
    spec.nproc = 1;
    cr_expect_str_eq(value(none, &in, "OMP_NUM_THREADS"), "16");
}

Test(worker_env, virtual_local_rank_maps_through_the_visible_devices) {
    static const struct {
        const char *base;
        uint32_t local_rank;
        const char *device; /* NULL: refused */
    } cases[] = {
        {"X=1", 2, "2"},
        {"CUDA_VISIBLE_DEVICES=4,5,6,7", 2, "6"},
        {"CUDA_VISIBLE_DEVICES= 4 , 5 ", 1, "5"},
        {"CUDA_VISIBLE_DEVICES=GPU-aa,GPU-bb", 0, "GPU-aa"},
        {"CUDA_VISIBLE_DEVICES=0,1", 2, NULL},
        {"CUDA_VISIBLE_DEVICES=", 0, NULL},
        {"CUDA_VISIBLE_DEVICES=0,,2", 1, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *const base[] = {TEXT(cases[i].base), NULL};
        struct worker_env_input in = input();
        spec.virtual_local_rank = true;
        in.local_rank = cases[i].local_rank;
        if (cases[i].device != NULL) {
            cr_assert_str_eq(value(base, &in, "CUDA_VISIBLE_DEVICES"), cases[i].device);
            cr_assert_str_eq(value(base, &in, "LOCAL_RANK"), "0");
            continue;
        }
        struct envlist e = {0};
        struct err err = {0};
        cr_assert_eq(worker_env_build(base, &in, &e, &err), -EINVAL, "case %zu", i);
        assert_has(err.text, "CUDA_VISIBLE_DEVICES=");
        cr_assert_null(e.items);
    }
}

static void check_argv(enum job_entry entry, const char *const *expected) {
    char *args[] = {TEXT("--out=${local_rank}"), TEXT("--nnodes"), TEXT("$$x"), NULL};
    struct job_spec job = {.entry = entry, .script = TEXT("s$local_rank.py"), .args = args};
    char **argv = worker_argv_build(&job, "/bin/python3", 2);
    size_t n = 0;
    for (; expected[n] != NULL; n++)
        cr_assert_str_eq(argv[n], expected[n]);
    cr_assert_null(argv[n]);
    words_free(argv);
}

Test(worker_env, builds_the_command_line_of_each_entry) {
    check_argv(JOB_ENTRY_PYTHON,
               (const char *const[]){"/bin/python3", "-u", "s2.py", "--out=2", "--nnodes", "$x", NULL});
    check_argv(JOB_ENTRY_MODULE,
               (const char *const[]){"/bin/python3", "-u", "-m", "s2.py", "--out=2", "--nnodes", "$x", NULL});
    check_argv(JOB_ENTRY_PROGRAM, (const char *const[]){"s$local_rank.py", "--out=2", "--nnodes", "$x", NULL});
}
