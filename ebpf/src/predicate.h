/*
 * `--filter` for aggregations. The kernel runs a BPF program at a probe before its own filter, so the program must filter.
 *
 *   count > 4096 && (comm == "dd" || comm == "cp")
 *   0: count > 4096    1: comm = "dd"    2: comm = "cp"    truth: bits 3, 5 and 7, counted from 0
 *
 * Each true condition sets a bit of an index into the truth table `truth`: no branches for and, or and brackets.
 */
#pragma once

#include "measured.h"

#define MOST_CONDITIONS 6
#define CONDITION_WORDS 8
#define CONDITION_BYTES (CONDITION_WORDS * 8)

/* layout: Test */
#define TEST_NONE 0
#define TEST_EQUAL 1
#define TEST_LESS 2
#define TEST_GREATER 3
#define TEST_BITS 4
#define TEST_TEXT 5

/* layout: Subject */
#define SUBJECT_FIELD 0
#define SUBJECT_COMM 1
#define SUBJECT_CPU 2
#define SUBJECT_THREAD 3
#define SUBJECT_DURATION 4
#define SUBJECT_SAVED 5 /* saved at the entry, in word `place` */

/* layout: Condition */
struct condition {
	u32 test;
	u32 subject;
	u32 place;
	u32 unused;
	u64 constant;
	u64 text[CONDITION_WORDS];
	u64 mask[CONDITION_WORDS]; /* which of its bytes to compare */
	struct fetch fetch;
};

/* layout: Predicate */
struct predicate {
	u64 truth;
	struct condition conditions[MOST_CONDITIONS];
};

const volatile struct predicate predicate = {};

static __attribute__((noinline)) bool has_text(void *ctx, const volatile struct condition *condition, struct measured *measured,
					       bool *result)
{
	u64 words[CONDITION_WORDS] = {};
	u64 difference = 0;
	if (condition->subject == SUBJECT_COMM)
		bpf_get_current_comm(words, 16);
	else if (condition->subject == SUBJECT_SAVED) {
		if (!saved_text(measured, condition->place, words, CONDITION_BYTES))
			return false;
	} else if (!fetch_text(ctx, &condition->fetch, (char *)words, CONDITION_BYTES))
		return false;
#pragma unroll
	for (u32 word = 0; word < CONDITION_WORDS; word++)
		difference |= (words[word] ^ condition->text[word]) & condition->mask[word];
	*result = !difference;
	return true;
}

static __attribute__((noinline)) bool has_number(void *ctx, const volatile struct condition *condition, struct measured *measured,
						 bool *result)
{
	u64 constant = condition->constant;
	u64 value = 0;
	if (condition->subject == SUBJECT_CPU)
		value = bpf_get_smp_processor_id();
	else if (condition->subject == SUBJECT_THREAD)
		value = (u32)bpf_get_current_pid_tgid();
	else if (condition->subject == SUBJECT_DURATION)
		value = measured->duration;
	else if (condition->subject == SUBJECT_SAVED)
		value = saved_number(measured, condition->place);
	else if (!fetch_number(ctx, &condition->fetch, &value))
		return false;
	bool is_less = condition->fetch.is_signed ? (s64)value < (s64)constant : value < constant;
	switch (condition->test) {
	case TEST_EQUAL:
		*result = value == constant;
		break;
	case TEST_LESS:
		*result = is_less;
		break;
	case TEST_GREATER:
		*result = !is_less && value != constant;
		break;
	case TEST_BITS:
		*result = (value & constant) != 0;
		break;
	}
	return true;
}

/* Whether the hit matches the filter. Counts a loss if a value cannot be read. */
static ALWAYS_INLINE bool is_chosen(void *ctx, const volatile struct predicate *predicate, struct measured *measured)
{
	u64 holding = 0;
#pragma unroll
	for (u32 number = 0; number < MOST_CONDITIONS; number++) {
		const volatile struct condition *condition = &predicate->conditions[number];
		bool holds = false;
		if (condition->test == TEST_NONE)
			continue;
		if (condition->test == TEST_TEXT ? !has_text(ctx, condition, measured, &holds) :
						  !has_number(ctx, condition, measured, &holds)) {
			lose(LOST_UNREADABLE);
			return false;
		}
		holding |= (u64)holds << number;
	}
	return predicate->truth >> holding & 1;
}
