//! Random numbers that are the same in every run.

/// xorshift64. The seed is not 0.
pub struct Random(pub u64);

impl Random {
    /// A number below the limit, or 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }

    /// A number whose mean is `mean`; most are below, few far above.
    pub fn around(&mut self, mean: u64) -> u64 {
        let uniform = (self.below(1 << 32) + 1) as f64 / (1_u64 << 32) as f64;
        (-uniform.ln() * mean as f64) as u64
    }

    /// True once in so many calls.
    pub fn happens(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}
