/* what a program reads and writes */
syscall::read:entry, syscall::write:entry
/execname != "dtrace"/
{
	@calls[execname, probefunc] = count();	// not @other[1] = sum(1);
	@sizes[execname] = lquantize(arg2, 0, 4, 1);
	@total = sum(arg2);
	@where[ustack()] = max(arg2);
	trace(arg2);
}
