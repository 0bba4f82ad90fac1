/* SPDX-License-Identifier: BSD-3-Clause */
/* Tags that came before are known as long as memory lasts, and it is known when it does not.
 * Thread: one. Seeded: a run repeats with XT_SEED. */
#include "base/alloc.h"
#include "base/tags.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_alloc_source(xccl_alloc_live);
}

XT_TEST(a_tag_is_new_once)
{
    struct xccl_tags tags = {0};

    for (int round = 0; round < 2; round++) {
        uint64_t seed = 7;

        for (int i = 0; i < 1000; i++)
            XT_CHECK_INT(xccl_tags_add(&tags, xt_random(&seed)),
                         round ? XCCL_TAGS_SEEN : XCCL_TAGS_NEW);
    }
    XT_CHECK_INT(xccl_tags_add(&tags, 0), XCCL_TAGS_NEW);
    XT_CHECK_INT(xccl_tags_add(&tags, 0), XCCL_TAGS_SEEN);
    xccl_tags_fini(&tags);
}

/* A chain of all tags: slow, but right. */
XT_TEST(tags_that_want_the_same_place_are_kept_apart)
{
    struct xccl_tags tags = {0};

    for (uint64_t i = 1; i <= 500; i++)
        XT_CHECK_INT(xccl_tags_add(&tags, i << 32), XCCL_TAGS_NEW);
    for (uint64_t i = 1; i <= 500; i++)
        XT_CHECK_INT(xccl_tags_add(&tags, i << 32), XCCL_TAGS_SEEN);
    xccl_tags_fini(&tags);
}

XT_TEST(the_last_generation_is_always_known_and_forgetting_shows)
{
    struct xccl_tags tags = {0};
    uint64_t seed = xt_seed(), late = 0, first = 0;

    for (int i = 0; i < 2 * XCCL_TAGS_GENERATION; i++) {
        uint64_t tag = xt_random(&seed);

        if (i == 0)
            first = tag;
        if (i == XCCL_TAGS_GENERATION)
            late = seed;
        XT_CHECK_INT(xccl_tags_add(&tags, tag), XCCL_TAGS_NEW);
    }
    XT_CHECK(!tags.forgot);
    XT_CHECK_INT(xccl_tags_add(&tags, first), XCCL_TAGS_SEEN);
    XT_CHECK_INT(xccl_tags_add(&tags, xt_random(&seed)), XCCL_TAGS_NEW);
    XT_CHECK(tags.forgot);
    for (int i = XCCL_TAGS_GENERATION + 1; i < 2 * XCCL_TAGS_GENERATION; i++)
        XT_CHECK_INT(xccl_tags_add(&tags, xt_random(&late)), XCCL_TAGS_SEEN);
    XT_CHECK_INT(xccl_tags_add(&tags, first), XCCL_TAGS_NEW); /* that one is forgotten */
    xccl_tags_fini(&tags);
}
