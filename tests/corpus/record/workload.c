/* A program with known functions, without any library: what is found in its stacks depends on no other file.
 *
 * Built by `cargo xtask corpus --record`, with frame pointers (workload) and without (workload-nofp).
 * Run:   workload N   calls work_outer N times; each call writes a line to /dev/null and computes in work_inner. */

volatile unsigned long sink;

static long call_kernel(long number, long one, long two, long three)
{
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(one), "S"(two), "d"(three)
			 : "rcx", "r11", "memory");
	return result;
}

long work_inner(long n, const char *label)
{
	for (long i = 0; i < n; i++)
		sink += i ^ label[i % 5];
	return n * 2;
}

long work_outer(long n, const char *label, int fd)
{
	long result = work_inner(2000 + n, label);
	return call_kernel(1, fd, (long)label, 5) == 5 ? result : -1;
}

int work(int argc, char **argv)
{
	long n = 0;
	for (const char *digit = argc > 1 ? argv[1] : "20"; *digit; digit++)
		n = n * 10 + *digit - '0';
	int fd = call_kernel(2, (long)"/dev/null", 1, 0);
	long total = 0;
	for (long i = 0; i < n; i++)
		total += work_outer(i, i % 2 ? "odd.." : "even.", fd);
	return total < 0;
}

__attribute__((used)) void begin(long *stack)
{
	call_kernel(60, work(stack[0], (char **)(stack + 1)), 0, 0);
	__builtin_unreachable();
}

/* Nobody called it: its caller is undefined, so that unwinding ends here. */
__asm__(".globl _start\n.type _start, @function\n_start:\n.cfi_startproc\n.cfi_undefined rip\n"
	"xor %ebp, %ebp\nmov %rsp, %rdi\nand $-16, %rsp\ncall begin\nhlt\n.cfi_endproc\n.size _start, . - _start\n");
