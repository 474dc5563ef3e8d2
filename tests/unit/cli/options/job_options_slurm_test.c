/* What a command line means in a job of Slurm. */
#include "cli/options/job_options.h"

#include "job_reading.h"
#include "launcher/srun/slurm_job.h"
#include "rig/unit.h"

/* Task 5 of a step on four nodes with two tasks on each. */
#define TASKS                                                                                                     \
    "SLURM_JOB_ID=28 SLURM_CLUSTER_NAME=c1 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-4] SLURM_STEP_NUM_NODES=4 " \
    "SLURM_STEP_NUM_TASKS=8 SLURM_STEP_TASKS_PER_NODE=2(x4) SLURM_NNODES=4 SLURM_NTASKS=8 SLURM_NODEID=2 "        \
    "SLURM_PROCID=5 SLURM_LOCALID=1 "

static const char *cwd = "/home/u";
static char *fixed_cwd(void) { return cwd != NULL ? xstrdup(cwd) : NULL; }

static struct place_facts facts;
static unsigned looked;
static void place_facts(void *arg, struct place_facts *ret) {
    looked++;
    *ret = facts;
}

static const char *shared_name;
static const char *shared_folder(const char *path) {
    cr_assert_eq(strncmp(path, cwd, strlen(cwd)), 0);
    cr_assert_str_eq(strrchr(path, '/'), "/.muster");
    return shared_name;
}

static const struct job_probes probes = {READING_PROBES, .cwd = fixed_cwd, .place.facts = place_facts,
                                         .shared_folder = shared_folder};

static struct reading read_line(const char *env, const char *line) { return read_job(env, line, &probes); }

static bool says(char *const *texts, const char *part) {
    for (; texts != NULL && *texts != NULL; texts++)
        if (strstr(*texts, part) != NULL)
            return true;
    return false;
}

Test(job_options_slurm, a_task_of_a_step_needs_no_option) {
    READ(STEP "SLURM_GPUS_ON_NODE=8", "train.py");
    cr_assert_eq(g.spec.place.slurm, PLACE_SLURM_STEP);
    cr_assert_eq(g.spec.place.local_id, 0);
    uint16_t ports[PLACE_PORTS_MAX];
    cr_assert_eq(place_ports("c1.28.0", PLACE_PORT_LOW, PLACE_PORT_HIGH, ports), PLACE_PORTS_MAX);
    cr_assert_eq(g.spec.n_endpoint_ports, PLACE_PORTS_MAX);
    cr_assert_arr_eq(g.spec.endpoint_ports, ports, sizeof ports);
    cr_assert_eq(g.spec.endpoint_port, ports[0]);
    static const char *const origins[] = {
        "nnodes: 4, from SLURM_STEP_NUM_NODES",
        "--nnodes=MIN:4 for a job that may continue with fewer",
        "nproc_per_node: 8, from SLURM_GPUS_ON_NODE",
        "rdzv_id: c1.28.0, from SLURM_CLUSTER_NAME, SLURM_JOB_ID, SLURM_STEP_ID",
        "rdzv_endpoint: node1:",
        "node_rank: 2, from SLURM_PROCID",
    };
    _cleanup_(strbuf_fini) struct strbuf shown = {0};
    job_print_config(&g.spec, &shown);
    for (size_t i = 0; i < ARRAY_SIZE(origins); i++)
        cr_assert_not_null(strstr(strbuf_text(&shown), origins[i]), "%s", origins[i]);
    cr_assert_str_eq(strbuf_text(&g.warnings), "");
    _cleanup_(reading_fini) struct reading tasks = read_line(STEP, "x");
    cr_assert(says(tasks.spec.derived, "nproc_per_node: 1, from SLURM_STEP_TASKS_PER_NODE"));
}

static const char *const of_step[] = {"min_nodes=4", "max_nodes=4", "nproc_per_node=1",   "run_id=c1.28.0",
                                      "node_rank=2", "is_host=0",   "endpoint_host=node1"};

static const struct {
    const char *env, *line;
    bool step; /* the nodes are those of the step */
    const char *shown;
} meanings[] = {
    /* a task; the agent of node 0 leads whatever its rank; of several tasks on a node one is the agent */
    {STEP "SLURM_GPUS_ON_NODE=8", "train.py", true, "backend=c10d standalone=false run_id_given=true nproc_per_node=8"},
    {"SLURM_JOB_ID=28 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-2] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 "
     "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NODEID=0 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NTASKS=2",
     "x", true, "is_host=1 node_rank=1 run_id=28.0"},
    {TASKS, "x", true, "max_nodes=4 nproc_per_node=2 node_rank=5"},
    /* a step of one node is a job of its own; without Slurm nothing changes */
    {"SLURM_JOB_ID=28 SLURM_STEP_ID=1 SLURM_STEP_NODELIST=node3 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 "
     "SLURM_STEP_TASKS_PER_NODE=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NNODES=1 SLURM_NTASKS=1",
     "x", true,
     "standalone=true backend=c10d endpoint_host=null endpoint_port=0 endpoint_ports=[] run_id=28.1 node_rank=-1 "
     "is_host=-1"},
    {"SLURM_STEP_NUM_NODES=4 SLURM_NNODES=4 SLURM_GPUS_ON_NODE=8 SLURM_PROCID=3", "x", false,
     "standalone=true nproc_per_node=1 derived=[]"},
    /* what is given wins, one by one; "&": all else is as in the first line */
    {STEP, "x", true,
     "min_nodes=4 max_nodes=4 nproc_per_node=1 run_id=c1.28.0 node_rank=2 is_host=0 endpoint_host=node1"},
    {STEP, "--nnodes=2:4 x", true, "& min_nodes=2"},
    {STEP "PET_NNODES=3:4", "x", true, "& min_nodes=3"},
    {STEP, "--nproc-per-node=3 x", true, "& nproc_per_node=3"},
    {STEP "PET_NPROC_PER_NODE=3", "x", true, "& nproc_per_node=3"},
    {STEP, "--nproc-per-node=cpu x", true, "& nproc_per_node=6"},
    {STEP, "--rdzv-id=mine x", true, "& run_id=mine"},
    {STEP, "--node-rank=7 x", true, "& node_rank=7"},
    {STEP, "--rdzv-conf=is_host=1 x", true, "& is_host=1"},
    {STEP, "--rdzv-backend=c10d x", true, "& endpoint_host=node1"},
    {STEP "PET_RDZV_ENDPOINT=", "x", true, "& endpoint_host=node1"},
    {STEP "SLURM_GPUS_ON_NODE=8", "--gpus-per-worker=3 x", true, "& nproc_per_node=2"},
    {STEP, "--gpus-per-worker=3 x", true, "& nproc_per_node=1"},
    /* lines that people write for torchrun inside srun: the group is theirs */
    {STEP, "--nnodes=4 --nproc-per-node=4 --rdzv-id=28 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 x", false,
     "backend=c10d endpoint_host=node1 endpoint_port=29500 endpoint_ports=[] max_nodes=4 nproc_per_node=4 run_id=28 "
     "node_rank=-1 is_host=-1"},
    {STEP, "--nnodes=4 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=node1 x", false,
     "backend=c10d endpoint_host=node1 endpoint_port=29400 endpoint_ports=[] max_nodes=4 nproc_per_node=4 run_id=none "
     "node_rank=-1 is_host=-1"},
    {STEP, "--nnodes=4 --node-rank=2 --nproc-per-node=4 --master-addr=node1 --master-port=29500 x", false,
     "backend=static endpoint_host=node1 endpoint_port=29500 endpoint_ports=[] max_nodes=4 nproc_per_node=4 "
     "run_id=none node_rank=2 is_host=-1"},
    {TASKS, "--nnodes=8 --nproc-per-node=1 --rdzv-id=28 --rdzv-endpoint=node1:29500 --rdzv-backend=c10d x", false,
     "backend=c10d endpoint_host=node1 endpoint_port=29500 endpoint_ports=[] max_nodes=8 nproc_per_node=1 run_id=28 "
     "node_rank=-1 is_host=-1"},
    {TASKS, "--rdzv-id=28 --rdzv-endpoint=node1:29500 --rdzv-backend=c10d x", false,
     "backend=c10d endpoint_host=node1 endpoint_port=29500 endpoint_ports=[] max_nodes=1 nproc_per_node=1 run_id=28 "
     "node_rank=-1 is_host=-1"},
    {STEP, "--standalone --nproc-per-node=2 x", false,
     "backend=c10d endpoint_host=null endpoint_port=0 endpoint_ports=[] max_nodes=1 nproc_per_node=2 "
     "run_id=x-" READING_STAMP " node_rank=-1 is_host=-1"},
    {STEP, "--nnodes=1 --nproc-per-node=2 x", false,
     "backend=c10d endpoint_host=null endpoint_port=0 endpoint_ports=[] max_nodes=1 nproc_per_node=2 "
     "run_id=x-" READING_STAMP " node_rank=-1 is_host=-1"},
    /* the same where the numbers are not given */
    {STEP "SLURM_GPUS_ON_NODE=8", "--rdzv-backend=c10d --rdzv-endpoint=node1:29500 x", false,
     "backend=c10d endpoint_host=node1 endpoint_port=29500 endpoint_ports=[] max_nodes=4 nproc_per_node=8 run_id=none "
     "node_rank=-1 is_host=-1"},
    {STEP "SLURM_GPUS_ON_NODE=8", "--standalone x", false,
     "backend=c10d endpoint_host=null endpoint_port=0 endpoint_ports=[] max_nodes=1 nproc_per_node=8 "
     "run_id=x-" READING_STAMP " node_rank=-1 is_host=-1"},
    /* a directory or etcd is only where they meet */
    {STEP, "--rdzv-endpoint=dir:/data/m x", true,
     "run_id=c1.28.0 run_id_given=true min_nodes=4 max_nodes=4 node_rank=2 endpoint_host=null is_host=-1"},
    {STEP, "--rdzv-backend=dir --rdzv-endpoint=/data/m --nnodes=2:4 x", true,
     "run_id=c1.28.0 run_id_given=true min_nodes=2 max_nodes=4 node_rank=2 endpoint_host=null is_host=-1"},
    {STEP, "--rdzv-endpoint=etcd://h x", true,
     "run_id=c1.28.0 run_id_given=true min_nodes=4 max_nodes=4 node_rank=2 endpoint_host=null is_host=-1"},
    {STEP "PET_RDZV_ID=mine", "--rdzv-endpoint=etcd://h x", true,
     "run_id=mine run_id_given=true min_nodes=4 max_nodes=4 node_rank=2 endpoint_host=null is_host=-1"},
    {TASKS, "--rdzv-endpoint=dir:/data/m x", true,
     "run_id=c1.28.0 run_id_given=true min_nodes=4 max_nodes=4 node_rank=5 endpoint_host=null is_host=-1"},
    {STEP, "--rdzv-endpoint=dir:/data/m --rdzv-id=of-two-steps --nnodes=8 x", false,
     "run_id=of-two-steps run_id_given=true min_nodes=8 max_nodes=8 node_rank=-1 endpoint_host=null is_host=-1"},
    /* a step that muster started has the tasks of the job as workers; a job that a worker starts is its own */
    {STEP "MUSTER_STEP_TASKS=3 ", "x", true, "nproc_per_node=3"},
    {STEP "MUSTER_STEP_TASKS=3 ", "--nproc-per-node=2 x", true, "nproc_per_node=2"},
    {STEP "MUSTER_STEP_TASKS=3 SLURM_GPUS_ON_NODE=8 ", "x", true, "nproc_per_node=8"},
    {STEP "TORCHELASTIC_RUN_ID=c1.28.0", "x", false, "standalone=true nproc_per_node=1 start_nodes=0"},
    {TASKS "TORCHELASTIC_RUN_ID=c1.28.0", "x", false, "standalone=true nproc_per_node=1 start_nodes=0"},
    {BATCH "TORCHELASTIC_RUN_ID=c1.28.0", "x", false, "standalone=true nproc_per_node=1 start_nodes=0"},
    /* a job of several nodes is started from its script */
    {BATCH, "x", false, "start_nodes=4"},
    {BATCH, "--nnodes=2 x", false, "start_nodes=2"},
    {BATCH, "--nnodes=2:9 x", false, "start_nodes=4"},
    {BATCH, "--nnodes=1 x", false, "start_nodes=0"},
    {BATCH, "--standalone x", false, "start_nodes=0"},
    {BATCH, "--nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 x", false, "start_nodes=0"},
    {BATCH, "--nnodes=4 --node-rank=2 --master-addr=node1 x", false, "start_nodes=0"},
    {BATCH, "--starter=none x", false, "start_nodes=0"},
    {BATCH, "--starter=srun --nnodes=1 x", false, "start_nodes=1"},
    {BATCH, "--nproc-per-node=gpu x", false, "start_nodes=4"}, /* counted on the nodes: here is none */
    {STEP, "x", true, "start_nodes=0"},
    {STEP, "--starter=srun x", true, "start_nodes=0"},
    {"", "x", false, "start_nodes=0"},
};

Test(job_options_slurm, each_line_has_its_meaning) {
    for (size_t i = 0; i < ARRAY_SIZE(meanings); i++) {
        looked = 0;
        READ(meanings[i].env, meanings[i].line);
        const char *shown = meanings[i].shown + (meanings[i].shown[0] == '&' ? 2 : 0);
        assert_shown(meanings[i].line, &g.spec, shown);
        for (size_t k = 0; shown > meanings[i].shown && k < ARRAY_SIZE(of_step); k++) {
            _cleanup_(freep) char *key = xstrndup(of_step[k], strcspn(of_step[k], "=") + 1);
            if (strstr(shown, key) == NULL)
                assert_shown(meanings[i].line, &g.spec, of_step[k]);
        }
        cr_expect_eq(g.spec.nodes == PLACE_NODES_STEP, meanings[i].step, "%s, %s", meanings[i].env, meanings[i].line);
        bool slurm = strstr(meanings[i].env, "SLURM_JOB_ID") != NULL;
        cr_expect(slurm || (looked == 0 && g.spec.place.slurm == PLACE_SLURM_NONE), "%s", meanings[i].env);
    }
}

Test(job_options_slurm, refuses_what_a_step_can_not_be) {
    static const char *const cases[][3] = {
        {STEP, "--nnodes=5 x", "5 nodes are asked for, but Slurm's step 28.0 has 4"},
        {TASKS "SLURM_GPUS_ON_NODE=2 CUDA_VISIBLE_DEVICES=0", "x",
         "srun --ntasks-per-node=1 --gpus-per-node=2 muster run"},
        {STEP "SLURM_GPUS_ON_NODE=2", "--gpus-per-worker=4 x", "SLURM_GPUS_ON_NODE leaves 2 GPUs here"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(reading_fini) struct reading g = read_line(cases[i][0], cases[i][1]);
        cr_expect_lt(g.r, 0, "%s", cases[i][1]);
        cr_expect_not_null(strstr(g.err.text, cases[i][2]), "%s: %s", cases[i][1], g.err.text);
    }
    facts.stepd = "slurmstepd: [28.0]";
    _cleanup_(reading_fini) struct reading broken = read_line("SLURM_JOB_ID=28 SLURM_STEP_ID=0", "x");
    expect_has(broken.err.text, "SLURM_STEP_NUM_NODES is not set");
    READ("SLURM_JOB_ID=28 SLURM_STEP_ID=0", "--nnodes=2 --rdzv-endpoint=h:5 --nproc-per-node=2 x");
    cr_expect_eq(g.spec.nproc, 2);
}

/* What a batch script inherited from the step in which it was submitted is nothing of its own. */
Test(job_options_slurm, a_batch_script_is_no_task) {
    static const char *const envs[] = {
        BATCH "SLURM_GPUS_ON_NODE=8",
        BATCH "SLURM_GPUS_ON_NODE=8 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node1 SLURM_STEP_NUM_NODES=1 "
              "SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1",
    };
    facts.stepd = "slurmstepd: [28.batch]";
    for (size_t i = 0; i < ARRAY_SIZE(envs); i++) {
        READ(envs[i], "x");
        cr_expect_eq(g.spec.place.slurm, PLACE_SLURM_BATCH);
        cr_expect_eq(g.spec.place.job_nodes, 4);
        cr_expect_neq(g.spec.nodes, PLACE_NODES_STEP);
        cr_expect(job_is_alone(&g.spec));
        cr_expect_eq(g.spec.rdzv.max_nodes, 1);
        cr_expect_eq(g.spec.nproc, 8);
        cr_expect_null(g.spec.endpoint_host);
    }
}

Test(job_options_slurm, nodes_meet_in_the_working_folder_if_they_share_it) {
    shared_name = "Lustre";
    {
        READ(STEP, "x");
        cr_assert_eq(g.spec.backend, JOB_BACKEND_DIR);
        cr_assert_str_eq(g.spec.arbiter_dir, "/home/u/.muster");
        cr_assert_null(g.spec.endpoint_host);
        cr_assert_eq(g.spec.n_endpoint_ports, 0);
        cr_assert_eq(g.spec.is_host, -1);
        cr_assert_eq(g.spec.node_rank, 2);
        cr_assert_str_eq(g.spec.run_id, "c1.28.0");
        cr_assert(job_id_is_common(&g.spec));
        cr_assert(says(g.spec.derived, "rdzv_endpoint: dir:/home/u/.muster, because the working folder is on Lustre"));
    }
    static const char *const others[][2] = {
        {STEP, "--rdzv-backend=c10d x"},
        {STEP "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", "x"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        READ(others[i][0], others[i][1]);
        cr_assert_eq(g.spec.backend, JOB_BACKEND_C10D, "%s", others[i][1]);
        cr_assert_null(g.spec.arbiter_dir);
        cr_assert_str_eq(g.spec.endpoint_host, "node1");
    }
    cwd = "/";
    READ(STEP, "x");
    cr_assert_str_eq(g.spec.arbiter_dir, "/.muster");
    cwd = NULL;
    _cleanup_(reading_fini) struct reading lost = read_line(STEP, "x");
    cr_assert_eq(lost.spec.backend, JOB_BACKEND_C10D);
}

Test(job_options_slurm, ports_are_in_the_range_that_is_given) {
    READ(STEP, "--port-range=29600-29603 x");
    cr_assert_eq(g.spec.n_endpoint_ports, 4);
    for (unsigned i = 0; i < 4; i++)
        cr_assert(g.spec.endpoint_ports[i] >= 29600 && g.spec.endpoint_ports[i] <= 29603);
    _cleanup_(reading_fini) struct reading one = read_line(STEP, "--port-range=29600-29600 x");
    cr_assert_eq(one.spec.endpoint_port, 29600);
    cr_assert_eq(one.spec.n_endpoint_ports, 0);
    _cleanup_(reading_fini) struct reading named = read_line(STEP, "--rdzv-id=2024 x");
    _cleanup_(reading_fini) struct reading unnamed = read_line(STEP, "x");
    cr_assert_eq(named.spec.endpoint_port, unnamed.spec.endpoint_port, "two jobs of one id don't meet");
}

Test(job_options_slurm, says_once_that_a_shell_gets_the_signals) {
    static const char first[] =
        "SLURM_JOB_ID=28 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-2] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 "
        "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NTASKS=2";
    facts = (struct place_facts){.stepd = "slurmstepd: [28.0]", .parent = "bash"};
    {
        READ(first, "x");
        assert_has(strbuf_text(&g.warnings), "write \"exec muster run\"");
    }
    {
        READ(STEP, "x");
        cr_assert_eq(g.warnings.len, 0, "%s", strbuf_text(&g.warnings));
    }
    facts = (struct place_facts){.stepd = "slurmstepd: [28.0]", .parent = "slurmstepd", .stepd_is_parent = true};
    READ(first, "x");
    cr_assert_eq(g.warnings.len, 0, "%s", strbuf_text(&g.warnings));
}

Test(job_options_slurm, a_step_that_cannot_be_started_is_refused) {
    _cleanup_(reading_fini) struct reading few = read_line(BATCH, "--nnodes=5 x"),
                                           none = read_line("", "--starter=srun x");
    cr_assert_eq(few.r, -EINVAL);
    assert_has(few.err.text, "Slurm's job 28 has 4");
    cr_assert_eq(none.r, -EINVAL);
    assert_has(none.err.text, "there is no job of Slurm here");
}

Test(job_options_slurm, lines_of_several_nodes_have_their_rank) {
    static const struct {
        const char *env, *line;
        enum job_output output;
    } cases[] = {
        {STEP, "x", JOB_OUTPUT_PREFIXED},
        {STEP, "--tee=3 x", JOB_OUTPUT_SHARED},
        {STEP, "--tee=0 x", JOB_OUTPUT_SHARED},
        {STEP, "-r 1 x", JOB_OUTPUT_SHARED},
        {STEP, "--log-line-prefix-template=a x", JOB_OUTPUT_PREFIXED},
        {STEP "SLURM_LABELIO=1 ", "x", JOB_OUTPUT_SHARED},
        {STEP "SLURM_LABELIO=0 ", "x", JOB_OUTPUT_PREFIXED},
        {STEP, "--nnodes=4 --rdzv-endpoint=node1:29500 --rdzv-backend=c10d x", JOB_OUTPUT_OWN},
        {STEP, "--standalone x", JOB_OUTPUT_OWN},
        {BATCH, "x", JOB_OUTPUT_OWN},
        {"", "x", JOB_OUTPUT_OWN},
        {"MUSTER_HEAD=127.0.0.1:4711 ", "--nnodes=4 --rdzv-endpoint=node1:29500 --rdzv-backend=c10d x",
         JOB_OUTPUT_PREFIXED},
        {"MUSTER_HEAD=127.0.0.1:4711 ", "--nnodes=4 --rdzv-endpoint=node1:29500 --rdzv-backend=c10d --tee=3 x",
         JOB_OUTPUT_SHARED},
        {"MUSTER_HEAD=127.0.0.1:4711 ", "--nnodes=1 --rdzv-endpoint=node1:29500 --rdzv-backend=c10d x", JOB_OUTPUT_OWN},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        READ(cases[i].env, cases[i].line);
        cr_assert_eq(g.spec.output, cases[i].output, "%s %s", cases[i].env, cases[i].line);
    }
}

Test(job_options_slurm, reasons_to_requeue_are_read_and_shown) {
    READ(BATCH, "--requeue=timeout,preempt --max-requeues=3 t.py");
    cr_assert_eq(g.spec.requeue, REQUEUE_TIMEOUT | REQUEUE_PREEMPT);
    assert_shown("--requeue", &g.spec, "requeue=['preempt','timeout'] max_requeues=3");
    _cleanup_(reading_fini) struct reading b = read_line(BATCH, "t.py");
    assert_shown("no --requeue", &b.spec, "requeue=[] max_requeues=10");
    _cleanup_(reading_fini) struct reading c = read_line(BATCH, "--requeue=always t.py");
    cr_expect_eq(c.r, -EINVAL);
    expect_has(c.err.text, "preempt, node-fail, timeout");
    _cleanup_(reading_fini) struct reading d = read_line("", "--requeue=preempt t.py");
    cr_expect_eq(d.r, 0);
    cr_expect_eq(d.spec.requeue, 0);
    expect_has(strbuf_text(&d.warnings), "not a job of Slurm");
}
