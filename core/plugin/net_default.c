/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of network plugins that this machine's cards ask for, and what a user is told when the
 * plugin of the best ones cannot be used; the header says the rule.
 *
 * Thread: any. */
#include "plugin/net_default.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/param.h"
#include "plugin/net_plugin_int.h"

enum { OFI, IB, SOCKET };

static void tell_cards(const char *kind, const struct xccl_card_kind *cards,
                       char why_out[XCCL_NET_WHY_BYTES])
{
    if (cards->count == 1)
        snprintf(why_out, XCCL_NET_WHY_BYTES, "this machine has %s card %s", kind, cards->first);
    else
        snprintf(why_out, XCCL_NET_WHY_BYTES, "this machine has %d %s cards (%s, ...)",
                 cards->count, kind, cards->first);
}

void xccl_net_default_make(const struct xccl_net_cards *cards, struct xccl_net_default *made_out)
{
    static const char *const names[XCCL_NET_DEFAULTS] = {
        [OFI] = "ofi", [IB] = "ib", [SOCKET] = "socket"};
    struct xccl_net_default_item *items = made_out->items;

    memset(made_out, 0, sizeof(*made_out));
    made_out->cards = *cards;
    items[OFI].listed = cards->efa.count || cards->cxi.count;
    if (cards->efa.count)
        tell_cards("EFA", &cards->efa, items[OFI].why);
    else if (cards->cxi.count)
        tell_cards("Slingshot", &cards->cxi, items[OFI].why);
    else
        snprintf(items[OFI].why, XCCL_NET_WHY_BYTES, "no EFA or Slingshot card on this machine");
    items[IB].listed = cards->rdma.count > 0;
    if (cards->rdma.count)
        tell_cards("InfiniBand or RoCE", &cards->rdma, items[IB].why);
    else
        snprintf(items[IB].why, XCCL_NET_WHY_BYTES, "no InfiniBand or RoCE card on this machine");
    items[SOCKET].listed = 1;
    snprintf(items[SOCKET].why, XCCL_NET_WHY_BYTES, "it works on every machine");
    for (int i = 0; i < XCCL_NET_DEFAULTS; i++) {
        size_t used = strlen(made_out->list);

        items[i].name = names[i];
        if (items[i].listed)
            snprintf(made_out->list + used, sizeof(made_out->list) - used, "%s%s", used ? "," : "",
                     names[i]);
    }
}

static struct xccl_net_default machine;

static void look(void)
{
    struct xccl_net_cards cards;

    xccl_net_cards_find(XCCL_CARDS_SYSFS, &cards);
    xccl_net_default_make(&cards, &machine);
}

const struct xccl_net_default *xccl_net_default(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, look);
    return &machine;
}

int xccl_net_is_auto(const char *list)
{
    char item[XCCL_NET_ITEM_BYTES];
    const char *at = list;

    return xccl_net_list_item(&at, item) && strcmp(item, XCCL_NET_AUTO) == 0 &&
           !xccl_net_list_item(&at, item);
}

const char *xccl_net_list_items(const char *list)
{
    return xccl_net_is_auto(list) ? xccl_net_default()->list : list;
}

/* ---- of the plugin that was opened for cards ---- */

int net_default_fits(const struct xccl_net_default *list, const char *name, const char *provider,
                     struct net_reason *reason)
{
    int is_efa = provider && strncasecmp(provider, "efa", 3) == 0;
    int is_cxi = provider && strncasecmp(provider, "cxi", 3) == 0;

    if (strcmp(name, list->items[OFI].name) != 0 || xccl_param_is_set(XCCL_P_OFI_PROVIDER) ||
        (is_efa && list->cards.efa.count) || (is_cxi && list->cards.cxi.count))
        return 1;
    net_reason_set(reason,
                   "libfabric has no provider for these cards that works here, only %.64s; install "
                   "%s, or check FI_PROVIDER",
                   provider ? provider : "one without a name",
                   list->cards.efa.count ? "AWS's EFA software" : "HPE's libfabric");
    return 0;
}

void net_default_tell(const struct xccl_net_default *list, const char *name, const char *why)
{
    static atomic_int told;
    const struct xccl_net_default_item *ofi = &list->items[OFI];
    const char *rest = strchr(list->list, ','); /* at least socket */

    /* Relaxed: only one line more or less. */
    if (strcmp(name, ofi->name) != 0 || atomic_exchange_explicit(&told, 1, memory_order_relaxed))
        return;
    xccl_log(XCCL_LOG_WARN, "%s, but network plugin %s cannot use %s: %s; going on with %s",
             ofi->why, name, list->cards.efa.count + list->cards.cxi.count == 1 ? "it" : "them",
             why, rest + 1);
}
