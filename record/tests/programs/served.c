// Works in a function whose name is given when it is compiled (-DWORK=NAME -DSTEP=N): two builds of one program, of which the second
// takes the place of the first. Their code differs too, for the build ID is that of the code, not of the names.

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
