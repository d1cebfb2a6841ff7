//! Inputs of public bug reports about other tools, rebuilt: names with brackets, fields left out, messages between samples, reused
//! process IDs, … Each has one right value, which follows from the circumstance of the report.

use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, foreign_corpus};

/// File, SQL and its rows as CSV, without the names of columns.
type Case = (&'static str, &'static str, &'static [&'static str]);

const STACKS: &str =
    "SELECT comm, tid, stack_text(kernel_stack), stack_text(user_stack) FROM samples";
const FACTS: &str = "SELECT name, value FROM trace_info WHERE name IN ('architecture', 'cpus', 'memory_bytes') ORDER BY name";
const ADDRESSES: &str =
    "SELECT DISTINCT stack_text(kernel_stack), to_hex(ip), addr IS NULL FROM samples";
const AGGREGATES: &str =
    "SELECT name, keys, value, stack_text(user_stack), stack_text(kernel_stack) FROM aggregates";
const CALLS: &str = "SELECT function, duration FROM calls";
const PERIODS: &str =
    "SELECT count(*), sum(period), count(DISTINCT stack_text(user_stack)) FROM samples";

const CASES: &[Case] = &[
    // The last feature that perf tried to write could not be written: its slot is empty.
    (
        "pd-failed-last-feature.data",
        FACTS,
        &["architecture,x86_64", "cpus,2", "memory_bytes,25276063744"],
    ),
    (
        "pd-reserved-slots-passes.data",
        FACTS,
        &["architecture,x86_64", "cpus,2", "memory_bytes,25276063744"],
    ),
    // Messages of standard error between frames.
    (
        "ps21-stderr-mixed.txt",
        STACKS,
        &[
            "java,21607,,start_thread;[perf-21607.map]",
            "java,21607,,[perf-21607.map]",
            "java,21607,,[perf-21607.map]",
            "java,21607,,[perf-21607.map]",
        ],
    ),
    (
        "ps26-warn-siblings.txt",
        STACKS,
        &["java,21607,,c;b;a", "java,21607,,a"],
    ),
    ("27-midstderr.ps", STACKS, &["dd,1,foo,main", "dd,1,foo,"]),
    // Data addresses, weights and data sources before the address of the code.
    (
        "ps19-mem-weight.txt",
        "SELECT stack_text(user_stack), to_hex(ip), to_hex(addr), weight FROM samples",
        &["main,401136,7f0012345678,45"],
    ),
    (
        "ps-real-addr-0.txt",
        "SELECT count(*), count(ip), count(addr) FROM samples",
        &["101,101,0"],
    ),
    (
        "ps-real-addr-1.txt",
        ADDRESSES,
        &["elf_load,ffffffff81775b9a,false"],
    ),
    (
        "ps-real-addr-2.txt",
        ADDRESSES,
        &["elf_load,ffffffff81775b9a,false"],
    ),
    (
        "ps-real-addr-3.txt",
        ADDRESSES,
        &["elf_load,ffffffff81775b9a,true"],
    ),
    (
        "ps-real-addr-4.txt",
        ADDRESSES,
        &["[unknown],ffffffff81775b9a,false"],
    ),
    (
        "ps-real-addr-5.txt",
        ADDRESSES,
        &["elf_load,ffffffff81775b9a,true"],
    ),
    (
        "ps-real-addr-6.txt",
        ADDRESSES,
        &["elf_load,ffffffff81775b9a,true"],
    ),
    (
        "iregs.ps",
        "SELECT to_hex(ip) FROM samples",
        &["ffffffff81637cf4", "7f6859eb0f87"],
    ),
    // Modules in brackets that are not the kernel's.
    (
        "ps01-jit-app-cache.txt",
        STACKS,
        &[
            "com.example.maps,3001,__schedule,java.lang.String.hashCode;syscall",
            "com.example.maps,3001,,art_quick_invoke_stub;com.example.Foo.<init>",
        ],
    ),
    (
        "ps24-bracket-modules.txt",
        "SELECT count(kernel_stack), count(user_stack) FROM samples",
        &["0,6"],
    ),
    // Fields left out.
    ("ps22-ipsymdso.txt", STACKS, &[",,,main;spin", ",,,spin"]),
    (
        "ps-real-ip-sym.txt",
        "SELECT count(*), count(comm), count(user_stack) FROM samples",
        &["15,0,15"],
    ),
    (
        "ps-real-tid-ip-sym.txt",
        "SELECT count(*), count(comm), min(tid), max(tid) FROM samples",
        &["15,0,16258,16258"],
    ),
    (
        "ps07-no-comm-no-cpu.txt",
        STACKS,
        &[",3001,,main;spin", ",3002,,spin"],
    ),
    (
        "25-ip.ps",
        "SELECT count(*), count(DISTINCT ip) FROM samples",
        &["4,1"],
    ),
    // Source lines, instructions and source code between frames are no errors.
    (
        "ps04-srcline.txt",
        "SELECT count(*), (SELECT count(*) AS problems FROM problems) FROM samples",
        &["2,0"],
    ),
    (
        "ps-real-insn.txt",
        "SELECT count(*), (SELECT count(*) AS problems FROM problems) FROM samples",
        &["15,0"],
    ),
    // The empty line after its last stack is missing: an excerpt.
    (
        "ps-real-srccode.txt",
        "SELECT count(*), (SELECT min(message) FROM problems) LIKE '%empty line%' AS is_cut FROM samples",
        &["15,true"],
    ),
    // Thread names with spaces, digits, brackets and colons; symbols with operators.
    (
        "ps02-brackets.txt",
        "SELECT comm FROM samples",
        &["[ET_NET 0]", "[accept 0:80]", "foobar [worker]"],
    ),
    (
        "ps03-spaces-digits.txt",
        "SELECT comm FROM samples LIMIT 4",
        &[
            "Media DLNA Serve",
            "Web Content 2",
            "CPU 0/KVM",
            "Hashed wheel #1",
        ],
    ),
    (
        "ps06-short-comm.txt",
        STACKS,
        &["t,99076,,main", "t,99076,,main"],
    ),
    (
        "08-syms.ps",
        "SELECT stack_leaf(user_stack) FROM samples",
        &["operator()(int) const"],
    ),
    (
        "ps09-nochain.txt",
        "SELECT stack_text(user_stack) FROM samples LIMIT 1 OFFSET 2",
        &["\"kernel_loop(int, char const*)\""],
    ),
    ("ps10-no-final-blank.txt", STACKS, &["main,10,,main;beta"]),
    (
        "ps11-unsorted.txt",
        "SELECT stack_text(user_stack) FROM samples ORDER BY time",
        &["first", "early", "late"],
    ),
    (
        "ft11-comm-pid.txt",
        "SELECT prev_comm, next_comm FROM sched_switch ORDER BY time",
        &["swapper/2,a ==> b next_pid=9", "a prev_pid=5 x,swapper/2"],
    ),
    (
        "ft03-comm-dash-colon.txt",
        "SELECT comm FROM events WHERE tid = 474",
        &["f2fs_gc-254:40"],
    ),
    // Values that contain '=', and a field whose format lacks a blank: whatever precedes the next name.
    (
        "ft07-equals.txt",
        "SELECT foo, baz FROM my_ev",
        &["1bar=2,x=y=z", "2bar=3,q"],
    ),
    (
        "ps12-kmalloc.txt",
        "SELECT tid, to_hex(call_site), bytes_req, gfp_flags, stack_text(kernel_stack) FROM kmalloc",
        &[
            "27765,ffffffff813b3b4e,32,GFP_NOWAIT,blk_rq_map;__kmalloc",
            "27765,ffffffff813b3b4e,64,GFP_KERNEL|__GFP_ZERO,__kmalloc",
        ],
    ),
    // Formats of other systems and versions.
    (
        "ft01-rt-flags.txt",
        "SELECT count(*) FROM sched_switch",
        &["2"],
    ),
    ("ft02-atrace.txt", "SELECT count(*) FROM calls", &["1"]),
    ("ft02y-atrace-nohdr.txt", CALLS, &["do frame|x,100000"]),
    (
        "ft02z-atrace-compressed.bin",
        "SELECT count(*) FROM calls",
        &["1"],
    ),
    ("ft05b-instances.txt", "SELECT count(*) FROM calls", &["2"]),
    (
        "ft06-failed-parse.txt",
        "SELECT sum(count) FROM problems",
        &["2"],
    ),
    (
        "ft13-old-sched.txt",
        "SELECT count(*) FROM sched_switch",
        &["2"],
    ),
    (
        "ft14-gki-marks.txt",
        CALLS,
        &[
            "draw,95000",
            "layout,95000",
            "plain,95000",
            "old,95000",
            "mid,95000",
        ],
    ),
    (
        "003-fgraph.txt",
        CALLS,
        &[
            "sys_write,1458",
            "__fdget_pos,137",
            "vfs_write,371",
            "fput,36",
            "sys_write,1241",
            "__fdget_pos,111",
            "vfs_write,243",
            "fput,35",
        ],
    ),
    // The call that began before the first exit.
    (
        "open-syscall.ps",
        "SELECT tid, duration FROM calls ORDER BY tid",
        &["13,", "14,2000"],
    ),
    (
        "nocontext-stack.trace",
        "SELECT count(*), count(time) FROM page_fault_user",
        &["5,0"],
    ),
    (
        "002-two.txt",
        "SELECT cpu, count(*) FROM events GROUP BY cpu ORDER BY cpu",
        &["0,1", "1,1"],
    ),
    (
        "dtrace-no-header.out",
        "SELECT count(*) FROM events",
        &["2"],
    ),
    (
        "dt01-mac.txt",
        "SELECT keys, value FROM aggregates",
        &["[Example Browser Helper],12.0", "[kernel_task],3.0"],
    ),
    // Empty stacks in keys.
    (
        "bt09-emptystack.txt",
        AGGREGATES,
        &[
            "@,[app],10.0,main,",
            "@,[kworker/0:1],7.0,\"\",",
            "@k,[app],3.0,main,page_fault",
            "@k,[app],4.0,main,\"\"",
            "@k,[kworker/0:1],5.0,\"\",schedule",
            "@k,[swapper/0],6.0,\"\",\"\"",
            "@c,[app],2.0,main,",
            "@c,[kworker/0:1],8.0,\"\",",
        ],
    ),
    (
        "bt01-stacks.txt",
        AGGREGATES,
        &[
            "@,[],1.0,[unknown];__libc_start_main;std::rt::lang_start::_$u7b$$u7b$closure$u7d$$u7d$::h2fb226322c254680;alacritty::main::h459eee3a05af1eb1,",
            "@,[my proc],10.0,line2;line1,",
            "@,[my proc],7.0,\"\",",
            "@,\"[a, b]\",3.0,__libc_start_main;main,page_fault",
        ],
    ),
    (
        "bt02-ndjson.json",
        "SELECT name, keys, action, value FROM aggregates",
        &[
            "@x,[],,1.0",
            "@y,\"[a,b]\",,2.0",
            "@y,[c],,3.0",
            "@h,[k 1],,",
            "@h,[k2],,",
            "@s,[],count,3.0",
            "@s,[],avg,4.0",
            "@s,[],sum,12.0",
        ],
    ),
    (
        "bt02-ndjson.json",
        "SELECT aggregate_id, low, high, count FROM buckets",
        &["4,0,1,1", "4,1,2,2", "5,16,32,5"],
    ),
    (
        "fd01-comments.folded",
        "SELECT sum(period) FROM samples",
        &["10"],
    ),
    (
        "fd06-austin.folded",
        "SELECT sum(period) FROM samples",
        &["100"],
    ),
    // Processes that reuse an ID; names of the kernel's records of mappings that have no build ID although they are marked.
    (
        "pidreuse.data",
        "SELECT comm FROM threads WHERE tid = 31000 ORDER BY start_time",
        &["hot_pie", "hot_nopie", "hot_lld"],
    ),
    (
        "pd-leaked-buildid-flag.data",
        "SELECT count(*), count(build_id) FROM mappings WHERE path LIKE '/%' AND build_id LIKE '00000000%'",
        &["0,0"],
    ),
    // perf record was aborted: its file has the records written until then.
    (
        "pd-real-leaked-flag-perf-aborted.data",
        "SELECT count(*), sum(CASE WHEN m.build_id LIKE '00000000%' THEN 1 ELSE 0 END) FROM mappings m",
        &["7,0"],
    ),
    // A caller outside of all mappings does not hide its own callers.
    ("lost-mapping.data", PERIODS, &["28,56112224,1"]),
    ("lost-mapping-whole.data", PERIODS, &["28,56112224,1"]),
    (
        "noret.data",
        "SELECT count(*) FROM samples WHERE array_length(string_to_array(stack_text(user_stack), ';')) = 4",
        &["246"],
    ),
    (
        "forks.data",
        "SELECT count(*), count(user_stack) FROM samples",
        &["497,497"],
    ),
    // Times that perf inject -s adds to switches as their periods.
    (
        "inj-s.data",
        "SELECT count(*), sum(sample_period) FROM sched_switch",
        &["113,86803480"],
    ),
];

#[test]
fn odd_inputs_have_their_right_values() {
    let Some(corpus) = foreign_corpus().map(|corpus| corpus.join("reports")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (file, sql, expected) in CASES {
        let found = answer(&corpus.join(file), sql, folder.path());
        if found != *expected {
            wrong.push(format!(
                "{file}: {sql}\n  expected {expected:?}\n  found    {found:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rows of a query on a file, or what was printed instead.
fn answer(input: &Path, sql: &str, folder: &Path) -> Vec<String> {
    let trace = folder
        .join(input.file_name().unwrap())
        .with_extension("pqt");
    let lines = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let output = Command::new(bin(program)).args(arguments).output().unwrap();
        let text = match output.status.success() {
            true => output.stdout,
            false => output.stderr,
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        (
            output.status.success(),
            text.lines().map(str::to_owned).collect::<Vec<_>>(),
        )
    };
    let trace = trace.as_os_str();
    let import = [
        input.as_os_str(),
        "--force".as_ref(),
        "--no-symbols".as_ref(),
        "-o".as_ref(),
        trace,
    ];
    let (is_imported, printed) = lines("perfquet-convert", &import);
    if !is_imported {
        return printed;
    }
    let query = [
        "sql".as_ref(),
        trace,
        sql.as_ref(),
        "--format".as_ref(),
        "csv".as_ref(),
    ];
    let (is_answered, mut rows) = lines("perfquet-query", &query);
    if is_answered && !rows.is_empty() {
        rows.remove(0);
    }
    rows
}
