#include "launcher/place/place.h"
#include "rig/unit.h"

#define ENV(...) ((char *const *)(uintptr_t)(const char *const[]){__VA_ARGS__, NULL})
static struct err err;

struct fake {
    struct place_facts facts;
    const char *file;
    int pmi_code;
};

static void facts(void *arg, struct place_facts *ret) { *ret = ((struct fake *)arg)->facts; }

static char *file(void *arg, const char *path) {
    const struct fake *f = arg;
    return f->file != NULL ? xstrdup(f->file) : NULL;
}

static int pmi(void *arg, const struct launcher *row, char *const *envp, struct place *ret, char **ret_run_id,
               struct err *e) {
    const struct fake *f = arg;
    if (f->pmi_code < 0)
        return err_set(e, f->pmi_code, "the PMI server is silent");
    ret->n_tasks = 8;
    ret->proc_id = 5;
    ret->n_nodes = 4;
    ret->node_id = 2;
    ret->node_tasks = ret->most_tasks = 2;
    ret->local_id = 1;
    ret->first_host = xstrdup("node1");
    *ret_run_id = xstrdup("kvs 7");
    return 0;
}

static struct place p;

static void finish(void) { place_fini(&p); }
TestSuite(place_launcher, .fini = finish);

static int read_place(const struct fake *f, char *const *envp) {
    const struct place_probes probes = {.facts = facts, .file = file, .pmi = pmi, .arg = (void *)(uintptr_t)f};
    err = (struct err){0};
    place_fini(&p);
    return place_read(envp, &probes, &p, &err);
}

#define HYDRA "PMI_RANK=5", "PMI_SIZE=8", "MPI_LOCALRANKID=1"

Test(place_launcher, a_process_manager_is_asked) {
    cr_assert_eq(read_place(&(struct fake){.facts.ancestor = "hydra_pmi_proxy"}, ENV(HYDRA)), 0);
    cr_assert_str_eq(p.launcher->name, "hydra");
    cr_assert_eq(p.by, PLACE_BY_LAUNCHER);
    cr_assert(place_is_group(&p));
    cr_assert_eq(p.n_nodes, 4);
    cr_assert_eq(p.node_id, 2);
    cr_assert_eq(p.local_id, 1);
    cr_assert_eq(p.nproc, 2);
    cr_assert_str_eq(p.first_host, "node1");
    cr_assert_str_eq(p.run_id, "hydra-kvs_7");
}

Test(place_launcher, a_server_that_is_not_there_proves_that_variables_have_leaked) {
    cr_assert_eq(read_place(&(struct fake){.pmi_code = -ENOENT}, ENV(HYDRA)), 0);
    cr_assert_null(p.launcher);
    cr_assert_eq(p.by, PLACE_BY_HAND);
}

/* PMI_FD is closed, or there is no library that can ask */
Test(place_launcher, a_process_that_is_seen_proves_a_group_that_cannot_be_asked) {
    static const int codes[] = {-ENOENT, -ENOSYS};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        const struct fake f = {.pmi_code = codes[i], .facts.ancestor = "hydra_pmi_proxy"};
        cr_assert_eq(read_place(&f, ENV(HYDRA)), 0);
        cr_assert_str_eq(p.launcher->name, "hydra");
        cr_assert_eq(p.n_nodes, 0);
        cr_assert_eq(p.n_tasks, 8);
    }
}

Test(place_launcher, a_task_that_is_alone_asks_no_server) {
    const struct fake f = {.pmi_code = -ETIMEDOUT, .facts.ancestor = "hydra_pmi_proxy"};
    cr_assert_eq(read_place(&f, ENV("PMI_RANK=0", "PMI_SIZE=1", "MPI_LOCALRANKID=0")), 0);
    cr_assert_eq(p.n_nodes, 1);
}

Test(place_launcher, a_server_that_does_not_answer_is_an_error) {
    cr_assert_eq(read_place(&(struct fake){.pmi_code = -ETIMEDOUT}, ENV(HYDRA)), -ETIMEDOUT);
    cr_assert_str_eq(err.text, "the PMI server is silent");
    cr_assert_str_eq(p.launcher->name, "hydra");
}

/* mpirun in a batch script of Slurm */
Test(place_launcher, the_nearest_process_decides) {
    char *const *envp = ENV(HYDRA, "SLURM_JOB_ID=28", "SLURM_PROCID=0", "SLURM_JOB_NUM_NODES=4");
    struct fake f = {.facts = {.stepd = "slurmstepd: [28.batch]", .ancestor = "hydra_pmi_proxy"}};
    cr_assert_eq(read_place(&f, envp), 0);
    cr_assert_str_eq(p.launcher->name, "hydra");
    cr_assert_eq(p.slurm, PLACE_SLURM_NONE);
    cr_assert_str_eq(p.job_id, "28");
    f.facts.ancestor = "slurmstepd"; /* sbatch from below mpirun */
    cr_assert_eq(read_place(&f, envp), 0);
    cr_assert_null(p.launcher);
    cr_assert_eq(p.slurm, PLACE_SLURM_BATCH);
}

Test(place_launcher, where_all_processes_are_seen_variables_prove_nothing) {
    cr_assert_eq(read_place(&(struct fake){.facts.sees_all = true}, ENV(HYDRA)), 0);
    cr_assert_null(p.launcher);
}

Test(place_launcher, agents_of_muster_and_runs_of_a_worker_are_of_no_launcher) {
    static const char *const others[] = {"MUSTER_HEAD=fd:3", "TORCHELASTIC_RUN_ID=a"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        cr_assert_eq(read_place(&(struct fake){0}, ENV(HYDRA, others[i])), 0);
        cr_assert_null(p.launcher);
    }
}

static void assert_hosts(const struct fake *f, char *const *envp, const char *hosts, uint32_t n) {
    cr_assert_eq(read_place(f, envp), 0, "%s", err.text);
    cr_assert_str_eq(p.job_nodelist, hosts);
    cr_assert_eq(p.job_nodes, n);
    cr_assert_eq(place_is_alloc(&p), n > 1);
}

Test(place_launcher, hosts_are_read_in_every_form) {
    assert_hosts(&(struct fake){.file = "b 2 all.q@b UNDEFINED\na 2 all.q@a UNDEFINED\nb 1 x.q@b 0,1\n"},
                 ENV("JOB_ID=12", "PE=mpi", "PE_HOSTFILE=/s/12.1/pe_hostfile"), "b,a", 2);
    assert_hosts(&(struct fake){0}, ENV("LSB_JOBID=1", "LSB_MCPU_HOSTS=b 8 a 8"), "b,a", 2);
    assert_hosts(&(struct fake){.file = "b\nb\na\n"}, ENV("PBS_JOBID=1", "PBS_NODEFILE=/f"), "b,a", 2);
    assert_hosts(&(struct fake){.file = "b\nb\n"}, ENV("OAR_JOB_ID=1", "OAR_NODEFILE=/f"), "b", 1);
}

Test(place_launcher, a_host_file_of_another_job_is_not_this_ones) {
    char *const *envp = ENV("JOB_ID=12", "PE=mpi", "PE_HOSTFILE=/s/112.1/pe_hostfile");
    cr_assert_eq(read_place(&(struct fake){.facts.ancestor = "sge_shepherd"}, envp), 0);
    cr_assert_null(p.launcher);
}

Test(place_launcher, hosts_that_cannot_be_read_are_an_error) {
    cr_assert_eq(read_place(&(struct fake){0}, ENV("PBS_JOBID=1", "PBS_NODEFILE=/f")), -EINVAL);
    assert_has(err.text, "can't read /f, the hosts of this job of PBS (PBS_NODEFILE)");
}

Test(place_launcher, variables_have_the_nodes_and_where_they_meet) {
    static const struct {
        const char *env[6];
        uint32_t n_nodes, node_id, nproc;
        bool is_first;
        const char *first_host;
        uint16_t port;
    } cases[] = {
        {{"AWS_BATCH_JOB_ID=a#1", "AWS_BATCH_JOB_NODE_INDEX=1", "AWS_BATCH_JOB_NUM_NODES=2",
          "AWS_BATCH_JOB_MAIN_NODE_INDEX=1"},
         .n_nodes = 2,
         .node_id = 1,
         .is_first = true,
         .first_host = "localhost"},
        {{"SM_HOSTS=[\"a\", \"b\"]", "SM_CURRENT_HOST=b", "SM_NUM_GPUS=0"},
         .n_nodes = 2,
         .node_id = 1,
         .first_host = "a"},
        {{"SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES=2", "SKYPILOT_NODE_IPS=a\nb", "SKYPILOT_NUM_GPUS_PER_NODE=8"},
         .n_nodes = 2,
         .nproc = 8,
         .is_first = true,
         .first_host = "a"},
        {{"NUM_NODES=3", "NODE_RANK=2", "PRIMARY_ADDR=a", "PRIMARY_PORT=29500", "NUM_TRAINERS=8"},
         .n_nodes = 3,
         .node_id = 2,
         .nproc = 8,
         .first_host = "a",
         .port = 29500},
        {{"PALS_APID=x", "PALS_RANKID=0", "PMI_SIZE=1"}, .n_nodes = 1, .is_first = true},
        {{"PALS_APID=x", "PALS_RANKID=0", "PMI_SIZE=2"}, .n_nodes = 0, .is_first = true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cr_assert_eq(read_place(&(struct fake){0}, (char *const *)(uintptr_t)cases[i].env), 0, "%zu: %s", i, err.text);
        cr_assert_eq(p.n_nodes, cases[i].n_nodes, "%zu", i);
        cr_assert_eq(p.node_id, cases[i].node_id, "%zu", i);
        cr_assert_eq(p.nproc, cases[i].nproc, "%zu", i);
        cr_assert_eq(p.is_first, cases[i].is_first, "%zu", i);
        cr_assert_eq(p.first_port, cases[i].port, "%zu", i);
        cr_assert_str_eq(p.first_host != NULL ? p.first_host : "",
                         cases[i].first_host != NULL ? cases[i].first_host : "", "%zu", i);
    }
}

Test(place_launcher, numbers_that_do_not_fit_are_an_error) {
    char *const *envp = ENV("DSTACK_NODE_RANK=2", "DSTACK_NODES_NUM=2", "DSTACK_MASTER_NODE_IP=a");
    cr_assert_eq(read_place(&(struct fake){0}, envp), -EINVAL);
    assert_has(err.text, "this is a node of dstack, but DSTACK_NODE_RANK is not set");
    cr_assert_not(place_is_group(&p));
}
