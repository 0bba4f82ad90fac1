/* SPDX-License-Identifier: BSD-3-Clause */
/* The judge of rounds: what each rank had to do, what it did instead, and figures.
 *
 * Thread: the director's. */
#ifndef XT_CAMPAIGN_JUDGE_H
#define XT_CAMPAIGN_JUDGE_H

#include "campaign_round.h"

/* Judges a round whose ranks have ended, prints what was wrong, and writes a line of the file
 * XT_FIGURES. hangs: ranks that were killed since they did not go on. statuses: of processes. */
void judge_round(const struct stage *stage, int hangs, const int *statuses);

/* Fails the test if any round was bad, with the first of them and how many of each kind. */
void judge_end(void);

#endif
