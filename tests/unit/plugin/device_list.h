/* SPDX-License-Identifier: BSD-3-Clause */
/* A plugin's devices, for tests of what is chosen among them: made one by one, with what counts.
 * Thread: one. Header only. */
#ifndef TESTS_UNIT_PLUGIN_DEVICE_LIST_H
#define TESTS_UNIT_PLUGIN_DEVICE_LIST_H

#include "plugin/net_device.h"

static struct xccl_net_device devices[40];
static int count;

/* One device more; a speed is in Mbit/s. */
static struct xccl_net_device *add(const char *name, int same_host, uint32_t speed)
{
    devices[count] = (struct xccl_net_device){.number = count,
                                              .name = name,
                                              .same_host = same_host,
                                              .speed_mbps = speed,
                                              .ptr_support = XCCL_NET_PTR_HOST};
    return &devices[count++];
}

#endif
