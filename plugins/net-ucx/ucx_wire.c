/* SPDX-License-Identifier: BSD-3-Clause */
/* The handle, the hello and UCX's list of its transports, byte by byte. A hello is sealed, and its
 * sender has proved itself (kit_guest.h), before any of it is believed: UCX does not check a worker
 * address, so only the peer may give one.
 * Thread: any. */
#include "ucx_wire.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

void ucx_handle_encode(const struct ucx_handle *handle, xcclNetHandle_t *handle_out)
{
    struct xccl_wire wire = xccl_wire_over(handle_out->bytes + KIT_HEAD_BYTES, UCX_OWN_BYTES);

    kit_handle_encode(&ucx_dialect, &handle->where, handle_out);
    xccl_wire_put_u64(&wire, handle->host);
    xccl_wire_put_u64(&wire, handle->instance);
    xccl_wire_put_u32(&wire, handle->modes);
}

xcclResult_t ucx_handle_decode(const xcclNetHandle_t *bytes, struct ucx_handle *handle_out)
{
    xcclNetHandle_t copy = *bytes;
    struct xccl_wire wire = xccl_wire_over(copy.bytes + KIT_HEAD_BYTES, UCX_OWN_BYTES);
    xcclResult_t rc = kit_handle_decode(&ucx_dialect, bytes, &handle_out->where);

    if (rc != xcclSuccess)
        return rc;
    handle_out->host = xccl_wire_get_u64(&wire);
    handle_out->instance = xccl_wire_get_u64(&wire);
    handle_out->modes = xccl_wire_get_u32(&wire);
    if (handle_out->modes == 0 || handle_out->modes >= 1u << UCX_MODES)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "use the same build of XCCL on all ranks",
                                 "a connect handle of the ucx plugin is damaged: transports %#x",
                                 handle_out->modes);
    return xcclSuccess;
}

size_t ucx_hello_encode(const struct ucx_hello *hello, const void *address,
                        uint8_t bytes_out[UCX_HELLO_MAX])
{
    struct xccl_wire wire = kit_hello_begin(&ucx_dialect, bytes_out);

    xccl_wire_put_u32(&wire, hello->mode);
    xccl_wire_put_u32(&wire, hello->address_bytes);
    xccl_wire_put_u64(&wire, hello->instance);
    xccl_wire_put_u64(&wire, hello->link);
    xccl_wire_put_u64(&wire, hello->wanted);
    xccl_wire_put(&wire, address, hello->address_bytes);
    return wire.bad ? 0 : UCX_HEAD_BYTES + hello->address_bytes;
}

static int hello_decode(struct xccl_wire *wire, void *hello)
{
    struct ucx_hello *hello_out = hello;

    hello_out->mode = xccl_wire_get_u32(wire);
    hello_out->address_bytes = xccl_wire_get_u32(wire);
    hello_out->instance = xccl_wire_get_u64(wire);
    hello_out->link = xccl_wire_get_u64(wire);
    hello_out->wanted = xccl_wire_get_u64(wire);
    return hello_out->mode < UCX_MODES && hello_out->link != 0 && hello_out->address_bytes > 0 &&
           hello_out->address_bytes <= UCX_ADDRESS_MAX;
}

const struct kit_dialect ucx_dialect = {.plugin = "ucx",
                                        .wrong = "a wrong hello",
                                        .handle_magic = UCX_HANDLE_MAGIC,
                                        .hello_magic = UCX_HELLO_MAGIC,
                                        .version = UCX_WIRE_VERSION,
                                        .handle_own_bytes = UCX_OWN_BYTES,
                                        .hello_bytes = UCX_HEAD_BYTES,
                                        .hello_bytes_max = UCX_HELLO_MAX,
                                        .decode = hello_decode};

size_t ucx_answer_seal(struct kit_proof *proof, uint8_t bytes[UCX_ANSWER_MAX], size_t hello_bytes)
{
    size_t address_bytes = hello_bytes - UCX_HEAD_BYTES;
    uint8_t *address = bytes + KIT_SEALED(UCX_HEAD_BYTES);

    memmove(address, bytes + UCX_HEAD_BYTES, address_bytes);
    kit_proof_seal(proof, bytes, UCX_HEAD_BYTES);
    kit_proof_seal(proof, address, address_bytes);
    return KIT_SEALED(UCX_HEAD_BYTES) + KIT_SEALED(address_bytes);
}

void ucx_bye_encode(uint64_t sent, uint8_t bytes_out[UCX_BYE_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, UCX_BYE_BYTES);

    xccl_wire_put_u32(&wire, UCX_BYE_MAGIC);
    xccl_wire_put_u64(&wire, sent);
}

int ucx_bye_decode(const uint8_t bytes[UCX_BYE_BYTES], uint64_t *sent_out)
{
    uint8_t copy[UCX_BYE_BYTES];
    struct xccl_wire wire = xccl_wire_over(copy, sizeof(copy));

    memcpy(copy, bytes, sizeof(copy));
    if (xccl_wire_get_u32(&wire) != UCX_BYE_MAGIC)
        return 0;
    *sent_out = xccl_wire_get_u64(&wire);
    return 1;
}

uint64_t ucx_tag_make(const struct kit_proof *proof, uint32_t tag)
{
    uint64_t secret;

    kit_proof_key(proof, "ucx tags", &secret, sizeof(secret));
    return secret ^ tag;
}

int ucx_resource_parse(const char *line, struct ucx_resource *resource_out)
{
    const char *what = strstr(line, "resource "), *at = strstr(line, " -- ");
    char transport[UCX_NAME_BYTES], device[UCX_NAME_BYTES];

    /* The widths are UCX_NAME_BYTES less the end. */
    if (!what || !at || sscanf(at, " -- %31[^/ \n]/%31[^ \n]", transport, device) != 2)
        return 0;
    memcpy(resource_out->transport, transport, sizeof(transport));
    memcpy(resource_out->device, device, sizeof(device));
    return 1;
}

/* Those not named here are networks. */
int ucx_resource_mode(const struct ucx_resource *resource)
{
    static const char *const memory[] = {"posix", "sysv", "xpmem", "cma", "knem"};
    static const char *const unused[] = {"self", "cuda", "gdr_copy", "rocm", "ze_"};

    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        if (strcmp(resource->transport, memory[i]) == 0)
            return UCX_SHM;
    }
    for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]); i++) {
        if (strncmp(resource->transport, unused[i], strlen(unused[i])) == 0)
            return -1;
    }
    return UCX_NET;
}

int ucx_by_hardware(enum ucx_mode mode, const char *tls)
{
    char list[512], *rest = NULL;

    if (mode != UCX_NET)
        return 0;
    snprintf(list, sizeof(list), "%s", tls);
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, "tcp") != 0)
            return 1;
    }
    return 0;
}
