//! Depths of a graph by its indentation, which texts lose when they are pasted; then the braces alone pair.
//!
//! ```text
//! 0)               |  sys_write() {            0) | sys_write() {
//! 0)   0.137 us    |    __fdget_pos();         0) 0.137 us | __fdget_pos();
//! 0)   1.458 us    |  }                        0) 1.458 us | }
//! ```

/// Thread and CPU.
type Lane = (Option<i32>, Option<u32>);

/// Compares the indentation with the braces.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Indents {
    /// Lane and depth of the line before, if that opened a call.
    opened: Option<(Lane, u32)>,
    deeper: u64,
    flat: u64,
    is_lost: bool,
}

impl Indents {
    /// The state for the second reading of the text.
    pub(super) fn learned(self) -> Indents {
        Indents {
            is_lost: self.flat > self.deeper,
            ..Indents::default()
        }
    }

    /// The depth of a line, if the indentation states it.
    #[inline]
    pub(super) fn depth(&mut self, lane: Lane, depth: u32, text: &[u8]) -> Option<u32> {
        if let Some((above, outer)) = self.opened.take()
            && above == lane
            && text.first() != Some(&b'}')
        {
            match depth > outer {
                true => self.deeper += 1,
                false => self.flat += 1,
            }
        }
        self.opened = text.ends_with(b"{").then_some((lane, depth));
        (!self.is_lost).then_some(depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indentation_may_be_lost() {
        let check = |depths: [u32; 3], expected: Option<u32>| {
            let mut indents = Indents::default();
            let texts: [&[u8]; 3] = [b"f() {", b"g();", b"}"];
            for (depth, text) in depths.into_iter().zip(texts) {
                assert_eq!(indents.depth((None, Some(1)), depth, text), Some(depth));
            }
            assert_eq!(indents.learned().depth((None, None), 7, b"h();"), expected);
        };
        check([0, 1, 0], Some(7));
        check([0, 0, 0], None);
        // The line of another CPU says nothing.
        let mut indents = Indents::default();
        indents.depth((None, Some(1)), 3, b"f() {");
        indents.depth((None, Some(2)), 0, b"g();");
        assert_eq!(indents.learned().depth((None, None), 7, b"h();"), Some(7));
    }
}
