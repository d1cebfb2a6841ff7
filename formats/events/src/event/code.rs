//! Machine code that a recording keeps, since it will be gone later.

/// The code of a function at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptCode<'a> {
    /// Time at which the code was read.
    pub time: Option<i64>,
    /// Process whose code it is; `None` for the kernel.
    pub pid: Option<i32>,
    /// Path of the module, or a name in brackets.
    pub module: &'a [u8],
    /// Build ID of the module.
    pub build_id: Option<&'a [u8]>,
    /// Start of the function: its offset in the module's file, or its address if frames of the module have addresses.
    pub start: u64,
    /// Address of the first byte: in memory, or as in the file's symbol table.
    pub address: u64,
    /// Length of the function in bytes.
    pub size: u64,
    /// Instruction set, as a machine number of ELF.
    pub machine: u16,
    /// The code from its start, as far as it was kept.
    pub code: &'a [u8],
}
