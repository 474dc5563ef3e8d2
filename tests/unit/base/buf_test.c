#include "base/buf.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/prng.h"

Test(buf, what_was_written_is_read_back) {
    uint8_t mem[64];
    struct writer w = writer_of(mem, sizeof mem);
    write_u8(&w, 0xfe);
    write_u32le(&w, 0xdeadbeef);
    write_u64le(&w, UINT64_C(0x0123456789abcdef));
    write_bytes(&w, "hello", 5);
    cr_assert_not(w.failed);
    cr_assert_eq(w.pos, 1 + 4 + 8 + 5);

    struct reader r = reader_of(mem, w.pos);
    cr_assert_eq(read_u8(&r), 0xfe);
    cr_assert_eq(read_u32le(&r), 0xdeadbeef);
    cr_assert_eq(read_u64le(&r), UINT64_C(0x0123456789abcdef));
    cr_assert_eq(memcmp(read_bytes(&r, 5), "hello", 5), 0);
    cr_assert_not(r.failed);
    cr_assert_eq(r.pos, r.len);
}

Test(buf, little_endian_on_every_machine) {
    uint8_t mem[12];
    struct writer w = writer_of(mem, sizeof mem);
    write_u32le(&w, 0x04030201);
    write_u64le(&w, UINT64_C(0x0807060504030201));
    static const uint8_t want[] = {1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8};
    cr_assert_eq(memcmp(mem, want, sizeof want), 0);
    cr_assert_eq(load_u32le(want), 0x04030201);
    cr_assert_eq(load_u64le(want + 4), UINT64_C(0x0807060504030201));
}

Test(buf, reading_exactly_to_the_end_is_fine_and_one_more_fails) {
    static const uint8_t mem[4] = {1, 2, 3, 4};
    struct reader r = reader_of(mem, sizeof mem);
    cr_assert_eq(read_u32le(&r), 0x04030201);
    cr_assert_not(r.failed);
    cr_assert_eq(read_u8(&r), 0);
    cr_assert(r.failed);
}

Test(buf, a_failed_reader_stays_failed_and_gives_zeros) {
    static const uint8_t mem[3] = {9, 9, 9};
    struct reader r = reader_of(mem, sizeof mem);
    cr_assert_eq(read_u32le(&r), 0);
    cr_assert(r.failed);
    cr_assert_eq(read_u8(&r), 0, "bytes are still there, but the reader has failed");
    cr_assert_eq(read_u64le(&r), 0);
    cr_assert_null(read_bytes(&r, 0));
    cr_assert_eq(r.pos, 0);
}

Test(buf, a_length_that_would_wrap_around_is_refused) {
    static const uint8_t mem[8] = {0};
    struct reader r = reader_of(mem, sizeof mem);
    (void)read_u8(&r);
    cr_assert_null(read_bytes(&r, SIZE_MAX));
    cr_assert(r.failed);
    uint8_t out[8];
    struct writer w = writer_of(out, sizeof out);
    write_u8(&w, 1);
    write_bytes(&w, mem, SIZE_MAX);
    cr_assert(w.failed);
    cr_assert_eq(w.pos, 1);
}

Test(buf, a_failed_writer_writes_nothing_more) {
    uint8_t mem[5] = {0, 0, 0, 0, 0x77};
    struct writer w = writer_of(mem, 4);
    write_u8(&w, 1);
    write_u32le(&w, 0xffffffff);
    cr_assert(w.failed);
    write_u8(&w, 2);
    cr_assert_eq(w.pos, 1);
    cr_assert_eq(mem[1], 0);
    cr_assert_eq(mem[4], 0x77);
}

Test(buf, an_empty_piece_needs_no_room) {
    struct writer w = writer_of(NULL, 0);
    write_bytes(&w, NULL, 0);
    cr_assert_not(w.failed);
    struct reader r = reader_of("x", 0);
    cr_assert_not_null(read_bytes(&r, 0));
    cr_assert_not(r.failed);
}

Test(buf, any_number_survives_the_way_there_and_back) {
    struct prng prng = {.state = 7};
    for (int i = 0; i < 2000; i++) {
        uint64_t v = prng_next(&prng) >> prng_below(&prng, 64);
        uint8_t mem[12];
        store_u64le(mem, v);
        store_u32le(mem + 8, (uint32_t)v);
        cr_assert_eq(load_u64le(mem), v);
        cr_assert_eq(load_u32le(mem + 8), (uint32_t)v);
    }
}
