// Works in a function whose name is given at compile time (-DWORK=NAME -DSTEP=N): two builds of one program, the second of
// which replaces the first. Their code differs too, because the build ID depends on the code, not on names.

static volatile unsigned long sink;

__attribute__((noinline)) void WORK(void)
{
	for (int i = 0; i < 100000; i++)
		sink += i * STEP;
}

int main(void)
{
	for (;;)
		WORK();
}
