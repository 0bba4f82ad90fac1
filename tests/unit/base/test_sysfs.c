/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files of the kernel, and a card's folder: files and links of a folder of its own stand in
 * for those of sysfs, with what drivers write where they do not know, and what cannot be read.
 * The interface lo is there on each machine and has no speed. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sysfs.h"
#include "xt.h"

static char folder[] = "/tmp/xt-sysfs-XXXXXX";

static const char *file_of(const char *text)
{
    static char path[64];
    static int is_made; /* what is made may have an X in its name */
    int fd;

    if (!is_made)
        XT_CHECK(mkdtemp(folder) != NULL);
    is_made = 1;
    snprintf(path, sizeof(path), "%s/file", folder);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    XT_CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return path;
}

static void folder_remove(void)
{
    const char *const argv[] = {"rm", "-rf", folder, NULL};

    XT_CHECK_INT(xt_run_program(argv, NULL), 0);
}

XT_TEST(first_line_without_its_end)
{
    char text[8] = "before";

    xccl_sysfs_line(file_of("one\ntwo\n"), text, sizeof(text));
    XT_CHECK_TEXT(text, "one");
    xccl_sysfs_line(file_of("longer than it is\n"), text, sizeof(text));
    XT_CHECK_TEXT(text, "longer ");
    xccl_sysfs_line(file_of(""), text, sizeof(text));
    XT_CHECK_TEXT(text, "");
    xccl_sysfs_line("/nowhere/at/all", text, sizeof(text));
    XT_CHECK_TEXT(text, "");
    xccl_sysfs_line(folder, text, sizeof(text)); /* opens, but cannot be read */
    XT_CHECK_TEXT(text, "");
    folder_remove();
}

XT_TEST(numbers_that_are_there)
{
    static const struct {
        const char *text;
        uint32_t number;
    } files[] = {{"10000\n", 10000},        {"100 Gb/sec (4X EDR)\n", 100}, {"-1\n", 0},
                 {"unknown\n", 0},          {"99999999999999999999\n", 0},  {"2147483647\n", 0},
                 {"2147483646", 2147483646}};

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        XT_CHECK_INT(xccl_sysfs_number(file_of(files[i].text)), files[i].number);
    XT_CHECK_INT(xccl_sysfs_number("/nowhere/at/all"), 0);
    XT_CHECK_INT(xccl_sysfs_speed("no-such-interface"), 0);
    XT_CHECK_INT(xccl_sysfs_speed("lo"), 0);
    folder_remove();
}

XT_TEST(virtio_device_is_one_below_its_card)
{
    char card[64], virtio[96], link[64], path[PATH_MAX];

    (void)file_of("");
    snprintf(card, sizeof(card), "%s/0000:00:03.0", folder);
    snprintf(virtio, sizeof(virtio), "%s/virtio2", card);
    snprintf(link, sizeof(link), "%s/device", folder);
    XT_CHECK(mkdir(card, 0700) == 0 && mkdir(virtio, 0700) == 0);
    XT_CHECK(symlink(card, link) == 0);
    xccl_sysfs_card(link, path, sizeof(path));
    XT_CHECK_TEXT(path, card);
    XT_CHECK(unlink(link) == 0 && symlink(virtio, link) == 0);
    xccl_sysfs_card(link, path, sizeof(path));
    XT_CHECK_TEXT(path, card);
    xccl_sysfs_card(link, path, strlen(card)); /* no room for its end */
    XT_CHECK_TEXT(path, "");
    xccl_sysfs_card("/nowhere/at/all", path, sizeof(path));
    XT_CHECK_TEXT(path, "");
    folder_remove();
}

XT_TEST(cards_of_one_pci_root_are_known)
{
    static const struct {
        const char *card, *other;
        int is_same;
    } cases[] = {
        {"/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0",
         "/sys/devices/pci0000:3a/0000:3a:02.0/0000:3c:00.0", 1},
        {"/sys/devices/pci0000:3a/0000:3a:00.0", "/sys/devices/pci0000:3a/0000:3a:00.0", 1},
        {"/sys/devices/pci0000:3a/0000:3a:00.0", "/sys/devices/pci0000:3b/0000:3a:00.0", 0},
        {"/sys/devices/pci0000:3a/0000:3a:00.0", "/sys/devices/pci0000:3a1/0000:3a:00.0", 0},
        {"/sys/devices/pci0000:3a/0000:3a:00.0", "/sys/devices/pci0000:3a", 0},
        {"/sys/devices/pci0000:3a/0000:3a:00.0", "", 0},
        {"", "/sys/devices/pci0000:3a/0000:3a:00.0", 0},
        {"", "", 0},
        {"/sys/devices/virtual/net/lo", "/sys/devices/virtual/net/lo", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        XT_CHECK_INT(xccl_sysfs_same_root(cases[i].card, cases[i].other), cases[i].is_same);
}
