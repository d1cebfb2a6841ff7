#pragma D option quiet
fbt::intr:entry { @count[tid, probefunc] = count(); @avg[tid, probefunc] = avg(timestamp - self->ts); }
END
{
	printf("-------INTERRUPTS-------\n");
	printf("thread              function   count     avg\n");
	printf("------  --------------------  ------  ------\n");
	printa("%6d  %20s  %@6d  %@6d\n", @count, @avg);
	printf("\n");
	/* two of the same format */
	printa("%s=%@d of %@d\n", @rx, @rx_max);
	printa("%s=%@d of %@d\n", @tx, @tx_max);
}
fbt::rx:entry { @rx[probefunc] = sum(1); @rx_max[probefunc] = max(arg1); }
fbt::tx:entry { @tx[probefunc] = sum(1); @tx_max[probefunc] = max(arg1); }
tick-1s { printa(@count); clear(@count); }
