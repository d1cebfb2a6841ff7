//! Stacks as a tree of boxes, for pictures: the labels of boxes, the outermost frames of stacks, and their programs.

mod groups;
mod labels;
mod merge;
mod roots;
mod rows;

pub(super) use groups::{By, Groups, pid};
pub(super) use labels::{Naming, clean};
pub(super) use merge::{Incomplete, Merge, Shape, note_of_incomplete};
pub(super) use rows::QueryStacks;
