#include "base/frame.h"

#include "base/little_endian.h"
#include "rig/unit.h"

#define LIMIT ((size_t)1000)

Test(frame, a_header_that_is_not_complete_asks_for_more) {
    static const uint8_t data[4] = {1, 0, 0, 0};
    size_t bytes = 77;
    for (size_t len = 0; len < FRAME_HEADER_BYTES; len++)
        cr_assert_eq(frame_size(data, len, LIMIT, &bytes), FRAME_E_MORE);
    cr_assert_eq(bytes, 77, "nothing is written");
    cr_assert_eq(frame_size(data, 4, LIMIT, &bytes), 0);
    cr_assert_eq(bytes, 5);
}

Test(frame, lengths_are_bounded_by_the_header_alone) {
    static const struct {
        uint32_t payload;
        int r;
    } cases[] = {
        {0, -EMSGSIZE},           {1, 0}, {LIMIT - 1, 0}, {LIMIT, 0}, {LIMIT + 1, -EMSGSIZE}, {UINT32_MAX, -EMSGSIZE},
        {0x80000000u, -EMSGSIZE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint8_t head[FRAME_HEADER_BYTES];
        size_t bytes = 0;
        store_u32le(head, cases[i].payload);
        cr_assert_eq(frame_size(head, sizeof head, LIMIT, &bytes), cases[i].r, "%u", cases[i].payload);
        if (cases[i].r == 0)
            cr_assert_eq(bytes, FRAME_HEADER_BYTES + cases[i].payload);
    }
}

Test(frame, a_header_says_what_was_put_into_it) {
    static const size_t sizes[] = {1, 2, 255, 256, 65535, 65536, FRAME_PAYLOAD_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        uint8_t head[FRAME_HEADER_BYTES];
        size_t bytes;
        frame_header(sizes[i], head);
        cr_assert_eq(frame_size(head, sizeof head, FRAME_PAYLOAD_MAX, &bytes), 0);
        cr_assert_eq(bytes, FRAME_HEADER_BYTES + sizes[i]);
    }
}

Test(frame, the_length_is_little_endian) {
    uint8_t head[FRAME_HEADER_BYTES];
    frame_header(0x030201, head);
    static const uint8_t wanted[] = {1, 2, 3, 0};
    cr_assert_arr_eq(head, wanted, sizeof wanted);
}
