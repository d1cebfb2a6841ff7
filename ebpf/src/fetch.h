/*
 * Values at a probe: of a register, of memory, or of a field in a tracepoint's record.
 *
 * struct fetch (layout: Fetch) describes the value in constants, so that the kernel's verifier removes all code below
 * except the few instructions that this probe needs.
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
	u32 steps; /* memory accesses: add the offset to the base and read there */
	u32 size; /* bytes of the value: 1, 2, 4, 8 */
	u32 is_signed;
	u32 shift; /* bit field: distance from the least significant bit */
	u32 bits; /* bit field: width; 0: the whole value */
	u32 is_text; /* the last step reads a string that ends with NUL; a field contains the string or its location */
	u32 is_located; /* the field contains offset and length of its string (__data_loc: 1, __rel_loc: 2) */
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

/* Four bytes of a tracepoint's record, by word number. The first two words are a kernel pointer, which programs cannot read. */
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

/* One byte of the record, for fields that are not aligned and for a last field that ends within a word. */
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

/* Fetches a value, sign- or zero-extended to 64 bits. Returns false if memory could not be read. */
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

/* Fetches a string of at most `room` bytes, including the NUL, into `to`, which must be zeroed. */
static ALWAYS_INLINE bool fetch_text(void *ctx, const volatile struct fetch *fetch, char *to, u32 room)
{
	u64 value = fetch->constant;
	if (fetch->base == BASE_FIELD) {
		if (!fetch->is_located) {
			/* A field of fixed size may be full, without a NUL. */
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
