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

static struct ofi_handle some_handle(void)
{
    struct ofi_handle handle = {.addr.bytes = 0};

    XT_OK(xccl_addr_parse("10.1.2.3:4567", 0, &handle.addr));
    for (int i = 0; i < OFI_TOKEN_BYTES; i++)
        handle.token[i] = (uint8_t)(i * 7 + 1);
    return handle;
}

XT_TEST(a_handle_comes_back_and_a_damaged_one_is_refused)
{
    struct ofi_handle handle = some_handle(), back;
    xcclNetHandle_t bytes;

    ofi_handle_encode(&handle, &bytes);
    XT_OK(ofi_handle_decode(&bytes, &back));
    XT_CHECK(memcmp(back.token, handle.token, OFI_TOKEN_BYTES) == 0);
    XT_CHECK(xccl_addr_equal(&back.addr, &handle.addr));
    for (int i = XCCL_NET_HANDLE_USED; i < XCCL_NET_HANDLE_BYTES; i++)
        XT_CHECK_INT(bytes.bytes[i], 0);
    bytes.bytes[4] ^= 1;
    XT_CHECK_RC(ofi_handle_decode(&bytes, &back), xcclInvalidArgument);
}

XT_TEST(a_hello_is_known_by_each_byte_of_its_token)
{
    struct ofi_handle handle = some_handle();
    struct ofi_endpoint end = {.name = "an address", .name_bytes = 11};
    uint8_t hello[OFI_HELLO_BYTES], reply[OFI_REPLY_BYTES];
    uint64_t piece_bytes = 0;
    const uint8_t *name;

    ofi_hello_encode(handle.token, &end, 0x123456789aull, hello);
    name = ofi_hello_decode(hello, handle.token, &piece_bytes);
    XT_CHECK(name != NULL);
    XT_CHECK(memcmp(name, end.name, OFI_ADDRESS_BYTES) == 0);
    XT_CHECK(piece_bytes == 0x123456789aull);
    for (int i = 0; i < 8 + OFI_TOKEN_BYTES; i++) {
        hello[i] ^= 0x40;
        XT_CHECK(ofi_hello_decode(hello, handle.token, &piece_bytes) == NULL);
        hello[i] ^= 0x40;
    }
    ofi_reply_encode(&end, 77, reply);
    XT_CHECK(memcmp(ofi_reply_decode(reply, &piece_bytes), end.name, OFI_ADDRESS_BYTES) == 0);
    XT_CHECK(piece_bytes == 77);
    reply[0] ^= 1;
    XT_CHECK(ofi_reply_decode(reply, &piece_bytes) == NULL);
}

XT_TEST(a_note_comes_back_and_one_of_another_kind_is_refused)
{
    struct ofi_note note = {
        .number = 0xfffffff0u, .addr = 1ull << 47, .key = ~0ull, .room = 1u << 30};
    struct ofi_note back = {.number = 0};
    uint8_t bytes[OFI_NOTE_BYTES];

    ofi_note_encode(&note, bytes);
    XT_CHECK(ofi_note_decode(bytes, &back));
    XT_CHECK(back.valid && back.number == note.number && back.addr == note.addr);
    XT_CHECK(back.key == note.key && back.room == note.room);
    bytes[3] ^= 1;
    XT_CHECK(!ofi_note_decode(bytes, &back));
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
