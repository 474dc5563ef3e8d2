/* When the bytes of a log file were written. Beside "stdout.log" lies ".stdout.times", with a stamp
 * for each batch of bytes: from which offset of the log it counts, and the time. So the logs of
 * several workers can be merged in the order of time, without a byte more in the logs themselves.
 *
 * The file consists of stamps of LOG_STAMP_BYTES; what is left of the last one is ignored. Their
 * offsets increase. A time is that of the writer's node, and can step back if its clock does.
 *
 * A failure has no other effect than that times are missing. A stamp is written before its bytes,
 * so a program that follows the log knows their time. Files that workers write themselves are
 * sampled: their sizes are read LOG_SAMPLES_NS apart. */
#pragma once

#include "base/little_endian.h"
#include "io/loop.h"

#define LOG_STAMP_BYTES 16 /* two numbers of 8 bytes, least significant byte first */

struct log_stamp {
    uint64_t at; /* bytes from this offset on were seen first at `ns` */
    uint64_t ns; /* since 1970 */
};

static inline void log_stamp_encode(const struct log_stamp *stamp, uint8_t ret[LOG_STAMP_BYTES]) {
    store_u64le(ret, stamp->at);
    store_u64le(ret + 8, stamp->ns);
}

static inline struct log_stamp log_stamp_decode(const uint8_t bytes[LOG_STAMP_BYTES]) {
    return (struct log_stamp){.at = load_u64le(bytes), .ns = load_u64le(bytes + 8)};
}

/* At most one stamp in LOG_PACE_MIN_NS. LOG_PACE_BURST stamps can follow each other like that; then
 * there is one for each LOG_PACE_NS. So a worker that writes all day adds 70 MB, not 1.4 GB. */
#define LOG_PACE_MIN_NS (1 * NS_PER_MS)
#define LOG_PACE_NS (20 * NS_PER_MS)
#define LOG_PACE_BURST 4096

/* How often stamps are made. Zeroed: none was made. */
struct log_pace {
    uint64_t last_ns;  /* of the last stamp, on the caller's clock */
    uint64_t spent_ns; /* of LOG_PACE_BURST * LOG_PACE_NS: each stamp costs LOG_PACE_NS */
};

/* Counts a stamp, if one is due now. A clock that steps back makes one due. */
bool log_pace_is_due(struct log_pace *pace, uint64_t now_ns);

/* The path of the stamps of a log file: "a/stdout.log" to "a/.stdout.times". malloc'ed. */
char *log_times_path(const char *log_path);

struct log_times {
    char *path;    /* owned; NULL: the file is open, or no times are written */
    int fd;        /* -1: it is not open */
    uint32_t mode; /* of the log, which the file gets, too */
    uint64_t at;   /* the size of the log */
    struct log_pace pace;
};

/* log_fd: the open log file, whose size counts; borrowed. No times are written if a quarter of the
 * descriptors that this process may have is in use. The file is made with the first stamp: most
 * streams stay empty. */
void log_times_open(struct log_times *t, const char *log_path, int log_fd);
/* Writes a stamp, if one is due: before the bytes are written; then how many were. */
void log_times_grows(struct log_times *t, uint64_t wall_ns);
static inline void log_times_grew(struct log_times *t, uint64_t n) { t->at += n; }
void log_times_close(struct log_times *t);

/* At least; with many files so long that sampling takes a hundredth of the time. */
#define LOG_SAMPLES_NS (100 * NS_PER_MS)

struct log_sampler;

/* NULL: the loop has no timer for it. */
struct log_sampler *log_sampler_new(struct loop *loop);
/* Reads each size once more. Takes NULL. */
void log_sampler_free(struct log_sampler *s);
/* fd: borrowed for the call. user: for log_sampler_drop(). s may be NULL. */
void log_sampler_add(struct log_sampler *s, uint32_t user, const char *path, int fd);
void log_sampler_drop(struct log_sampler *s, uint32_t user);
