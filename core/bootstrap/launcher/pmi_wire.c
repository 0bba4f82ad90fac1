/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames, parses and writes PMI messages. Strict where bytes decide what happens next (length,
 * first field, NUL bytes), easy on what servers add: unknown fields are passed over by the callers.
 * Thread: any. */
#include "bootstrap/launcher/pmi_wire.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static xcclResult_t wrong(const char *why)
{
    return xccl_fail_quietly(xcclRemoteError, 0, NULL, "the launcher's PMI message %s", why);
}

/* "    27" and the like: digits with spaces around them. */
static xcclResult_t head_decode(const char *head, size_t *length_out)
{
    size_t at = 0, length = 0, digits = 0;

    while (at < XCCL_PMI_HEAD_BYTES && head[at] == ' ')
        at++;
    for (; at < XCCL_PMI_HEAD_BYTES && head[at] >= '0' && head[at] <= '9'; at++, digits++)
        length = length * 10 + (size_t)(head[at] - '0');
    while (at < XCCL_PMI_HEAD_BYTES && head[at] == ' ')
        at++;
    if (at < XCCL_PMI_HEAD_BYTES || digits == 0)
        return wrong("does not begin with its length");
    *length_out = length;
    return xcclSuccess;
}

xcclResult_t xccl_pmi_frame(enum xccl_pmi_version version, const char *bytes, size_t count,
                            size_t *message_bytes_out)
{
    size_t have = count < XCCL_PMI_MESSAGE_BYTES ? count : XCCL_PMI_MESSAGE_BYTES;
    size_t length = 0;
    xcclResult_t rc = xcclSuccess;

    *message_bytes_out = 0;
    if (version == XCCL_PMI_1) {
        const char *end = have ? memchr(bytes, '\n', have) : NULL;

        if (!end && have == XCCL_PMI_MESSAGE_BYTES)
            return wrong("has a line of more than 4,096 bytes");
        if (end)
            *message_bytes_out = (size_t)(end - bytes) + 1;
        return xcclSuccess;
    }
    if (have < XCCL_PMI_HEAD_BYTES)
        return xcclSuccess;
    rc = head_decode(bytes, &length);
    if (rc)
        return rc;
    if (length == 0 || length > XCCL_PMI_MESSAGE_BYTES - XCCL_PMI_HEAD_BYTES)
        return wrong("has an impossible length");
    if (have >= XCCL_PMI_HEAD_BYTES + length)
        *message_bytes_out = XCCL_PMI_HEAD_BYTES + length;
    return xcclSuccess;
}

/* Adds "name=value", which ends with 0. */
static xcclResult_t take_field(char *text, struct xccl_pmi_message *message)
{
    char *equals = strchr(text, '=');

    if (!equals || equals == text)
        return wrong("has a field without a name or value");
    if (message->count == XCCL_PMI_FIELDS)
        return wrong("has more than 32 fields");
    *equals = '\0';
    message->names[message->count] = text;
    message->values[message->count] = equals + 1;
    message->count++;
    return xcclSuccess;
}

/* text ends with 0 and has no line end. */
static xcclResult_t parse_words(char *text, struct xccl_pmi_message *message)
{
    char *at = text;
    xcclResult_t rc = xcclSuccess;

    while (!rc) {
        char *word = NULL;

        at += strspn(at, " \r\t");
        if (!*at)
            break;
        word = at;
        at += strcspn(at, " \r\t");
        if (*at)
            *at++ = '\0';
        rc = take_field(word, message);
    }
    return rc;
}

/* Ends the field that begins at text and undoes the doubling in it, in place. Returns where the
 * next one begins, or NULL when the field has no end. */
static char *end_field(char *text, char *end)
{
    char *from = text, *to = text;

    for (; from < end; from++) {
        if (*from != ';') {
            *to++ = *from;
        } else if (from + 1 < end && from[1] == ';') {
            *to++ = ';';
            from++;
        } else {
            *to = '\0';
            return from + 1;
        }
    }
    return NULL;
}

static xcclResult_t parse_fields(char *text, char *end, struct xccl_pmi_message *message)
{
    xcclResult_t rc = xcclSuccess;

    while (!rc && text < end) {
        char *next = end_field(text, end);

        if (!next)
            return wrong("has a field without an end");
        rc = take_field(text, message);
        text = next;
    }
    return rc;
}

xcclResult_t xccl_pmi_parse(enum xccl_pmi_version version, char *bytes, size_t count,
                            struct xccl_pmi_message *message_out)
{
    struct xccl_pmi_message message = {.count = 0};
    size_t framed = 0;
    xcclResult_t rc = xccl_pmi_frame(version, bytes, count, &framed);

    if (rc)
        return rc;
    if (framed == 0 || framed != count)
        return wrong("is not whole");
    if (memchr(bytes, '\0', count))
        return wrong("has a zero byte");
    if (version == XCCL_PMI_1) {
        bytes[count - 1] = '\0';
        rc = parse_words(bytes, &message);
    } else {
        rc = parse_fields(bytes + XCCL_PMI_HEAD_BYTES, bytes + count, &message);
    }
    if (rc)
        return rc;
    if (message.count == 0 || strcmp(message.names[0], "cmd") != 0)
        return wrong("does not begin with a command");
    *message_out = message;
    return xcclSuccess;
}

const char *xccl_pmi_value(const struct xccl_pmi_message *message, const char *name)
{
    for (size_t i = 0; i < message->count; i++) {
        if (strcmp(message->names[i], name) == 0)
            return message->values[i];
    }
    return NULL;
}

static void put(struct xccl_pmi_writer *writer, char byte)
{
    if (writer->used == sizeof(writer->bytes))
        writer->bad = 1;
    else
        writer->bytes[writer->used++] = byte;
}

static void put_text(struct xccl_pmi_writer *writer, const char *text, int is_name)
{
    char lowest = writer->version == XCCL_PMI_1 ? '!' : ' ';

    for (; *text; text++) {
        if (*text < lowest || *text > '~' || (is_name && (*text == '=' || *text == ';')))
            writer->bad = 1;
        if (writer->version == XCCL_PMI_2 && *text == ';')
            put(writer, ';');
        put(writer, *text);
    }
}

void xccl_pmi_begin(struct xccl_pmi_writer *writer, enum xccl_pmi_version version,
                    const char *command)
{
    writer->version = version;
    writer->bad = 0;
    /* The length is known at the end. */
    writer->used = version == XCCL_PMI_1 ? 0 : XCCL_PMI_HEAD_BYTES;
    xccl_pmi_add(writer, "cmd", command);
}

void xccl_pmi_add(struct xccl_pmi_writer *writer, const char *name, const char *value)
{
    if (writer->version == XCCL_PMI_1 && writer->used)
        put(writer, ' ');
    if (!*name)
        writer->bad = 1;
    put_text(writer, name, 1);
    put(writer, '=');
    put_text(writer, value, 0);
    if (writer->version == XCCL_PMI_2)
        put(writer, ';');
}

size_t xccl_pmi_end(struct xccl_pmi_writer *writer)
{
    char head[XCCL_PMI_HEAD_BYTES + 1];

    if (writer->version == XCCL_PMI_1)
        put(writer, '\n');
    if (writer->bad)
        return 0;
    if (writer->version == XCCL_PMI_2) {
        snprintf(head, sizeof(head), "%6u",
                 (unsigned)((writer->used - XCCL_PMI_HEAD_BYTES) % 1000000));
        memcpy(writer->bytes, head, XCCL_PMI_HEAD_BYTES);
    }
    return writer->used;
}
