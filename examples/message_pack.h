/* As much MessagePack as a publisher needs: maps, arrays, text, bytes and whole numbers.
 *
 * Written into a bounded body; read in place, every step checked against the end, since what is
 * read came from outside. Unknown keys are passed over, as everywhere in gridstat.
 */
#ifndef MESSAGE_PACK_H
#define MESSAGE_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_BYTES_MAX = 65536 };

static inline void store(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

static inline uint64_t load(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

/* ---- MessagePack, written ---- */

typedef struct {
    size_t length;
    uint8_t bytes[BODY_BYTES_MAX];
} body;

static inline void put(body *to, const void *bytes, size_t count)
{
    if (count > sizeof to->bytes - to->length)
        abort(); /* Ours are all far smaller. */
    memcpy(to->bytes + to->length, bytes, count);
    to->length += count;
}

static inline void put_head(body *to, uint8_t kind, uint64_t value, int bytes)
{
    uint8_t head[9] = {kind};
    store(head + 1, value, bytes);
    put(to, head, (size_t)bytes + 1);
}

static inline void put_map(body *to, uint32_t pairs)
{
    put_head(to, 0xdf, pairs, 4);
}

static inline void put_array(body *to, uint32_t items)
{
    put_head(to, 0xdd, items, 4);
}

static inline void put_number(body *to, uint64_t number)
{
    put_head(to, 0xcf, number, 8);
}

static inline void put_text(body *to, const char *text)
{
    put_head(to, 0xdb, strlen(text), 4);
    put(to, text, strlen(text));
}

static inline void put_bytes(body *to, const uint8_t *bytes, size_t count)
{
    put_head(to, 0xc6, count, 4);
    put(to, bytes, count);
}

static inline void put_pair(body *to, const char *key, const char *text)
{
    put_text(to, key);
    put_text(to, text);
}

/* ---- MessagePack, read ---- */

typedef struct {
    const uint8_t *at, *end;
} words;

/* How long the head of an element is, what it announces, and how many elements it contains. */
typedef struct {
    uint8_t kind; /* As in the fix forms: 0 number, 0x80 map, 0x90 array, 0xa0 text or bytes. */
    uint64_t value;
    words rest; /* Behind the head. */
} element;

static inline bool sized(words from, element *found, uint8_t kind, size_t bytes)
{
    if ((size_t)(from.end - from.at) < 1 + bytes)
        return false;
    found->kind = kind;
    found->value = load(from.at + 1, bytes);
    found->rest = (words){from.at + 1 + bytes, from.end};
    return true;
}

static inline bool read_element(words from, element *found)
{
    if (from.at >= from.end)
        return false;
    uint8_t head = *from.at;
    *found = (element){0, 0, {from.at + 1, from.end}};
    if (head < 0x80 || head >= 0xe0)
        found->value = head;
    else if (head < 0xa0)
        found->kind = head & 0xf0, found->value = head & 0x0f;
    else if (head < 0xc0)
        found->kind = 0xa0, found->value = head & 0x1f;
    else if (head <= 0xc3)
        found->value = head & 1; /* Nothing, false, true. */
    else if (head <= 0xc6)
        return sized(from, found, 0xa0, (size_t)1 << (head - 0xc4));
    else if (head >= 0xca && head <= 0xcb)
        return sized(from, found, 0, (size_t)4 << (head - 0xca));
    else if (head >= 0xcc && head <= 0xd3)
        return sized(from, found, 0, (size_t)1 << (head & 3));
    else if (head >= 0xd9 && head <= 0xdb)
        return sized(from, found, 0xa0, (size_t)1 << (head - 0xd9));
    else if (head >= 0xdc)
        return sized(from, found, head < 0xde ? 0x90 : 0x80, (size_t)2 << (head & 1));
    else
        return false; /* Extensions: nobody here sends any. */
    return true;
}

/* Moves behind one element and all that it contains; depth by depth without recursion. */
static inline bool skip(words *from)
{
    uint64_t left = 1;
    while (left-- > 0) {
        element found;
        if (!read_element(*from, &found))
            return false;
        *from = found.rest;
        if (found.kind == 0xa0) {
            if (found.value > (uint64_t)(from->end - from->at))
                return false;
            from->at += found.value;
        } else if (found.kind != 0) {
            left += found.kind == 0x80 ? 2 * found.value : found.value;
        }
    }
    return true;
}

static inline bool is_text(words from, const char *text)
{
    element found;
    return read_element(from, &found) && found.kind == 0xa0 && found.value == strlen(text) &&
           found.value <= (uint64_t)(found.rest.end - found.rest.at) &&
           memcmp(found.rest.at, text, found.value) == 0;
}

/* The value behind a key of a map. */
static inline bool member(words map, const char *key, words *value)
{
    element head;
    if (!read_element(map, &head) || head.kind != 0x80)
        return false;
    words at = head.rest;
    for (uint64_t i = 0; i < head.value; i++) {
        bool is_it = is_text(at, key);
        if (!skip(&at))
            return false;
        if (is_it) {
            *value = at;
            return true;
        }
        if (!skip(&at))
            return false;
    }
    return false;
}

static inline uint64_t number_of(words map, const char *key, uint64_t otherwise)
{
    words value;
    element found;
    bool is_there = member(map, key, &value) && read_element(value, &found) && found.kind == 0;
    return is_there ? found.value : otherwise;
}

static inline void text_of(words map, const char *key, char *text, size_t size)
{
    words value;
    element found = {0};
    text[0] = '\0';
    if (member(map, key, &value) && read_element(value, &found) && found.kind == 0xa0 &&
        found.value < size && found.value <= (uint64_t)(found.rest.end - found.rest.at)) {
        memcpy(text, found.rest.at, found.value);
        text[found.value] = '\0';
    }
}

#endif
