/* SPDX-License-Identifier: BSD-3-Clause */
/* Deeds: harm to a rank, by itself when the director says so, or from outside; to its network or
 * its file systems; and what makes its plugin fail.
 *
 * Thread: deed_prepare and deed_strike the rank's, in its process; the rest the director's. */
#ifndef XT_CAMPAIGN_DEED_H
#define XT_CAMPAIGN_DEED_H

#include "campaign_round.h"
#include "xt.h"

#define PAUSE_MS 700 /* of a rank that is stopped and continues: no fault at all */

/* Settings of a rank's process for the round's transport and deeds, before it joins. */
void deed_prepare(const struct stage *stage, int rank);
/* Does to this rank what it shall do to itself now, if anything. 1: it has left. */
int deed_strike(struct stage *stage, struct player *player);

/* All of a round, each at its time. */
void deeds_direct(struct stage *stage, struct xt_mp *mp);
/* The process in which a rank lives. */
int deed_process(const struct round *round, int rank);
int deed_is_gone(pid_t pid);

/* A host for each rank, and a switch between them. */
void deed_hosts_make(struct path_hosts *hosts);
/* Makes the network of a round whole again. */
void deed_hosts_mend(const struct path_hosts *hosts);

#endif
