/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks and root say to each other inside the frames of a proven connection: encode and
 * decode, bytes in, bytes out. Decoders refuse what is short, long or out of range and never trust
 * a length; a proven peer may still be broken.
 *
 * Thread: any; no state. */
#ifndef XCCL_BOOTSTRAP_MESSAGE_H
#define XCCL_BOOTSTRAP_MESSAGE_H

#include "base/netaddr.h"
#include "xccl_types.h"

/* Frame types 16 to 31. */
enum xccl_boot_frame {
    XCCL_BOOT_REPORT = 16, /* rank to root */
    XCCL_BOOT_NEXT = 17, /* root to rank: where rank + 1 listens */
    XCCL_BOOT_ERROR = 18, /* either way: joining failed, and why */
    XCCL_BOOT_DATA = 19, /* a piece of an all-gather */
};

#define XCCL_HOST_TEXT_BYTES     65
#define XCCL_BOOT_REPORT_MAX     (8 + XCCL_ADDR_WIRE_BYTES + XCCL_HOST_TEXT_BYTES)
#define XCCL_BOOT_ERROR_TEXT_MAX 480
#define XCCL_BOOT_ERROR_MAX      (1 + XCCL_BOOT_ERROR_TEXT_MAX)
#define XCCL_BOOT_DATA_HEAD      16

/* Rank and nranks are in the hello, which is proven as well. */
struct xccl_boot_report {
    uint32_t xccl_version; /* XCCL_VERSION_CODE */
    uint32_t timeout_ms; /* how long this rank will wait from now */
    struct xccl_addr addr; /* where it listens */
    char host[XCCL_HOST_TEXT_BYTES];
};

struct xccl_boot_error {
    xcclResult_t rc;
    char text[XCCL_BOOT_ERROR_TEXT_MAX + 1];
};

struct xccl_boot_data {
    uint32_t seq; /* which all-gather, counted from 1 */
    uint32_t part_bytes;
    uint64_t offset; /* in the block that this round moves */
};

size_t xccl_boot_report_encode(const struct xccl_boot_report *report,
                               uint8_t out[XCCL_BOOT_REPORT_MAX]);
size_t xccl_boot_error_encode(xcclResult_t rc, const char *text, uint8_t out[XCCL_BOOT_ERROR_MAX]);
void xccl_boot_data_encode(const struct xccl_boot_data *data, uint8_t out[XCCL_BOOT_DATA_HEAD]);

/* 0 on success, -1 for bytes that no version of ours sends; *_out is set only on success. */
int xccl_boot_report_decode(const uint8_t *in, size_t bytes, struct xccl_boot_report *report_out);
int xccl_boot_next_decode(const uint8_t *in, size_t bytes, struct xccl_addr *addr_out);
int xccl_boot_error_decode(const uint8_t *in, size_t bytes, struct xccl_boot_error *error_out);
int xccl_boot_data_decode(const uint8_t *in, size_t bytes, struct xccl_boot_data *data_out);

/* "2, 5..7": the ranks whose place in seen is NULL. Long lists end with "and 12 more". */
void xccl_boot_missing_text(const void *const *seen, uint32_t nranks, char *text_out,
                            size_t text_bytes);

#endif
