/* Touches a page from the end of a recursion, for late.c. */
__attribute__((noinline)) int down(int depth, volatile char *page)
{
	int result = 1;
	if (depth > 0)
		result = down(depth - 1, page);
	else
		*page = 1;
	__asm__ volatile("" : "+r"(result));
	return result;
}
