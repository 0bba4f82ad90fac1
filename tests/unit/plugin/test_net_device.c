/* SPDX-License-Identifier: BSD-3-Clause */
/* The kind of device that a connection uses, as a function of what both ends have. What
 * of that kind a rank uses is the business of test_card_share.c.
 *
 * Thread: one. */
#include "unit/plugin/device_list.h"

#include "xt.h"

#define NEAR (1u << XCCL_NET_NEAR)
#define FAR  (1u << XCCL_NET_FAR)
#define HERE 1
#define AWAY 0

XT_TEST(first_device_of_each_kind_counts)
{
    struct xccl_net_device first[XCCL_NET_KINDS];

    add("unix0", 1, 0);
    add("eth0", 0, 0);
    add("eth1", 0, 0);
    add("unix1", 1, 0);
    xccl_net_devices_first(devices, count, first);
    XT_CHECK_TEXT(first[XCCL_NET_NEAR].name, "unix0");
    XT_CHECK_INT(first[XCCL_NET_FAR].number, 1);
    XT_CHECK_INT(xccl_net_kinds(first), NEAR | FAR);
}

XT_TEST(kind_without_a_device_is_not_there)
{
    struct xccl_net_device first[XCCL_NET_KINDS];

    xccl_net_devices_first(devices, 0, first);
    XT_CHECK_INT(xccl_net_kinds(first), 0);
    add("eth0", 0, 0);
    xccl_net_devices_first(devices, count, first);
    XT_CHECK_INT(first[XCCL_NET_NEAR].number, XCCL_NET_NO_DEVICE);
    XT_CHECK_INT(xccl_net_kinds(first), FAR);
    devices[0].same_host = 1;
    xccl_net_devices_first(devices, count, first);
    XT_CHECK_INT(xccl_net_kinds(first), NEAR);
}

XT_TEST(ranks_of_one_place_use_the_device_that_reaches_no_further)
{
    XT_CHECK_INT(xccl_net_kind_for(NEAR | FAR, NEAR | FAR, HERE), XCCL_NET_NEAR);
    XT_CHECK_INT(xccl_net_kind_for(NEAR, NEAR | FAR, HERE), XCCL_NET_NEAR);
}

XT_TEST(ranks_of_different_places_do_not)
{
    XT_CHECK_INT(xccl_net_kind_for(NEAR | FAR, NEAR | FAR, AWAY), XCCL_NET_FAR);
}

XT_TEST(one_rank_without_such_a_device_is_enough_to_do_without)
{
    XT_CHECK_INT(xccl_net_kind_for(FAR, NEAR | FAR, HERE), XCCL_NET_FAR);
    XT_CHECK_INT(xccl_net_kind_for(FAR, FAR, HERE), XCCL_NET_FAR);
}

XT_TEST(pair_without_a_way_is_told)
{
    XT_CHECK_INT(xccl_net_kind_for(NEAR, NEAR, AWAY), XCCL_NET_NO_KIND);
    XT_CHECK_INT(xccl_net_kind_for(NEAR, FAR, HERE), XCCL_NET_NO_KIND);
    XT_CHECK_INT(xccl_net_kind_for(0, NEAR | FAR, HERE), XCCL_NET_NO_KIND);
}

/* Whatever a rank is told by another one, of a version that knows more kinds too. */
XT_TEST(both_ends_choose_alike)
{
    for (uint32_t a = 0; a < 8; a++)
        for (uint32_t b = 0; b < 8; b++)
            for (int here = AWAY; here <= HERE; here++)
                XT_CHECK_INT(xccl_net_kind_for(a, b, here), xccl_net_kind_for(b, a, here));
}
