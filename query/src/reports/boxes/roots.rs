//! Whether stacks reach the beginning of their thread.
//!
//! Stacks that the recorder walked or unwound are marked (`stacks.cut`). Frame-pointer stacks are not; they are complete if
//! their outermost function is one in which threads begin.
//!
//! ```text
//! _start;__libc_start_main;main;read     whole
//! [unknown];_int_free                    incomplete: a function used the frame pointer register for something else
//! ```

use perfquet::stacks::Tree;

/// Functions in which threads begin, without leading underscores. Includes `main`, whose callers are of no interest.
const ROOTS: &[&str] = &[
    "start",
    "start_c",
    "rt0_amd64_linux",
    "rt0_arm64_linux",
    "dl_start",
    "dl_start_user",
    "libc_start_main",
    "libc_start_main_impl",
    "libc_start_call_main",
    "main",
    "clone",
    "clone3",
    "start_thread",
    "thread_start",
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.mstart",
    "runtime.rt0_go",
    "ret_from_fork",
    "ret_from_fork_asm",
];

/// Number of outermost frames that may lack a name: stripped programs hide `_start`, and C libraries `clone3`.
const OUTERMOST: usize = 3;

/// Returns for each stack of a tree whether it reaches the root of its thread. Stacks without addresses, such as those of
/// folded stacks, count as whole, and with `is_unwound` all those that are not known to be cut.
pub(super) fn whole(tree: &Tree, is_unwound: bool) -> Vec<bool> {
    let count = tree.len() as u32;
    let mut whole = vec![true; count as usize];
    let mut is_cut = vec![false; count as usize];
    let mut depths = vec![0usize; count as usize];
    for node in 1..count {
        let parent = tree.parent(node) as usize;
        let depth = depths[parent] + 1;
        depths[node as usize] = depth;
        whole[node as usize] = match (parent, tree.is_cut(node)) {
            (0, Some(true)) => false,
            (0, Some(false)) if is_unwound => true,
            (0, _) => has_root(tree, node),
            _ => whole[parent] || depth <= OUTERMOST && !is_cut[parent] && has_root(tree, node),
        };
        is_cut[node as usize] = match parent {
            0 => tree.is_cut(node) == Some(true),
            _ => is_cut[parent],
        };
    }
    whole
}

fn has_root(tree: &Tree, node: u32) -> bool {
    tree.frames_of_node(node).any(|frame| is_root(tree, frame))
}

fn is_root(tree: &Tree, frame: u32) -> bool {
    let frames = &tree.frames;
    match frames.function(frame) {
        Some(name) => frames.place(frame).is_none() || is_root_name(name),
        None => false,
    }
}

fn is_root_name(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    let name = name.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name);
    ROOTS.contains(&name.trim_start_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_have_many_spellings() {
        for name in [
            "_start",
            "__libc_start_main@@GLIBC_2.34",
            "__GI___clone3",
            "main",
        ] {
            assert!(is_root_name(name), "{name}");
        }
        for name in ["read", "start_kernel_thing", "domain", "__libc_read"] {
            assert!(!is_root_name(name), "{name}");
        }
    }
}
