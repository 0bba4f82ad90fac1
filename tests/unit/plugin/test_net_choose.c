/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of a communicator's network plugin, as a function of what all ranks have. A letter
 * stands for a plugin: two ranks can talk when they have a letter in common.
 * Thread: one. */
#include "plugin/net_choose.h"

#include <stdio.h>
#include <string.h>

#include "xt.h"

#define RANKS 4

static struct xccl_net_row rows[RANKS];

/* ids: one letter a plugin; "" does not need one. */
static void row(int rank, const char *ids)
{
    memset(&rows[rank], 0, sizeof(rows[rank]));
    for (; *ids; ids++) {
        snprintf(rows[rank].wire_id[rows[rank].count++], XCCL_WIRE_ID_BYTES, "%c/xccl1/1", *ids);
        rows[rank].needs = 1;
    }
}

static void all(const char *a, const char *b, const char *c, const char *d)
{
    row(0, a);
    row(1, b);
    row(2, c);
    row(3, d);
}

XT_TEST(the_first_of_the_lowest_rank_that_all_have_is_chosen)
{
    all("abc", "abc", "abc", "abc");
    XT_CHECK_TEXT(xccl_net_choose(rows, RANKS), "a/xccl1/1");
    all("abc", "cb", "bc", "xbyc");
    XT_CHECK_TEXT(xccl_net_choose(rows, RANKS), "b/xccl1/1");
}

XT_TEST(ranks_that_share_memory_with_all_have_no_say)
{
    all("", "cb", "", "bc");
    XT_CHECK_TEXT(xccl_net_choose(rows, RANKS), "c/xccl1/1");
    all("", "", "", "");
    XT_CHECK(xccl_net_choose(rows, RANKS) == NULL);
}

XT_TEST(without_a_common_plugin_pairs_choose_alike_from_both_sides)
{
    all("ab", "ac", "bc", "abc");
    XT_CHECK(xccl_net_choose(rows, RANKS) == NULL);
    XT_CHECK_TEXT(xccl_net_choose_pair(rows, 0, 1), "a/xccl1/1");
    XT_CHECK_TEXT(xccl_net_choose_pair(rows, 2, 0), "b/xccl1/1");
    XT_CHECK_TEXT(xccl_net_choose_pair(rows, 1, 2), "c/xccl1/1");
    for (int a = 0; a < RANKS; a++)
        for (int b = 0; b < RANKS; b++)
            XT_CHECK(xccl_net_choose_pair(rows, a, b) != NULL &&
                     strcmp(xccl_net_choose_pair(rows, a, b), xccl_net_choose_pair(rows, b, a)) ==
                         0);
    all("a", "b", "a", "a");
    XT_CHECK(xccl_net_choose_pair(rows, 0, 1) == NULL);
}

XT_TEST(ids_that_share_a_beginning_are_different)
{
    all("a", "a", "a", "a");
    snprintf(rows[2].wire_id[0], XCCL_WIRE_ID_BYTES, "a/xccl1/11");
    XT_CHECK(xccl_net_choose(rows, RANKS) == NULL);
}

XT_TEST(differing_builds_are_found_among_those_that_are_known)
{
    int a = -1, b = -1;

    all("a", "a", "", "a");
    rows[0].build[0] = 0;
    rows[1].build[0] = 7;
    rows[3].build[0] = 7;
    XT_CHECK_INT(xccl_net_builds_differ(rows, RANKS, "a/xccl1/1", &a, &b), 0);
    rows[3].build[0] = 8;
    XT_CHECK_INT(xccl_net_builds_differ(rows, RANKS, "a/xccl1/1", &a, &b), 1);
    XT_CHECK_INT(a, 1);
    XT_CHECK_INT(b, 3);
}
