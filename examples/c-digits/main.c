/* Learns to read handwritten digits, data-parallel over any number of processes.
 *
 * It runs alone, or as the workers of `muster run --no-python` (or torchrun). Then it takes RANK,
 * WORLD_SIZE, MASTER_ADDR and MASTER_PORT from its environment. Every rank works on its part of
 * each batch; the gradients are summed over a ring (ring.h). Rank 0 writes a checkpoint after each
 * epoch. A run continues from the newest one, with any number of ranks. If a peer is lost, it exits
 * with status 1, and the launcher restarts all ranks. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint.h"
#include "digits.h"
#include "mlp.h"
#include "ring.h"
#include "trace.h"

#define RATE 0.1f
#define MOMENTUM 0.9f
#define CONNECT_MS 60000

struct options {
    const char *data, *checkpoint_dir, *pid_dir, *trace;
    unsigned epochs, batch, seed, step_delay_ms, peer_timeout_ms;
};

struct place { /* of this process among all, from the environment */
    unsigned rank, size;
    const char *generation;
};

static const char usage[] =
    "usage: c-digits [options]\n"
    "  --data FILE           the digits (default: examples/data/digits.csv)\n"
    "  --checkpoint-dir DIR  write a checkpoint after each epoch; continue from the newest\n"
    "  --epochs N            (default: 30)\n"
    "  --batch N             digits per step, over all ranks (default: 16)\n"
    "  --seed N              of weights and order (default: 1)\n"
    "  --peer-timeout-ms N   a peer silent for so long is lost (default: 30000)\n"
    "  --step-delay-ms N     rest after each step: for demonstrations (default: 0)\n"
    "  --pid-dir DIR         write DIR/rank-R.pid: process id and generation\n"
    "  --trace FILE          append when this process starts, gets on and ends\n";

static int parse_number(const char *text, unsigned min, unsigned *ret) {
    char *end;
    errno = 0;
    unsigned long v = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || v < min || v > INT_MAX)
        return -1;
    *ret = (unsigned)v;
    return 0;
}

/* 0, or -1 after a message. */
static int parse_options(int argc, char **argv, struct options *o) {
    enum { DATA = 'A', CHECKPOINT, EPOCHS, BATCH, SEED, PEER, DELAY, PID, TRACE, HELP };
    static const struct option table[] = {
        {"data", required_argument, NULL, DATA},
        {"checkpoint-dir", required_argument, NULL, CHECKPOINT},
        {"epochs", required_argument, NULL, EPOCHS},
        {"batch", required_argument, NULL, BATCH},
        {"seed", required_argument, NULL, SEED},
        {"peer-timeout-ms", required_argument, NULL, PEER},
        {"step-delay-ms", required_argument, NULL, DELAY},
        {"pid-dir", required_argument, NULL, PID},
        {"trace", required_argument, NULL, TRACE},
        {"help", no_argument, NULL, HELP},
        {0},
    };
    int c, bad = 0;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1 && !bad) {
        switch (c) {
        case DATA: o->data = optarg; break;
        case CHECKPOINT: o->checkpoint_dir = optarg; break;
        case EPOCHS: bad = parse_number(optarg, 0, &o->epochs); break;
        case BATCH: bad = parse_number(optarg, 1, &o->batch); break;
        case SEED: bad = parse_number(optarg, 0, &o->seed); break;
        case PEER: bad = parse_number(optarg, 1, &o->peer_timeout_ms); break;
        case DELAY: bad = parse_number(optarg, 0, &o->step_delay_ms); break;
        case PID: o->pid_dir = optarg; break;
        case TRACE: o->trace = optarg; break;
        case HELP: (void)fputs(usage, stdout); exit(0);
        default: bad = 1; break;
        }
        if (bad && c != '?')
            fprintf(stderr, "c-digits: \"%s\" is not a valid number for this option\n", optarg);
    }
    if (bad || optind < argc)
        (void)fputs(usage, stderr);
    return bad || optind < argc ? -1 : 0;
}

static int read_place(struct place *p) {
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    const char *generation = getenv("MUSTER_GENERATION");
    if (generation == NULL)
        generation = getenv("TORCHELASTIC_RESTART_COUNT");
    *p = (struct place){.rank = 0, .size = 1, .generation = generation ? generation : "0"};
    if (size == NULL)
        return 0;
    if (rank == NULL || parse_number(size, 1, &p->size) < 0 ||
        parse_number(rank, 0, &p->rank) < 0 || p->rank >= p->size) {
        fprintf(stderr, "c-digits: RANK and WORLD_SIZE make no sense\n");
        return -1;
    }
    return 0;
}

static int write_pid(const char *dir, const struct place *p) {
    char path[PATH_MAX], temporary[PATH_MAX];
    if (dir == NULL)
        return 0;
    int n = snprintf(path, sizeof(path), "%s/rank-%u.pid", dir, p->rank);
    int m = snprintf(temporary, sizeof(temporary), "%s/.rank-%u.%d", dir, p->rank, (int)getpid());
    FILE *f = NULL;
    if (n < PATH_MAX && m < PATH_MAX && (mkdir(dir, 0755) == 0 || errno == EEXIST))
        f = fopen(temporary, "we");
    if (f == NULL || fprintf(f, "%d %s\n", (int)getpid(), p->generation) < 0 || fclose(f) != 0 ||
        rename(temporary, path) < 0) {
        fprintf(stderr, "c-digits: cannot write in %s: %s\n", dir, strerror(errno));
        return -1;
    }
    return 0;
}

static int open_ring(struct ring *ring, const struct place *p, const struct options *o) {
    struct muster_store *store = NULL;
    if (p->size > 1 && muster_store_connect_env(CONNECT_MS, &store) < 0) {
        fprintf(stderr, "c-digits: rank %u: %s\n", p->rank, muster_store_error());
        return -1;
    }
    int r = ring_open(ring, store, p->rank, p->size, (int)o->peer_timeout_ms);
    muster_store_close(store);
    if (r < 0)
        fprintf(stderr, "c-digits: rank %u: %s\n", p->rank, ring->error);
    return r;
}

static int sum_or_complain(struct ring *ring, float *v, size_t n) {
    int r = ring_sum(ring, v, n);
    if (r < 0)
        fprintf(stderr, "c-digits: rank %u: %s\n", ring->rank, ring->error);
    return r;
}

/* Rank 0 reads the newest checkpoint and sends it to all by a sum: the others add zeros to it.
 * Returns the number of finished epochs, or -1. */
static int resume(struct ring *ring, const struct options *o, struct mlp *m) {
    struct {
        struct mlp mlp;
        float epoch; /* exact up to 2^24 */
    } state = {.mlp = {{0}, {0}}};
    if (ring->rank == 0) {
        int epoch = o->checkpoint_dir == NULL ? 0 : checkpoint_load_newest(o->checkpoint_dir, m);
        state.mlp = *m;
        state.epoch = (float)epoch; /* -1: then all ranks end */
        if (epoch > 0)
            printf("continuing from the checkpoint of epoch %d\n", epoch);
    }
    if (sum_or_complain(ring, (float *)&state, sizeof(state) / sizeof(float)) < 0)
        return -1;
    *m = state.mlp;
    return (int)state.epoch;
}

static float accuracy(const struct mlp *m, const struct digits *d) {
    unsigned right = 0;
    for (unsigned i = 0; i < d->n_test; i++)
        right += mlp_predict(m, &d->test[i]) == d->test[i].label;
    return 100.0f * (float)right / (float)d->n_test;
}

static void rest(unsigned ms) {
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (ms > 0 && nanosleep(&left, &left) < 0 && errno == EINTR)
        continue;
}

/* Trains one epoch on this rank's share. *ret_loss: the loss over all ranks. */
static int train_epoch(struct mlp *m, struct ring *ring, const struct options *o,
                       const struct digits *d, const unsigned *order, float *ret_loss) {
    float grad[MLP_PARAMS + 1], loss = 0; /* the loss is sent after the gradient */
    for (unsigned first = 0; first < d->n_train; first += o->batch) {
        unsigned n = d->n_train - first < o->batch ? d->n_train - first : o->batch;
        unsigned from = (unsigned)((size_t)n * ring->rank / ring->size);
        unsigned to = (unsigned)((size_t)n * (ring->rank + 1) / ring->size);
        memset(grad, 0, sizeof(grad));
        for (unsigned i = first + from; i < first + to; i++)
            grad[MLP_PARAMS] += mlp_gradient(m, &d->train[order[i]], grad);
        if (sum_or_complain(ring, grad, MLP_PARAMS + 1) < 0)
            return -1;
        mlp_step(m, grad, n, RATE, MOMENTUM);
        loss += grad[MLP_PARAMS];
        rest(o->step_delay_ms);
    }
    *ret_loss = loss / (float)d->n_train;
    return 0;
}

static int train(struct ring *ring, const struct options *o, const struct place *p,
                 const struct digits *d, unsigned *order) {
    struct mlp m;
    mlp_init(&m, o->seed);
    int done = resume(ring, o, &m);
    if (done < 0)
        return -1;
    for (unsigned epoch = (unsigned)done + 1; epoch <= o->epochs; epoch++) {
        float loss;
        digits_shuffle(order, d->n_train, o->seed, epoch);
        if (train_epoch(&m, ring, o, d, order, &loss) < 0)
            return -1;
        if (p->rank == 0 && o->checkpoint_dir != NULL &&
            checkpoint_save(o->checkpoint_dir, epoch, &m) < 0)
            return -1;
        if (p->rank == 0)
            printf("epoch %u of %u: loss %.4f, test accuracy %.1f %%, world size %u, "
                   "generation %s\n",
                   epoch, o->epochs, (double)loss, (double)accuracy(&m, d), p->size, p->generation);
        trace_progress(epoch);
    }
    if (p->rank == 0)
        printf("test accuracy: %.1f %%\n", (double)accuracy(&m, d));
    return 0;
}

int main(int argc, char **argv) {
    struct options o = {.data = "examples/data/digits.csv",
                        .epochs = 30,
                        .batch = 16,
                        .seed = 1,
                        .peer_timeout_ms = 30000};
    struct place place;
    struct digits digits;
    struct ring ring;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (parse_options(argc, argv, &o) < 0)
        return 2;
    if (read_place(&place) < 0 || trace_open(o.trace, place.generation, place.rank) < 0 ||
        write_pid(o.pid_dir, &place) < 0 || digits_load(o.data, &digits) < 0)
        return 1;
    unsigned *order = calloc(digits.n_train, sizeof(*order));
    int r = order == NULL ? -1 : open_ring(&ring, &place, &o);
    if (r == 0) {
        r = train(&ring, &o, &place, &digits, order);
        ring_close(&ring);
    }
    free(order);
    digits_free(&digits);
    return r < 0 ? 1 : 0;
}
