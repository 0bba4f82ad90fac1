/* SPDX-License-Identifier: BSD-3-Clause */
/* A notice in a frame of the control plane: u32 kind, u32 result, i32 origin, u32 trouble, i32
 * culprit, u32 remedy_at (struct xccl_notice), then the text without its 0. Decoding takes bytes of
 * another rank, and refuses numbers that are none of this version. Thread: any; no state. */
#ifndef XCCL_WATCH_NOTICE_WIRE_H
#define XCCL_WATCH_NOTICE_WIRE_H

#include "bootstrap/message.h"
#include "comm/comm_error.h"

#define XCCL_NOTICE_FRAME_BYTES (XCCL_BOOT_NOTICE_HEAD + XCCL_NOTICE_TEXT_BYTES)

size_t xccl_notice_encode(const struct xccl_notice *notice, uint8_t out[XCCL_NOTICE_FRAME_BYTES]);
/* 0: it is none. Else its text is ended and escaped, its ranks are below nranks, and remedy_at is
 * inside the text. */
int xccl_notice_decode(const uint8_t *in, size_t bytes, int nranks, struct xccl_notice *notice_out);

#endif
