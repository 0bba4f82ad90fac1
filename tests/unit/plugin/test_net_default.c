/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of plugins that a machine's cards ask for: folders of a test stand in for those of the
 * kernel. */
#include "plugin/net_default.h"

#include <stdio.h>
#include <string.h>

#include "../base/card_folders.h"
#include "base/param.h"
#include "plugin/net_plugin_int.h"

static char class_path[PATH_MAX], sysfs[PATH_MAX];
static struct xccl_net_default made;

/* An empty machine. */
static void machine_begin(void)
{
    snprintf(sysfs, sizeof(sysfs), "%s", xt_tmpdir());
    card_folder(sysfs, "class", class_path);
}

static const struct xccl_net_default *machine(void)
{
    struct xccl_net_cards cards;

    xccl_net_cards_find(sysfs, &cards);
    xccl_net_default_make(&cards, &made);
    return &made;
}

XT_TEST(a_machine_without_cards_uses_sockets)
{
    machine_begin();
    XT_CHECK_TEXT(machine()->list, "socket");
    XT_CHECK_TEXT(made.items[0].name, "ofi");
    XT_CHECK_TEXT(made.items[0].why, "no EFA or Slingshot card on this machine");
    XT_CHECK_TEXT(made.items[1].name, "ib");
    XT_CHECK_TEXT(made.items[1].why, "no InfiniBand or RoCE card on this machine");
    XT_CHECK(!made.items[0].listed && !made.items[1].listed && made.items[2].listed);
}

XT_TEST(a_machine_that_hides_its_folders_uses_sockets)
{
    struct xccl_net_cards cards;

    xccl_net_cards_find("/nowhere/at/all", &cards);
    xccl_net_default_make(&cards, &made);
    XT_CHECK_TEXT(made.list, "socket");
}

XT_TEST(efa_cards_put_ofi_first_and_are_none_of_ib)
{
    machine_begin();
    card_make_efa(class_path, "rdmap16s27");
    XT_CHECK_TEXT(machine()->list, "ofi,socket");
    XT_CHECK_TEXT(made.items[0].why, "this machine has EFA card rdmap16s27");
    card_make_efa(class_path, "rdmap0s6");
    card_make_efa(class_path, "rdmap32s27");
    XT_CHECK_TEXT(machine()->list, "ofi,socket");
    XT_CHECK_TEXT(made.items[0].why, "this machine has 3 EFA cards (rdmap0s6, ...)");
    XT_CHECK_INT(made.cards.rdma.count, 0);
}

XT_TEST(an_efa_card_is_told_by_its_numbers_before_its_name)
{
    machine_begin();
    card_make(class_path, "infiniband/efa_0", NULL, NULL, "7: unspecified");
    XT_CHECK_INT(machine()->cards.efa.count, 1);
    /* Another card of Amazon's, another maker's with such a number, and a name that misleads. */
    card_make(class_path, "infiniband/a", "0x1d0f", "0xec20", "7: unspecified");
    card_make(class_path, "infiniband/b", "0x15b3", "0xefa0", "7: unspecified");
    card_make(class_path, "infiniband/efa_1", "0x15b3", "0x1017", "1: CA");
    XT_CHECK_INT(machine()->cards.efa.count, 1);
    XT_CHECK_INT(made.cards.rdma.count, 1);
    XT_CHECK_TEXT(made.list, "ofi,ib,socket");
    card_make(class_path, "infiniband/c", "0x1d0f", "0xefa0", NULL);
    card_make(class_path, "infiniband/d", "0x1d0f", "0xefa3", NULL);
    XT_CHECK_INT(machine()->cards.efa.count, 3);
}

XT_TEST(slingshot_cards_put_ofi_first)
{
    machine_begin();
    card_make_cxi(class_path, "cxi0");
    XT_CHECK_TEXT(machine()->list, "ofi,socket");
    XT_CHECK_TEXT(made.items[0].why, "this machine has Slingshot card cxi0");
    card_make_mlx5(class_path, "mlx5_0");
    XT_CHECK_TEXT(machine()->list, "ofi,ib,socket");
}

XT_TEST(slingshot_cards_of_an_older_driver_are_found)
{
    machine_begin();
    card_make(class_path, "cxi_user/cxi1", NULL, NULL, NULL);
    XT_CHECK_TEXT(machine()->list, "ofi,socket");
    XT_CHECK_TEXT(made.items[0].why, "this machine has Slingshot card cxi1");
}

XT_TEST(cards_of_infiniband_and_roce_put_ib_before_socket)
{
    machine_begin();
    card_make_mlx5(class_path, "mlx5_1");
    card_make_mlx5(class_path, "mlx5_0");
    XT_CHECK_TEXT(machine()->list, "ib,socket");
    XT_CHECK_TEXT(made.items[1].why, "this machine has 2 InfiniBand or RoCE cards (mlx5_0, ...)");
}

/* The ib plugin makes connections without librdmacm, which iWARP cannot do. */
XT_TEST(cards_of_iwarp_do_not_ask_for_ib)
{
    machine_begin();
    card_make(class_path, "infiniband/irdma0", "0x8086", "0x37d2", "4: RNIC");
    XT_CHECK_TEXT(machine()->list, "socket");
}

XT_TEST(a_card_with_a_long_name_is_cut)
{
    char name[128];

    machine_begin();
    memset(name, 'x', sizeof(name) - 1);
    memcpy(name, "cxi/", 4);
    name[sizeof(name) - 1] = 0;
    card_make(class_path, name, NULL, NULL, NULL);
    XT_CHECK_INT(machine()->cards.cxi.count, 1);
    XT_CHECK_INT(strlen(made.cards.cxi.first), XCCL_CARD_NAME_BYTES - 1);
}

XT_TEST(the_list_is_automatic_only_where_it_says_nothing_else)
{
    XT_CHECK(xccl_net_is_auto("auto") && xccl_net_is_auto(" auto ,"));
    XT_CHECK(!xccl_net_is_auto("") && !xccl_net_is_auto("auto,socket"));
    XT_CHECK(!xccl_net_is_auto("socket,auto") && !xccl_net_is_auto("autos"));
    XT_CHECK_TEXT(xccl_net_list_items("ib,socket"), "ib,socket");
    XT_CHECK_TEXT(xccl_net_list_items("auto"), xccl_net_default()->list);
    XT_CHECK_HAS(xccl_net_default()->list, "socket");
}

/* ---- what ofi has found ---- */

static int fits(const char *name, const char *provider)
{
    struct net_reason why = {""};
    int good = net_default_fits(&made, name, provider, &why);

    XT_CHECK_INT(why.text[0] == 0, good);
    return good;
}

XT_TEST(of_ofi_only_the_provider_of_the_cards_is_taken)
{
    struct net_reason why = {""};

    machine_begin();
    card_make_efa(class_path, "rdmap0s6");
    (void)machine();
    XT_CHECK(fits("ofi", "efa") && fits("ofi", "efa-direct") && fits("ib", NULL));
    XT_CHECK(!fits("ofi", "cxi") && !fits("ofi", "verbs;ofi_rxm") && !fits("ofi", NULL));
    XT_CHECK(!net_default_fits(&made, "ofi", "verbs;ofi_rxm", &why));
    XT_CHECK_HAS(why.text, "verbs;ofi_rxm");
    XT_CHECK_HAS(why.text, "AWS's EFA software, or check FI_PROVIDER");
}

XT_TEST(of_ofi_on_slingshot_only_cxi_is_taken)
{
    struct net_reason why = {""};

    machine_begin();
    card_make_cxi(class_path, "cxi0");
    (void)machine();
    XT_CHECK(fits("ofi", "cxi") && !fits("ofi", "efa"));
    XT_CHECK(!net_default_fits(&made, "ofi", "tcp;ofi_rxm", &why));
    XT_CHECK_HAS(why.text, "install HPE's libfabric");
}

XT_TEST(a_provider_that_the_user_names_is_taken)
{
    machine_begin();
    card_make_efa(class_path, "rdmap0s6");
    (void)machine();
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    XT_OK(xccl_param_load());
    XT_CHECK(fits("ofi", "tcp;ofi_rxm"));
}
