// An exception leaves thrower(), and is caught in main().
__attribute__((noinline)) int thrower(int n)
{
	if (n > 1)
		throw n;
	return n;
}

int main()
{
	try {
		thrower(2);
	} catch (int) {
	}
	return 0;
}
