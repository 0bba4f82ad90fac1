/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel says in small files, of network cards above all. What cannot be read, as in
 * containers without /sys, is "not known" and no error.
 *
 * Thread: any. */
#ifndef XCCL_BASE_SYSFS_H
#define XCCL_BASE_SYSFS_H

#include <stddef.h>
#include <stdint.h>

#include "base/os.h"

/* The first line of a file, without its end; "" when it cannot be read. */
void xccl_sysfs_line(const char *path, char *text_out, size_t bytes);
/* The number with which that line begins; 0: there is none, or one that is no 31 bits. */
uint32_t xccl_sysfs_number(const char *path);
/* Of a network interface, in Mbit/s; 0: the driver does not know. */
uint32_t xccl_sysfs_speed(const char *interface);
/* The card's own folder, for a link to it such as /sys/class/net/eth0/device; a virtio device is
 * one below its card. "" when there is none, or bytes do not hold it. */
void xccl_sysfs_card(const char *link, char *path_out, size_t bytes);
/* Whether two such folders are below one PCI root, as "/sys/devices/pci0000:3a"; "": it is not. */
int xccl_sysfs_same_root(const char *card, const char *other);
/* The NUMA node of such a folder's device; -1: not known. */
int xccl_sysfs_node(const char *card);
/* The NUMA nodes, up to 63, that have one of these cores, one bit each; 0: not known. */
uint64_t xccl_sysfs_nodes(const uint64_t cores[XCCL_CORE_WORDS]);

#endif
