//! What needs memory: threads, mappings, stacks.

mod frames;
mod mappings;
mod modules;
mod stacks;
mod texts;
mod threads;
