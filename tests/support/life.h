/* life.h - what the tests of lives share, which are tables of states and events: the worlds that each order of events
 * leads to, and races by name. For after cmocka.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Worlds are compared as bytes, with their padding. The first byte is the state. */
struct worlds {
    unsigned char *at;
    size_t n;
};

/* False: the world was there before. */
static inline bool worlds_add(struct worlds *all, const void *world, size_t size)
{
    for (size_t i = 0; i < all->n; i++)
        if (memcmp(all->at + i * size, world, size) == 0)
            return false;
    all->at = realloc(all->at, (all->n + 1) * size);
    assert_non_null(all->at);
    memcpy(all->at + all->n++ * size, world, size);
    return true;
}

/* Checks that each of the first `states` states was in a world, and no other one, and forgets all worlds. */
static inline void worlds_check(struct worlds *all, size_t size, unsigned states)
{
    unsigned seen = 0;

    for (size_t i = 0; i < all->n; i++)
        seen |= 1u << all->at[i * size];
    assert_int_equal(seen, (1u << states) - 1);
    free(all->at);
    *all = (struct worlds){0};
}

struct race_step {
    unsigned event, action;
};

struct race {
    const char *name;
    unsigned from;
    struct race_step steps[5];
    size_t n; /* of the steps */
    unsigned to;
};

/* The steps of a race, and their number. */
#define STEPS(...) \
    {__VA_ARGS__}, sizeof((struct race_step[]){__VA_ARGS__}) / sizeof(struct race_step)

/* Checks the actions and the end of each race by step(state, event), the table. */
#define RUN_RACES(races, step)                                                        \
    for (size_t i_ = 0; i_ < sizeof(races) / sizeof((races)[0]); i_++) {              \
        unsigned at_ = (races)[i_].from;                                              \
                                                                                      \
        print_message("%s\n", (races)[i_].name);                                      \
        for (size_t k_ = 0; k_ < (races)[i_].n; k_++) {                               \
            const __typeof__(step(0, 0)) s_ = step(at_, (races)[i_].steps[k_].event); \
                                                                                      \
            assert_int_equal(s_.action, (races)[i_].steps[k_].action);                \
            at_ = s_.next;                                                            \
        }                                                                             \
        assert_int_equal(at_, (races)[i_].to);                                        \
    }
