/* SPDX-License-Identifier: BSD-3-Clause */
/* Which devices are cards, how far they are, and who gets which: tables by hand, and random ones of
 * which only the rules are known.
 *
 * Thread: one. */
#include "unit/plugin/device_list.h"

#include <stdio.h>
#include <string.h>

#include "xt.h"

#define RANKS_MAX 64
#define FAST      25000

static void cards_are(int each, const char *want)
{
    int places[XCCL_CARDS_MAX];
    char text[XCCL_CARDS_MAX + 1] = "";
    int found = xccl_net_devices_cards(devices, count, each, places);

    for (int i = 0; i < found; i++)
        text[i] = (char)('0' + places[i]);
    XT_CHECK_TEXT(text, want);
}

XT_TEST(cards_are_the_fastest_devices)
{
    add("eth0", 0, 10000);
    add("eth1", 0, FAST);
    add("eth2", 0, 10000);
    add("eth3", 0, FAST);
    cards_are(0, "13");
}

XT_TEST(interface_by_which_ranks_met_is_preferred_to_a_faster_one)
{
    add("eth0", 0, FAST);
    add("eth1", 0, 1000)->is_met = 1;
    add("eth2", 0, FAST);
    add("eth3", 0, 1000);
    cards_are(0, "13");
}

XT_TEST(unknown_speed_is_equal_to_none_unless_asked_for)
{
    add("eth0", 0, 0);
    add("eth1", 0, 0);
    cards_are(0, "0");
    cards_are(2, "01");
    add("eth2", 0, 10000);
    add("eth3", 0, FAST);
    cards_are(0, "3");
    cards_are(2, "013");
    cards_are(1, "3");
}

XT_TEST(interface_that_may_not_reach_all_hosts_is_alone)
{
    add("eth0", 0, 1000)->is_unproven = 1;
    add("eth1", 0, FAST)->is_unproven = 1;
    add("eth2", 0, FAST)->is_unproven = 1;
    cards_are(0, "0");
    cards_are(1, "0");
    devices[1].is_met = 1;
    cards_are(0, "1");
    cards_are(1, "12");
}

XT_TEST(card_that_stands_alone_is_left_for_those_that_do_not)
{
    add("roce0", 0, FAST)->is_unproven = 1;
    add("ib0", 0, 10000);
    add("ib1", 0, 10000);
    cards_are(0, "12");
}

XT_TEST(cards_reach_all_hosts_and_take_the_same_memory)
{
    add("unix", 1, FAST);
    add("eth0", 0, FAST);
    add("eth1", 0, FAST)->ptr_support = XCCL_NET_PTR_HOST | XCCL_NET_PTR_CUDA;
    add("eth2", 0, FAST);
    add("both", 0, FAST)->member_count = 2;
    cards_are(1, "13");
}

XT_TEST(no_device_is_no_card)
{
    cards_are(0, "");
    add("unix", 1, FAST);
    cards_are(1, "");
}

XT_TEST(no_more_cards_than_the_table_has)
{
    int places[XCCL_CARDS_MAX];

    for (int i = 0; i < 40; i++)
        add("eth", 0, FAST);
    XT_CHECK_INT(xccl_net_devices_cards(devices, count, 0, places), XCCL_CARDS_MAX);
}

/* ---- distances ---- */

#define ROOT "/sys/devices/pci0000:3a/0000:3a:00.0"

static enum xccl_card_distance distance(const char *here, uint64_t nodes, const char *card,
                                        int node)
{
    struct xccl_card_place place = {.nodes = nodes};

    snprintf(place.path, sizeof(place.path), "%s", here);
    return xccl_card_distance(&place, card, node);
}

XT_TEST(fewer_bridges_are_nearer)
{
    const char *gpu = ROOT "/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0";
    enum xccl_card_distance same = distance(gpu, 1, ROOT "/0000:3b:00.0/0000:3c:04.0/0000:3e:00.0",
                                            0);
    enum xccl_card_distance further = distance(
        gpu, 1, ROOT "/0000:3b:00.0/0000:3c:08.0/0000:40:00.0/0000:41:00.0/0000:42:00.0", 0);

    XT_CHECK(same < further);
    XT_CHECK(further < XCCL_CARD_BELOW_ROOT);
    XT_CHECK_INT(distance(gpu, 1, "/sys/devices/pci0000:3a/0000:3a:02.0/0000:50:00.0", 0),
                 XCCL_CARD_BELOW_ROOT);
    XT_CHECK_INT(distance(gpu, 1, "/sys/devices/pci0000:80/0000:80:00.0/0000:81:00.0", 0),
                 XCCL_CARD_NUMA_NODE);
    XT_CHECK_INT(distance(gpu, 1, "/sys/devices/pci0000:80/0000:80:00.0/0000:81:00.0", 1),
                 XCCL_CARD_OTHER_NODE);
}

XT_TEST(two_ports_of_a_card_are_equally_near)
{
    const char *gpu = ROOT "/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0";

    XT_CHECK_INT(distance(gpu, 1, ROOT "/0000:3b:00.0/0000:3c:04.0/0000:3e:00.0", 0),
                 distance(gpu, 1, ROOT "/0000:3b:00.0/0000:3c:04.0/0000:3e:00.1", 0));
}

XT_TEST(cores_know_nodes_only)
{
    const char *card = ROOT "/0000:3b:00.0";

    XT_CHECK_INT(distance("", 1, card, 0), XCCL_CARD_NUMA_NODE);
    XT_CHECK_INT(distance("", 2, card, 0), XCCL_CARD_OTHER_NODE);
    XT_CHECK_INT(distance("", 3, card, 1), XCCL_CARD_NUMA_NODE);
    XT_CHECK_INT(distance("", 0, card, 0), XCCL_CARD_ANYWHERE);
    XT_CHECK_INT(distance("", 1, card, -1), XCCL_CARD_ANYWHERE);
    XT_CHECK_INT(distance("", 1, NULL, -1), XCCL_CARD_ANYWHERE);
    XT_CHECK_INT(distance("no/path", 1, "nor/this", 70), XCCL_CARD_ANYWHERE);
}

/* ---- sharing out ---- */

static struct xccl_card_view views[RANKS_MAX];
static int numbers[RANKS_MAX][XCCL_NET_MAX_MEMBERS], counts[RANKS_MAX];

/* rows: a digit for each card, a word for each rank. */
static void see(const char *rows)
{
    int rank = 0;

    memset(views, 0, sizeof(views));
    for (; *rows; rows++) {
        if (*rows == ' ')
            rank++;
        else
            views[rank].distance[views[rank].count++] = (uint8_t)(*rows - '0');
    }
    count = rank + 1;
}

static void share(int each)
{
    const struct xccl_card_view *seen[RANKS_MAX];

    for (int i = 0; i < count; i++)
        seen[i] = &views[i];
    XT_CHECK(xccl_card_share(seen, count, each, numbers, counts));
}

/* want: as digits, a word for each rank. */
static void shares_are(const char *rows, int each, const char *want)
{
    char text[RANKS_MAX * (XCCL_NET_MAX_MEMBERS + 1)] = "";
    size_t used = 0;

    see(rows);
    share(each);
    for (int rank = 0; rank < count; rank++) {
        if (rank)
            text[used++] = ' ';
        for (int i = 0; i < counts[rank]; i++)
            text[used++] = (char)('0' + numbers[rank][i]);
    }
    text[used] = 0;
    XT_CHECK_TEXT(text, want);
}

XT_TEST(ranks_that_are_anywhere_share_out_evenly)
{
    shares_are("8888 8888 8888 8888 8888 8888 8888 8888", 0, "0 1 2 3 0 1 2 3");
    shares_are("88 88 88", 0, "0 1 0");
    shares_are("8", 0, "0");
    shares_are("8 8 8", 0, "0 0 0");
}

XT_TEST(the_nearest_card_goes_first)
{
    shares_are("9977 9977 7799 7799", 0, "2 3 0 1");
    shares_are("9977 7799 9977 7799 9977 7799 9977 7799", 0, "2 0 3 1 2 0 3 1");
    /* The second rank has one near card only, the first one two. */
    shares_are("00 09", 0, "1 0");
}

XT_TEST(no_card_is_idle_though_all_ranks_are_near_one)
{
    shares_are("79 79 79 79", 0, "0 0 1 1");
}

XT_TEST(more_cards_than_ranks_are_merged)
{
    shares_are("8888", 0, "0123");
    shares_are("7799 9977", 0, "01 23");
    shares_are("9797 7979", 0, "13 02");
    shares_are("888 888", 0, "02 1");
}

XT_TEST(a_setting_says_how_many_each_may_use)
{
    shares_are("8888", 1, "0");
    shares_are("7799 9977", 1, "0 2");
    shares_are("8888 8888", 3, "012 013");
    shares_are("88 88 88", 2, "01 01 01");
    shares_are("88", 8, "01");
}

/* A machine with 8 GPUs and 32 cards, 4 of them behind the switch of each GPU. */
XT_TEST(four_of_32_cards_for_each_of_8_ranks)
{
    char rows[8 * 33], *at = rows;

    for (int rank = 0; rank < 8; rank++) {
        for (int card = 0; card < 32; card++)
            *at++ = card / 4 == rank ? '2' : card / 16 == rank / 4 ? '7' : '9';
        *at++ = rank < 7 ? ' ' : 0;
    }
    see(rows);
    share(0);
    for (int rank = 0; rank < 8; rank++) {
        XT_CHECK_INT(counts[rank], 4);
        for (int i = 0; i < 4; i++)
            XT_CHECK_INT(numbers[rank][i], 4 * rank + i);
    }
}

/* Whatever ranks tell: each has a card, none twice, and the load is even. */
XT_TEST(any_table_is_shared_out)
{
    uint64_t seed = xt_seed();

    for (int round = 0; round < 2000; round++) {
        int cards = 1 + (int)(xt_random(&seed) % XCCL_CARDS_MAX), load[XCCL_CARDS_MAX] = {0};
        int each = (int)(xt_random(&seed) % 5), least = RANKS_MAX * 8, most = 0;

        count = 1 + (int)(xt_random(&seed) % 12);
        for (int rank = 0; rank < count; rank++) {
            views[rank].count = cards;
            for (int card = 0; card < cards; card++)
                views[rank].distance[card] = (uint8_t)(xt_random(&seed) % XCCL_CARD_DISTANCES);
        }
        share(each);
        for (int rank = 0; rank < count; rank++) {
            XT_CHECK(counts[rank] >= 1 && counts[rank] <= XCCL_NET_MAX_MEMBERS);
            for (int i = 0; i < counts[rank]; i++) {
                XT_CHECK(i == 0 || numbers[rank][i] > numbers[rank][i - 1]);
                load[numbers[rank][i]]++;
            }
        }
        for (int card = 0; card < cards; card++) {
            least = load[card] < least ? load[card] : least;
            most = load[card] > most ? load[card] : most;
        }
        if (each == 1 || (each == 0 && cards <= count * XCCL_NET_MAX_MEMBERS))
            XT_CHECK(most - least <= 1);
    }
}
