/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of the ib plugin that need no device: which ports a rule names, which GID is the best,
 * and what crosses the wire. Thread: one. */
#include <string.h>

#include "net-ib/ib_choice.h"
#include "net-ib/ib_wire.h"
#include "xt.h"

XT_TEST(rule_names_ports_as_nccl_does)
{
    XT_CHECK(ib_hca_chosen("", "mlx5_0", 1));
    XT_CHECK(ib_hca_chosen("mlx5", "mlx5_0", 1));
    XT_CHECK(!ib_hca_chosen("=mlx5", "mlx5_0", 1));
    XT_CHECK(ib_hca_chosen("=mlx5_0,mlx5_1", "mlx5_1", 2));
    XT_CHECK(ib_hca_chosen("mlx5_1:2", "mlx5_1", 2));
    XT_CHECK(!ib_hca_chosen("mlx5_1:2", "mlx5_1", 1));
    XT_CHECK(!ib_hca_chosen("mlx5_1:2x", "mlx5_1", 2));
    XT_CHECK(!ib_hca_chosen("^mlx5_0", "mlx5_0", 1));
    XT_CHECK(ib_hca_chosen("^mlx5_0:2", "mlx5_0", 1));
    XT_CHECK(ib_hca_chosen("^=mlx5_1", "mlx5_10", 1));
    XT_CHECK(!ib_hca_chosen("^mlx5_1", "mlx5_10", 1));
    XT_CHECK(!ib_hca_chosen(",,", "mlx5_0", 1));
    XT_CHECK(ib_hca_chosen("^", "mlx5_0", 1));
}

XT_TEST(routed_ipv4_gid_is_the_best)
{
    static const uint8_t link_local[16] = {0xfe, 0x80, [15] = 1};
    static const uint8_t global[16] = {0x20, 1, [15] = 1};
    static const uint8_t ipv4[16] = {[10] = 0xff, 0xff, 192, 168, 50, 1};
    static const uint8_t none[16] = {0xfe, 0x80};
    char text[IB_GID_TEXT_BYTES];

    XT_CHECK(ib_gid_score(ipv4, IB_GID_ROCE2) > ib_gid_score(global, IB_GID_ROCE2));
    XT_CHECK(ib_gid_score(global, IB_GID_ROCE2) > ib_gid_score(link_local, IB_GID_ROCE2));
    XT_CHECK(ib_gid_score(link_local, IB_GID_ROCE2) > ib_gid_score(ipv4, IB_GID_ROCE1));
    XT_CHECK(ib_gid_score(none, IB_GID_ROCE2) == -1);
    ib_gid_format(ipv4, text);
    XT_CHECK_TEXT(text, "::ffff:192.168.50.1");
}

XT_TEST(speed_is_lanes_times_width)
{
    XT_CHECK(ib_speed_mbps(1, 1) == 2500);
    XT_CHECK(ib_speed_mbps(2, 32) == 100000);
    XT_CHECK(ib_speed_mbps(2, 128) == 400000);
    XT_CHECK(ib_speed_mbps(3, 1) == 0);
    XT_CHECK(ib_speed_mbps(1, 3) == 0);
}

XT_TEST(handle_survives_and_a_strange_one_is_refused)
{
    struct ib_handle handle = {.addr = {.bytes = sizeof(struct sockaddr_in)}}, back;
    xcclNetHandle_t bytes;

    handle.addr.sa.in4.sin_family = AF_INET;
    handle.addr.sa.in4.sin_port = 4711;
    memset(handle.token, 7, sizeof(handle.token));
    ib_handle_encode(&handle, &bytes);
    XT_CHECK(ib_handle_decode(&bytes, &back) == xcclSuccess);
    XT_CHECK(memcmp(back.token, handle.token, sizeof(back.token)) == 0);
    XT_CHECK(xccl_addr_equal(&back.addr, &handle.addr));
    for (size_t i = XCCL_NET_HANDLE_USED; i < sizeof(bytes.bytes); i++)
        XT_CHECK(bytes.bytes[i] == 0);
    bytes.bytes[0] ^= 1;
    XT_CHECK(ib_handle_decode(&bytes, &back) == xcclInvalidArgument);
}

XT_TEST(block_needs_the_token_and_the_version)
{
    struct ib_block block = {.pairs = 2,
                             .qp_num = {17, 18},
                             .ring_addr = 0x123456789abcu,
                             .mtu = 5},
                    back;
    uint8_t bytes[IB_BLOCK_BYTES], token[IB_TOKEN_BYTES] = {1, 2, 3};

    memcpy(block.token, token, sizeof(token));
    memset(block.name, 'x', sizeof(block.name));
    ib_block_encode(&block, bytes);
    XT_CHECK(ib_block_decode(bytes, token, &back));
    XT_CHECK(back.pairs == 2 && back.qp_num[1] == 18 && back.ring_addr == block.ring_addr &&
             back.mtu == 5);
    XT_CHECK(strlen(back.name) == sizeof(back.name) - 1); /* ends within itself */
    token[31] ^= 0x80;
    XT_CHECK(!ib_block_decode(bytes, token, &back));
    token[31] ^= 0x80;
    bytes[4] ^= 1;
    XT_CHECK(!ib_block_decode(bytes, token, &back));
    block.pairs = IB_PAIRS_MAX + 1;
    ib_block_encode(&block, bytes);
    XT_CHECK(!ib_block_decode(bytes, token, &back));
}

XT_TEST(immediate_value_keeps_its_fields_apart)
{
    uint32_t imm = ib_imm(0, IB_PAIRS_MAX, 31, 7) | ib_imm(IB_IMM_CHUNKS_MAX, 1, 0, 0);

    XT_CHECK(imm == UINT32_MAX);
    imm = ib_imm(0, 3, 17, 5) | ib_imm(1234567, 1, 0, 0);
    XT_CHECK(ib_imm_part(imm) == 5 && ib_imm_slot(imm) == 17);
    XT_CHECK(ib_imm_pieces(imm) == 3 && ib_imm_chunks(imm) == 1234567);
}

/* Whatever single word is not there yet, the line does not count. */
XT_TEST(torn_line_is_not_read)
{
    struct ib_line line = {.number = 9, .tag = 3, .addr = 0x5000, .bytes = 77, .count = 1}, back;
    struct ib_line torn, old = {.number = 9 - 32, .tag = 1, .addr = 0x9000, .bytes = 5, .count = 2};

    ib_line_seal(&line);
    ib_line_seal(&old);
    XT_CHECK(ib_line_read(&line, 9, &back));
    XT_CHECK(memcmp(&line, &back, sizeof(line)) == 0);
    XT_CHECK(!ib_line_read(&line, 10, &back));
    for (size_t i = 0; i < sizeof(line); i += 4) {
        torn = line;
        memcpy((char *)&torn + i, (char *)&old + i, 4);
        if (memcmp(&torn, &line, sizeof(line)) != 0)
            XT_CHECK(!ib_line_read(&torn, 9, &back));
    }
}
