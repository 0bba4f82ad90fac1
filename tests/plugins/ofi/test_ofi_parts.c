/* SPDX-License-Identifier: BSD-3-Clause */
/* The pure parts of the ofi plugin: which provider is chosen and what is said about it, and the
 * bytes that the two ends of a connection exchange. */
#include "net-ofi/ofi_int.h"
#include "xt.h"

static struct ofi_choice choose(const char *asked, int count, const char *const *names)
{
    struct ofi_choice choice;

    ofi_choose(names, count, asked, &choice);
    return choice;
}

XT_TEST(a_fast_network_is_taken_by_itself_and_the_better_ones_are_named)
{
    const char *names[] = {"tcp;ofi_rxm", "verbs;ofi_rxm", "cxi", "net"};
    struct ofi_choice choice = choose(NULL, 4, names);

    XT_CHECK_TEXT(choice.provider, "cxi");
    XT_CHECK_HAS(choice.line, "cxi; efa-direct, efa would be better and are not here");
    XT_CHECK_HAS(choice.line, "only when asked for (XCCL_OFI_PROVIDER): tcp;ofi_rxm, net");
}

XT_TEST(efa_direct_comes_before_efa)
{
    const char *names[] = {"efa", "efa-direct"};

    XT_CHECK_TEXT(choose(NULL, 2, names).provider, "efa-direct");
    XT_CHECK_TEXT(choose(NULL, 1, names).provider, "efa");
    XT_CHECK_TEXT(choose("efa", 2, names).provider, "efa");
}

XT_TEST(what_runs_anywhere_is_not_taken_by_itself)
{
    const char *names[] = {"tcp;ofi_rxm", "udp;ofi_rxd", "shm", "tcp;ofi_rxm"};
    struct ofi_choice choice = choose(NULL, 4, names);

    XT_CHECK(choice.provider == NULL);
    XT_CHECK_HAS(choice.line, "no provider; efa-direct, efa, cxi, verbs;ofi_rxm are not here");
    XT_CHECK_HAS(choice.line, ": tcp;ofi_rxm, udp;ofi_rxd, shm");
    /* Each once. */
    XT_CHECK(strstr(strstr(choice.line, "tcp;ofi_rxm") + 1, "tcp;ofi_rxm") == NULL);
}

XT_TEST(a_provider_is_asked_for_by_its_whole_name_or_its_core)
{
    const char *names[] = {"net;ofi_rxm", "net", "tcp;ofi_rxm"};

    XT_CHECK_TEXT(choose("TCP", 3, names).provider, "tcp;ofi_rxm");
    XT_CHECK_TEXT(choose("net", 3, names).provider, "net");
    XT_CHECK_TEXT(choose("net;ofi_rxm", 3, names).provider, "net;ofi_rxm");
    XT_CHECK(choose("ne", 3, names).provider == NULL);
    XT_CHECK_HAS(choose("efa", 3, names).line, "no provider: not here is efa");
    XT_CHECK(choose(NULL, 0, names).provider == NULL);
}

XT_TEST(shared_memory_of_libfabric_is_refused_with_the_reason)
{
    const char *names[] = {"shm", "tcp;ofi_rxm"};

    XT_CHECK(choose("shm", 2, names).provider == NULL);
    XT_CHECK_HAS(choose("SHM", 2, names).line, "shm loses messages and crashes (libfabric 1.17)");
    XT_CHECK_HAS(choose("shm", 0, names).line, "take tcp;ofi_rxm");
}

static struct kit_handle some_handle(void)
{
    struct kit_handle handle = {.addr_count = KIT_ADDRS_MAX};

    XT_OK(xccl_addr_parse("10.1.2.3:4567", 0, &handle.addrs[0]));
    XT_OK(xccl_addr_parse("[fd00::17]:89", 0, &handle.addrs[1]));
    for (int i = 0; i < KIT_TOKEN_BYTES; i++)
        handle.token[i] = (uint8_t)(i * 7 + 1);
    return handle;
}

XT_TEST(a_handle_comes_back_and_a_damaged_one_is_refused)
{
    struct kit_handle handle = some_handle(), back;
    xcclNetHandle_t bytes;

    for (handle.addr_count = 1; handle.addr_count <= KIT_ADDRS_MAX; handle.addr_count++) {
        kit_handle_encode(&ofi_dialect, &handle, &bytes);
        XT_OK(kit_handle_decode(&ofi_dialect, &bytes, &back));
        XT_CHECK(memcmp(back.token, handle.token, KIT_TOKEN_BYTES) == 0);
        XT_CHECK_INT(back.addr_count, handle.addr_count);
        for (uint32_t i = 0; i < handle.addr_count; i++)
            XT_CHECK(xccl_addr_equal(&back.addrs[i], &handle.addrs[i]));
    }
    for (int i = XCCL_NET_HANDLE_USED; i < XCCL_NET_HANDLE_BYTES; i++)
        XT_CHECK_INT(bytes.bytes[i], 0);
    bytes.bytes[4] ^= 1;
    XT_CHECK_RC(kit_handle_decode(&ofi_dialect, &bytes, &back), xcclInvalidArgument);
}

XT_TEST(a_hello_is_known_by_each_byte_of_its_head)
{
    struct ofi_hello hello = {.piece_bytes = 0x123456789aull, .count = 2, .tells = 1}, back;
    uint8_t bytes[OFI_HELLO_BYTES];

    strcpy((char *)hello.names[1], "an address");
    ofi_hello_encode(&hello, bytes);
    XT_CHECK(kit_hello_read(&ofi_dialect, bytes, &back));
    XT_CHECK(memcmp(back.names, hello.names, sizeof(hello.names)) == 0);
    XT_CHECK(back.piece_bytes == hello.piece_bytes && back.count == 2 && back.tells == 1);
    for (int i = 0; i < KIT_HELLO_BYTES; i++) {
        bytes[i] ^= 0x40;
        XT_CHECK(!kit_hello_read(&ofi_dialect, bytes, &back));
        bytes[i] ^= 0x40;
    }
    for (hello.count = 0; hello.count < 7; hello.count++) {
        ofi_hello_encode(&hello, bytes);
        XT_CHECK_INT(kit_hello_read(&ofi_dialect, bytes, &back), hello.count <= OFI_RAILS_MAX);
    }
}

XT_TEST(a_reply_names_each_end_of_the_sender_once)
{
    static const struct {
        uint32_t count, ends[3];
        int good;
    } rows[] = {
        {1, {0}, 1},       {3, {2, 0, 1}, 1}, {0, {0}, 0},
        {4, {0, 1, 2}, 0}, {2, {1, 1}, 0},    {2, {0, 3}, 0}, /* there are three */
    };
    struct ofi_reply reply = {.piece_bytes = 77, .tells = 1}, back;
    uint8_t bytes[OFI_REPLY_BYTES];

    strcpy((char *)reply.names[0], "an address");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        reply.count = rows[i].count;
        memcpy(reply.ends, rows[i].ends, sizeof(rows[i].ends));
        ofi_reply_encode(&reply, bytes);
        XT_CHECK_INT(ofi_reply_decode(bytes, 3, &back), rows[i].good);
    }
    reply.count = 1;
    reply.ends[0] = 2;
    ofi_reply_encode(&reply, bytes);
    XT_CHECK(ofi_reply_decode(bytes, 3, &back));
    XT_CHECK(back.piece_bytes == 77 && back.count == 1 && back.ends[0] == 2);
    XT_CHECK_INT(back.tells, 1);
    XT_CHECK(memcmp(back.names, reply.names, sizeof(reply.names)) == 0);
    bytes[0] ^= 1;
    XT_CHECK(!ofi_reply_decode(bytes, 3, &back));
}

static void name_ip(uint8_t name_out[OFI_ADDRESS_BYTES], const char *text)
{
    struct xccl_addr addr = {.bytes = 0};

    XT_OK(xccl_addr_parse(text, 0, &addr));
    memset(name_out, 0, OFI_ADDRESS_BYTES);
    memcpy(name_out, &addr.sa, sizeof(addr.sa));
}

XT_TEST(rails_of_one_subnet_talk_to_each_other)
{
    uint8_t own[OFI_RAILS_MAX][OFI_ADDRESS_BYTES], peers[OFI_RAILS_MAX][OFI_ADDRESS_BYTES];
    uint32_t mine[OFI_RAILS_MAX], theirs[OFI_RAILS_MAX];

    name_ip(own[0], "10.1.0.1:9000");
    name_ip(own[1], "10.2.0.1:9000");
    name_ip(own[2], "192.168.3.1:1");
    name_ip(peers[0], "192.168.3.7:4");
    name_ip(peers[1], "10.2.0.2:5");
    name_ip(peers[2], "10.1.0.2:9000");
    XT_CHECK_INT(ofi_rail_pair(3, own, 3, peers, mine, theirs), 3);
    for (int i = 0; i < 3; i++)
        XT_CHECK_INT(mine[i] + theirs[i], 2);
    /* The one that is left over is the one without a partner. */
    XT_CHECK_INT(ofi_rail_pair(3, own, 1, &peers[1], mine, theirs), 1);
    XT_CHECK(mine[0] == 1 && theirs[0] == 0);
    /* In one subnet, and of other kinds of names: in their order. */
    name_ip(own[0], "10.1.0.1:1");
    name_ip(own[1], "10.1.0.1:2");
    name_ip(peers[0], "10.1.0.2:1");
    name_ip(peers[1], "10.1.0.2:2");
    XT_CHECK_INT(ofi_rail_pair(2, own, 2, peers, mine, theirs), 2);
    XT_CHECK(mine[0] == 0 && theirs[0] == 0 && mine[1] == 1 && theirs[1] == 1);
    memset(own, 0xfe, sizeof(own));
    memset(peers, 0xfe, sizeof(peers));
    XT_CHECK_INT(ofi_rail_pair(4, own, 2, peers, mine, theirs), 2);
    XT_CHECK(mine[0] == 0 && theirs[0] == 0 && mine[1] == 1 && theirs[1] == 1);
}

XT_TEST(a_note_comes_back_and_one_of_another_kind_is_refused)
{
    struct ofi_note note = {.first = 0xfffffff0u, .row = 0xfffffffeu}, back = {.first = 0};
    uint8_t bytes[OFI_NOTE_BYTES];

    for (uint32_t i = 0; i < OFI_PARTS; i++) {
        note.parts[i] = (struct ofi_part){.tag = ~i, .room = (1u << 30) + i};
        for (uint32_t k = 0; k < OFI_RAILS_MAX; k++)
            note.parts[i].targets[k] = (struct ofi_target){.addr = (1ull << 47) + i,
                                                           .key = ~0ull - k};
    }
    for (note.count = 1; note.count <= OFI_PARTS; note.count++) {
        size_t count = ofi_note_encode(&note, OFI_RAILS_MAX, bytes);

        XT_CHECK_INT(count, ofi_note_bytes(note.count, OFI_RAILS_MAX));
        XT_CHECK(ofi_note_decode(bytes, count, OFI_RAILS_MAX, &back));
        XT_CHECK(back.first == note.first && back.count == note.count && back.row == note.row);
        XT_CHECK(memcmp(back.parts, note.parts, note.count * sizeof(note.parts[0])) == 0);
        XT_CHECK(!ofi_note_decode(bytes, count - 1, OFI_RAILS_MAX, &back));
        XT_CHECK(!ofi_note_decode(bytes, count, OFI_RAILS_MAX - 1, &back));
        bytes[3] ^= 1;
        XT_CHECK(!ofi_note_decode(bytes, count, OFI_RAILS_MAX, &back));
    }
    note.count = 0;
    XT_CHECK(!ofi_note_decode(bytes, ofi_note_encode(&note, 0, bytes), 0, &back));
    note.count = OFI_PARTS;
    (void)ofi_note_encode(&note, OFI_RAILS_MAX, bytes);
    bytes[8] = OFI_PARTS + 1;
    XT_CHECK(!ofi_note_decode(bytes, OFI_NOTE_BYTES, OFI_RAILS_MAX, &back));
    XT_CHECK(!ofi_note_decode(bytes, OFI_NOTE_BYTES + 1, OFI_RAILS_MAX, &back));
}

XT_TEST(machines_whose_cards_write_are_known)
{
    XT_CHECK(ofi_platform_writes("p5en.48xlarge"));
    XT_CHECK(ofi_platform_writes("p6-b200.48xlarge"));
    XT_CHECK(!ofi_platform_writes("p4d.24xlarge"));
    XT_CHECK(!ofi_platform_writes(""));
}

/* --- the machines that are known --- */

static const char *wrong(const char *name, const char *provider, int cards, uint32_t mbps)
{
    static char line[OFI_TEXT_BYTES];

    ofi_platform_check(name, provider, cards, mbps, line);
    return line;
}

XT_TEST(a_machine_with_all_its_cards_is_not_warned_about)
{
    XT_CHECK_TEXT(wrong("p5.48xlarge", "efa", 32, 100000), "");
    XT_CHECK_TEXT(wrong("p5en.48xlarge", "efa-direct", 16, 0), "");
    XT_CHECK_TEXT(wrong("trn2.48xlarge", "efa", 17, 200000), "");
    XT_CHECK_TEXT(wrong("c5.large", NULL, 0, 0), "");
    XT_CHECK_TEXT(wrong("", "tcp;ofi_rxm", 1, 1000), "");
}

XT_TEST(a_machine_with_fewer_or_slower_cards_is_named)
{
    XT_CHECK_HAS(wrong("p5.48xlarge", "efa", 16, 100000), "has 32 EFA cards and 16 are here; give");
    XT_CHECK_HAS(wrong("p4d.24xlarge", "tcp;ofi_rxm", 1, 0), "and tcp;ofi_rxm is used; install");
    XT_CHECK_HAS(wrong("p6-b200.48xlarge", NULL, 0, 0), "has 8 EFA cards and no provider is used");
    XT_CHECK_HAS(wrong("p6-b200.48xlarge", "efa", 8, 200000), "says 200 Gb/s where 400 are usual");
}

/* --- secrets of tags --- */

static struct ofi_comm keyed(uint32_t own_bits, uint32_t their_bits, uint8_t session_byte)
{
    struct ofi_comm comm = {.tag_bits = own_bits};

    ofi_comm_hear(&comm, their_bits << OFI_TELLS_BITS);
    comm.links[0].side.proof.session[0] = session_byte;
    ofi_comm_key(&comm);
    return comm;
}

XT_TEST(a_tag_has_as_many_secret_bits_as_both_ends_have_room_for)
{
    const uint64_t all = UINT64_MAX << OFI_TAG_SHIFT;
    struct ofi_comm wide = keyed(64, 64, 1), other = keyed(64, 64, 2);
    uint64_t seen = 0;

    XT_CHECK(wide.secret && wide.beside && wide.secret == keyed(64, 64, 1).secret);
    XT_CHECK(wide.secret != other.secret && wide.beside != other.beside);
    for (uint32_t bits = 0; bits <= 64; bits++) {
        uint64_t room = bits < 64 ? (1ull << bits) - 1 : UINT64_MAX;

        XT_CHECK(keyed(64, bits, 1).secret == (wide.secret & room & all));
        XT_CHECK(keyed(bits, 64, 1).secret == (wide.secret & room & all));
    }
    for (uint8_t i = 0; i < 64; i++)
        seen |= keyed(64, 64, i).secret;
    XT_CHECK(seen == all);
}
