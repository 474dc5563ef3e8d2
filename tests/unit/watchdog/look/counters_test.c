/* The kernel's log and the counters of NICs: what is read of made-up files, and what is said of it. */
#include "io/clock.h"
#include "rig/tree.h"
#include "watchdog/look/kernel_log.h"
#include "watchdog/look/nics.h"

static struct kernel_log *kept;
static struct strbuf text;

static void begin(void) { kept = xcalloc(1, sizeof *kept); }
static void end(void) {
    free(kept);
    strbuf_fini(&text);
}
TestSuite(counters, .init = begin, .fini = end);

static void add(const char *record) { kernel_log_add(kept, record, strlen(record)); }

/* The lines of the log. */
static const char *lines(void) {
    strbuf_clear(&text);
    kernel_log_write(kept, &text);
    return strbuf_text(&text);
}

Test(counters, lines_of_the_kernels_log) {
    add("4,1234,5140900123,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n");
    add("6,1235,7,-,caller=T1;a;b\x1b[1m\n");
    add("6,1236,8;without flags\n");
    add("hello");
    add("6,1;no time\n");
    add("");
    cr_assert_str_eq(lines(), "(left out: 2 lines of information without a fault or link)\n"
                              "[ 5140.900123] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n");
    for (int i = 0; i < 200; i++) {
        add(rig_text("4,%d,%d000000,-;line %d%0900d\n", i, i, i, 0));
    }
    (void)lines();
    cr_assert_leq(text.len, KERNEL_LOG_MAX);
    cr_assert_not_null(strstr(text.data, ")\n[  136.000000] line 136"), "%.200s", text.data);
}

Test(counters, lines_of_the_kernels_log_from_before_the_group_are_left_out) {
    kept->since_us = 2000000;
    add("4,1,1999999,-;mlx5_core 0000:0c:00.0 ib0: Link up at boot\n");
    cr_assert_str_eq(lines(), "");
    add("4,2,2000000,-;mlx5_core 0000:0c:00.0 ib0: Link down\n");
    cr_assert_str_eq(lines(), "[    2.000000] mlx5_core 0000:0c:00.0 ib0: Link down\n");
}

Test(counters, lines_of_the_kernels_log_that_tell_nothing_of_hardware) {
    add("6,1,1000000,-;systemd[1]: Started a session\n");
    add("15,2,2000000,-;a daemon's own words\n");
    cr_assert_str_eq(lines(),
                     "[    1.000000] systemd[1]: Started a session\n"
                     "[    2.000000] a daemon's own words\n",
                     "there is nothing else");
    add("6,3,3000000,-;mlx5_core 0000:0c:00.0 ib0: Link down\n");
    add("29,4,4000000,-;a notice of another facility\n");
    cr_assert_str_eq(lines(), "(left out: 2 lines of information without a fault or link)\n"
                              "[    3.000000] mlx5_core 0000:0c:00.0 ib0: Link down\n"
                              "[    4.000000] a notice of another facility\n");
}

Test(counters, lines_of_the_kernels_log_have_a_date) {
    kept->boot_us = UINT64_C(1764000000000000);
    add("4,1,5140900123,-;mlx5_core 0000:0c:00.0 ib0: Link down\n");
    add("4,2,18446744073709551600,-;later than any time\n");
    cr_assert_str_eq(lines(), "2025-11-24T17:25:40.900Z mlx5_core 0000:0c:00.0 ib0: Link down\n"
                              "[18446744073709.551600] later than any time\n");
}

Test(counters, a_kernels_log_that_may_not_be_read_is_a_gap) {
    struct err err = {0};
    cr_assert_eq(source_kernel_log("/nonexistent/kmsg", 0, clock_now_ns() + 60 * NS_PER_S, &text, &err), -ENOENT);
    assert_has(err.text, "/nonexistent/kmsg");
    /* the real one: it is read, or there is a reason */
    int r = source_kernel_log(NULL, 0, clock_now_ns() + 60 * NS_PER_S, &text, &err);
    cr_assert(r == 0 || err.text[0] != '\0');
}

static void put(const struct tree *t, const char *path, const char *content) {
    tree_write(t, rig_text("sys/class/%s", path), content);
}

static void read_tree(const struct tree *t, struct nics *ret) {
    struct err err = {0};
    cr_assert_eq(source_nics(t->root, clock_now_ns() + 60 * NS_PER_S, ret, &err), 0, "%s", err.text);
}

static void count_whole(void *n, const char *record, size_t len) {
    struct kernel_log_record r;
    if (kernel_log_record(record, len, &r) && r.len > 3 && memcmp(r.text + r.len - 3, ", x", 3) == 0)
        ++*(uint32_t *)n;
}

/* A file in place of the device: a read(2) returns a part that ends within a line. */
Test(counters, a_file_is_read_line_by_line) {
    char path[] = "/tmp/kmsg-XXXXXX";
    uint32_t n_xids = 0;
    struct err err = {0};
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    cr_assert(f != NULL);
    for (int i = 0; i < 200; i++)
        (void)fprintf(f, "6,%d,%d,-;%0*d\n4,%d,%d,-;NVRM: Xid (PCI:0000:%02x:00): 79, x\n", i, i, 50 + i, 0, i, i,
                      (unsigned)i);
    (void)fprintf(f, "4,1,1,-;%09000d NVRM: Xid (PCI:0001:00:00): 79, longer than a record\n", 0);
    (void)fprintf(f, "4,1,1,-;NVRM: Xid (PCI:0001:00:00): 79, without its end");
    cr_assert_eq(fclose(f), 0);
    cr_assert_eq(kernel_log_read(path, clock_now_ns() + 60 * NS_PER_S, count_whole, &n_xids, &err), 0, "%s", err.text);
    cr_expect_eq(n_xids, 200);
    cr_assert_eq(unlink(path), 0);
}

Test(counters, what_moved_between_two_readings) {
    _cleanup_(tree_remove) struct tree t;
    struct nics before, after;
    tree_new(&t);
    put(&t, "net/eth0/operstate", "up\n");
    put(&t, "net/eth0/statistics/rx_bytes", "1000\n");
    put(&t, "net/eth0/statistics/tx_bytes", "5000\n");
    put(&t, "net/eth0/statistics/rx_errors", "3\n");
    put(&t, "infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    put(&t, "infiniband/mlx5_0/ports/1/counters/port_rcv_data", "100\n");
    put(&t, "infiniband/mlx5_0/ports/1/counters/port_xmit_data", "200\n");
    put(&t, "infiniband/mlx5_0/ports/1/counters/link_downed", "0\n");
    read_tree(&t, &before);
    put(&t, "net/eth0/statistics/rx_bytes", "1001000\n");
    put(&t, "net/eth0/statistics/tx_bytes", "5\n"); /* reset meanwhile */
    put(&t, "net/eth0/statistics/rx_errors", "4\n");
    put(&t, "infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    put(&t, "infiniband/mlx5_0/ports/1/counters/port_xmit_data", "250\n");
    put(&t, "infiniband/mlx5_0/ports/1/counters/link_downed", "2\n");
    read_tree(&t, &after);
    before.when_ns = 0;
    after.when_ns = 3 * NS_PER_S;
    nics_summary(&before, &after, &text);
    cr_assert_str_eq(strbuf_text(&text),
                     "mlx5_0 port 1 (1: DOWN): received 0 B, sent 200 B in 3.0 s; link_downed 2 (+2)\n"
                     "eth0 (up): received 1.0 MB, sent 0 B in 3.0 s; rx_errors 4 (+1)\n");
    strbuf_clear(&text);
    after.n = 1;
    nics_summary(&before, &after, &text);
    assert_has(text.data, "eth0: is no longer there\n");
}

Test(counters, nics_that_are_not_up_and_move_nothing_are_only_named) {
    struct nics before = {.n = 6, .when_ns = 0}, after;
    static const struct {
        const char *name, *state;
        bool rdma;
    } nics[] = {{"mlx5_0 port 1", "4: ACTIVE", true},
                {"mlx5_1 port 1", "1: DOWN", true},
                {"lo", "unknown", false},
                {"eth0", "up", false},
                {"eth1", "down", false},
                {"eth2", "down", false}};
    for (uint32_t i = 0; i < before.n; i++) {
        before.at[i] = (struct nic){.rdma = nics[i].rdma};
        (void)strcpy(before.at[i].name, nics[i].name);
        (void)strcpy(before.at[i].state, nics[i].state);
    }
    after = before;
    after.when_ns = NS_PER_S;
    nics_summary(&before, &after, &text);
    cr_assert_str_eq(strbuf_text(&text), "mlx5_0 port 1 (4: ACTIVE): received 0 B, sent 0 B in 1.0 s\n"
                                         "eth0 (up): received 0 B, sent 0 B in 1.0 s\n"
                                         "not up: mlx5_1 port 1, lo, eth1, eth2\n");
    strbuf_clear(&text);
    after.at[1].errors[0] = 1;
    after.at[2].sent_bytes = 5;
    (void)strcpy(after.at[4].state, "up");
    (void)strcpy(before.at[5].state, "up");
    nics_summary(&before, &after, &text);
    assert_has(text.data, "\nmlx5_1 port 1 (1: DOWN): ");
    assert_has(text.data, "\nlo (unknown): received 0 B, sent 5 B");
    assert_has(text.data, "\neth1 (up): ");
    assert_has(text.data, "\neth2 (down): ");
    cr_assert_null(strstr(text.data, "not up"), "%s", text.data);
}

Test(counters, without_devices_there_is_nothing_and_late_is_said) {
    struct nics nics;
    struct err err = {0};
    cr_assert_eq(source_nics("/nonexistent", clock_now_ns() + 60 * NS_PER_S, &nics, &err), 0);
    cr_assert_eq(nics.n, 0);
    cr_assert_eq(source_nics(NULL, 0, &nics, &err), -ETIMEDOUT);
    assert_has(err.text, "were read in time");
}
