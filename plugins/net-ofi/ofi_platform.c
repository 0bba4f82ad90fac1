/* SPDX-License-Identifier: BSD-3-Clause */
/* What the machines of EC2 have that are made for this: how many EFA cards, and how fast each is.
 * From it comes the line that names a machine that was not set up with all of them. p4d, p5, p5e
 * and g6e are as AWS's public pages have them; the other rows have not been compared with a source,
 * and no row with a machine. Pure but for reading the machine's name. Thread: any. */
#include <stdio.h>
#include <string.h>

#include "base/sysfs.h"
#include "ofi_int.h"

#define GBPS 1000u

struct platform {
    const char *name;
    int cards;
    uint32_t mbps; /* of a card */
};

static const struct platform platforms[] = {
    {"p4d.24xlarge", 4, 100 * GBPS},    {"p4de.24xlarge", 4, 100 * GBPS},
    {"p5.48xlarge", 32, 100 * GBPS},    {"p5e.48xlarge", 32, 100 * GBPS},
    {"p5en.48xlarge", 16, 200 * GBPS},  {"p6-b200.48xlarge", 8, 400 * GBPS},
    {"g6e.48xlarge", 4, 100 * GBPS},    {"trn1.32xlarge", 8, 100 * GBPS},
    {"trn1n.32xlarge", 16, 100 * GBPS}, {"trn2.48xlarge", 16, 200 * GBPS},
    {"trn2u.48xlarge", 16, 200 * GBPS},
};

void ofi_platform_name(char name_out[OFI_NAME_BYTES])
{
    xccl_sysfs_line("/sys/devices/virtual/dmi/id/product_name", name_out, OFI_NAME_BYTES);
}

/* p5 and p6 have cards that write by themselves; on earlier ones libfabric makes messages of a
 * write. */
int ofi_platform_writes(const char *name)
{
    return strncmp(name, "p5", 2) == 0 || strncmp(name, "p6", 2) == 0;
}

static const struct platform *find(const char *name)
{
    for (size_t i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++) {
        if (strcmp(platforms[i].name, name) == 0)
            return &platforms[i];
    }
    return NULL;
}

void ofi_platform_check(const char *name, const char *provider, int cards, uint32_t slowest_mbps,
                        char line_out[OFI_TEXT_BYTES])
{
    const struct platform *platform = find(name);

    line_out[0] = 0;
    if (!platform)
        return;
    if (!provider || strncmp(provider, "efa", 3) != 0)
        snprintf(line_out, OFI_TEXT_BYTES,
                 "this %s has %d EFA cards and %s is used; install EFA's driver, give each network "
                 "card an EFA interface, and let a container see /dev/infiniband",
                 name, platform->cards, provider ? provider : "no provider");
    else if (cards < platform->cards)
        snprintf(line_out, OFI_TEXT_BYTES,
                 "this %s has %d EFA cards and %d are here; give each network card an EFA "
                 "interface, and let a container see all of /dev/infiniband",
                 name, platform->cards, cards);
    else if (slowest_mbps && slowest_mbps < platform->mbps)
        snprintf(line_out, OFI_TEXT_BYTES, "an EFA card of this %s says %u Gb/s where %u are usual",
                 name, slowest_mbps / GBPS, platform->mbps / GBPS);
}
