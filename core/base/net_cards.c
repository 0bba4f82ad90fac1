/* SPDX-License-Identifier: BSD-3-Clause */
/* Cards by the kernel's folders: class/infiniband has EFA's cards among those of the verbs (by
 * their PCI numbers; by name where these cannot be read), class/cxi has Slingshot's.
 *
 * Thread: any. */
#include "base/net_cards.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sysfs.h"

#define AMAZON       0x1d0f
#define EFA_FIRST    0xefa0 /* PCI device numbers of EFA, all generations */
#define EFA_LAST     0xefaf
#define CHANNEL_NODE '1' /* node_type of a channel adapter: "1: CA" */

/* Counts a card. Long names are cut. */
static void add(struct xccl_card_kind *kind, const char *name)
{
    if (!kind->count || strcmp(name, kind->first) < 0)
        snprintf(kind->first, sizeof(kind->first), "%.*s", XCCL_CARD_NAME_BYTES - 1, name);
    kind->count++;
}

static void read_of(const char *folder, const char *card, const char *file, char text_out[32])
{
    char path[PATH_MAX];

    text_out[0] = 0;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/%s", folder, card, file) < sizeof(path))
        xccl_sysfs_line(path, text_out, 32);
}

static int is_efa(const char *folder, const char *card)
{
    char vendor[32], device[32];
    unsigned long number;

    read_of(folder, card, "device/vendor", vendor);
    read_of(folder, card, "device/device", device);
    if (!vendor[0] || !device[0])
        return strncmp(card, "efa_", 4) == 0;
    number = strtoul(device, NULL, 16);
    return strtoul(vendor, NULL, 16) == AMAZON && number >= EFA_FIRST && number <= EFA_LAST;
}

/* iWARP and usNIC cards, which the ib plugin cannot use, have other node types. A card without a
 * node type counts. */
static int is_channel(const char *folder, const char *card)
{
    char type[32];

    read_of(folder, card, "node_type", type);
    return !type[0] || type[0] == CHANNEL_NODE;
}

static void add_verbs(const char *folder, const char *card, struct xccl_net_cards *cards)
{
    if (is_efa(folder, card))
        add(&cards->efa, card);
    else if (is_channel(folder, card))
        add(&cards->rdma, card);
}

static void add_cxi(const char *folder, const char *card, struct xccl_net_cards *cards)
{
    (void)folder;
    add(&cards->cxi, card);
}

static void look_in(const char *sysfs, const char *class,
                    void (*found)(const char *folder, const char *card,
                                  struct xccl_net_cards *cards),
                    struct xccl_net_cards *cards)
{
    char folder[PATH_MAX];
    const struct dirent *entry;
    DIR *dir;

    if ((size_t)snprintf(folder, sizeof(folder), "%s/class/%s", sysfs, class) >= sizeof(folder))
        return;
    dir = opendir(folder);
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] != '.')
            found(folder, entry->d_name, cards);
    }
    if (dir)
        closedir(dir);
}

void xccl_net_cards_find(const char *sysfs, struct xccl_net_cards *cards_out)
{
    memset(cards_out, 0, sizeof(*cards_out));
    look_in(sysfs, "infiniband", add_verbs, cards_out);
    look_in(sysfs, "cxi", add_cxi, cards_out);
    if (!cards_out->cxi.count)
        look_in(sysfs, "cxi_user", add_cxi, cards_out);
}
