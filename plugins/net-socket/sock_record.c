/* SPDX-License-Identifier: BSD-3-Clause */
/* Records between a comm and the kernel.
 *
 *   pieces --sealed--> out --send--> kernel        send says what of the pieces is with the kernel
 *   kernel --recv--> in --opened--> pieces         straight to its place if it fits in there,
 *                         '--> rest of a record    else in `in`, from where it is copied
 *
 * A sealed record cannot be taken back, since its number is used. So when the kernel takes a part
 * of it, send says that nothing of it is gone; the caller gives the same bytes again, and they are
 * counted once the record has left. A large piece begins a record of its own, so that at the other
 * end records lie wholly in the memory of one message.
 *
 * Not a byte is given to anybody before its record's tag was checked, but that what lies in posted
 * memory may have been opened there first; nothing is done by it.
 *
 * Thread: one at a time a comm. Only create and key allocate. */
#include "sock_record.h"

#include <sodium.h>
#include <string.h>

#include "base/alloc.h"
#include "kit/kit_crypt.h"

#define PIECES       24 /* of one record: the most that any caller gives */
#define OWN_BYTES    ((size_t)16 << 10) /* a piece from here on begins a record */
#define COPIED_BYTES ((size_t)4 << 10) /* an opened record that small may be copied */
#define RECORD_BYTES (KIT_CRYPT_TEXT_MAX + KIT_CRYPT_EXTRA_BYTES)
#define OUT_BYTES    (RECORD_BYTES + 4096) /* headers before it are part of the write */
#define IN_BYTES     (2 * RECORD_BYTES)
#define BACK_BYTES   ((size_t)4 << 10) /* either way, where only acknowledgements go */

struct sock_record {
    struct kit_crypt *sealing, *opening; /* NULL: nothing goes that way */
    size_t out_room, in_room;
    size_t out_first, out_end; /* sealed, and not with the kernel */
    size_t out_text; /* of the caller's bytes, in there */
    size_t sent_text; /* with the kernel, and the caller has not been told */
    size_t in_first, in_end; /* as they came */
    size_t next; /* bytes of text of the record at in_first; 0: its header has not come */
    size_t rest_first, rest_end; /* of `in`: opened, and not taken */
    uint8_t *in;
    uint8_t out[];
};

struct sock_record *sock_record_create(int is_send)
{
    size_t out_room = is_send ? OUT_BYTES : BACK_BYTES, in_room = is_send ? BACK_BYTES : IN_BYTES;
    struct sock_record *record = xccl_calloc_aligned(64, sizeof(*record) + out_room + in_room);

    if (!record)
        return NULL;
    record->out_room = out_room;
    record->in_room = in_room;
    record->in = record->out + out_room;
    return record;
}

static void keys_drop(struct sock_record *record)
{
    kit_crypt_destroy(record->sealing);
    kit_crypt_destroy(record->opening);
    record->sealing = NULL;
    record->opening = NULL;
}

void sock_record_destroy(struct sock_record *record)
{
    if (!record)
        return;
    keys_drop(record);
    xccl_free(record);
}

/* Makes the crypt of one direction of this connection. */
static struct kit_crypt *crypt_of(const struct sock_comm *comm, const struct kit_proof *proof,
                                  int seals)
{
    int forth = comm->is_send == seals;
    uint8_t key[KIT_CIPHER_KEY_BYTES];
    struct kit_crypt *crypt;

    kit_proof_key(proof, forth ? "socket records forth" : "socket records back", key, sizeof(key));
    crypt = kit_crypt_create(comm->cipher, key, seals);
    sodium_memzero(key, sizeof(key));
    return crypt;
}

int sock_record_key(struct sock_record *record, const struct sock_comm *comm,
                    const struct kit_proof *proof)
{
    int both = comm->line_count > 1; /* else nothing comes back */
    int seals = comm->is_send || both, opens = !comm->is_send || both;

    keys_drop(record);
    record->out_first = record->out_end = record->out_text = record->sent_text = 0;
    record->in_first = record->in_end = record->next = 0;
    record->rest_first = record->rest_end = 0;
    if (seals)
        record->sealing = crypt_of(comm, proof, 1);
    if (opens)
        record->opening = crypt_of(comm, proof, 0);
    if ((record->sealing || !seals) && (record->opening || !opens))
        return 1;
    keys_drop(record);
    return 0;
}

/* ---- a place in a row of pieces ---- */

struct cursor {
    const struct iovec *pieces;
    int count, at;
    size_t used; /* of the piece at `at` */
};

static size_t room_of(const struct cursor *cursor)
{
    return cursor->at < cursor->count ? cursor->pieces[cursor->at].iov_len - cursor->used : 0;
}

static uint8_t *place_of(const struct cursor *cursor)
{
    return (uint8_t *)cursor->pieces[cursor->at].iov_base + cursor->used;
}

/* Goes on, also past pieces without bytes. */
static void forth(struct cursor *cursor, size_t bytes)
{
    while (cursor->at < cursor->count && bytes >= room_of(cursor)) {
        bytes -= room_of(cursor);
        cursor->at++;
        cursor->used = 0;
    }
    cursor->used += bytes;
}

/* ---- sending ---- */

/* The pieces of the next record, and the cursor behind them. Returns their bytes. */
static size_t run(struct cursor *cursor, size_t most, struct iovec out[PIECES], int *count_out)
{
    size_t bytes = 0;
    int count = 0;

    while (bytes < most && count < PIECES && room_of(cursor) > 0) {
        size_t part = room_of(cursor);

        if (bytes > 0 && part >= OWN_BYTES)
            break;
        if (part > most - bytes)
            part = most - bytes;
        out[count++] = (struct iovec){place_of(cursor), part};
        bytes += part;
        forth(cursor, part);
    }
    *count_out = count;
    return bytes;
}

/* Seals as much as out has room for, from this far in the pieces. 0: the cipher refused. */
static int seal(struct sock_record *record, const struct iovec *pieces, int count, size_t from)
{
    struct cursor cursor = {pieces, count, 0, 0};
    size_t most = record->out_room - KIT_CRYPT_EXTRA_BYTES;

    if (most > KIT_CRYPT_TEXT_MAX)
        most = KIT_CRYPT_TEXT_MAX;
    record->out_first = record->out_end = 0;
    forth(&cursor, from);
    while (room_of(&cursor) > 0) {
        struct cursor before = cursor;
        struct iovec own[PIECES];
        int own_count;
        size_t bytes = run(&cursor, most, own, &own_count), sealed;

        if (record->out_end + bytes + KIT_CRYPT_EXTRA_BYTES > record->out_room) {
            cursor = before;
            break;
        }
        sealed = kit_crypt_seal(record->sealing, own, own_count, record->out + record->out_end);
        if (!sealed)
            return 0;
        record->out_end += sealed;
        record->out_text += bytes;
    }
    return 1;
}

static size_t total(const struct iovec *pieces, int count)
{
    size_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    return bytes;
}

ssize_t sock_record_send(struct sock_comm *comm, int line, const struct iovec *pieces, int count)
{
    struct sock_record *record = comm->lines[line].record;
    size_t all = total(pieces, count), told;
    int err = EAGAIN;

    for (;;) {
        ssize_t sent;

        if (record->out_first == record->out_end) {
            record->sent_text += record->out_text;
            record->out_text = 0;
            if (record->sent_text >= all)
                break;
            if (!seal(record, pieces, count, record->sent_text)) {
                errno = EOVERFLOW;
                return -1;
            }
        }
        sent = send(comm->lines[line].fd, record->out + record->out_first,
                    record->out_end - record->out_first,
                    MSG_NOSIGNAL | MSG_DONTWAIT |
                        (record->sent_text + record->out_text < all ? MSG_MORE : 0));
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            err = errno;
            break;
        }
        record->out_first += (size_t)sent;
        if (record->out_first < record->out_end)
            break; /* the kernel is full */
    }
    told = record->sent_text < all ? record->sent_text : all;
    record->sent_text -= told;
    if (told > 0)
        return (ssize_t)told;
    errno = err;
    return -1;
}

int sock_record_sealed(const struct sock_record *record)
{
    return record->out_first != record->out_end;
}

/* ---- receiving ---- */

static ssize_t altered(void)
{
    errno = EBADMSG;
    return -1;
}

/* 1: a record is complete; 0: it is not; -1: it is none. */
static int look(struct sock_record *record)
{
    size_t have = record->in_end - record->in_first;

    if (!record->next && have >= KIT_CRYPT_HEADER_BYTES) {
        record->next = kit_crypt_length(record->opening, record->in + record->in_first);
        if (!record->next || record->next + KIT_CRYPT_EXTRA_BYTES > record->in_room)
            return -1;
    }
    return record->next && have >= record->next + KIT_CRYPT_EXTRA_BYTES;
}

/* Reads once. Bytes that wait move to the front first, unless a record has room behind them. */
static ssize_t fill(struct sock_record *record, int fd)
{
    size_t have = record->in_end - record->in_first;
    ssize_t got;

    if (have == 0 || record->in_room - record->in_first <
                         (record->next ? record->next + KIT_CRYPT_EXTRA_BYTES : RECORD_BYTES)) {
        memmove(record->in, record->in + record->in_first, have);
        record->in_first = 0;
        record->in_end = have;
    }
    do
        got = recv(fd, record->in + record->in_end, record->in_room - record->in_end, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        record->in_end += (size_t)got;
    return got;
}

/* Opens the complete record to where it is wanted, or where it lies. 0: it was altered. */
static int take(struct sock_record *record, struct cursor *cursor)
{
    int fits = record->next <= room_of(cursor);
    size_t at = record->in_first + KIT_CRYPT_HEADER_BYTES, bytes = record->next;

    if (!kit_crypt_unseal(record->opening, record->in + record->in_first, bytes,
                          fits ? place_of(cursor) : record->in + at))
        return 0;
    record->in_first += bytes + KIT_CRYPT_EXTRA_BYTES;
    record->next = 0;
    if (fits) {
        forth(cursor, bytes);
        return 1;
    }
    record->rest_first = at;
    record->rest_end = at + bytes;
    return 1;
}

static size_t take_rest(struct sock_record *record, struct cursor *cursor)
{
    size_t bytes = record->rest_end - record->rest_first;

    if (bytes > room_of(cursor))
        bytes = room_of(cursor);
    memcpy(place_of(cursor), record->in + record->rest_first, bytes);
    record->rest_first += bytes;
    forth(cursor, bytes);
    return bytes;
}

ssize_t sock_record_recv(struct sock_comm *comm, int line, const struct iovec *pieces, int count)
{
    struct sock_record *record = comm->lines[line].record;
    struct cursor cursor = {pieces, count, 0, 0};
    size_t done = 0;
    int asked = 0, complete;

    forth(&cursor, 0);
    while (room_of(&cursor) > 0) {
        if (record->rest_first != record->rest_end) {
            done += take_rest(record, &cursor);
            continue;
        }
        complete = look(record);
        if (complete < 0)
            return altered();
        if (complete) {
            /* The caller may have a place for all of it the next time. */
            if (done > 0 && record->next > room_of(&cursor) && record->next > COPIED_BYTES)
                break;
            size_t direct = record->next <= room_of(&cursor) ? record->next : 0;

            if (!take(record, &cursor))
                return altered();
            done += direct;
            continue;
        }
        if (done > 0 || asked)
            break;
        ssize_t got = fill(record, comm->lines[line].fd);
        if (got <= 0)
            return got;
        asked = 1;
    }
    if (done > 0)
        return (ssize_t)done;
    errno = EAGAIN;
    return -1;
}

int sock_record_holds(const struct sock_record *record)
{
    size_t have = record->in_end - record->in_first;
    size_t next = record->next;

    if (record->rest_first != record->rest_end)
        return 1;
    if (!next && have >= KIT_CRYPT_HEADER_BYTES)
        next = kit_crypt_length(record->opening, record->in + record->in_first);
    /* The next read finds out that this is no record. */
    return have >= KIT_CRYPT_HEADER_BYTES && (!next || have >= next + KIT_CRYPT_EXTRA_BYTES);
}
