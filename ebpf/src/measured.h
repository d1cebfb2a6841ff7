/*
 * The time from an entry (or START) to its return (or END): the duration, and values saved at the entry.
 *
 *   vfs_read(count=4096)  ──►  returns 17            saved: 4096; duration; the return value is fetched at the end
 *   sched_wakeup(pid=7)   ──►  sched_switch(next_pid=7)
 */
#pragma once

#include "fetch.h"
#include "open_calls.h"

#define MOST_TEXTS 2
#define TEXT_BYTES 128
/* Words of a short string: a thread name, a field of at most 16 bytes. */
#define SHORT_WORDS 2

/* layout: Saving */
#define SAVE_NOTHING 0
#define SAVE_NUMBER 1
#define SAVE_SHORT_TEXT 2 /* takes two words */
#define SAVE_COMM 3 /* takes two words */

/* layout: SavedValue */
struct saved_value {
	u32 saving;
	u32 unused;
	struct fetch fetch;
};

/* layout: Saved */
struct saved {
	struct saved_value values[MOST_SAVED];
	struct fetch texts[MOST_TEXTS]; /* long strings; for calls only */
};

struct texts {
	u64 words[MOST_TEXTS][TEXT_BYTES / 8];
};

/* Long strings of open calls, with the same keys. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1); /* the loader enlarges it if there are any */
	TYPE(key, struct lane_key);
	TYPE(value, struct texts);
} open_texts SEC(".maps");

/* All zeros. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct texts);
} empty_texts SEC(".maps");

/* The values at a return (or END). */
struct measured {
	u64 duration;
	u64 self;
	u64 *saved; /* array of MOST_SAVED */
	struct texts *texts;
};

static __attribute__((noinline)) bool save_one(void *ctx, const volatile struct saved_value *value, u64 *words)
{
	switch (value->saving) {
	case SAVE_NUMBER:
		return fetch_number(ctx, &value->fetch, words);
	case SAVE_SHORT_TEXT:
		words[0] = 0;
		words[1] = 0;
		return fetch_text(ctx, &value->fetch, (char *)words, SHORT_WORDS * 8);
	case SAVE_COMM:
		bpf_get_current_comm(words, SHORT_WORDS * 8);
		break;
	}
	return true;
}

/* Saves the requested values. Returns false if one of them could not be read. */
static ALWAYS_INLINE bool save(void *ctx, const volatile struct saved *saved, u64 *words)
{
	bool is_whole = true;
#pragma unroll
	for (u32 place = 0; place < MOST_SAVED; place++) {
		if (saved->values[place].saving == SAVE_NOTHING)
			continue;
		u64 value[SHORT_WORDS] = {};
		is_whole &= save_one(ctx, &saved->values[place], value);
		words[place] = value[0];
		if (saved->values[place].saving != SAVE_NUMBER && place + 1 < MOST_SAVED)
			words[place + 1] = value[1];
	}
	return is_whole;
}

/* Saves the long strings of a call. */
static ALWAYS_INLINE bool save_texts(void *ctx, const volatile struct saved *saved, struct lane_key *key)
{
	u32 first = 0;
	struct texts *empty = bpf_map_lookup_elem(&empty_texts, &first);
	if (!empty || bpf_map_update_elem(&open_texts, key, empty, BPF_ANY))
		return false;
	struct texts *texts = bpf_map_lookup_elem(&open_texts, key);
	if (!texts)
		return false;
#pragma unroll
	for (u32 place = 0; place < MOST_TEXTS; place++) {
		if (saved->texts[place].base == BASE_NOTHING)
			continue;
		if (!fetch_text(ctx, &saved->texts[place], (char *)texts->words[place], TEXT_BYTES))
			return false;
	}
	return true;
}

static ALWAYS_INLINE u64 saved_number(struct measured *measured, u32 place)
{
	return place < MOST_SAVED ? measured->saved[place] : 0;
}

/* Returns a saved string of at most `bytes`: places below MOST_SAVED are short strings, later ones long strings. */
static ALWAYS_INLINE bool saved_text(struct measured *measured, u32 place, u64 *words, u32 bytes)
{
	if (place < MOST_SAVED) {
		if (place + SHORT_WORDS > MOST_SAVED)
			return false;
		words[0] = measured->saved[place];
		words[1] = measured->saved[place + 1];
		return true;
	}
	struct texts *texts = measured->texts;
	place -= MOST_SAVED;
	if (!texts || place >= MOST_TEXTS)
		return false;
#pragma unroll
	for (u32 word = 0; word < TEXT_BYTES / 8; word++) {
		if (word * 8 < bytes)
			words[word] = texts->words[place][word];
	}
	return true;
}
