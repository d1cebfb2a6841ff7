//! The walk of stacks into a tree that merges equal callers: every node of a trace's tree is visited once above each base.
//!
//! ```text
//! stack      main ◄─ read ◄─ vfs_read      down to `read`, whose place is known, then up again with the frames of vfs_read
//! ```

use super::Tree;

/// Places of a trace's stacks in a merged tree.
#[derive(Debug, Default)]
pub struct Walk {
    /// By the merged node at the base, and the node of the trace's tree.
    known: hashbrown::HashMap<(u32, u32), u32>,
    /// Reused for every stack.
    path: Vec<u32>,
    frames: Vec<u32>,
}

impl Walk {
    /// Returns the merged node of `stack` on top of `base`. `child` returns the node of a frame on top of another node.
    pub fn place(
        &mut self,
        tree: &Tree,
        base: u32,
        stack: u32,
        mut child: impl FnMut(u32, u32) -> u32,
    ) -> u32 {
        // Down to a known node, then up again.
        self.path.clear();
        let (mut node, mut place) = (stack, base);
        while node != 0 {
            if let Some(&known) = self.known.get(&(base, node)) {
                place = known;
                break;
            }
            self.path.push(node);
            node = tree.parent(node);
        }
        for &node in self.path.iter().rev() {
            self.frames.clear();
            self.frames.extend(tree.frames_of_node(node));
            for &frame in self.frames.iter().rev() {
                place = child(place, frame);
            }
            self.known.insert((base, node), place);
        }
        place
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<((u32, u32), u32)>()
    }
}
