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

/* What becomes of variables of the surroundings. NULL: the variable is not set there; the worker lacks it. */
struct variable {
    const char *name, *before, *after;
};

static void check_variables(const struct worker_env_input *in, const struct variable *rows, size_t n) {
    _cleanup_(envlist_fini) struct envlist base = {0}, e = {0};
    struct err err = {0};
    for (size_t i = 0; i < n; i++)
        if (rows[i].before != NULL)
            envlist_set(&base, rows[i].name, rows[i].before);
    cr_assert_eq(worker_env_build(envlist_items(&base), in, &e, &err), 0, "%s", err.text);
    for (size_t i = 0; i < n; i++) {
        const char *got = envlist_get(&e, rows[i].name);
        if (rows[i].after == NULL)
            cr_expect_null(got, "%s=%s", rows[i].name, got);
        else
            cr_expect(got != NULL && strcmp(got, rows[i].after) == 0, "%s=%s", rows[i].name, got);
    }
}

Test(worker_env, has_every_variable_of_the_contract) {
    static const struct variable rows[] = {
        {"RANK", NULL, "6"},
        {"LOCAL_RANK", NULL, "2"},
        {"WORLD_SIZE", NULL, "8"},
        {"LOCAL_WORLD_SIZE", NULL, "4"},
        {"GROUP_RANK", NULL, "1"},
        {"GROUP_WORLD_SIZE", NULL, "2"},
        {"ROLE_NAME", NULL, "trainer"},
        {"ROLE_RANK", NULL, "5"},
        {"ROLE_WORLD_SIZE", NULL, "7"},
        {"MASTER_ADDR", NULL, "10.0.0.1"},
        {"MASTER_PORT", NULL, "4567"},
        {"TORCHELASTIC_RESTART_COUNT", NULL, "1"},
        {"TORCHELASTIC_MAX_RESTARTS", NULL, "3"},
        {"TORCHELASTIC_RUN_ID", NULL, "job7"},
        {"TORCHELASTIC_USE_AGENT_STORE", NULL, "True"},
        {"TORCHELASTIC_ERROR_FILE", NULL, "/l/error.json"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", NULL, "SIGTERM,SIGINT,SIGUSR1"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", NULL, "1"},
        {"PYTHONFAULTHANDLER", NULL, "1"},
        {"OMP_NUM_THREADS", NULL, "1"},
        {"MUSTER_GENERATION", NULL, "2.5"},
        {"MUSTER_EPOCH", NULL, "2"},
        {"MUSTER_NODE_RANK", NULL, "1"},
        {"MUSTER_RUN_ID", NULL, "job7"},
        {"HOME", "/h", "/h"},
        {"CUDA_VISIBLE_DEVICES", NULL, NULL},
        {"MUSTER_WORKER_ID", NULL, NULL},
        {"MUSTER_NOTIFY_SOCKET", NULL, NULL},
        {"TORCH_WORKER_SERVER_SOCKET", NULL, NULL},
    };
    struct worker_env_input in = input();
    check_variables(&in, rows, ARRAY_SIZE(rows));
}

Test(worker_env, sockets_and_the_marker_are_those_of_this_muster) {
    static const char notify[] = "@muster-notify-1", server[] = "/tmp/muster-1/1.1-0.socket", id[] = "1.2.0123456789ab";
    static const struct variable ours[] = {{"MUSTER_NOTIFY_SOCKET", "@outer", notify},
                                           {"NOTIFY_SOCKET", NULL, notify},
                                           {"TORCH_WORKER_SERVER_SOCKET", "/run/outer", server},
                                           {"MUSTER_WORKER_ID", "outer", id}},
                                 users[] = {{"NOTIFY_SOCKET", "/run/systemd/notify", "/run/systemd/notify"},
                                            {"TORCH_WORKER_SERVER_SOCKET", "/run/mine", "/run/mine"}};
    struct worker_env_input in = *WITH(input(), .notify_socket = notify, .server_socket = server, .worker_id = id);
    check_variables(&in, ours, ARRAY_SIZE(ours));
    check_variables(&in, users, ARRAY_SIZE(users));
}

Test(worker_env, variables_of_an_outer_launcher_are_removed_and_settings_stay) {
    static const struct variable rows[] = {
        {"MUSTER_WORKER_ID", "outer", NULL},
        {"MUSTER_ANYTHING", "1", NULL},
        {"MUSTER_NOTIFY_SOCKET", "@outer", NULL},
        {"MUSTER_ETCD_PASSWORD", "secret", NULL},
        {"RANK", "99", "6"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGHUP", "SIGTERM,SIGINT,SIGUSR1"},
        {"PMI_RANK", "3", NULL},
        {"PMI_FD", "17", NULL},
        {"PMIX_RANK", "3", NULL},
        {"PMIX_MCA_gds", "hash", "hash"},
        {"OMPI_COMM_WORLD_RANK", "3", NULL},
        {"OMPI_MCA_btl", "tcp", "tcp"},
        {"MPI_LOCALRANKID", "3", NULL},
        {"HYDI_CONTROL_FD", "3", NULL},
        {"_CONDOR_PROCNO", "3", NULL},
        {"SLURM_PROCID", "3", "3"},
        {"TORCHELASTIC_ENABLE_FILE_TIMER", "1", "1"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", "3"},
        {"PYTHONFAULTHANDLER", "", ""},
        {"OMP_NUM_THREADS", "5", "5"},
        {"PET_NNODES", "2", "2"},
        {"HIP_VISIBLE_DEVICES", "7,6,5", "7,6,5"},
    };
    struct worker_env_input in = input();
    check_variables(&in, rows, ARRAY_SIZE(rows));
}

Test(worker_env, has_an_empty_error_file_without_logs) {
    static const struct variable row = {"TORCHELASTIC_ERROR_FILE", NULL, ""};
    check_variables(WITH(input(), .error_file = NULL), &row, 1);
}

Test(worker_env, threads_are_one_or_as_many_as_cores_unless_the_user_sets_them) {
    static const struct {
        uint32_t nproc, cores; /* 0: torchrun's rule */
        struct variable omp;
    } cases[] = {
        {2, 0, {"OMP_NUM_THREADS", NULL, "1"}}, {1, 0, {"OMP_NUM_THREADS", NULL, NULL}},
        {2, 0, {"OMP_NUM_THREADS", "", ""}},    {2, 16, {"OMP_NUM_THREADS", NULL, "16"}},
        {2, 16, {"OMP_NUM_THREADS", "3", "3"}}, {1, 16, {"OMP_NUM_THREADS", NULL, "16"}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct worker_env_input in = *WITH(input(), .omp_threads = cases[i].cores);
        spec.nproc = cases[i].nproc;
        check_variables(&in, &cases[i].omp, 1);
    }
}

/* If HIP_VISIBLE_DEVICES is set, ROCm does not read CUDA_VISIBLE_DEVICES: all workers would use the same GPU. */
Test(worker_env, each_worker_sees_as_many_devices_as_requested) {
    enum { VIRTUAL = 0 }; /* else --gpus-per-worker */
    static const struct {
        uint32_t n, local_rank;
        const char *cuda, *hip, *cuda_after, *hip_after, *error;
    } cases[] = {
        {1, 2, NULL, NULL, "2", NULL, NULL},
        {2, 2, NULL, NULL, "4,5", NULL, NULL},
        {2, 2, "7,6,5,4,3,2", NULL, "3,2", NULL, NULL},
        {1, 2, " GPU-a, GPU-b ,GPU-c", NULL, "GPU-c", NULL, NULL},
        {2, 2, "7,6,5,4,3", NULL, NULL, NULL, "--gpus-per-worker: CUDA_VISIBLE_DEVICES=7,6,5,4,3 has no device"},
        {1, 2, "", NULL, NULL, NULL, "--gpus-per-worker: CUDA_VISIBLE_DEVICES= has no device for local rank 2"},
        {VIRTUAL, 2, NULL, NULL, "2", NULL, NULL},
        {VIRTUAL, 2, "4,5,6,7", NULL, "6", NULL, NULL},
        {VIRTUAL, 1, " 4 , 5 ", NULL, "5", NULL, NULL},
        {VIRTUAL, 0, "GPU-aa,GPU-bb", NULL, "GPU-aa", NULL, NULL},
        {VIRTUAL, 2, "0,1", NULL, NULL, NULL, "CUDA_VISIBLE_DEVICES=0,1 has no device"},
        {VIRTUAL, 0, "", NULL, NULL, NULL, "CUDA_VISIBLE_DEVICES= has no device"},
        {VIRTUAL, 1, "0,,2", NULL, NULL, NULL, "CUDA_VISIBLE_DEVICES=0,,2 has no device"},
        {VIRTUAL, 2, "0,1,2", "7,6,5", "2", "5", NULL},
        {VIRTUAL, 2, NULL, "", "2", "", NULL},
        {VIRTUAL, 2, NULL, "0,1", NULL, NULL, "HIP_VISIBLE_DEVICES=0,1 has no device for local rank 2"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct variable rows[] = {{"CUDA_VISIBLE_DEVICES", cases[i].cuda, cases[i].cuda_after},
                                  {"HIP_VISIBLE_DEVICES", cases[i].hip, cases[i].hip_after},
                                  {"LOCAL_RANK", NULL, cases[i].n == VIRTUAL ? "0" : "2"}};
        struct worker_env_input in = *WITH(input(), .local_rank = cases[i].local_rank);
        struct envlist base = {0}, e = {0};
        struct err err = {0};
        spec.gpus_per_worker = cases[i].n;
        spec.virtual_local_rank = cases[i].n == VIRTUAL;
        if (cases[i].error == NULL) {
            check_variables(&in, rows, ARRAY_SIZE(rows));
            continue;
        }
        for (size_t k = 0; k < 2; k++)
            if (rows[k].before != NULL)
                envlist_set(&base, rows[k].name, rows[k].before);
        cr_expect_eq(worker_env_build(envlist_items(&base), &in, &e, &err), -EINVAL, "case %zu", i);
        expect_has(err.text, cases[i].error);
        cr_expect_null(e.items);
        envlist_fini(&base);
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
