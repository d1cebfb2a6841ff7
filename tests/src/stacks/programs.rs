//! The programs of the comparison, and their sources.

/// A program that runs for longer than a recording.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// A command of bash; `LARGE` and `CLONE` are replaced.
    pub(super) command: &'static str,
    /// What to build first, in the same directory.
    pub(super) build: &'static str,
}

const fn program(name: &'static str, command: &'static str) -> Program {
    built(name, "", command)
}

const fn built(name: &'static str, build: &'static str, command: &'static str) -> Program {
    Program {
        name,
        command,
        build,
    }
}

/// The input of compressors.
pub(super) const LARGE: &str = "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1";

/// Files that the builds need.
pub(super) const SOURCES: &[(&str, &str)] = &[
    ("maps.cpp", CPP),
    ("threads.rs", RUST),
    ("sort.go", GO),
    ("signal.c", SIGNAL),
];

pub(super) const PROGRAMS: &[Program] = &[
    built(
        "C -O2",
        "cc -O2 -fomit-frame-pointer -o deep deep.c",
        "exec ./deep 30 1000000",
    ),
    built(
        "C in a signal handler",
        "cc -O2 -o signal signal.c",
        "exec ./signal",
    ),
    built(
        "C -O2 -static",
        "cc -O2 -static -o static deep.c",
        "exec ./static 30 1000000",
    ),
    built("C++", "c++ -O2 -o maps maps.cpp", "exec ./maps"),
    built(
        "Rust -O, threads",
        "rustc -O -o threads threads.rs",
        "exec ./threads",
    ),
    built("Go", "go build -o gosort sort.go", "exec ./gosort"),
    program(
        "python 3.11",
        "exec /usr/bin/python3.11 -c 'import json\nwhile 1: json.dumps([list(range(50))] * 20)'",
    ),
    program(
        "python 3.13",
        "exec $(ls ~/.pyenv/versions/3.13*/bin/python3.13) -c 'import json\nwhile 1: json.dumps([list(range(50))] * 20)'",
    ),
    program(
        "node",
        "exec node -e 'for(;;) JSON.stringify([...Array(999).keys()].map(x => \"k\" + x).sort())'",
    ),
    built(
        "java -XX:+PreserveFramePointer",
        "javac -d . Spin.java",
        "exec java -XX:+PreserveFramePointer -cp . Spin 60",
    ),
    built("java", "javac -d . Spin.java", "exec java -cp . Spin 60"),
    program(
        "perl",
        "exec perl -e 'sub f { my $n = shift; $n < 2 ? $n : f($n-1) + f($n-2) } f(18) while 1'",
    ),
    program(
        "bash, recursion",
        "f() { local n=$1; if ((n > 0)); then f $((n - 1)); else for i in {1..300}; do :; done; fi; }; while :; do f 30; done",
    ),
    program(
        "sqlite3",
        "exec sqlite3 :memory: 'WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 90000000) SELECT sum(x*7%13) FROM c'",
    ),
    built(
        "postgres",
        "rm -rf PG; install -d -o postgres PG; setpriv --reuid=postgres --regid=postgres --clear-groups /usr/lib/postgresql/*/bin/initdb -D PG",
        "rm -f PG/postmaster.pid; yes 'select sum(x*x) from generate_series(1,1000000) x' | exec setpriv --reuid=postgres --regid=postgres --clear-groups /usr/lib/postgresql/*/bin/postgres --single -D PG postgres",
    ),
    program("xz", "exec xz -6 -k -c -T1 LARGE"),
    program("zstd", "exec zstd -19 -c -q LARGE"),
    program("gzip", "exec gzip -9 -c LARGE"),
    program(
        "jq",
        "seq 1 9000000 | exec jq -c '[., . * 2, (. | tostring)]'",
    ),
    program("openssl rsa2048", "exec openssl speed -seconds 20 rsa2048"),
    program(
        "openssl aes-256-gcm",
        "exec openssl speed -seconds 20 -evp aes-256-gcm",
    ),
    program(
        "sort",
        "seq 1 9000000 | sort -R --random-source=/dev/zero | sort -n",
    ),
    program("git log --stat", "exec git -C CLONE log --stat"),
    program("gcc (cc1)", "while :; do gcc -O2 -c deep.c -o gcc.o; done"),
    program(
        "clang",
        "while :; do clang++ -O2 -c maps.cpp -o clang.o; done",
    ),
    program(
        "rustc",
        "while :; do rustc -O --emit=obj -o rustc.o threads.rs; done",
    ),
];

const CPP: &str = r#"#include <map>
#include <regex>
#include <stdexcept>
#include <string>
static long count(const std::string &text)
{
	std::regex words("[a-z]+([0-9]+)x");
	long found = 0;
	for (std::sregex_iterator word(text.begin(), text.end(), words), end; word != end; ++word)
		found++;
	if (found > 3)
		throw std::runtime_error("many");
	return found;
}
int main()
{
	std::map<std::string, long> counts;
	for (long n = 0;; n++) {
		std::string text = "a" + std::to_string(n % 5000) + "x b2x c" + std::to_string(n) + "x d4x";
		try {
			counts[text.substr(0, 5)] += count(text);
		} catch (const std::runtime_error &) {
			counts["many"]++;
		}
	}
}
"#;

const RUST: &str = r#"use std::collections::BTreeMap;
fn words(from: u64) -> BTreeMap<String, usize> {
    let mut words = BTreeMap::new();
    for n in from..from + 2000 {
        *words.entry(format!("word {}", n * 7919 % 1000)).or_default() += 1;
    }
    words
}
fn main() {
    let spin = |from: u64| {
        let mut sum = 0usize;
        loop {
            let mut sorted: Vec<_> = words(from).into_iter().collect();
            sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
            sum = sum.wrapping_add(sorted[0].1);
            std::hint::black_box(sum);
        }
    };
    let threads: Vec<_> = (0..2).map(|n| std::thread::spawn(move || spin(n))).collect();
    for thread in threads {
        let _: () = thread.join().unwrap();
    }
}
"#;

const GO: &str = r#"package main

import (
	"fmt"
	"sort"
	"strings"
)

func words(from int) []string {
	var all []string
	for n := 0; n < 3000; n++ {
		all = append(all, fmt.Sprintf("word %d", (from+n)*7919%1000))
	}
	return all
}

func main() {
	done := make(chan int)
	for thread := 0; thread < 2; thread++ {
		go func(from int) {
			for {
				all := words(from)
				sort.Slice(all, func(i, j int) bool { return strings.Compare(all[i], all[j]) < 0 })
			}
		}(thread)
	}
	<-done
}
"#;

const SIGNAL: &str = r#"#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
static volatile unsigned long sink;
static int compare(const void *left, const void *right)
{
	return *(const int *)left - *(const int *)right;
}
static void tick(int number)
{
	(void)number;
	for (int i = 0; i < 3000000; i++)
		sink = sink * 31 + i;
}
int main(void)
{
	static int numbers[5000];
	struct itimerval every = {{0, 10000}, {0, 10000}};
	signal(SIGALRM, tick);
	setitimer(ITIMER_REAL, &every, NULL);
	for (unsigned seed = 0;; seed++) {
		for (int i = 0; i < 5000; i++)
			numbers[i] = rand_r(&seed);
		qsort(numbers, 5000, sizeof(*numbers), compare);
	}
}
"#;
