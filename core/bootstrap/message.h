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
    XCCL_BOOT_ADDRS = 19, /* rank to rank while joining: a piece of the list of addresses */
    XCCL_BOOT_MAIL = 20, /* rank to rank: a piece of a message */
    XCCL_BOOT_ALIVE = 21, /* either way, from root or ring neighbour: who it is, and that it runs */
    /* A message of the control plane (core/watch): a neighbour that has joined sends it already. */
    XCCL_BOOT_HEARTBEAT = 32,
    XCCL_BOOT_NOTICE =
        33, /* the first error: watch/notice_wire.h; u32 kind, u32 result, ... text */
};

#define XCCL_HOST_TEXT_BYTES     65
#define XCCL_SETTINGS_TEXT_BYTES 129
#define XCCL_BOOT_REPORT_MAX                                                                       \
    (12 + 16 + XCCL_ADDR_WIRE_BYTES + XCCL_HOST_TEXT_BYTES + XCCL_SETTINGS_TEXT_BYTES)
#define XCCL_BOOT_ERROR_TEXT_MAX 480
#define XCCL_BOOT_ERROR_MAX      (1 + XCCL_BOOT_ERROR_TEXT_MAX)
#define XCCL_BOOT_ADDRS_HEAD     8
#define XCCL_BOOT_MAIL_HEAD      16
#define XCCL_BOOT_NOTICE_HEAD    24 /* of a notice; the text follows */
#define XCCL_BOOT_NOTICE_ERROR   1 /* the first number of a notice: neither an abort nor a revoke */
#define XCCL_BOOT_ALIVE_MAX      (28 + XCCL_HOST_TEXT_BYTES)
#define XCCL_BOOT_NAME_BYTES     128

/* Rank, ranks, version and the settings' hash are in the hello, which is proven as well. */
struct xccl_boot_report {
    uint32_t timeout_ms; /* how long this rank will wait from now */
    uint32_t meeting_idx, meeting_count; /* which of the job's roots this is, as the rank sees it */
    uint8_t job_id[16]; /* of the communicator: the same for all who were given the same ids */
    struct xccl_addr addr; /* where it listens */
    char host[XCCL_HOST_TEXT_BYTES];
    char settings[XCCL_SETTINGS_TEXT_BYTES]; /* those that must be equal on all ranks */
};

/* Who is at the other end of a connection, by its own word. */
struct xccl_boot_who {
    uint64_t process_id, host_hash; /* os.h */
    uint32_t pid;
    uint32_t rank; /* of a root: of its process, once one has reported; else XCCL_BOOT_NO_RANK */
    uint32_t beat_ms; /* it says so again this often; 0: never */
    char host[XCCL_HOST_TEXT_BYTES];
};
#define XCCL_BOOT_NO_RANK UINT32_MAX

struct xccl_boot_error {
    xcclResult_t rc;
    char text[XCCL_BOOT_ERROR_TEXT_MAX + 1];
};

/* What a message is about; with its source and tag, it must be what the receiver waits for. */
enum xccl_mail_kind {
    XCCL_MAIL_USER = 1,
    XCCL_MAIL_STEP = 2, /* of a log-step all-gather or barrier; round counts */
    XCCL_MAIL_RING = 3, /* of a ring; round 0 upwards, 1 downwards */
    XCCL_MAIL_TREE = 4, /* of a broadcast */
    XCCL_MAIL_KIND_END
};

struct xccl_boot_mail {
    uint8_t kind, round;
    uint32_t tag;
    uint32_t total, offset; /* bytes of the message, and where this piece begins */
};

size_t xccl_boot_report_encode(const struct xccl_boot_report *report,
                               uint8_t out[XCCL_BOOT_REPORT_MAX]);
size_t xccl_boot_error_encode(xcclResult_t rc, const char *text, uint8_t out[XCCL_BOOT_ERROR_MAX]);
size_t xccl_boot_alive_encode(const struct xccl_boot_who *who, uint8_t out[XCCL_BOOT_ALIVE_MAX]);
void xccl_boot_mail_encode(const struct xccl_boot_mail *mail, uint8_t out[XCCL_BOOT_MAIL_HEAD]);

/* 0 on success, -1 for bytes that no version of ours sends; *_out is set only on success. */
int xccl_boot_report_decode(const uint8_t *in, size_t bytes, struct xccl_boot_report *report_out);
int xccl_boot_next_decode(const uint8_t *in, size_t bytes, struct xccl_addr *addr_out);
int xccl_boot_error_decode(const uint8_t *in, size_t bytes, struct xccl_boot_error *error_out);
int xccl_boot_alive_decode(const uint8_t *in, size_t bytes, struct xccl_boot_who *who_out);
/* bytes: of the whole frame, so that the piece is known to lie inside the message. */
int xccl_boot_mail_decode(const uint8_t *in, size_t bytes, struct xccl_boot_mail *mail_out);

/* "2, 5..7": the ranks whose place in seen is NULL; place 0 is rank first. Long lists end with
 * "and 12 more". */
void xccl_boot_missing_text(const void *const *seen, uint32_t count, uint32_t first, char *text_out,
                            size_t text_bytes);

#endif
