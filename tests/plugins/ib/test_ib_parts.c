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

XT_TEST(gids_are_allowed_by_family_and_range)
{
    static const uint8_t link_local[16] = {0xfe, 0x80, [15] = 1};
    static const uint8_t ipv4[16] = {[10] = 0xff, 0xff, 192, 168, 50, 1};
    static const char *const bad[] = {"10.0.0.0",   "10.0.0.0/33", "10.0.0.0/",   "/8",
                                      "fd00::/129", "here/8",      "10.0.0.0/8x", "10.0.0.0/-1"};
    struct ib_gid_rule rule;

    XT_CHECK(ib_gid_rule_make(IB_FAMILY_ANY, "", &rule));
    XT_CHECK(ib_gid_allowed(ipv4, &rule) && ib_gid_allowed(link_local, &rule));
    XT_CHECK(ib_gid_rule_make(IB_FAMILY_IPV4, "", &rule));
    XT_CHECK(ib_gid_allowed(ipv4, &rule) && !ib_gid_allowed(link_local, &rule));
    XT_CHECK(ib_gid_rule_make(IB_FAMILY_IPV6, "", &rule));
    XT_CHECK(!ib_gid_allowed(ipv4, &rule) && ib_gid_allowed(link_local, &rule));
    XT_CHECK(ib_gid_rule_make(IB_FAMILY_ANY, "192.168.48.0/21", &rule));
    XT_CHECK(ib_gid_allowed(ipv4, &rule) && !ib_gid_allowed(link_local, &rule));
    XT_CHECK(ib_gid_rule_make(IB_FAMILY_ANY, "192.168.51.0/24", &rule));
    XT_CHECK(!ib_gid_allowed(ipv4, &rule));
    XT_CHECK(ib_gid_rule_make(IB_FAMILY_ANY, "fe80::/10", &rule));
    XT_CHECK(!ib_gid_allowed(ipv4, &rule) && ib_gid_allowed(link_local, &rule));
    XT_CHECK(ib_gid_rule_make(IB_FAMILY_ANY, "fe80::1/128", &rule));
    XT_CHECK(ib_gid_allowed(link_local, &rule));
    XT_CHECK(ib_gid_rule_make(IB_FAMILY_ANY, "::/0", &rule));
    XT_CHECK(ib_gid_allowed(ipv4, &rule) && ib_gid_allowed(link_local, &rule));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        if (ib_gid_rule_make(IB_FAMILY_ANY, bad[i], &rule))
            XT_FAIL("'%s' is a range", bad[i]);
    }
}

/* Of one port its own interface; of several one that is none of theirs, if there is one. */
XT_TEST(side_channel_keeps_off_merged_ports)
{
    static const char *const names[] = {"rail0", "eth0", "rail1", "eth1"};
    static const char *const rails[] = {"rail0", "rail1"}, *const other[] = {"", "rail1"};
    static const char *const swapped[] = {"rail1", "rail0"}, *const strange[] = {"ib0"};

    XT_CHECK_INT(ib_interface_choose(names, 4, rails, 2), 1);
    XT_CHECK_INT(ib_interface_choose(names, 4, other, 2), 0); /* one port has none */
    XT_CHECK_INT(ib_interface_choose(names + 1, 3, rails, 2), 0);
    XT_CHECK_INT(ib_interface_choose(names, 1, rails, 2), 0);
    XT_CHECK_INT(ib_interface_choose((const char *const[]){"rail0", "rail1"}, 2, swapped, 2), 1);
    XT_CHECK_INT(ib_interface_choose(names, 4, rails + 1, 1), 2);
    XT_CHECK_INT(ib_interface_choose(names, 4, strange, 1), 0);
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
    struct kit_handle handle = {.addr_count = 1}, back;
    xcclNetHandle_t bytes;

    XT_CHECK(xccl_addr_parse("10.1.2.3:4711", 0, &handle.addrs[0]) == xcclSuccess);
    memset(handle.token, 7, sizeof(handle.token));
    kit_handle_encode(&ib_dialect, &handle, &bytes);
    XT_CHECK(kit_handle_decode(&ib_dialect, &bytes, &back) == xcclSuccess);
    XT_CHECK(memcmp(back.token, handle.token, sizeof(back.token)) == 0);
    XT_CHECK(back.addr_count == 1 && xccl_addr_equal(&back.addrs[0], &handle.addrs[0]));
    for (size_t i = XCCL_NET_HANDLE_USED; i < sizeof(bytes.bytes); i++)
        XT_CHECK(bytes.bytes[i] == 0);
    bytes.bytes[0] ^= 1;
    XT_CHECK(kit_handle_decode(&ib_dialect, &bytes, &back) == xcclInvalidArgument);
}

XT_TEST(block_needs_the_version_and_numbers_that_may_be)
{
    struct ib_block block = {.pairs = 2,
                             .ports = 4,
                             .per_link = 1,
                             .qp_num = {17, 18},
                             .ring_addr = 0x123456789abcu,
                             .ring_rkey = {[3] = 9},
                             .link = {[15] = {3, 1}}},
                    back;
    uint8_t bytes[IB_BLOCK_BYTES];

    block.port[3].mtu = 5;
    memset(block.port[3].name, 'x', sizeof(block.port[3].name));
    ib_block_encode(&block, bytes);
    XT_CHECK(kit_hello_read(&ib_dialect, bytes, &back));
    XT_CHECK(back.pairs == 2 && back.qp_num[1] == 18 && back.ring_addr == block.ring_addr &&
             back.ring_rkey[3] == 9 && back.port[3].mtu == 5);
    XT_CHECK(back.link[15].receiver == 3 && back.link[15].sender == 1);
    /* ends within itself */
    XT_CHECK(strlen(back.port[3].name) == sizeof(back.port[3].name) - 1);
    bytes[4] ^= 1;
    XT_CHECK(!kit_hello_read(&ib_dialect, bytes, &back));
    block.pairs = IB_PAIRS_MAX + 1;
    ib_block_encode(&block, bytes);
    XT_CHECK(!kit_hello_read(&ib_dialect, bytes, &back));
    block.pairs = 2;
    block.ports = IB_PORTS_MAX + 1;
    ib_block_encode(&block, bytes);
    XT_CHECK(!kit_hello_read(&ib_dialect, bytes, &back));
}

XT_TEST(note_survives_and_a_strange_one_is_refused)
{
    struct ib_note note = {.kind = IB_NOTE_OFFER,
                           .pair = 15,
                           .generation = 7,
                           .qp_num = 99,
                           .psn = 0xabcdef,
                           .came = {[15] = 5},
                           .gid = {[15] = 1}},
                   back;
    uint8_t bytes[IB_NOTE_BYTES];

    ib_note_encode(&note, bytes);
    XT_CHECK(ib_note_decode(bytes, &back));
    XT_CHECK(back.kind == note.kind && back.pair == 15 && back.generation == 7 &&
             back.qp_num == 99 && back.psn == note.psn && back.came[15] == 5 && back.gid[15] == 1);
    note.pair = IB_PAIRS_MAX;
    ib_note_encode(&note, bytes);
    XT_CHECK(!ib_note_decode(bytes, &back));
    note.pair = 0;
    note.kind = IB_NOTE_READY + 1;
    ib_note_encode(&note, bytes);
    XT_CHECK(!ib_note_decode(bytes, &back));
}

/* Ports in the subnets 10.0.N.0/24. */
static struct ib_block end_of(uint32_t ports, uint8_t first_subnet, uint8_t host)
{
    struct ib_block block = {.ports = ports, .per_link = 1};

    for (uint32_t i = 0; i < ports; i++) {
        const uint8_t gid[16] = {[10] = 0xff, 0xff, 10, 0, (uint8_t)(first_subnet + i), host};

        memcpy(block.port[i].gid, gid, sizeof(gid));
        block.port[i].prefix = 120;
        block.port[i].mtu = 5;
        block.port[i].link_layer = 2;
        block.port[i].gid_type = IB_GID_ROCE2;
    }
    return block;
}

static void links_are(const struct ib_block *receiver, const struct ib_block *sender,
                      const char *want)
{
    struct ib_link links[IB_PAIRS_MAX];
    uint32_t count = ib_links_choose(receiver, sender, links);
    char text[4 * IB_PAIRS_MAX + 1] = "";

    for (uint32_t i = 0; i < count; i++) {
        text[3 * i] = (char)('0' + links[i].receiver);
        text[3 * i + 1] = (char)('0' + links[i].sender);
        text[3 * i + 2] = i + 1 < count ? ' ' : 0;
    }
    XT_CHECK_TEXT(text, want);
}

XT_TEST(ports_of_a_subnet_talk_to_each_other)
{
    struct ib_block one = end_of(1, 1, 1), two = end_of(2, 1, 1), four = end_of(4, 1, 1);
    struct ib_block peer = end_of(2, 1, 2), shifted = end_of(2, 2, 2);

    links_are(&two, &peer, "00 11");
    links_are(&two, &shifted, "10 01"); /* 2 and 2; what is left of both, by a router */
    links_are(&one, &peer, "00"); /* the other rail is out of reach */
    links_are(&peer, &one, "00");
    links_are(&four, &peer, "00 11");
    two.per_link = 3;
    links_are(&two, &peer, "00 11"); /* the smaller number */
    peer.per_link = 2;
    links_are(&two, &peer, "00 11 00 11");
    two.per_link = peer.per_link = IB_PAIRS_MAX;
    links_are(&two, &peer, "00 11 00 11 00 11 00 11 00 11 00 11 00 11 00 11");
}

/* One subnet for all, none that is known, none in common. */
XT_TEST(ports_without_rails_are_all_used)
{
    struct ib_block one = end_of(1, 1, 1), two = end_of(2, 1, 1), four = end_of(4, 1, 2);
    struct ib_block far = end_of(2, 9, 2);

    links_are(&one, &far, "00 01");
    links_are(&two, &far, "00 11");
    links_are(&far, &one, "00 10");
    for (int i = 0; i < 4; i++)
        four.port[i].prefix = 0;
    links_are(&one, &four, "00 01 02 03");
    links_are(&four, &two, "00 11 20 31");
    four.port[2].link_layer = 1;
    links_are(&four, &two, "00 11 30");
    for (int i = 0; i < 4; i++)
        four.port[i].gid_type = IB_GID_ROCE1;
    links_are(&four, &two, "");
}

XT_TEST(immediate_value_keeps_its_fields_apart)
{
    uint32_t imm = ib_imm(IB_PIECES_MAX, 31, 7) | ib_imm_piece(IB_IMM_UNITS_MAX, IB_PIECES_MAX - 1);

    XT_CHECK(imm == UINT32_MAX);
    imm = ib_imm(3, 17, 5) | ib_imm_piece(234567, 2);
    XT_CHECK(ib_imm_part(imm) == 5 && ib_imm_slot(imm) == 17);
    XT_CHECK(ib_imm_pieces(imm) == 3 && ib_imm_units(imm) == 234567);
    XT_CHECK(ib_imm_which(imm) == 2);
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
