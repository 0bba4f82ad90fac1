/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses as text and bytes, and the choice of interfaces: what is taken, what is refused and
 * why. Nothing here asks a resolver; the real interfaces are asked once. Thread: one. */
#include "base/netif_int.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "base/param.h"
#include "xt.h"

#define UP (IFF_UP | IFF_RUNNING)

__attribute__((constructor)) static void use_sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static void check_same_text(const char *text)
{
    char got[XCCL_ADDR_TEXT_BYTES];
    struct xccl_addr addr;

    XT_OK(xccl_addr_parse(text, 0, &addr));
    xccl_addr_format(&addr, got);
    XT_CHECK_TEXT(got, text);
}

static void check_refused(const char *text, const char *why)
{
    struct xccl_addr addr = {.bytes = 77};

    XT_CHECK_RC(xccl_addr_parse(text, 0, &addr), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), why);
    XT_CHECK_INT(addr.bytes, 77);
}

XT_TEST(numeric_addresses_come_back_as_the_same_text)
{
    check_same_text("10.0.0.1:4000");
    check_same_text("127.0.0.1:1");
    check_same_text("255.255.255.255:65535");
    check_same_text("[::1]:80");
    check_same_text("[2001:db8::7]:65535");
    check_same_text("[fe80::1%999999]:4000");
}

XT_TEST(a_port_that_is_no_port_is_refused)
{
    static const char *const texts[] = {"10.0.0.1:99999",
                                        "10.0.0.1:-1",
                                        "10.0.0.1:0",
                                        "10.0.0.1:",
                                        "10.0.0.1:abc",
                                        "10.0.0.1:65536",
                                        "10.0.0.1:+1",
                                        "10.0.0.1: 1",
                                        "10.0.0.1:1 ",
                                        "10.0.0.1:080",
                                        "[::1]:0x10",
                                        "[::1]:99999",
                                        "10.0.0.1:18446744073709551617"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        check_refused(texts[i], "the port is not a number from 1 to 65535");
}

XT_TEST(a_missing_part_is_named)
{
    check_refused("", "empty");
    check_refused("10.0.0.1", "the port is missing");
    check_refused("abc", "the port is missing");
    check_refused("[::1]", "the port after the bracket is missing");
    check_refused("[::1]80", "the port after the bracket is missing");
    check_refused("[::1:80", "the closing bracket is missing");
    check_refused(":80", "the host before the port is missing");
    check_refused("::1:80", "brackets");
    check_refused("[fe80::1%]:80", "no zone follows the %");
    check_refused("[]:80", "not an IPv6 address");
}

XT_TEST(a_host_that_is_no_host_is_refused)
{
    check_refused("10.0.0:80", "neither an IPv4 address nor a name");
    check_refused("10.0.0.256:80", "neither an IPv4 address nor a name");
    check_refused("010.0.0.1:80", "neither an IPv4 address nor a name");
    check_refused("0x7f.1:80", "neither an IPv4 address nor a name");
    check_refused("0x7f:80", "neither an IPv4 address nor a name");
    check_refused("1:80", "neither an IPv4 address nor a name");
    check_refused("a b:80", "neither an IPv4 address nor a name");
    check_refused("-a:80", "neither an IPv4 address nor a name");
    check_refused("localhost:80", "names are not resolved");
    check_refused("[10.0.0.1]:80", "not an IPv6 address");
    check_refused("[::1%1%2]:80", "zone");
}

XT_TEST(long_hosts_and_zones_are_refused)
{
    char text[5000];

    memset(text, 'a', sizeof(text));
    memcpy(text, "[fe80::1%", 9);
    memcpy(text + sizeof(text) - 5, "]:80", 5);
    check_refused(text, "too long");
    check_refused("[fe80::1%aaaabbbbccccdddd]:80", "more than 15 bytes");
    memset(text, 'a', sizeof(text));
    memcpy(text + sizeof(text) - 4, ":80", 4);
    check_refused(text, "too long");
    memset(text, '1', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    check_refused(text, "the port is missing");
}

XT_TEST(a_zone_may_be_a_number_and_with_resolve_a_name)
{
    char text[XCCL_ADDR_TEXT_BYTES], want[XCCL_ADDR_TEXT_BYTES];
    struct xccl_addr addr;

    XT_OK(xccl_addr_parse("[fe80::1%1]:80", 0, &addr));
    XT_CHECK_INT(addr.sa.in6.sin6_scope_id, 1);
    check_refused("[fe80::1%lo]:80", "not a positive number");
    check_refused("[fe80::1%4294967296]:80", "not a positive number");
    if (if_nametoindex("lo") == 0)
        XT_SKIP("this host has no interface lo");
    snprintf(want, sizeof(want), "[fe80::1%%lo]:80");
    XT_OK(xccl_addr_parse(want, 1, &addr));
    xccl_addr_format(&addr, text);
    XT_CHECK_TEXT(text, want);
    XT_CHECK_RC(xccl_addr_parse("[fe80::1%nosuchif]:80", 1, &addr), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "not an interface");
}

XT_TEST(names_go_through_the_resolver_when_asked_and_follow_the_family)
{
    struct xccl_addr addr = {0};

    xt_setenv("XCCL_SOCKET_FAMILY", "ipv4");
    xccl_param_reset();
    if (xccl_addr_parse("localhost:80", 1, &addr))
        XT_SKIP("this host does not know localhost: %s", xccl_error_text());
    XT_CHECK_INT(addr.sa.any.sa_family, AF_INET);
    XT_CHECK_INT(ntohl(addr.sa.in4.sin_addr.s_addr), INADDR_LOOPBACK);
    XT_CHECK_INT(xccl_addr_port(&addr), 80);
    xccl_inject_arm(1);
    XT_CHECK_RC(xccl_addr_parse("localhost:81", 1, &addr), xcclSystemError);
    xccl_inject_arm(0);
    XT_CHECK_HAS(xccl_error_text(), "cannot resolve \"localhost:81\"");
    XT_CHECK_INT(xccl_addr_port(&addr), 80);
}

XT_TEST(random_bytes_never_break_the_parser)
{
    static const char letters[] = "0123456789:[]%.abfx-^ \xff";
    uint64_t state = xt_seed();

    /* A line for each refusal is of no use to a reader. */
    XT_CHECK(freopen("/dev/null", "w", stderr));
    for (int round = 0; round < 20000; round++) {
        char text[48], again[XCCL_ADDR_TEXT_BYTES];
        size_t bytes = xt_random(&state) % sizeof(text);
        struct xccl_addr addr, copy;

        for (size_t i = 0; i < bytes; i++)
            text[i] = letters[xt_random(&state) % (sizeof(letters) - 1)];
        text[bytes < sizeof(text) ? bytes : sizeof(text) - 1] = '\0';
        if (xccl_addr_parse(text, 0, &addr))
            continue;
        xccl_addr_format(&addr, again);
        XT_OK(xccl_addr_parse(again, 1, &copy));
        XT_CHECK(xccl_addr_equal(&addr, &copy));
    }
}

XT_TEST(addresses_survive_the_wire)
{
    static const char *const texts[] = {"10.1.2.3:4660", "[2001:db8::9]:513", "[fe80::1%258]:7"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint8_t wire[XCCL_ADDR_WIRE_BYTES];
        struct xccl_addr addr, back;

        XT_OK(xccl_addr_parse(texts[i], 0, &addr));
        xccl_addr_encode(&addr, wire);
        XT_OK(xccl_addr_decode(wire, &back));
        XT_CHECK(xccl_addr_equal(&addr, &back));
        XT_CHECK_INT(back.bytes, addr.bytes);
    }
}

XT_TEST(the_wire_form_is_little_endian_and_fixed)
{
    static const uint8_t want[XCCL_ADDR_WIRE_BYTES] = {4, 0, 0x34, 0x12, 0, 0, 0, 0, 10, 1, 2, 3};
    uint8_t wire[XCCL_ADDR_WIRE_BYTES];
    struct xccl_addr addr;

    XT_OK(xccl_addr_parse("10.1.2.3:4660", 0, &addr));
    xccl_addr_encode(&addr, wire);
    XT_CHECK(memcmp(wire, want, sizeof(want)) == 0);
}

XT_TEST(bad_wire_bytes_are_refused)
{
    static const int bad_places[] = {0, 1, 4, 7, 12, 23};
    uint8_t zeroes[XCCL_ADDR_WIRE_BYTES] = {0};
    struct xccl_addr addr;

    XT_CHECK_RC(xccl_addr_decode(zeroes, &addr), xcclRemoteError);
    for (size_t i = 0; i < sizeof(bad_places) / sizeof(bad_places[0]); i++) {
        uint8_t wire[XCCL_ADDR_WIRE_BYTES] = {4, 0, 1, 0, 0, 0, 0, 0, 10, 0, 0, 1};

        XT_OK(xccl_addr_decode(wire, &addr));
        wire[bad_places[i]] ^= 9;
        XT_CHECK_RC(xccl_addr_decode(wire, &addr), xcclRemoteError);
    }
}

XT_TEST(equality_looks_at_family_address_port_and_zone)
{
    static const char *const texts[] = {"10.0.0.1:1",    "10.0.0.1:2",    "10.0.0.2:1",
                                        "[fe80::1%1]:1", "[fe80::1%2]:1", "[::ffff:10.0.0.1]:1"};
    const size_t count = sizeof(texts) / sizeof(texts[0]);
    struct xccl_addr none = {0}, a, b;

    for (size_t i = 0; i < count; i++) {
        XT_OK(xccl_addr_parse(texts[i], 0, &a));
        XT_CHECK(!xccl_addr_equal(&a, &none));
        for (size_t k = 0; k < count; k++) {
            XT_OK(xccl_addr_parse(texts[k], 0, &b));
            XT_CHECK_INT(xccl_addr_equal(&a, &b), i == k);
        }
    }
    XT_CHECK(xccl_addr_equal(&none, &none));
}

XT_TEST(the_same_host_whatever_the_port_and_the_zone)
{
    static const struct {
        const char *a, *b;
        int same;
    } cases[] = {{"10.0.0.1:1", "10.0.0.1:2", 1},
                 {"10.0.0.1:1", "10.0.0.2:1", 0},
                 {"[fe80::1%1]:1", "[fe80::1%2]:2", 1},
                 {"[fd00::1]:1", "[fd00::2]:1", 0},
                 {"[::ffff:10.0.0.1]:1", "10.0.0.1:1", 0}};
    struct xccl_addr a, b, none = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        XT_OK(xccl_addr_parse(cases[i].a, 0, &a));
        XT_OK(xccl_addr_parse(cases[i].b, 0, &b));
        XT_CHECK_INT(xccl_addr_same_host(&a, &b), cases[i].same);
        XT_CHECK(!xccl_addr_same_host(&a, &none) && !xccl_addr_same_host(&none, &b));
    }
}

XT_TEST(a_long_unix_name_is_shown_cut_and_clean)
{
    struct xccl_addr addr = {.bytes = sizeof(struct sockaddr_un)};
    char text[XCCL_ADDR_TEXT_BYTES];

    addr.sa.un.sun_family = AF_UNIX;
    memset(addr.sa.un.sun_path + 1, '\n', sizeof(addr.sa.un.sun_path) - 1);
    xccl_addr_format(&addr, text);
    XT_CHECK_HAS(text, "unix:@???");
    XT_CHECK_INT(strlen(text), XCCL_ADDR_TEXT_BYTES - 1);
    addr.bytes = offsetof(struct sockaddr_un, sun_path) + 4;
    memcpy(addr.sa.un.sun_path + 1, "abc", 3);
    xccl_addr_format(&addr, text);
    XT_CHECK_TEXT(text, "unix:@abc");
}

/* ---- interfaces ---- */

static struct xccl_netif_found host[16];
static int host_count;

static void host_has(const char *name, const char *ip, unsigned flags)
{
    struct xccl_netif_found *found = &host[host_count++];
    char text[64];

    snprintf(found->name, sizeof(found->name), "%s", name);
    snprintf(text, sizeof(text), strchr(ip, ':') ? "[%s]:1" : "%s:1", ip);
    XT_OK(xccl_addr_parse(text, 0, &found->addr));
    found->flags = flags;
}

/* want: "name=address name=address", best first. */
static void check_choice(const char *spec, int family, int max, const char *want)
{
    struct xccl_netif ifs[16];
    char got[512] = "", text[XCCL_ADDR_TEXT_BYTES];
    int count = xccl_netif_select(host, host_count, spec, family, ifs, max);

    for (int i = 0; i < count; i++) {
        xccl_addr_format(&ifs[i].addr, text);
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s=%s", i ? " " : "", ifs[i].name,
                 text);
    }
    XT_CHECK_TEXT(got, want);
}

static void common_host(void)
{
    host_has("lo", "127.0.0.1", UP);
    host_has("docker0", "172.17.0.1", UP);
    host_has("eth0", "10.0.0.1", UP);
    host_has("eth1", "10.0.1.1", UP);
    host_has("ib0", "10.0.2.1", UP);
    host_has("veth12", "10.0.3.1", UP);
}

XT_TEST(without_names_infiniband_is_first_and_virtual_ones_are_left_out)
{
    common_host();
    check_choice("", AF_UNSPEC, 16, "ib0=10.0.2.1:0 eth0=10.0.0.1:0 eth1=10.0.1.1:0");
    check_choice("", AF_UNSPEC, 1, "ib0=10.0.2.1:0");
}

XT_TEST(virtual_interfaces_and_then_loopback_are_the_last_resort)
{
    host_has("lo", "127.0.0.1", UP);
    check_choice("", AF_UNSPEC, 16, "lo=127.0.0.1:0");
    host_has("eth1", "10.0.1.1", IFF_UP); /* new, without carrier yet */
    check_choice("", AF_UNSPEC, 16, "eth1=10.0.1.1:0");
    host_has("br-1234", "172.18.0.1", UP);
    check_choice("", AF_UNSPEC, 16, "br-1234=172.18.0.1:0");
    host_has("eth0", "10.0.0.1", IFF_UP);
    check_choice("", AF_UNSPEC, 16, "br-1234=172.18.0.1:0");
}

XT_TEST(prefixes_and_exact_names_choose_in_their_order)
{
    common_host();
    check_choice("eth", AF_UNSPEC, 16, "eth0=10.0.0.1:0 eth1=10.0.1.1:0");
    check_choice("lo,eth1", AF_UNSPEC, 16, "lo=127.0.0.1:0 eth1=10.0.1.1:0");
    check_choice("=eth", AF_UNSPEC, 16, "");
    check_choice("=eth1,docker0", AF_UNSPEC, 16, "eth1=10.0.1.1:0 docker0=172.17.0.1:0");
    check_choice(",,eth1,,", AF_UNSPEC, 16, "eth1=10.0.1.1:0");
    check_choice("eth1,eth", AF_UNSPEC, 16, "eth1=10.0.1.1:0 eth0=10.0.0.1:0");
    check_choice("a_name_of_more_than_15_bytes", AF_UNSPEC, 16, "");
}

XT_TEST(excluded_names_are_left_out)
{
    common_host();
    check_choice("^ib,docker", AF_UNSPEC, 16, "eth0=10.0.0.1:0 eth1=10.0.1.1:0");
    check_choice("^=eth,ib0", AF_UNSPEC, 16, "eth0=10.0.0.1:0 eth1=10.0.1.1:0");
    check_choice("^eth,ib,lo", AF_UNSPEC, 16, "docker0=172.17.0.1:0 veth12=10.0.3.1:0");
    check_choice("^", AF_UNSPEC, 1, "ib0=10.0.2.1:0");
}

XT_TEST(interfaces_that_are_down_are_never_chosen)
{
    host_has("eth0", "10.0.0.1", 0);
    check_choice("", AF_UNSPEC, 16, "");
    check_choice("eth0", AF_UNSPEC, 16, "");
}

XT_TEST(each_interface_gives_its_best_address)
{
    host_has("eth0", "fe80::1", UP);
    host_has("eth0", "2001:db8::1", UP);
    host_has("eth0", "10.0.0.1", UP);
    host_has("eth0", "10.0.0.2", UP);
    host_has("eth1", "fe80::2", UP);
    check_choice("", AF_UNSPEC, 16, "eth0=10.0.0.1:0 eth1=[fe80::2]:0");
    check_choice("", AF_INET6, 16, "eth0=[2001:db8::1]:0 eth1=[fe80::2]:0");
    check_choice("", AF_INET, 16, "eth0=10.0.0.1:0");
    check_choice("eth1", AF_INET, 16, "");
}

static void host_has_net(const char *name, const char *ip, const char *mask, unsigned flags)
{
    char text[64];

    host_has(name, ip, flags);
    snprintf(text, sizeof(text), strchr(mask, ':') ? "[%s]:1" : "%s:1", mask);
    XT_OK(xccl_addr_parse(text, 0, &host[host_count - 1].mask));
}

static void check_choice_near(const char *near_text, const char *spec, int family, int max,
                              const char *want)
{
    struct xccl_netif ifs[16];
    struct xccl_addr near;
    char got[512] = "", text[XCCL_ADDR_TEXT_BYTES];
    int count;

    XT_OK(xccl_addr_parse(near_text, 0, &near));
    count = xccl_netif_select_near(host, host_count, &near, spec, family, ifs, max);
    for (int i = 0; i < count; i++) {
        xccl_addr_format(&ifs[i].addr, text);
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s=%s", i ? " " : "", ifs[i].name,
                 text);
    }
    XT_CHECK_TEXT(got, want);
}

XT_TEST(the_interface_in_the_meeting_points_subnet_comes_first)
{
    host_has_net("lo", "127.0.0.1", "255.0.0.0", UP);
    host_has_net("docker0", "172.17.0.1", "255.255.0.0", UP);
    host_has_net("eth0", "10.0.0.1", "255.255.255.0", UP);
    host_has_net("eth1", "10.0.1.1", "255.255.255.0", UP);
    host_has_net("eth1", "192.168.9.1", "255.255.255.0", UP);
    host_has_net("eth2", "10.0.2.1", "255.255.255.0", 0);
    check_choice_near("10.0.1.77:1", "", AF_UNSPEC, 16, "eth1=10.0.1.1:0 eth0=10.0.0.1:0");
    check_choice_near("10.0.1.77:1", "", AF_UNSPEC, 1, "eth1=10.0.1.1:0");
    check_choice_near("192.168.9.5:1", "", AF_UNSPEC, 16, "eth1=192.168.9.1:0 eth0=10.0.0.1:0");
    check_choice_near("10.0.0.1:1", "", AF_UNSPEC, 16, "eth0=10.0.0.1:0 eth1=10.0.1.1:0");
    check_choice_near("127.0.0.1:1", "", AF_UNSPEC, 16,
                      "lo=127.0.0.1:0 eth0=10.0.0.1:0 eth1=10.0.1.1:0");
    check_choice_near("127.0.0.1:1", "", AF_UNSPEC, 2, "lo=127.0.0.1:0 eth0=10.0.0.1:0");
    check_choice_near("172.17.3.4:1", "", AF_UNSPEC, 1, "docker0=172.17.0.1:0");
    /* Elsewhere, on one that is down, or in another family: as if nothing had been given. */
    check_choice_near("8.8.8.8:1", "", AF_UNSPEC, 16, "eth0=10.0.0.1:0 eth1=10.0.1.1:0");
    check_choice_near("10.0.2.9:1", "", AF_UNSPEC, 1, "eth0=10.0.0.1:0");
    check_choice_near("10.0.1.77:1", "", AF_INET6, 16, "");
    check_choice_near("[2001:db8::1]:1", "", AF_UNSPEC, 1, "eth0=10.0.0.1:0");
}

XT_TEST(names_given_by_the_user_win_over_the_meeting_point)
{
    host_has_net("eth0", "10.0.0.1", "255.255.255.0", UP);
    host_has_net("eth1", "10.0.1.1", "255.255.255.0", UP);
    check_choice_near("10.0.1.77:1", "eth0", AF_UNSPEC, 16, "eth0=10.0.0.1:0");
    check_choice_near("10.0.1.77:1", "^eth1", AF_UNSPEC, 16, "eth0=10.0.0.1:0");
}

XT_TEST(of_nested_subnets_the_smallest_is_nearest)
{
    host_has_net("eth0", "10.0.0.1", "255.0.0.0", UP);
    host_has_net("eth1", "10.0.1.1", "255.255.255.0", UP);
    host_has_net("eth2", "10.9.1.1", "255.255.0.0", UP);
    host_has_net("tun0", "10.3.0.1", "0.0.0.0", UP);
    check_choice_near("10.0.1.77:1", "", AF_UNSPEC, 1, "eth1=10.0.1.1:0");
    check_choice_near("10.77.1.1:1", "", AF_UNSPEC, 1, "eth0=10.0.0.1:0");
    check_choice_near("11.0.0.1:1", "", AF_UNSPEC, 1, "eth0=10.0.0.1:0");
}

XT_TEST(a_link_local_meeting_point_is_on_the_interface_of_its_zone)
{
    static const char mask[] = "ffff:ffff:ffff:ffff::";

    host_has_net("eth0", "fe80::1%1001", mask, UP);
    host_has_net("eth1", "fe80::1%1002", mask, UP);
    host_has_net("eth1", "2001:db8::1", mask, UP);
    check_choice_near("[fe80::9%1002]:1", "", AF_UNSPEC, 1, "eth1=[fe80::1%1002]:0");
    check_choice_near("[fe80::9%1001]:1", "", AF_UNSPEC, 1, "eth0=[fe80::1%1001]:0");
    check_choice_near("[2001:db8::7]:1", "", AF_UNSPEC, 2,
                      "eth1=[2001:db8::1]:0 eth0=[fe80::1%1001]:0");
    check_choice_near("[fe80::9%1003]:1", "", AF_UNSPEC, 1, "eth0=[fe80::1%1001]:0");
}

static void check_zone(const char *told, const char *here_text, const char *want)
{
    struct xccl_addr addr, here;
    char text[XCCL_ADDR_TEXT_BYTES];

    XT_OK(xccl_addr_parse(told, 0, &addr));
    XT_OK(xccl_addr_parse(here_text, 0, &here));
    xccl_addr_take_zone(&addr, &here);
    xccl_addr_format(&addr, text);
    XT_CHECK_TEXT(text, want);
}

XT_TEST(a_link_local_address_from_another_host_gets_our_zone)
{
    check_zone("[fe80::9%1003]:5", "[fe80::1%1001]:1", "[fe80::9%1001]:5");
    check_zone("[fe80::9%1003]:5", "[2001:db8::1]:1", "[fe80::9%1003]:5");
    check_zone("[fe80::9%1003]:5", "10.0.0.1:1", "[fe80::9%1003]:5");
    check_zone("[2001:db8::9]:5", "[fe80::1%1001]:1", "[2001:db8::9]:5");
    check_zone("10.0.0.9:5", "[fe80::1%1001]:1", "10.0.0.9:5");
}

XT_TEST(the_real_loopback_is_near_to_itself)
{
    struct xccl_addr near;
    struct xccl_netif ifs[4];
    char text[XCCL_ADDR_TEXT_BYTES];
    int count = 0;

    XT_OK(xccl_addr_parse("127.0.0.1:9", 0, &near));
    if (if_nametoindex("lo") == 0)
        XT_SKIP("this host has no interface lo");
    XT_OK(xccl_netif_choose_near(&near, ifs, 4, &count));
    XT_CHECK(count >= 1);
    XT_CHECK_TEXT(ifs[0].name, "lo");
    xccl_addr_format(&ifs[0].addr, text);
    XT_CHECK_TEXT(text, "127.0.0.1:0");
}

XT_TEST(no_match_lists_what_there_is)
{
    struct xccl_netif ifs[4];
    int count = 0;

    xt_setenv("XCCL_SOCKET_IFNAME", "=nosuchif");
    xccl_param_reset();
    XT_CHECK_RC(xccl_netif_choose(ifs, 4, &count), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "nosuchif");
    XT_CHECK_HAS(xccl_error_text(), "this host has: ");
}

XT_TEST(each_failure_in_turn_leaks_nothing_while_listing_interfaces)
{
    struct xccl_netif ifs[4];
    int count = 0;
    uint64_t k;

    (void)xccl_netif_choose(ifs, 4, &count);
    for (k = 1;; k++) {
        xccl_inject_arm(k);
        if (xccl_netif_choose(ifs, 4, &count) == xcclSuccess || xccl_inject_chances() < k)
            break;
    }
    xccl_inject_arm(0);
    XT_CHECK(k > 2);
}

/* ---- subnets ---- */

static struct xccl_addr parsed(const char *text)
{
    struct xccl_addr addr;

    XT_OK(xccl_addr_parse(text, 0, &addr));
    return addr;
}

static int in_subnet(const char *a, const char *b, const char *mask)
{
    struct xccl_addr left = parsed(a), right = parsed(b), bits = parsed(mask);

    return xccl_addr_same_subnet(&left, &right, &bits);
}

XT_TEST(addresses_of_one_subnet_are_told_from_others)
{
    struct xccl_addr none = {.bytes = 0}, addr = parsed("10.0.0.1:1");

    XT_CHECK(in_subnet("10.0.1.1:1", "10.0.2.1:2", "255.255.0.0:1"));
    XT_CHECK(!in_subnet("10.0.1.1:1", "10.0.2.1:1", "255.255.255.0:1"));
    XT_CHECK(!in_subnet("10.0.1.1:1", "[fd00::1]:1", "255.255.0.0:1"));
    XT_CHECK(in_subnet("[fd00::1]:1", "[fd00::2:0]:1", "[ffff:ffff:ffff:ffff::]:1"));
    /* Two links have the same prefix; a zone that is not known may be either. */
    XT_CHECK(!in_subnet("[fe80::1%2]:1", "[fe80::2%3]:1", "[ffff:ffff:ffff:ffff::]:1"));
    XT_CHECK(in_subnet("[fe80::1%2]:1", "[fe80::2]:1", "[ffff:ffff:ffff:ffff::]:1"));
    XT_CHECK(!xccl_addr_same_subnet(&addr, &addr, &none));
    XT_CHECK(!xccl_addr_same_subnet(&addr, &none, &addr));
}

XT_TEST(interface_is_found_by_its_name)
{
    struct xccl_netif netif;
    char name[IF_NAMESIZE];

    XT_CHECK(xccl_netif_named("lo", &netif));
    XT_CHECK_TEXT(netif.name, "lo");
    XT_CHECK(netif.mask.bytes > 0);
    XT_CHECK(xccl_addr_same_subnet(&netif.addr, &netif.addr, &netif.mask));
    XT_CHECK(!xccl_netif_named("no-such-name", &netif));
    XT_CHECK(xccl_netif_having(&netif.addr, name));
    XT_CHECK_TEXT(name, "lo");
    netif.addr = parsed("203.0.113.9:1");
    XT_CHECK(!xccl_netif_having(&netif.addr, name));
}
