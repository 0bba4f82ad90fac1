/* SPDX-License-Identifier: BSD-3-Clause */
/* The words of the two PMI wire protocols, as hydra and Slurm speak them over PMI_FD or PMI_PORT.
 * Pure: bytes in, bytes out; whatever the bytes are, nothing outside them is touched.
 *
 *   PMI-1: "cmd=put kvsname=k1 key=a value=b\n"
 *   PMI-2: "    27cmd=kvs-put;key=a;value=b;c;": six characters of decimal length, then fields;
 *          a semicolon inside a value is doubled
 *
 * The first exchange on a connection is PMI-1's in both. Limits: messages of 4,096 bytes, 32
 * fields. Thread: any. */
#ifndef XCCL_BOOTSTRAP_PMI_WIRE_H
#define XCCL_BOOTSTRAP_PMI_WIRE_H

#include <stddef.h>

#include "xccl_types.h"

#define XCCL_PMI_MESSAGE_BYTES 4096 /* greatest, with its head or line end */
#define XCCL_PMI_FIELDS        32
#define XCCL_PMI_HEAD_BYTES    6

enum xccl_pmi_version { XCCL_PMI_1 = 1, XCCL_PMI_2 = 2 };

/* How many bytes at the beginning of bytes are one message; 0: not all of it is here yet. Wrong or
 * too long is xcclRemoteError (quiet). */
xcclResult_t xccl_pmi_frame(enum xccl_pmi_version version, const char *bytes, size_t count,
                            size_t *message_bytes_out);

struct xccl_pmi_message {
    size_t count; /* at least 1: the first field is cmd */
    const char *names[XCCL_PMI_FIELDS];
    const char *values[XCCL_PMI_FIELDS];
};

/* Cuts one whole message, as framed, into its fields, whose texts lie in bytes: that is written to.
 * What is no message is xcclRemoteError (quiet). */
xcclResult_t xccl_pmi_parse(enum xccl_pmi_version version, char *bytes, size_t count,
                            struct xccl_pmi_message *message_out);

/* The value of a field, or NULL. The first one counts. */
const char *xccl_pmi_value(const struct xccl_pmi_message *message, const char *name);

/* A message in the making. One that gets too long, or a text that the protocol cannot carry, makes
 * it bad, and it stays so. */
struct xccl_pmi_writer {
    enum xccl_pmi_version version;
    size_t used;
    int bad;
    char bytes[XCCL_PMI_MESSAGE_BYTES];
};

void xccl_pmi_begin(struct xccl_pmi_writer *writer, enum xccl_pmi_version version,
                    const char *command);
/* PMI-1 carries visible characters only, PMI-2 also spaces; names have no '='. */
void xccl_pmi_add(struct xccl_pmi_writer *writer, const char *name, const char *value);
/* The length of the finished message, or 0 when it is bad. */
size_t xccl_pmi_end(struct xccl_pmi_writer *writer);

#endif
