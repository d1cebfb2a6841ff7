//! Rust functions that probes find by their source names.

mod r {
    use std::hint::black_box;

    #[inline(never)]
    pub fn gen<T>(value: T) -> T {
        black_box(value)
    }
}

fn main() {
    let mut sum = 0;
    for n in 0..3u32 {
        sum += r::gen(n);
        sum += r::gen(u64::from(n)) as u32;
        sum += r::gen(u64::from(n)) as u32;
    }
    println!("{sum}");
}
