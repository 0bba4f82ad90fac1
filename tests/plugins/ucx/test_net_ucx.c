/* SPDX-License-Identifier: BSD-3-Clause */
/* What of the UCX plugin needs no UCX: handles, hellos, tags, and how it reads what UCX says of its
 * transports. */
#include <string.h>

#include "net-ucx/ucx_wire.h"
#include "xt.h"

static struct ucx_handle example(void)
{
    struct ucx_handle handle = {
        .where = {.addr_count = 1}, .host = 0x1122334455667788ull, .instance = 77, .modes = 3};

    for (int i = 0; i < KIT_TOKEN_BYTES; i++)
        handle.where.token[i] = (uint8_t)(7 * i + 1);
    XT_CHECK(xccl_addr_parse("10.1.2.3:4000", 0, &handle.where.addrs[0]) == xcclSuccess);
    return handle;
}

XT_TEST(a_handle_comes_back_and_leaves_nccls_part_zero)
{
    struct ucx_handle handle = example(), back;
    xcclNetHandle_t bytes;

    ucx_handle_encode(&handle, &bytes);
    XT_CHECK(ucx_handle_decode(&bytes, &back) == xcclSuccess);
    XT_CHECK(back.host == handle.host && back.modes == 3);
    XT_CHECK(memcmp(back.where.token, handle.where.token, KIT_TOKEN_BYTES) == 0);
    XT_CHECK(xccl_addr_equal(&back.where.addrs[0], &handle.where.addrs[0]));
    for (int i = XCCL_NET_HANDLE_USED; i < XCCL_NET_HANDLE_BYTES; i++)
        XT_CHECK(bytes.bytes[i] == 0);
}

XT_TEST(a_foreign_or_damaged_handle_is_refused)
{
    struct ucx_handle handle = example(), back;
    xcclNetHandle_t bytes;

    memset(&bytes, 0, sizeof(bytes));
    XT_CHECK(ucx_handle_decode(&bytes, &back) == xcclInvalidArgument);
    memset(&bytes, 0xff, sizeof(bytes));
    XT_CHECK(ucx_handle_decode(&bytes, &back) == xcclInvalidArgument);
    handle.modes = 4;
    ucx_handle_encode(&handle, &bytes);
    XT_CHECK(ucx_handle_decode(&bytes, &back) == xcclInvalidArgument);
    handle.modes = 1;
    ucx_handle_encode(&handle, &bytes);
    bytes.bytes[4]++; /* the version */
    XT_CHECK(ucx_handle_decode(&bytes, &back) == xcclInvalidArgument);
}

XT_TEST(a_hello_comes_back_with_an_address_that_fits)
{
    static uint8_t bytes[UCX_HELLO_MAX], address[UCX_ADDRESS_MAX + 1];
    const struct ucx_hello says = {UCX_SHM, 6, 1, 2, 3},
                           long_one = {UCX_NET, sizeof(address), 1, 2, 3};
    struct ucx_hello hello;
    size_t count = ucx_hello_encode(&says, "worker", bytes);

    XT_CHECK(count == UCX_HEAD_BYTES + 6);
    XT_CHECK(kit_hello_read(&ucx_dialect, bytes, &hello));
    XT_CHECK(hello.mode == UCX_SHM && hello.address_bytes == 6);
    XT_CHECK(hello.instance == 1 && hello.link == 2 && hello.wanted == 3);
    XT_CHECK(memcmp(bytes + UCX_HEAD_BYTES, "worker", 6) == 0);
    XT_CHECK(ucx_hello_encode(&long_one, address, bytes) == 0);
}

XT_TEST(a_hello_that_asks_for_too_much_is_wrong)
{
    static uint8_t bytes[UCX_HELLO_MAX];
    struct ucx_hello hello;
    const struct ucx_hello says = {UCX_NET, 6, 1, 2, 3};
    const size_t mode_at = KIT_HELLO_BYTES, bytes_at = mode_at + 4;

    (void)ucx_hello_encode(&says, "worker", bytes);
    bytes[bytes_at + 1] = 0x20; /* 8 KiB and 6 bytes */
    XT_CHECK(!kit_hello_read(&ucx_dialect, bytes, &hello));
    bytes[bytes_at + 1] = 0;
    bytes[bytes_at] = 0;
    XT_CHECK(!kit_hello_read(&ucx_dialect, bytes, &hello));
    bytes[bytes_at] = 6;
    bytes[mode_at] = UCX_MODES;
    XT_CHECK(!kit_hello_read(&ucx_dialect, bytes, &hello));
    bytes[mode_at] = UCX_NET;
    XT_CHECK(kit_hello_read(&ucx_dialect, bytes, &hello));
}

XT_TEST(a_bye_comes_back)
{
    uint8_t bytes[UCX_BYE_BYTES];
    uint64_t sent = 0;

    ucx_bye_encode(0x123456789abcull, bytes);
    XT_CHECK(ucx_bye_decode(bytes, &sent) && sent == 0x123456789abcull);
    bytes[0] ^= 1;
    XT_CHECK(!ucx_bye_decode(bytes, &sent));
}

XT_TEST(tags_differ_by_connection_and_by_the_callers_tag)
{
    struct kit_proof proof = {.session = {1}};
    uint64_t tag = ucx_tag_make(&proof, 0);

    XT_CHECK(ucx_tag_make(&proof, UINT32_MAX) == (tag ^ UINT32_MAX));
    XT_CHECK((uint32_t)tag != 0); /* all bits are the connection's */
    proof.session[0] ^= 1;
    XT_CHECK(ucx_tag_make(&proof, 0) >> 32 != tag >> 32);
}

XT_TEST(what_ucx_says_of_its_transports_is_read)
{
    struct ucx_resource resource;
    static const struct {
        const char *line, *transport, *device;
        int mode;
    } rows[] = {
        {"#      resource 1  :  md 1  dev 1  flags -- tcp/lo", "tcp", "lo", UCX_NET},
        {"#      resource 9  :  md 4  dev 3  flags -- rc_mlx5/mlx5_0:1", "rc_mlx5", "mlx5_0:1",
         UCX_NET},
        {"#      resource 4  :  md 3  dev 3  flags -- posix/memory", "posix", "memory", UCX_SHM},
        {"#      resource 5  :  md 4  dev 3  flags -- cma/memory", "cma", "memory", UCX_SHM},
        {"#      resource 0  :  md 0  dev 0  flags -- self/memory0", "self", "memory0", -1},
        {"#      resource 7  :  md 7  dev 5  flags -- cuda_copy/cuda", "cuda_copy", "cuda", -1},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        XT_CHECK(ucx_resource_parse(rows[i].line, &resource));
        XT_CHECK(strcmp(resource.transport, rows[i].transport) == 0);
        XT_CHECK(strcmp(resource.device, rows[i].device) == 0);
        XT_CHECK(ucx_resource_mode(&resource) == rows[i].mode);
    }
    XT_CHECK(!ucx_resource_parse("#     component 1  :  tcp", &resource));
    XT_CHECK(!ucx_resource_parse("#            md 1  :  component 1  tcp ", &resource));
    XT_CHECK(!ucx_resource_parse("#      resource 1  :  md 1  dev 1  flags --", &resource));
    XT_CHECK(!ucx_resource_parse("", &resource));
}

/* Memory of one host never: UCX 1.13 gives an endpoint that tells of its peer's end no posix. */
XT_TEST(networks_beyond_tcp_move_memory_by_themselves)
{
    static const struct {
        enum ucx_mode mode;
        const char *tls;
        int by_hardware;
    } rows[] = {
        {UCX_SHM, "posix,sysv,cma", 0}, {UCX_SHM, "posix,sysv,cma,knem", 0},
        {UCX_SHM, "xpmem,knem", 0},     {UCX_NET, "tcp", 0},
        {UCX_NET, "tcp,rc_mlx5", 1},    {UCX_NET, "rc_verbs,ud_verbs,tcp", 1},
        {UCX_NET, "tcpx", 1},           {UCX_NET, "", 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        XT_CHECK_INT(ucx_by_hardware(rows[i].mode, rows[i].tls), rows[i].by_hardware);
}
