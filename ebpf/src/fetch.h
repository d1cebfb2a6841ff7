/*
 * Values at a probe: what a register, memory, or a field of a tracepoint's record holds.
 *
 * What to fetch is said by constants (struct fetch, layout: Fetch), so that the kernel keeps of the code below only
 * the few instructions that this probe needs.
 */
#pragma once

#include "program.h"

#define MOST_STEPS 6

/* layout: Base */
#define BASE_NOTHING 0
#define BASE_CONSTANT 1
#define BASE_REGISTER 2 /* `place` is its word in struct pt_regs */
#define BASE_FIELD 3 /* `place` is its offset in the record of a tracepoint */
#define BASE_CPU 4
#define BASE_THREAD 5

struct step {
	s64 offset;
	u32 is_user;
	u32 unused;
};

/* layout: Fetch */
struct fetch {
	u32 base;
	u32 place;
	u64 constant;
	u32 steps; /* memory accesses: to the base add the offset, and read there */
	u32 size; /* bytes of the value: 1, 2, 4, 8 */
	u32 is_signed;
	u32 shift; /* a field of bits: how far it is from the low end */
	u32 bits; /* and how wide; 0: the whole value */
	u32 is_text; /* the last step leads to a text that ends with NUL; for fields: it is the text, or tells where it is */
	u32 is_located; /* a field that holds place and length of its text (__data_loc: 1, __rel_loc: 2) */
	u32 unused;
	struct step path[MOST_STEPS];
};

#define FIELD_WORD(place) \
	case place: \
		asm volatile("%0 = *(u32 *)(%1 + " #place " * 4)" : "=r"(value) : "r"(ctx)); \
		break;
#define FIELD_BYTE(place) \
	case place: \
		asm volatile("%0 = *(u8 *)(%1 + " #place ")" : "=r"(value) : "r"(ctx)); \
		break;
#define TEN(one, tens) one(tens##0) one(tens##1) one(tens##2) one(tens##3) one(tens##4) one(tens##5) one(tens##6) \
	one(tens##7) one(tens##8) one(tens##9)
#define HUNDRED(one, hundreds) TEN(one, hundreds##0) TEN(one, hundreds##1) TEN(one, hundreds##2) TEN(one, hundreds##3) \
	TEN(one, hundreds##4) TEN(one, hundreds##5) TEN(one, hundreds##6) TEN(one, hundreds##7) TEN(one, hundreds##8) \
	TEN(one, hundreds##9)

/* Four bytes of a tracepoint's record, by their place in words. The first two words hold a pointer of the kernel's. */
static __attribute__((noinline)) u64 field_word(void *ctx, u32 place)
{
	u64 value = 0;
	switch (place) {
		FIELD_WORD(2) FIELD_WORD(3) FIELD_WORD(4) FIELD_WORD(5) FIELD_WORD(6) FIELD_WORD(7) FIELD_WORD(8)
		FIELD_WORD(9) TEN(FIELD_WORD, 1) TEN(FIELD_WORD, 2) TEN(FIELD_WORD, 3) TEN(FIELD_WORD, 4)
		TEN(FIELD_WORD, 5) TEN(FIELD_WORD, 6) TEN(FIELD_WORD, 7) TEN(FIELD_WORD, 8) TEN(FIELD_WORD, 9)
		HUNDRED(FIELD_WORD, 1)
	}
	return value;
}

/* One byte of it: the last field of a record may end within a word. */
static __attribute__((noinline)) u64 field_byte(void *ctx, u32 place)
{
	u64 value = 0;
	switch (place) {
		FIELD_BYTE(8) FIELD_BYTE(9) TEN(FIELD_BYTE, 1) TEN(FIELD_BYTE, 2) TEN(FIELD_BYTE, 3) TEN(FIELD_BYTE, 4)
		TEN(FIELD_BYTE, 5) TEN(FIELD_BYTE, 6) TEN(FIELD_BYTE, 7) TEN(FIELD_BYTE, 8) TEN(FIELD_BYTE, 9)
		HUNDRED(FIELD_BYTE, 1)
	}
	return value;
}

static ALWAYS_INLINE u64 field_at(void *ctx, u32 place, u32 size)
{
	u64 value = 0;
	if (size == 8 && place % 4 == 0)
		return field_word(ctx, place / 4) | field_word(ctx, place / 4 + 1) << 32;
	if (size == 4 && place % 4 == 0)
		return field_word(ctx, place / 4);
#pragma unroll
	for (u32 byte = 0; byte < 8; byte++) {
		if (byte < size)
			value |= field_byte(ctx, place + byte) << (byte * 8);
	}
	return value;
}

/* The value, widened to 64 bits as its type says. Not true: memory could not be read. */
static __attribute__((noinline)) bool fetch_number(void *ctx, const volatile struct fetch *fetch, u64 *result)
{
	u64 value = fetch->constant;
	if (fetch->base == BASE_FIELD) {
		value = field_at(ctx, fetch->place, fetch->size);
	} else if (fetch->base == BASE_CPU) {
		value = bpf_get_smp_processor_id();
	} else if (fetch->base == BASE_THREAD) {
		value = (u32)bpf_get_current_pid_tgid();
	} else {
		if (fetch->base == BASE_REGISTER)
			value = register_at(ctx, fetch->place);
#pragma unroll
		for (u32 number = 0; number < MOST_STEPS; number++) {
			if (number >= fetch->steps)
				continue;
			const void *from = (const void *)(value + fetch->path[number].offset);
			u32 size = number + 1 == fetch->steps ? fetch->size : 8;
			u64 there = 0;
			if (size > 8)
				size = 8;
			if (fetch->path[number].is_user ? bpf_probe_read_user(&there, size, from) :
							  bpf_probe_read_kernel(&there, size, from))
				return false;
			value = there;
		}
	}
	u32 width = fetch->size * 8;
	if (fetch->bits) {
		value >>= fetch->shift & 63;
		width = fetch->bits;
	}
	if (width < 64 && width > 0) {
		value <<= (64 - width) & 63;
		value = fetch->is_signed ? (u64)((s64)value >> ((64 - width) & 63)) : value >> ((64 - width) & 63);
	}
	*result = value;
	return true;
}

/* A text of at most `room` bytes, its end included, into `to`, which is zeroes before. */
static ALWAYS_INLINE bool fetch_text(void *ctx, const volatile struct fetch *fetch, char *to, u32 room)
{
	u64 value = fetch->constant;
	if (fetch->base == BASE_FIELD) {
		if (!fetch->is_located) {
			/* Of a fixed size: it may fill it without an end. */
			u32 most = fetch->size + 1;
			if (most > room)
				most = room;
			return bpf_probe_read_kernel_str(to, most, (const void *)((u64)ctx + fetch->place)) >= 0;
		}
		u64 place = field_at(ctx, fetch->place, 4);
		u64 from = (u64)ctx + (place & 0xffff) + (fetch->is_located == 2 ? fetch->place + 4 : 0);
		return bpf_probe_read_kernel_str(to, room, (const void *)from) >= 0;
	}
	if (fetch->base == BASE_REGISTER)
		value = register_at(ctx, fetch->place);
#pragma unroll
	for (u32 number = 0; number < MOST_STEPS; number++) {
		if (number >= fetch->steps)
			continue;
		const void *from = (const void *)(value + fetch->path[number].offset);
		bool is_user = fetch->path[number].is_user;
		if (number + 1 == fetch->steps)
			return (is_user ? bpf_probe_read_user_str(to, room, from) :
					  bpf_probe_read_kernel_str(to, room, from)) >= 0;
		u64 there = 0;
		if (is_user ? bpf_probe_read_user(&there, 8, from) : bpf_probe_read_kernel(&there, 8, from))
			return false;
		value = there;
	}
	return false;
}
