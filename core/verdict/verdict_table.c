/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of kinds of trouble: rows of verdict.def, by kind. A kind without a row cannot be
 * written; one that came from elsewhere and is unknown gets the row of "other".
 * Thread: any; constant data. */
#include "verdict/verdict.h"

static const struct xccl_trouble_row rows[XCCL_TROUBLE_COUNT] = {
#define XCCL_TROUBLE(name, word, result, sentence, remedy)                                         \
    [XCCL_TROUBLE_##name] = {word, sentence, remedy, result},
#include "verdict/verdict.def"
#undef XCCL_TROUBLE
};

const struct xccl_trouble_row *xccl_trouble_row(enum xccl_trouble trouble)
{
    return (unsigned)trouble < XCCL_TROUBLE_COUNT && rows[trouble].word ? &rows[trouble]
                                                                        : &rows[XCCL_TROUBLE_OTHER];
}

xcclResult_t xccl_verdict_rc(const struct xccl_verdict *verdict)
{
    return verdict->rc ? verdict->rc : xccl_trouble_row(verdict->trouble)->rc;
}
