/* SPDX-License-Identifier: BSD-3-Clause */
/* Who has to leave when there are too many: sources are told apart rightly, and the one with the
 * most members loses its oldest. Compared with a plain count over random arrivals. Thread: one. */
#include "bootstrap/crowd.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "xt.h"

#define MEMBERS 400

__attribute__((constructor)) static void use_sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static struct xccl_crowd crowd;
static struct xccl_crowd_member members[MEMBERS];
static int member_count;

static struct xccl_crowd_member *comes_from(const char *text)
{
    struct xccl_crowd_member *member = &members[member_count++];
    struct xccl_addr addr;

    XT_OK(xccl_addr_parse(text, 0, &addr));
    XT_OK(xccl_crowd_add(&crowd, member, &addr));
    return member;
}

static void all_leave(void)
{
    for (int i = 0; i < MEMBERS; i++)
        xccl_crowd_remove(&crowd, &members[i]);
    XT_CHECK_INT(crowd.count, 0);
    XT_CHECK_INT(crowd.origin_count, 0);
}

XT_TEST(the_oldest_of_the_loudest_source_goes_first)
{
    struct xccl_crowd_member *quiet = comes_from("10.0.0.1:1");
    struct xccl_crowd_member *loud = comes_from("10.0.0.2:1"), *next = comes_from("10.0.0.2:2");

    XT_CHECK(xccl_crowd_first_to_go(&crowd) == loud);
    XT_CHECK(xccl_crowd_oldest_beside(next) == loud);
    XT_CHECK_INT(xccl_crowd_count_beside(next), 2);
    xccl_crowd_remove(&crowd, loud);
    XT_CHECK(xccl_crowd_first_to_go(&crowd) == quiet); /* of equals the older */
    xccl_crowd_remove(&crowd, quiet);
    XT_CHECK(xccl_crowd_first_to_go(&crowd) == next);
    xccl_crowd_remove(&crowd, next);
    XT_CHECK(xccl_crowd_first_to_go(&crowd) == NULL);
    xccl_crowd_remove(&crowd, next); /* twice is nothing */
    all_leave();
}

static void check_same_source(const char *a, const char *b, int same)
{
    (void)comes_from(a);
    XT_CHECK_INT(xccl_crowd_count_beside(comes_from(b)), same ? 2 : 1);
    all_leave();
    memset(members, 0, sizeof(members));
    member_count = 0;
}

XT_TEST(sources_are_addresses_without_ports_and_slash_64_of_ipv6)
{
    check_same_source("10.0.0.1:1", "10.0.0.1:2", 1);
    check_same_source("10.0.0.1:1", "10.0.0.2:1", 0);
    check_same_source("[2001:db8:1:2::1]:1", "[2001:db8:1:2:ffff::9]:7", 1);
    check_same_source("[2001:db8:1:2::1]:1", "[2001:db8:1:3::1]:1", 0);
    check_same_source("[::ffff:10.0.0.1]:1", "10.0.0.1:9", 1);
    check_same_source("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:1", 0);
    check_same_source("[fe80::1%1001]:1", "[fe80::2%1001]:1", 0);
    check_same_source("[fe80::1%1001]:1", "[fe80::1%1002]:1", 0);
    check_same_source("[fe80::1%1001]:1", "[fe80::1%1001]:2", 1);
    check_same_source("[::1]:1", "127.0.0.1:1", 0);
}

/* Counts anew what the crowd keeps count of. */
static void check_first_to_go(const uint32_t *sources)
{
    const struct xccl_crowd_member *first = xccl_crowd_first_to_go(&crowd);
    int counts[256] = {0}, most = 0;

    for (int i = 0; i < MEMBERS; i++) {
        if (members[i].origin)
            counts[sources[i]]++;
    }
    for (int i = 0; i < 256; i++)
        most = counts[i] > most ? counts[i] : most;
    XT_CHECK((most > 0) == (first != NULL));
    if (!first)
        return;
    XT_CHECK_INT(counts[sources[first - members]], most);
    for (int i = 0; i < MEMBERS; i++) {
        if (members[i].origin && counts[sources[i]] == most)
            XT_CHECK(members[i].number >= first->number);
    }
}

XT_TEST(random_comings_and_goings_keep_the_count_right)
{
    static uint32_t sources[MEMBERS];
    uint64_t state = xt_seed();

    for (int round = 0; round < 20000; round++) {
        uint64_t dice = xt_random(&state);
        struct xccl_crowd_member *member = &members[dice % MEMBERS];
        /* Few sources, or nearly as many as there may be. */
        uint32_t source = (uint32_t)(dice >> 32) % (round % 2000 < 1000 ? 4 : 256);
        struct xccl_addr addr;
        char text[32];

        if (member->origin) {
            xccl_crowd_remove(&crowd, member);
        } else {
            snprintf(text, sizeof(text), "10.0.0.%u:1", source);
            XT_OK(xccl_addr_parse(text, 0, &addr));
            XT_OK(xccl_crowd_add(&crowd, member, &addr));
            sources[member - members] = source;
        }
        if (round % 16 == 0)
            check_first_to_go(sources);
    }
    all_leave();
}
