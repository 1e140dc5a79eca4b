/* aead_test.c - sealing and opening of data frames, and the refusal of repeated ones, of runtime/net/aead.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/net/aead.h"

#define TAG FBR_AEAD_TAG

static const enum fbr_aead_alg algs[] = {FBR_AEAD_AES_256_GCM, FBR_AEAD_CHACHA20_POLY1305};
static const char aad[] = "job 5f1c, from 1 to 7";

static void unhex(const char *text, uint8_t *out)
{
    for (; text[0]; text += 2)
        assert_int_equal(sscanf(text, "%2hhx", out++), 1);
}

static void key_make(uint8_t key[FBR_KEY_SIZE])
{
    for (int i = 0; i < FBR_KEY_SIZE; i++)
        key[i] = (uint8_t)(i * 7 + 1);
}

static void pair_open(struct fbr_aead *tx, struct fbr_aead *rx, enum fbr_aead_alg alg)
{
    uint8_t key[FBR_KEY_SIZE];

    key_make(key);
    assert_int_equal(fbr_aead_init(tx, FBR_AEAD_SEND, alg, key, aad, sizeof(aad)), 0);
    assert_int_equal(fbr_aead_init(rx, FBR_AEAD_RECEIVE, alg, key, aad, sizeof(aad)), 0);
}

static void pair_close(struct fbr_aead *tx, struct fbr_aead *rx)
{
    fbr_aead_fini(tx);
    fbr_aead_fini(rx);
}

struct known {
    enum fbr_aead_alg alg;
    uint64_t counter;
    const char *key, *aad, *plain, *sealed;
};

static const struct known vectors[] = {
    /* RFC 8439, appendix A.5: its nonce is 00000000 0102030405060708 */
    {FBR_AEAD_CHACHA20_POLY1305, 0x0102030405060708u,
     "1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0", "f33388860000000000004e91",
     "496e7465726e65742d4472616674732061726520647261667420646f63756d656e74732076616c696420666f72206"
     "1206d61786"
     "96d"
     "756d206f6620736978206d6f6e74687320616e64206d617920626520757064617465642c207265706c616365642c2"
     "06f72206f6"
     "273"
     "6f6c65746564206279206f7468657220646f63756d656e747320617420616e792074696d652e20497420697320696"
     "e617070726"
     "f70"
     "726961746520746f2075736520496e7465726e65742d447261667473206173207265666572656e6365206d6174657"
     "269616c206"
     "f72"
     "20746f2063697465207468656d206f74686572207468616e206173202fe2809c776f726b20696e2070726f6772657"
     "3732e2fe28"
     "09d",
     "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43eea09ee94e382d2"
     "6b0bdb7b73"
     "c32"
     "1b0100d4f03b7f355894cf332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1ff37c8559797a06"
     "ef4f0ef61c"
     "186"
     "324e2b3506383606907b6a7c02b0f9f6157b53c867e4b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee"
     "282a1b0a06"
     "c52"
     "3eaf4534d7f83fa1155b0047718cbc546a0d072b04b3564eea1b422273f548271a0bb2316053fa76991955ebd6315"
     "9434ecebb4"
     "e46"
     "6dae5a1073a6727627097a1049e617d91d361094fa68f0ff77987130305beaba2eda04df997b714d6c6f2c29a6ad5"
     "cb4022b027"
     "09b"
     "eead9d67890cbb22392336fea1851f38"},
    /* McGrew and Viega, "The Galois/Counter Mode of Operation", test cases 13 and 14, the ones with
     * a zero nonce */
    {FBR_AEAD_AES_256_GCM, 0, "0000000000000000000000000000000000000000000000000000000000000000",
     "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
    {FBR_AEAD_AES_256_GCM, 0, "0000000000000000000000000000000000000000000000000000000000000000",
     "", "00000000000000000000000000000000",
     "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"},
};

static void published_vectors_are_met(void **state)
{
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        const struct known *v = &vectors[i];
        uint8_t key[FBR_KEY_SIZE], ad[64], plain[512], sealed[512], out[512];
        size_t len = strlen(v->plain) / 2;
        struct fbr_aead s;
        uint64_t counter;

        unhex(v->key, key);
        unhex(v->aad, ad);
        unhex(v->plain, plain);
        unhex(v->sealed, sealed);
        assert_int_equal(fbr_aead_init(&s, FBR_AEAD_SEND, v->alg, key, ad, strlen(v->aad) / 2), 0);
        s.counter = v->counter - 1;
        assert_int_equal(fbr_aead_encrypt(&s, &counter, plain, len, out), 0);
        assert_true(counter == v->counter);
        assert_memory_equal(out, sealed, len + TAG);
        fbr_aead_fini(&s);

        assert_int_equal(fbr_aead_init(&s, FBR_AEAD_RECEIVE, v->alg, key, ad, strlen(v->aad) / 2),
                         0);
        assert_int_equal(fbr_aead_decrypt(&s, counter, sealed, len + TAG, out),
                         counter ? 0 : -EBADMSG);
        if (counter)
            assert_memory_equal(out, plain, len);
        fbr_aead_fini(&s);
    }
}

static void frames_of_any_length_come_back_in_place_and_apart(void **state)
{
    static const size_t lens[] = {0, 1, 15, 16, 17, 63, 64, 65, 1000, 65536, (1 << 20) + 3};
    uint8_t *plain = malloc((1 << 20) + 64), *frame = malloc((1 << 20) + 64);

    for (size_t i = 0; i < (1 << 20) + 64; i++)
        plain[i] = (uint8_t)(i * 31 + i / 256);
    for (size_t a = 0; a < 2; a++) {
        struct fbr_aead tx, rx;
        uint64_t counter;

        pair_open(&tx, &rx, algs[a]);
        for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
            memcpy(frame, plain, lens[i]);
            assert_int_equal(fbr_aead_encrypt(&tx, &counter, frame, lens[i], frame), 0);
            assert_int_equal(fbr_aead_decrypt(&rx, counter, frame, lens[i] + TAG, frame), 0);
            assert_memory_equal(frame, plain, lens[i]);

            assert_int_equal(fbr_aead_encrypt(&tx, &counter, plain, lens[i], frame), 0);
            if (lens[i] > 15)
                assert_memory_not_equal(frame, plain, lens[i]);
            assert_int_equal(fbr_aead_decrypt(&rx, counter, frame, lens[i] + TAG, frame), 0);
            assert_memory_equal(frame, plain, lens[i]);
        }
        assert_true(counter == 2 * sizeof(lens) / sizeof(lens[0]));
        pair_close(&tx, &rx);
    }
    free(plain);
    free(frame);
}

static void every_flipped_bit_is_noticed_and_gives_nothing_away(void **state)
{
    for (size_t a = 0; a < 2; a++) {
        uint8_t frame[20 + TAG], bad[20 + TAG], out[20], zeros[20] = {0};
        struct fbr_aead tx, rx;
        uint64_t counter;

        pair_open(&tx, &rx, algs[a]);
        assert_int_equal(fbr_aead_encrypt(&tx, &counter, "twenty bytes of text", 20, frame), 0);
        for (size_t bit = 0; bit < 8 * sizeof(frame); bit++) {
            memcpy(bad, frame, sizeof(bad));
            bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
            memset(out, 1, sizeof(out));
            assert_int_equal(fbr_aead_decrypt(&rx, counter, bad, sizeof(bad), out), -EBADMSG);
            assert_memory_equal(out, zeros, sizeof(out));
        }
        for (unsigned bit = 0; bit < 64; bit++)
            assert_int_equal(
                fbr_aead_decrypt(&rx, counter ^ (uint64_t)1 << bit, frame, sizeof(frame), out),
                -EBADMSG);
        for (size_t len = 0; len < sizeof(frame); len++)
            assert_int_equal(fbr_aead_decrypt(&rx, counter, frame, len, out), -EBADMSG);
        assert_int_equal(fbr_aead_decrypt(&rx, counter, frame, sizeof(frame), out), 0);
        assert_memory_equal(out, "twenty bytes of text", 20);
        pair_close(&tx, &rx);
    }
}

static void another_key_job_peer_or_algorithm_is_refused(void **state)
{
    uint8_t key[FBR_KEY_SIZE], frame[4 + TAG], out[4];
    struct fbr_aead tx, rx;
    uint64_t counter;

    key_make(key);
    assert_int_equal(fbr_aead_init(&tx, FBR_AEAD_SEND, algs[0], key, aad, sizeof(aad)), 0);
    assert_int_equal(fbr_aead_encrypt(&tx, &counter, "text", 4, frame), 0);
    fbr_aead_fini(&tx);

    assert_int_equal(fbr_aead_init(&rx, FBR_AEAD_RECEIVE, algs[1], key, aad, sizeof(aad)), 0);
    assert_int_equal(fbr_aead_decrypt(&rx, counter, frame, sizeof(frame), out), -EBADMSG);
    fbr_aead_fini(&rx);
    assert_int_equal(fbr_aead_init(&rx, FBR_AEAD_RECEIVE, algs[0], key, aad, sizeof(aad) - 1), 0);
    assert_int_equal(fbr_aead_decrypt(&rx, counter, frame, sizeof(frame), out), -EBADMSG);
    fbr_aead_fini(&rx);
    key[0] ^= 1;
    assert_int_equal(fbr_aead_init(&rx, FBR_AEAD_RECEIVE, algs[0], key, aad, sizeof(aad)), 0);
    assert_int_equal(fbr_aead_decrypt(&rx, counter, frame, sizeof(frame), out), -EBADMSG);
    fbr_aead_fini(&rx);
}

/* Seals one 8-byte frame that says its own number, under a counter that the test chooses. */
static void seal_at(struct fbr_aead *tx, uint64_t counter, uint8_t frame[8 + TAG])
{
    uint64_t got;

    tx->counter = counter - 1;
    assert_int_equal(fbr_aead_encrypt(tx, &got, &counter, 8, frame), 0);
    assert_true(got == counter);
}

static int open_at(struct fbr_aead *tx, struct fbr_aead *rx, uint64_t counter)
{
    uint8_t frame[8 + TAG];
    uint64_t said;
    int rc;

    seal_at(tx, counter, frame);
    rc = fbr_aead_decrypt(rx, counter, frame, sizeof(frame), &said);
    if (rc == 0)
        assert_true(said == counter);
    return rc;
}

static void a_frame_is_accepted_once_and_not_behind_a_later_one(void **state)
{
    struct fbr_aead tx, rx;

    pair_open(&tx, &rx, fbr_aead_preferred());
    assert_int_equal(open_at(&tx, &rx, 0), -EBADMSG);
    for (uint64_t i = 1; i < 10000; i += i % 3) { /* every third frame is lost */
        assert_int_equal(open_at(&tx, &rx, i), 0);
        assert_int_equal(open_at(&tx, &rx, i), -EBADMSG);
        assert_int_equal(open_at(&tx, &rx, i - 1), -EBADMSG);
        assert_int_equal(open_at(&tx, &rx, i / 2), -EBADMSG);
    }
    pair_close(&tx, &rx);
}

static void a_forgery_does_not_move_the_counter(void **state)
{
    uint8_t frame[8 + TAG], out[8];
    struct fbr_aead tx, rx;

    pair_open(&tx, &rx, fbr_aead_preferred());
    assert_int_equal(open_at(&tx, &rx, 2), 0);
    seal_at(&tx, 3, frame);
    assert_int_equal(fbr_aead_decrypt(&rx, UINT64_MAX, frame, sizeof(frame), out), -EBADMSG);
    assert_int_equal(open_at(&tx, &rx, 3), 0);
    pair_close(&tx, &rx);
}

static void misuse_is_an_error(void **state)
{
    uint8_t key[FBR_KEY_SIZE], frame[8 + TAG] = {0}, out[8 + TAG];
    struct fbr_aead tx, rx, none = {0};
    uint64_t counter;

    key_make(key);
    assert_int_equal(fbr_aead_init(&none, FBR_AEAD_SEND, (enum fbr_aead_alg)7, key, NULL, 0),
                     -EINVAL);
    assert_int_equal(fbr_aead_init(&none, FBR_AEAD_SEND, algs[0], key, key, FBR_AEAD_AAD_MAX + 1),
                     -EINVAL);
    assert_int_equal(fbr_aead_encrypt(&none, &counter, frame, 8, out), -EINVAL);
    assert_int_equal(fbr_aead_decrypt(&none, 1, frame, sizeof(frame), out), -EINVAL);
    fbr_aead_fini(&none);
    pair_open(&tx, &rx, algs[0]);
    assert_int_equal(fbr_aead_encrypt(&rx, &counter, frame, 8, out), -EINVAL);
    assert_int_equal(fbr_aead_decrypt(&tx, 1, frame, sizeof(frame), out), -EINVAL);
    assert_int_equal(fbr_aead_encrypt(&tx, &counter, frame, (size_t)FBR_AEAD_MAX + 1, out),
                     -EMSGSIZE);
    pair_close(&tx, &rx);
    fbr_aead_fini(&tx);
    assert_int_equal(fbr_aead_encrypt(&tx, &counter, frame, 8, out), -EINVAL);
}

static void a_key_that_is_used_up_says_so(void **state)
{
    uint8_t frame[8 + TAG] = {0}, out[8 + TAG];
    struct fbr_aead tx, rx;
    uint64_t counter;

    pair_open(&tx, &rx, algs[0]);
    tx.spent = ((uint64_t)1 << 50) - 1;
    assert_int_equal(fbr_aead_encrypt(&tx, &counter, frame, 8, out), 0);
    assert_int_equal(fbr_aead_encrypt(&tx, &counter, frame, 8, out), -EKEYEXPIRED);
    rx.spent = ((uint64_t)1 << 36) - 1;
    assert_int_equal(fbr_aead_decrypt(&rx, 1, frame, sizeof(frame), out), -EBADMSG);
    assert_int_equal(fbr_aead_decrypt(&rx, 1, frame, sizeof(frame), out), -EKEYEXPIRED);
    pair_close(&tx, &rx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors_are_met),
        cmocka_unit_test(frames_of_any_length_come_back_in_place_and_apart),
        cmocka_unit_test(every_flipped_bit_is_noticed_and_gives_nothing_away),
        cmocka_unit_test(another_key_job_peer_or_algorithm_is_refused),
        cmocka_unit_test(a_frame_is_accepted_once_and_not_behind_a_later_one),
        cmocka_unit_test(a_forgery_does_not_move_the_counter),
        cmocka_unit_test(misuse_is_an_error),
        cmocka_unit_test(a_key_that_is_used_up_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
