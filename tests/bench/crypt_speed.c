/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast one core seals and opens the records of plugins/kit/kit_crypt.h: GB/s of text by cipher,
 * library and length, as a markdown table. The text is in the core's caches, as that of a stream
 * is. The time is the thread's processor time, so other work on the machine changes the figures
 * less. Medians of ROUNDS rounds; the lowest and highest follow.
 *
 * Arguments: none. Thread: one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "kit/kit_crypt.h"

#define ROUNDS   7
#define ROUND_NS (20 * XCCL_NS_PER_MS)

#define BATCH_BYTES ((size_t)192 << 10) /* of records that are sealed, then opened */

static uint8_t text[KIT_CRYPT_TEXT_MAX], records[BATCH_BYTES + 65536];

static uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * XCCL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Records sealed in a row, then opened; ns of one. 0: it failed. */
static int measure(enum kit_cipher_kind kind, size_t bytes, double *seal_ns, double *open_ns)
{
    static const uint8_t key[KIT_CIPHER_KEY_BYTES] = {1};
    struct kit_crypt *sealing = kit_crypt_create(kind, key, 1);
    struct kit_crypt *opening = kit_crypt_create(kind, key, 0);
    struct iovec piece = {text, bytes};
    size_t whole = bytes + KIT_CRYPT_EXTRA_BYTES, batch = BATCH_BYTES / whole + 1;
    uint64_t spent[2] = {0, 0}, count = 0;
    int ok = sealing && opening;

    while (ok && spent[0] + spent[1] < ROUND_NS) {
        uint64_t start_ns = cpu_ns(), middle_ns;

        for (size_t i = 0; i < batch && ok; i++)
            ok = kit_crypt_seal(sealing, &piece, 1, records + i * whole) > 0;
        middle_ns = cpu_ns();
        for (size_t i = 0; i < batch && ok; i++)
            ok = kit_crypt_length(opening, records + i * whole) == bytes &&
                 kit_crypt_unseal(opening, records + i * whole, bytes, text);
        spent[0] += middle_ns - start_ns;
        spent[1] += cpu_ns() - middle_ns;
        count += batch;
    }
    kit_crypt_destroy(sealing);
    kit_crypt_destroy(opening);
    *seal_ns = (double)spent[0] / (double)(count + !count);
    *open_ns = (double)spent[1] / (double)(count + !count);
    return ok;
}

static int row(enum kit_cipher_kind kind, size_t bytes)
{
    double ns[2][ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        if (!measure(kind, bytes, &ns[0][i], &ns[1][i]))
            return 0;
    }
    printf("| %s | %zu |", kit_cipher_name(kind), bytes);
    for (int i = 0; i < 2; i++) {
        qsort(ns[i], ROUNDS, sizeof(double), by_size);
        printf(" %.0f ns, %.2f GB/s (%.2f to %.2f) |", ns[i][ROUNDS / 2],
               (double)bytes / ns[i][ROUNDS / 2], (double)bytes / ns[i][ROUNDS - 1],
               (double)bytes / ns[i][0]);
    }
    printf("\n");
    return 1;
}

int main(void)
{
    static const size_t sizes[] = {8, 1024, 16384, KIT_CRYPT_TEXT_MAX};

    printf("| cipher | bytes | seal | open |\n| --- | --- | --- | --- |\n");
    for (int without = 0; without < 2; without++) {
        kit_cipher_without_libcrypto(without);
        for (int kind = KIT_CIPHER_AES; kind < KIT_CIPHER_KINDS; kind++) {
            if ((without && kind == KIT_CIPHER_CHACHA) ||
                !kit_cipher_able((enum kit_cipher_kind)kind))
                continue;
            for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                if (!row((enum kit_cipher_kind)kind, sizes[i]))
                    return 1;
            }
        }
    }
    return 0;
}
