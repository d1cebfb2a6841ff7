// What public reports about other profilers describe, one case per first argument:
//
// work          burns CPU time in main, middle, hot; calls probed five times
// noreturn      ends in a call that never returns, at the very end of its caller
// forks PROG    a child, and its child, which then executes PROG
// reuse PROG... executes programs one after the other, all with the same PID

#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static const double SECONDS = 0.25;
volatile unsigned long sink;

NOINLINE double used(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

NOINLINE void hot(long turns)
{
	for (long turn = 0; turn < turns; turn++)
		sink += turn * turn;
}

NOINLINE void middle(long turns)
{
	hot(turns);
	sink++;
}

NOINLINE int probed(int number, const char *text)
{
	sink += number + text[0];
	return number * 2 - 3;
}

NOINLINE void child_work(long turns)
{
	for (long turn = 0; turn < turns; turn++)
		sink += turn * 3;
}

NOINLINE void grandchild_work(long turns)
{
	for (long turn = 0; turn < turns; turn++)
		sink += turn * 5;
}

static void burn(void (*work)(long))
{
	// The time of a process includes that before its exec.
	double start = used();

	while (used() - start < SECONDS)
		work(200000);
}

NOINLINE __attribute__((noreturn)) void never_returns(void);

NOINLINE __attribute__((noreturn)) void caller_at_its_end(void)
{
	sink++;
	never_returns();
}

NOINLINE void next_function(void)
{
	sink += 3;
}

NOINLINE __attribute__((noreturn)) void never_returns(void)
{
	for (;;) {
		for (int turn = 0; turn < 100000; turn++)
			sink += turn;
		if (used() > SECONDS)
			_exit(0);
	}
}

static int forks(char *program)
{
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_NAME, "kid (one) 2");
		burn(child_work);
		if (fork() == 0) {
			burn(grandchild_work);
			execl(program, program, "work", NULL);
			_exit(1);
		}
		wait(NULL);
		_exit(0);
	}
	wait(NULL);
	return 0;
}

/// Fails without CAP_CHECKPOINT_RESTORE, and if the PID is in use.
static int reuse(char **programs)
{
	pid_t wanted[1] = { 31000 + getpid() % 1000 };

	for (; *programs; programs++) {
		struct clone_args how = { 0 };

		how.exit_signal = SIGCHLD;
		how.set_tid = (uintptr_t)wanted;
		how.set_tid_size = 1;
		pid_t child = syscall(SYS_clone3, &how, sizeof how);
		if (child < 0)
			return 3;
		if (child == 0) {
			execl(*programs, *programs, "work", NULL);
			_exit(1);
		}
		waitpid(child, NULL, 0);
	}
	return 0;
}

int main(int count, char **arguments)
{
	if (count > 1 && strcmp(arguments[1], "work") == 0) {
		for (int number = 0; number < 5; number++)
			probed(number, "abc");
		burn(middle);
	}
	if (count > 1 && strcmp(arguments[1], "noreturn") == 0)
		caller_at_its_end();
	if (count > 2 && strcmp(arguments[1], "forks") == 0)
		return forks(arguments[2]);
	if (count > 2 && strcmp(arguments[1], "reuse") == 0)
		return reuse(arguments + 2);
	if (count > 9)
		next_function();
	return 0;
}
