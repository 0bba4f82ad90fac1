/* SPDX-License-Identifier: BSD-3-Clause */
/* See card_share.h. The cards are shared out from the nearest to the farthest, one to each rank in
 * turn, as far as a card has not its share of ranks yet; then ranks change cards for as long as
 * both together come nearer. Small integers only, so all ranks come to the same table.
 *
 * Thread: any. */
#include "topo/card_share.h"

#include <string.h>

#include "base/alloc.h"
#include "base/sysfs.h"

#define CHANGES_MAX 256 /* ranks; more take what the first turn gives them */
#define ROUNDS_MAX  8

/* ---- how far it is ---- */

/* The folders of a PCI path behind its root, such as 0000:3a:00.0. NULL: it has no root. */
static const char *behind_root(const char *path)
{
    const char *pci = strstr(path, "/pci");

    return pci ? strchr(pci + 1, '/') : NULL;
}

static int folders(const char *path)
{
    int count = 0;

    for (; *path; path++)
        count += *path == '/';
    return count;
}

enum xccl_card_distance xccl_card_distance(const struct xccl_card_place *place, const char *path,
                                           int node)
{
    const char *here = behind_root(place->path), *there = path ? behind_root(path) : NULL;

    if (here && there && xccl_sysfs_same_root(place->path, path)) {
        int common = 0, bridges;

        for (int i = 0; here[i] && here[i] == there[i]; i++)
            common += (here[i + 1] == '/' || !here[i + 1]) &&
                      (there[i + 1] == '/' || !there[i + 1]);
        bridges = folders(here) + folders(there) - 2 * common - 2;
        if (common == 0)
            return XCCL_CARD_BELOW_ROOT;
        return (enum xccl_card_distance)(bridges < 0 ? 0 : bridges > 5 ? 5 : bridges);
    }
    if (!place->nodes || node < 0 || node > 63)
        return XCCL_CARD_ANYWHERE;
    return place->nodes >> node & 1 ? XCCL_CARD_NUMA_NODE : XCCL_CARD_OTHER_NODE;
}

/* ---- who gets which ---- */

/* The table while it is made. */
struct share {
    const struct xccl_card_view *const *ranks;
    int count, cards;
    int (*numbers)[XCCL_NET_MAX_MEMBERS];
    int *counts, *wants;
    int load[XCCL_CARDS_MAX]; /* ranks of a card */
    int load_each, extra; /* that each card may have, and how many cards may have one more */
};

static int has_card(const struct share *share, int rank, int card)
{
    for (int i = 0; i < share->counts[rank]; i++) {
        if (share->numbers[rank][i] == card)
            return 1;
    }
    return 0;
}

static int may_take(const struct share *share, int card)
{
    return share->load[card] < share->load_each ||
           (share->load[card] == share->load_each && share->extra > 0);
}

/* One card as far away as that, the one with the fewest ranks. 0: there is none. */
static int take_one(struct share *share, int rank, int distance)
{
    int best = -1;

    for (int card = 0; card < share->cards; card++) {
        if (share->ranks[rank]->distance[card] == distance && may_take(share, card) &&
            !has_card(share, rank, card) && (best < 0 || share->load[card] < share->load[best]))
            best = card;
    }
    if (best < 0)
        return 0;
    share->extra -= share->load[best]++ == share->load_each;
    share->numbers[rank][share->counts[rank]++] = best;
    return 1;
}

static void take_all(struct share *share)
{
    for (int distance = 0; distance < XCCL_CARD_DISTANCES; distance++) {
        for (int moved = 1; moved;) {
            moved = 0;
            for (int rank = 0; rank < share->count; rank++) {
                if (share->counts[rank] < share->wants[rank])
                    moved |= take_one(share, rank, distance);
            }
        }
    }
}

/* What two ranks win by changing these cards; not more than 0: nothing. */
static int gain(const struct share *share, int a, int i, int b, int k)
{
    int ours = share->numbers[a][i], theirs = share->numbers[b][k];
    const uint8_t *near_a = share->ranks[a]->distance, *near_b = share->ranks[b]->distance;

    if (ours == theirs || has_card(share, a, theirs) || has_card(share, b, ours))
        return 0;
    return near_a[ours] + near_b[theirs] - near_a[theirs] - near_b[ours];
}

static int change_pair(struct share *share, int a, int b)
{
    int changed = 0;

    for (int i = 0; i < share->counts[a]; i++) {
        for (int k = 0; k < share->counts[b]; k++) {
            int ours = share->numbers[a][i];

            if (gain(share, a, i, b, k) <= 0)
                continue;
            share->numbers[a][i] = share->numbers[b][k];
            share->numbers[b][k] = ours;
            changed = 1;
        }
    }
    return changed;
}

static void change_all(struct share *share)
{
    int changed = share->count <= CHANGES_MAX;

    for (int round = 0; round < ROUNDS_MAX && changed; round++) {
        changed = 0;
        for (int a = 0; a < share->count; a++)
            for (int b = a + 1; b < share->count; b++)
                changed |= change_pair(share, a, b);
    }
}

static void sort(int *numbers, int count)
{
    for (int i = 1; i < count; i++) {
        for (int k = i; k > 0 && numbers[k] < numbers[k - 1]; k--) {
            int other = numbers[k];

            numbers[k] = numbers[k - 1];
            numbers[k - 1] = other;
        }
    }
}

/* How many each rank wants, and how many ranks a card serves then. */
static void set_wants(struct share *share, int each)
{
    int most = each && each < XCCL_NET_MAX_MEMBERS ? each : XCCL_NET_MAX_MEMBERS, sum = 0;

    for (int rank = 0; rank < share->count; rank++) {
        int want = each ? each : share->cards / share->count + (rank < share->cards % share->count);

        want = want < 1 ? 1 : want > most ? most : want;
        share->wants[rank] = want < share->cards ? want : share->cards;
        sum += share->wants[rank];
    }
    share->load_each = sum / share->cards;
    share->extra = sum % share->cards;
}

int xccl_card_share(const struct xccl_card_view *const ranks[], int count, int each,
                    int (*numbers_out)[XCCL_NET_MAX_MEMBERS], int *counts_out)
{
    struct share share = {.ranks = ranks,
                          .count = count,
                          .cards = ranks[0]->count,
                          .numbers = numbers_out,
                          .counts = counts_out};

    memset(counts_out, 0, (size_t)count * sizeof(*counts_out));
    share.wants = xccl_calloc((size_t)count, sizeof(*share.wants));
    if (!share.wants)
        return 0;
    set_wants(&share, each);
    take_all(&share);
    change_all(&share);
    for (int rank = 0; rank < count; rank++)
        sort(numbers_out[rank], counts_out[rank]);
    xccl_free(share.wants);
    return 1;
}
