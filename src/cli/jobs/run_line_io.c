#include "cli/jobs/run_line_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/log.h"
#include "base/text/parse.h"
#include "cli/help/help.h"
#include "cli/options/commands.h"
#include "cli/options/options_table.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"
#include "launcher/agent/agent_io.h"
#include "launcher/hosts/hosts.h"
#include "launcher/hosts/switch_map.h"
#include "launcher/place/place.h"
#include "launcher/place/place_io.h"
#include "launcher/pmi/pmi_io.h"
#include "launcher/srun/step_cpus_io.h"
#include "launcher/starter/starter_link_io.h"
#include "rendezvous/protocol/messages.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/nvml/nvml_io.h"
#include "topology/discover/sysfs/sysfs_io.h"
#include "topology/model/gpu_count.h"

/* Like torch.cuda.device_count(), which counts AMD's GPUs, too; NVIDIA's if there are both. */
static int probe_gpus(uint32_t *ret, struct err *err) {
    const char *cuda = env_get(environ, "CUDA_VISIBLE_DEVICES");
    struct rocm_gpu gpus[GPUS_MAX];
    uint32_t n, nvidia = 0;
    int r = nvml_count_visible(cuda, ret, err);
    if (r < 0 || *ret > 0 || (n = kfd_list_gpus(NULL, gpus, GPUS_MAX)) == 0 ||
        (nvml_count_visible(NULL, &nvidia, NULL) == 0 && nvidia > 0))
        return r;
    const struct rocm_visible names = {.rocr = env_get(environ, "ROCR_VISIBLE_DEVICES"),
                                       .hip = env_get(environ, "HIP_VISIBLE_DEVICES"),
                                       .cuda = cuda};
    *ret = rocm_count_visible(gpus, n, &names);
    return 0;
}

static void probe_stamp(char ret[JOB_STAMP_MAX]) {
    time_t now = (time_t)(clock_wall_ns() / NS_PER_S);
    struct tm tm = {0};
    (void)localtime_r(&now, &tm);
    size_t n = strftime(ret, JOB_STAMP_MAX, "%m%d-%H%M-", &tm);
    (void)snprintf(ret + n, JOB_STAMP_MAX - n, "%06x", (unsigned)(random_u64() >> 40));
}

static char *probe_cwd(void) { return getcwd(NULL, 0); }

/* Why file_read_text() failed; `too_large` is for a file above the limit. */
static const char *why_unread(int r, const char *too_large) {
    return r == -EFBIG ? too_large : r == -EINVAL ? "it is not a regular file" : strerror(-r);
}

#define PIPE_NS (30 * NS_PER_S)

static int probe_file(enum job_file what, const char *path, char **ret, size_t *ret_len,
                      struct err *err) {
    static const struct {
        size_t max;
        const char *too_large;
        bool pipes; /* it may be one */
    } kinds[] = {
        [JOB_FILE_SECRET] = {4096, "it holds more than 4096 bytes", false},
        [JOB_FILE_ENV] = {(size_t)1 << 20, "it holds more than 1 MiB", false},
        [JOB_FILE_HOSTS] = {HOSTFILE_BYTES_MAX, "it holds more than 16 MiB", true},
    };
    int r = kinds[what].pipes ? file_read_text_or_pipe(path, kinds[what].max, PIPE_NS, ret, ret_len)
                              : file_read_text(path, kinds[what].max, ret, ret_len);
    if (r < 0)
        return err_set(err, r, "can't read %s: %s", path,
                       r == -ETIMEDOUT ? "nothing came from this pipe for 30 s"
                                       : why_unread(r, kinds[what].too_large));
    if (what != JOB_FILE_SECRET)
        return 0;
    (*ret)[strcspn(*ret, "\r\n")] = '\0'; /* an editor's newline does no harm */
    if ((*ret)[0] != '\0')
        return 0;
    freep(ret);
    return err_set(err, -EINVAL, "the first line of %s is empty", path);
}

/* -v and -q override LOGLEVEL. If LOGLEVEL is not a level, torchrun fails; here it is ignored. */
static void set_log_level(const struct job_spec *spec) {
    const char *name = env_get(environ, "LOGLEVEL");
    enum log_level level;
    if (spec->verbose > 0)
        log_set_level(spec->verbose > 1 ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
    else if (spec->quiet)
        log_set_level(LOG_LEVEL_ERROR);
    else if (name != NULL && log_level_parse(name, &level) == 0)
        log_set_level(level);
}

static void print_warnings(const struct strbuf *warnings) {
    for (const char *line = strbuf_text(warnings); *line != '\0'; line = text_next_line(line))
        log_warning("%.*s", (int)strcspn(line, "\n"), line);
}

static bool probe_there(const char *path) { return access(path, F_OK) == 0; }

/* arg: run_keys, or NULL for a reader that is not a task. */
static int probe_pmi(void *arg, const struct launcher *row, char *const *envp, struct place *p,
                     char **ret_run_id, struct err *err) {
    struct run_keys *keys = arg;
    int r = keys == NULL ? -ENOSYS : 0;
    if (r == 0 && keys->of_tasks == NULL)
        r = keyring_new(&keys->of_tasks, err);
    return r < 0 ? r : pmi_read(row, envp, keys->of_tasks, p, ret_run_id, err);
}

static char *probe_list(void *arg, const char *path) {
    char *text = NULL;
    size_t len;
    return file_read_text(path, HOSTFILE_BYTES_MAX, &text, &len) < 0 ? NULL : text;
}

const struct job_probes run_line_probes = {
    .count_cpus = cpu_count_allowed,
    .count_gpus = probe_gpus,
    .has_gpus = discover_has_gpus,
    .stamp = probe_stamp,
    .cwd = probe_cwd,
    .read_file = probe_file,
    .serve_node = step_cpus_widen,
    .shared_folder = shared_folder,
    .is_there = probe_there,
    .place = {.facts = place_facts_read, .file = probe_list, .pmi = probe_pmi},
};

/* All tasks of a step have the same command line and the same to complain of. Of a head and its
 * agents, one of a step's agents warns, and the head of those that are started over ssh. */
static bool another_warns(const struct job_spec *spec) {
    if (spec->hosts.list.n > 0)
        return false;
    if (spec->place.by == PLACE_BY_OWN_SSH)
        return true;
    return spec->start_nodes > 0 || (spec->nodes == PLACE_NODES_STEP && spec->place.proc_id > 0) ||
           (place_has_one_agent(spec->nodes) && spec->place.local_id > 0);
}

static void print_derived(const struct job_spec *spec) {
    for (char **line = spec->derived; line != NULL && *line != NULL; line++)
        log_info("%s", *line);
}

/* This node's place and block in --topology-file, unless Slurm has set them. */
static int find_place(struct job_spec *spec, struct err *err) {
    _cleanup_(freep) char *text = NULL;
    char host[RDZV_HOST_MAX] = "", place[RDZV_HOST_MAX], block[RDZV_HOST_MAX];
    size_t len;
    if (spec->topology_file == NULL || spec->block != NULL)
        return 0;
    int r = file_read_text(spec->topology_file, SWITCH_MAP_MAX_BYTES, &text, &len);
    if (r < 0)
        return err_set(err, r, "can't read --topology-file %.200s: %s", spec->topology_file,
                       why_unread(r, "it holds more than 4 MiB"));
    if (gethostname(host, sizeof host - 1) < 0)
        return 0;
    r = switch_map_find(text, len, host, place, block, sizeof place, err);
    if (r < 0) {
        err_prefix(err, "--topology-file %.200s", spec->topology_file);
        return r;
    }
    if (r == SWITCH_MAP_E_ABSENT) {
        log_warning("--topology-file %s: no switch or block has node %s; it is ordered by its name",
                    spec->topology_file, host);
        return 0;
    }
    if (strchr(spec->topology, '.') ==
        NULL) { /* without a topology plugin, it is the node's name */
        free(spec->topology);
        spec->topology = xstrdup(place);
    }
    spec->block = block[0] != '\0' ? xstrdup(block) : NULL;
    return 0;
}

static int read_words(int argc, char **argv, struct run_keys *keys, struct job_spec *ret) {
    struct job_probes probes = run_line_probes;
    _cleanup_(strbuf_fini) struct strbuf warnings = {0}, text = {0};
    _cleanup_(job_spec_fini) struct job_spec spec = {0};
    struct err err = {0};
    probes.place.arg = keys;
    int r = job_options_read(argc, argv, environ, &probes, &warnings, &spec, &err);
    if (r == -EALREADY) {
        log_debug("%s", err.text);
        return EXIT_USAGE;
    }
    if (r < 0)
        return usage_error(run_options.command, "%s", err.text);
    if (r == JOB_OPTIONS_VERSION) {
        (void)fputs(VERSION_LINE, stdout);
        return finish_stdout();
    }
    if (r == JOB_OPTIONS_HELP || r == JOB_OPTIONS_HELP_ALL)
        return help_print(&run_options, r == JOB_OPTIONS_HELP_ALL);
    set_log_level(&spec);
    if (!another_warns(&spec)) {
        /* agents of one output report it later, with the name of their node */
        if (r == 0 && spec.start_nodes == 0 && !spec.dry_run && spec.output == JOB_OUTPUT_OWN &&
            start_check_script(&spec, environ, &err) < 0) {
            termination_write(environ, err.text);
            return usage_error(run_options.command, "%s", err.text);
        }
        print_warnings(&warnings);
    }
    print_derived(&spec);
    if (find_place(&spec, &err) < 0)
        return usage_error(run_options.command, "%s", err.text);
    if (r == JOB_OPTIONS_PRINT_CONFIG) {
        job_print_config(&spec, &text);
        return print_text(&text);
    }
    *ret = spec;
    spec = (struct job_spec){0};
    return -1;
}

#define JOB_TEXT_MAX ((size_t)64 << 20)

/* The job that the relay of a head over ssh has written for this agent. */
static int read_job_of_head(int fd, struct job_spec *ret) {
    _cleanup_(freep) char *path = xasprintf("/proc/self/fd/%d", fd), *text = NULL;
    struct err err = {0};
    size_t len = 0;
    int r = file_read_text(path, JOB_TEXT_MAX, &text, &len);
    (void)close(fd);
    if (r < 0)
        r = err_set(&err, r, "can't read the job that the head has sent: %s", strerror(-r));
    else
        r = job_options_of_head(text, len, environ, &run_line_probes, ret, &err);
    if (text != NULL)
        explicit_bzero(text, len); /* it can have a password */
    if (r < 0)
        return usage_error(run_options.command, "%s", err.text);
    set_log_level(ret);
    if (find_place(ret, &err) < 0) {
        job_spec_fini(ret);
        return usage_error(run_options.command, "%s", err.text);
    }
    return -1;
}

int run_line_read(int argc, char **argv, struct run_keys *keys, struct job_spec *ret) {
    int fd = starter_passed_fd(environ, STARTER_JOB_ENV);
    bool is_job = fd >= 0 && fcntl(fd, F_GET_SEALS) >= 0; /* no other file has seals */
    return is_job ? read_job_of_head(fd, ret) : read_words(argc, argv, keys, ret);
}

/* ==== the keys ==== */

#define KEY_ENV "MUSTER_KEY"

/* A node may have a key in every login's environment, which is wiped: the head's counts. */
static int drop_key_of_login(struct err *err) {
    _cleanup_(keyring_freep) struct keyring *other = NULL;
    int r = keyring_new(&other, err);
    if (r == 0 && keyring_take_env(other, KEY_ENV, AUTH_FROM_ENV, NULL) < 0)
        return 0; /* it is not a key, and it is removed */
    return r;
}

void run_keys_take(struct run_keys *ret) {
    const char *of_head = getenv(STARTER_KEY_ENV);
    *ret = (struct run_keys){0};
    ret->none_of_head = of_head != NULL && strcmp(of_head, STARTER_NO_KEY) == 0;
    if (ret->none_of_head)
        (void)unsetenv(STARTER_KEY_ENV);
    ret->code = keyring_new(&ret->ring, &ret->err);
    if (ret->code == 0)
        ret->code = keyring_take_env(ret->ring, STARTER_KEY_ENV, AUTH_FROM_HEAD, &ret->err);
    ret->of_head = ret->code == 0 && keyring_n(ret->ring) > 0;
    if (ret->of_head)
        ret->code = drop_key_of_login(&ret->err);
    else if (ret->code == 0)
        ret->code = keyring_take_env(ret->ring, KEY_ENV, AUTH_FROM_ENV, &ret->err);
}

/* Whether other machines take part. A head starts agents there, whatever this one would do. */
static bool leaves_machine(const struct job_spec *spec) {
    return spec->start_nodes > 0 || !start_is_local(spec);
}

/* Whether the nodes are those of the tasks. A user can join several groups of tasks. */
static bool is_of_tasks(const struct job_spec *spec) {
    return place_has_one_agent(spec->nodes) || spec->rdzv.max_nodes <= spec->place.n_nodes;
}

/* Whether a file holds a key, for a job that needs none. */
static int check_file(const char *path, struct err *err) {
    _cleanup_(keyring_freep) struct keyring *unused = NULL;
    int r = keyring_new(&unused, err);
    return r < 0 ? r : keyring_load_given(unused, path, err);
}

int run_keys_load(struct run_keys *k, const struct job_spec *spec, struct err *err) {
    if (spec->auth == AUTH_NONE) {
        run_keys_fini(k);
        return 0;
    }
    if (k->code < 0) {
        *err = k->err;
        return k->code;
    }
    if (!k->of_head && !k->none_of_head && starter_link_is_given(environ))
        return err_set(
            err, -ENOKEY,
            "the muster that started this one has a key for the job, and " STARTER_KEY_ENV
            " has not arrived here: a wrapper or prolog in between must pass the environment "
            "through");
    if (!k->of_head && leaves_machine(spec)) {
        int r = keyring_load_given(k->ring, spec->key_file, err);
        if (r == 0 && keyring_n(k->ring) == 0 && is_of_tasks(spec))
            r = keyring_add_all(k->ring, k->of_tasks, err);
        keyring_free(TAKE_PTR(k->of_tasks));
        return r;
    }
    return k->of_head || spec->key_file == NULL ? 0 : check_file(spec->key_file, err);
}

void run_keys_fini(struct run_keys *k) {
    keyring_free(k->ring);
    keyring_free(k->of_tasks);
    k->ring = k->of_tasks = NULL;
}
