// Functions of C++ that probes are to find by the names that one writes.
#include <cstdio>

namespace ns {
__attribute__((noinline)) int over(int n)
{
	asm volatile("" : "+r"(n));
	return n + 1;
}

__attribute__((noinline)) double over(double x)
{
	asm volatile("" : "+x"(x));
	return x * 2;
}

template <typename T> struct list {
	__attribute__((noinline)) T push(T value)
	{
		asm volatile("" : "+r"(value));
		return value;
	}
};
} // namespace ns

namespace {
__attribute__((noinline)) int hidden(int n)
{
	asm volatile("" : "+r"(n));
	return n;
}
} // namespace

struct counter {
	int value;
	__attribute__((noinline)) counter &operator+=(int n)
	{
		value += n;
		asm volatile("" ::: "memory");
		return *this;
	}
};

int main()
{
	int sum = 0;
	counter counted{0};
	for (int n = 1; n <= 5; n++) {
		sum += ns::over(n);
		sum += static_cast<int>(ns::over(n * 0.5));
		sum += ns::list<int>().push(n);
		sum += static_cast<int>(ns::list<long>().push(n));
		sum += hidden(n);
		counted += n;
	}
	std::printf("%d\n", sum + counted.value);
	return 0;
}
