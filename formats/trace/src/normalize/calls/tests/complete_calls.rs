//! Complete calls that overlap, or whose end is unknown.

use super::*;

#[test]
fn a_call_that_outlives_another_is_not_inside_of_it() {
    check(
        "= 0 a tid=5 dur=9000
         = 1000 b tid=5 dur=18000
         = 2000 c tid=5 dur=3000
         = 20000 d tid=5 dur=1000",
        &[
            "a - - 0 0 9000 -",
            "b - - 0 1000 18000 15000",
            "c b 2 1 2000 3000 3000",
            "d - - 0 20000 1000 1000",
        ],
    );
    // Both are inside of a call around them.
    check(
        "= 0 main tid=5 dur=90000
         = 100 a tid=5 dur=9000
         = 1000 b tid=5 dur=18000",
        &[
            "main - - 0 0 90000 63000",
            "a main 1 1 100 9000 -",
            "b main 1 1 1000 18000 18000",
        ],
    );
    // Times may be rounded to microseconds, and a recorded caller decides.
    check(
        "= 0 a tid=5 dur=9000
         = 1000 b tid=5 dur=9000",
        &["a - - 0 0 9000 1000", "b a 1 1 1000 9000 9000"],
    );
    // As much of a call as is inside, unless its depth was recorded: then only its time is rounded.
    check(
        "= 1000 b tid=5 dur=2000
         = 1000 c tid=5 dur=1000
         = 2500 d tid=5 dur=1000",
        &[
            "b - - 0 1000 2000 500",
            "c b 1 1 1000 1000 1000",
            "d b 1 1 2500 1000 1000",
        ],
    );
    check(
        "= 0 a tid=5 dur=9000 depth=0
         = 1000 b tid=5 dur=8700 depth=1",
        &["a - - 0 0 9000 300", "b a 1 1 1000 8700 8700"],
    );
    check(
        "= 0 a tid=5 dur=9000
         = 1000 b tid=5 dur=18000 by=a",
        &["a - - 0 0 9000 -", "b a 1 1 1000 18000 18000"],
    );
}

/// Slices of another track of the thread.
#[test]
fn a_call_without_calls_that_outlives_another_takes_none_of_its_time() {
    check(
        "= 0 a tid=5 dur=9000
         = 1000 b tid=5 dur=18000 leaf
         = 2000 c tid=5 dur=3000",
        &[
            "a - - 0 0 9000 6000",
            "b - - 0 1000 18000 18000",
            "c a 1 1 2000 3000 3000",
        ],
    );
}

#[test]
fn a_call_without_an_end_is_over_when_the_one_around_it_is() {
    check(
        "= 0 outer tid=5 dur=50
         = 10 inner tid=5
         = 20 leaf tid=5 dur=1
         = 60 last tid=5",
        &[
            "outer - - 0 0 50 -",
            "inner outer 1 1 10 - - no exit",
            "leaf inner 2 2 20 1 1",
            "last - - 0 60 - - no exit",
        ],
    );
}

#[test]
fn an_exit_without_an_entry_is_not_inside_of_calls_that_have_ended() {
    check(
        "= 500 c tid=5 dur=400
         = 600 d tid=5 dur=100
         < 950 ? tid=5",
        &[
            "c - - 0 500 400 300",
            "d c 1 1 600 100 100",
            "- - - 0 950 - - no entry",
        ],
    );
    // One that ends inside of another.
    check(
        "= 500 c tid=5 dur=400
         = 600 d tid=5 dur=100
         < 750 ? tid=5",
        &[
            "c - - 0 500 400 -",
            "d c 1 1 600 100 100",
            "- c 1 1 750 - - no entry",
        ],
    );
}

#[test]
fn a_recorded_depth_ends_calls_without_an_end() {
    check(
        "= 0 main tid=5 dur=100 depth=0
         = 10 deep tid=5 depth=1
         = 20 deeper tid=5 dur=1 depth=2
         = 30 next tid=5 dur=5 depth=1
         = 40 later tid=5 dur=5",
        &[
            "main - - 0 0 100 -",
            "deep main 1 1 10 - - no exit",
            "deeper deep 2 2 20 1 1",
            "next main 1 1 30 5 5",
            "later main 1 1 40 5 5",
        ],
    );
    // Recursive calls that touch.
    check(
        "= 0 a tid=5 dur=100 depth=0
         = 10 a tid=5 dur=18 depth=1 by=a
         = 28 a tid=5 dur=52 depth=1 by=a",
        &["a - - 0 0 100 30", "a a 1 1 10 18 18", "a a 1 1 28 52 52"],
    );
}
