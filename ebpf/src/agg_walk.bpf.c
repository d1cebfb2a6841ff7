/* agg.bpf.c with user stacks by unwind tables; Linux 5.17. */
#define WALKS_STACKS
#include "agg.bpf.c"
