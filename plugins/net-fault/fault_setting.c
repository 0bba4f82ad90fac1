/* SPDX-License-Identifier: BSD-3-Clause */
/* XCCL_NET_FAULT: words with values, commas between. Numbers are read here and not by strtod, which
 * follows the host program's locale. Pure. Thread: any. */
#include "fault_int.h"

#include <stdio.h>
#include <string.h>

#define SEED_DIGITS_MAX     19
#define DELAY_US_MAX        1000000
#define DELAY_US_DEFAULT    200
#define FRACTION_DIGITS_MAX 9

#define RATE(field)                                                                                \
    {                                                                                              \
#field, offsetof(struct fault_rates, field)                                                \
    }
static const struct rate_word {
    const char *name;
    size_t offset;
} rate_words[] = {
    RATE(busy),         RATE(delay), RATE(partial), RATE(reorder),
    RATE(slow_connect), RATE(error), RATE(dead),    RATE(reg),
};
#undef RATE
#define RATE_COUNT (sizeof(rate_words) / sizeof(rate_words[0]))

/* What every correct user of the contract lives with. */
static const struct fault_rates harmless = {
    .busy = 0.1, .delay = 0.1, .partial = 0.2, .reorder = 0.1, .slow_connect = 0.3};

static double *rate_at(struct fault_rates *rates, const struct rate_word *word)
{
    return (double *)(void *)((char *)rates + word->offset);
}

/* Decimal digits, up to most; 0: something else. */
static int number_read(const char *text, size_t bytes, uint64_t most, uint64_t *number_out)
{
    uint64_t number = 0;

    if (bytes == 0 || bytes > SEED_DIGITS_MAX)
        return 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    *number_out = number;
    return number <= most;
}

/* 0, 1, 0.05, .05; 0: something else. */
static int rate_read(const char *text, size_t bytes, double *rate_out)
{
    const char *point = memchr(text, '.', bytes);
    size_t whole_bytes = point ? (size_t)(point - text) : bytes;
    size_t digits = point ? bytes - whole_bytes - 1 : 0;
    uint64_t whole = 0, part = 0;
    double scale = 1;

    if ((whole_bytes > 0 || digits == 0) && !number_read(text, whole_bytes, 1, &whole))
        return 0;
    if (digits > FRACTION_DIGITS_MAX ||
        (digits > 0 && !number_read(point + 1, digits, UINT64_MAX, &part)))
        return 0;
    for (size_t i = 0; i < digits; i++)
        scale *= 10;
    *rate_out = (double)whole + (double)part / scale;
    return *rate_out <= 1;
}

static xcclResult_t value_fail(const char *item, size_t bytes, const char *range)
{
    return xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                             "XCCL_NET_FAULT has '%.*s': the value must be %s",
                             (int)(bytes < 64 ? bytes : 64), item, range);
}

static xcclResult_t word_fail(const char *item, size_t bytes)
{
    return xccl_fail_quietly(xcclInvalidArgument, 0,
                             "write WORD=VALUE with commas between; words are seed, delay_us, "
                             "busy, delay, partial, reorder, slow_connect, error, dead, reg",
                             "XCCL_NET_FAULT has '%.*s', which is not a known WORD=VALUE",
                             (int)(bytes < 64 ? bytes : 64), item);
}

/* One WORD=VALUE; *rates_out is set to 1 when it named a fault. */
static xcclResult_t item_read(const char *item, size_t bytes, struct fault_setting *setting,
                              int *rates_out)
{
    const char *equals = memchr(item, '=', bytes), *value = equals ? equals + 1 : NULL;
    size_t name_bytes = equals ? (size_t)(equals - item) : 0;
    size_t value_bytes = equals ? bytes - name_bytes - 1 : 0;
    uint64_t number;

    if (!equals)
        return word_fail(item, bytes);
    if (name_bytes == 4 && memcmp(item, "seed", 4) == 0) {
        setting->seed_given = 1;
        return number_read(value, value_bytes, UINT64_MAX, &setting->seed)
                   ? xcclSuccess
                   : value_fail(item, bytes, "a number of up to 19 digits");
    }
    if (name_bytes == 8 && memcmp(item, "delay_us", 8) == 0) {
        if (!number_read(value, value_bytes, DELAY_US_MAX, &number))
            return value_fail(item, bytes, "0 to 1000000 (microseconds)");
        setting->delay_us = (uint32_t)number;
        return xcclSuccess;
    }
    for (size_t i = 0; i < RATE_COUNT; i++) {
        const char *name = rate_words[i].name;

        if (strlen(name) != name_bytes || memcmp(name, item, name_bytes) != 0)
            continue;
        *rates_out = 1;
        return rate_read(value, value_bytes, rate_at(&setting->rates, &rate_words[i]))
                   ? xcclSuccess
                   : value_fail(item, bytes, "0 to 1, as 0.05");
    }
    return word_fail(item, bytes);
}

xcclResult_t fault_setting_parse(const char *text, struct fault_setting *setting_out)
{
    struct fault_setting setting = {.delay_us = DELAY_US_DEFAULT};
    int has_rates = 0;

    for (const char *at = text; *at;) {
        size_t bytes = strcspn(at, ","), front = strspn(at, " ");
        const char *item = at + (front < bytes ? front : bytes);
        size_t item_bytes = (size_t)(at + bytes - item);

        while (item_bytes > 0 && item[item_bytes - 1] == ' ')
            item_bytes--;
        if (item_bytes > 0) {
            xcclResult_t rc = item_read(item, item_bytes, &setting, &has_rates);

            if (rc != xcclSuccess)
                return rc;
        }
        at += bytes + (at[bytes] == ',');
    }
    if (!has_rates)
        setting.rates = harmless;
    *setting_out = setting;
    return xcclSuccess;
}

void fault_setting_format(const struct fault_setting *setting, char *text_out, size_t bytes)
{
    struct fault_rates rates = setting->rates;
    int used = snprintf(text_out, bytes, "seed=%llu,delay_us=%u", (unsigned long long)setting->seed,
                        setting->delay_us);

    for (size_t i = 0; i < RATE_COUNT && used > 0 && (size_t)used < bytes; i++) {
        /* In billionths and by integers: %f would follow the locale. */
        uint64_t parts = (uint64_t)(*rate_at(&rates, &rate_words[i]) * 1e9 + 0.5);
        uint64_t part = parts % 1000000000;
        int digits = FRACTION_DIGITS_MAX;

        /* One rate at least is named: without any the harmless ones come back. */
        if (parts == 0 && i > 0)
            continue;
        for (; digits > 1 && part % 10 == 0; digits--)
            part /= 10;
        used += snprintf(text_out + used, bytes - (size_t)used, ",%s=%llu.%0*llu",
                         rate_words[i].name, (unsigned long long)(parts / 1000000000), digits,
                         (unsigned long long)part);
    }
}
