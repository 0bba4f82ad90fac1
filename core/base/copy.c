/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies by vectors, with aligned stores. The compiler is kept from making a memcpy of the loop
 * again (CMakeLists.txt), for that is what is to be avoided; its own small copies before and behind
 * the loop are short enough for memcpy. Thread: any. */
#include "base/copy.h"

#define VECTOR 16u
#define ROUND  (4 * VECTOR)

typedef long long aligned_vector __attribute__((vector_size(VECTOR), may_alias));
typedef long long loose_vector __attribute__((vector_size(VECTOR), may_alias, aligned(1)));

void xccl_copy_by_vectors(void *to, const void *from, size_t bytes)
{
    const char *in = from;
    char *out = to;
    size_t head;

    if (bytes < ROUND) {
        memcpy(to, from, bytes);
        return;
    }
    *(loose_vector *)(void *)out = *(const loose_vector *)(const void *)in;
    head = VECTOR - (uintptr_t)out % VECTOR; /* then stores are aligned */
    out += head;
    in += head;
    for (bytes -= head; bytes >= ROUND; bytes -= ROUND, in += ROUND, out += ROUND) {
        const loose_vector *four = (const void *)in;
        loose_vector a = four[0], b = four[1], c = four[2], d = four[3];
        aligned_vector *at = (void *)out;

        at[0] = a;
        at[1] = b;
        at[2] = c;
        at[3] = d;
    }
    memcpy(out, in, bytes);
}
