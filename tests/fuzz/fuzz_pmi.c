/* SPDX-License-Identifier: BSD-3-Clause */
/* PMI messages from a server that sends anything: the first byte chooses the protocol, the rest is
 * a stream. Messages are cut off and parsed until one is wrong or not whole; what was parsed and
 * can be written again is the same when it is read back. The other parsers of text that comes from
 * launchers get the bytes too.
 * Thread: one. */
#include "bootstrap/launcher/pmi_wire.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/launcher/launcher_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(enum xccl_pmi_version version, const struct xccl_pmi_message *message)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message again;
    size_t bytes = 0;

    xccl_pmi_begin(&writer, version, message->values[0]);
    for (size_t i = 1; i < message->count; i++)
        xccl_pmi_add(&writer, message->names[i], message->values[i]);
    bytes = xccl_pmi_end(&writer);
    if (bytes == 0)
        return;
    if (xccl_pmi_parse(version, writer.bytes, bytes, &again) || again.count != message->count)
        abort();
    for (size_t i = 0; i < message->count; i++) {
        if (strcmp(again.names[i], message->names[i]) != 0 ||
            strcmp(again.values[i], message->values[i]) != 0)
            abort();
    }
}

static void read_stream(enum xccl_pmi_version version, char *bytes, size_t count)
{
    struct xccl_pmi_message message;
    size_t used = 0;

    while (xccl_pmi_frame(version, bytes, count, &used) == xcclSuccess && used) {
        if (used > count || used > XCCL_PMI_MESSAGE_BYTES)
            abort();
        if (xccl_pmi_parse(version, bytes, used, &message))
            return;
        (void)xccl_pmi_value(&message, "rc");
        check_again(version, &message);
        bytes += used;
        count -= used;
    }
}

static void read_variables(const char *text)
{
    char host[32];

    if (xccl_slurm_first_host(text, host, sizeof(host)) &&
        (!*host || strnlen(host, sizeof(host)) == sizeof(host)))
        abort();
    (void)xccl_slurm_tasks_on(text, 3);
    if (xccl_launcher_port("run", text, 29500) > 65535)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = NULL;

    if (size < 1)
        return 0;
    copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    copy[size - 1] = '\0';
    read_variables(copy);
    read_stream(data[0] & 1 ? XCCL_PMI_2 : XCCL_PMI_1, copy, size - 1);
    free(copy);
    return 0;
}
