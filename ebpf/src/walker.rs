//! The program that walks user stacks, and its data: a table of unwind rules per file, and a list of mappings per
//! process.
//!
//! ```text
//! table   root block: 512 × (first address, block)  →  …  →  leaf block: 512 × (address, rule)
//! list    block: generation, 127 × (start, end, file, address in the file)
//! ```
//! Both are trees of 4 KiB blocks from one pool, to which chunks of 1 MiB are added as needed. A block that is reused
//! for another list gets a new generation, so that a process entry that still refers to the old list is not walked with
//! the new one.

use std::os::fd::BorrowedFd;

use aya::EbpfLoader;
use aya::maps::{Array, ArrayOfMaps, HashMap, MapData, MapError};

use crate::compiled;
use crate::error::Error;
use crate::object::{Object, Target};

const PROGRAM: &str = "walk_sample";
/// Programs that observe the start and end of address spaces, and their tracepoints.
const BIRTHS: [(&str, &str); 3] = [
    ("walk_fork", "sched_process_fork"),
    ("walk_exec", "sched_process_exec"),
    ("walk_exit", "sched_process_exit"),
];

const BLOCK_WORDS: usize = 512;
const CHUNK_BLOCKS: u32 = 256;
const CHUNKS_MAX: u32 = 256;
/// Number of files that can have tables; 0 is code without a file.
const FILES_MAX: u32 = 8192;
const LIST_ROWS: usize = 127;
const WIDE_PER_BLOCK: usize = 256;
/// Larger than every address in a file or process, as the program compares them.
const NO_PAIR: u64 = u32::MAX as u64;
const NO_ROW: u64 = i64::MAX as u64;
/// End of the addresses of user space.
const ADDRESSES: u64 = 1 << 47;

/// `struct walk_record`: kind.
pub const RECORD_WALK: u32 = 5;
/// `struct copy_record`: kind.
pub const RECORD_COPY: u32 = 6;
/// `struct python_record`: kind.
pub const RECORD_PYTHON: u32 = 7;
/// `struct copy_record` with more memory of the copy before it: kind.
pub const RECORD_PIECE: u32 = 8;
/// Bytes of a copy's record before its memory.
pub const COPY_HEAD_BYTES: usize = 32 + COPY_REGISTERS * 8;
/// Bytes of a walk's record before its addresses.
pub const WALK_HEAD_BYTES: usize = 24;
/// Registers in a copy's record, by their DWARF numbers.
pub const COPY_REGISTERS: usize = 16;

type Block = [u64; BLOCK_WORDS];
/// `struct file_entry`: state, levels, root, chains_hold, wide.
type FileEntry = [u32; 8];
/// `struct process_entry`: as_of, generation, root and levels, lost.
type ProcessEntry = [u64; 4];

const FILE_TABLE: u32 = 1;
const FILE_WITHOUT: u32 = 2;

/// Where the frames of a process's Python interpreter are (`struct python_entry`): an address, and offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonEntry {
    /// Address of the pointer to the main interpreter.
    pub interpreter: u64,
    /// In the interpreter: pointer to the first thread.
    pub threads: u32,
    /// In a thread: pointer to the next one.
    pub next: u32,
    /// In a thread: `pthread_self()`.
    pub thread_id: u32,
    /// In a thread: pointer to the current frame, or to a struct that has it.
    pub frame: u32,
    /// In that struct: pointer to the current frame.
    pub inner_frame: Option<u32>,
    /// In a frame: pointer to the code object.
    pub code: u32,
    /// In a frame: pointer to the caller's frame.
    pub previous: u32,
    /// In a frame: pointer to the instruction.
    pub instruction: u32,
    /// In a frame: its owner, one byte, or whether it was called from C.
    pub owner: u32,
    /// Whether `owner` says that a frame was called from C.
    pub owner_is_entry: bool,
    /// In a code object: pointer to the qualified name.
    pub qualname: u32,
}

impl PythonEntry {
    fn words(&self) -> [u64; 7] {
        let inner_frame = self.inner_frame.unwrap_or(u32::MAX);
        let frame_bytes = (self.owner + 1)
            .next_multiple_of(8)
            .max(self.instruction + 8);
        [
            self.interpreter,
            pair(self.threads, self.next),
            pair(self.thread_id, self.frame),
            pair(inner_frame, self.code),
            pair(self.previous, self.instruction),
            pair(self.owner, self.owner_is_entry.into()),
            pair(frame_bytes, self.qualname),
        ]
    }
}

/// Reason why a walk ended (`walk.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkEnd {
    /// At the start of the thread.
    Root,
    /// Returned to an address outside of all code.
    Lost,
    /// A word of the stack could not be read.
    Memory,
    /// Code without unwind information and frame pointers.
    NoRule,
    /// The maximum depth was reached.
    Deep,
    /// The file's table has not arrived yet.
    NoTable,
    /// The process's list of mappings has not arrived yet.
    NoList,
    /// A 32-bit process.
    Unsupported,
}

impl WalkEnd {
    /// The end by its number.
    pub fn of(number: u32) -> Option<WalkEnd> {
        Some(match number {
            0 => WalkEnd::Root,
            1 => WalkEnd::Lost,
            2 => WalkEnd::Memory,
            3 => WalkEnd::NoRule,
            4 => WalkEnd::Deep,
            5 => WalkEnd::NoTable,
            6 => WalkEnd::NoList,
            7 => WalkEnd::Unsupported,
            _ => return None,
        })
    }
}

/// A mapping of code (`struct mapping_row`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListRow {
    /// First address.
    pub start: u64,
    /// First address past the end.
    pub end: u64,
    /// Number of the file; 0 without one.
    pub file: u32,
    /// The address in the file where the mapping starts.
    pub file_start: u32,
}

/// The blocks of a process's list.
#[derive(Debug, Default)]
pub struct List {
    blocks: Vec<u32>,
}

/// What the program does.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalkSettings {
    /// Discards the recorder's samples.
    pub excludes_self: bool,
    /// Walks user stacks; without it, the program does nothing but discard samples.
    pub has_user_stacks: bool,
    /// Copies walked stacks, too, so that the recorder can compare the two. The copy precedes the walk.
    pub checks_walks: bool,
}

/// The program, loaded into the kernel, with its tables and lists.
pub struct Walker {
    object: Object,
    pool: Pool,
}

/// Blocks of the program's memory.
#[derive(Default)]
struct Pool {
    chunks: Vec<Array<MapData, Block>>,
    /// The next block that was never used; 0 means none.
    next: u32,
    free: Vec<u32>,
    /// Blocks returned since the last call of [`Walker::settle`], and before that call.
    returned: Vec<u32>,
    returned_before: Vec<u32>,
    generation: u64,
}

impl Walker {
    /// Loads the programs for that many CPUs. Requires Linux 5.17.
    pub fn load(cpus: u32, settings: WalkSettings) -> Result<Walker, Error> {
        let settings = [
            settings.excludes_self,
            settings.has_user_stacks,
            settings.checks_walks,
            false,
        ];
        let settings = settings.map(u32::from);
        let target = Target::default();
        let mut object = Object::load(compiled::WALK, &target, |loader: &mut EbpfLoader<'_>| {
            loader.override_global("walk_settings", &settings, true);
            loader.map_max_entries("copies", cpus);
            loader.map_max_entries("copy_room", cpus);
        })?;
        object.prepare(PROGRAM)?;
        let mut walker = Walker {
            object,
            pool: Pool {
                next: 1,
                ..Pool::default()
            },
        };
        walker.set_file(0, &[FILE_WITHOUT, 0, 0, 1, 0, 0, 0, 0])?;
        Ok(walker)
    }

    /// Attaches the programs that observe new address spaces. Must be called before the first list is published.
    pub fn start(&mut self) -> Result<(), Error> {
        for (program, tracepoint) in BIRTHS {
            self.object.attach_tracepoint(program, tracepoint)?;
        }
        Ok(())
    }

    /// Sends the program's records to an event on a CPU.
    pub fn send_to(&mut self, cpu: u32, event: BorrowedFd<'_>) -> Result<(), Error> {
        self.object.send_to("walk_records", cpu, event)
    }

    /// Allows a CPU to copy this many bytes of stacks deeper than 32 KiB, until the next call.
    pub fn set_copy_room(&mut self, cpu: u32, bytes: u64) -> Result<(), Error> {
        self.object.set("copy_room", cpu, bytes)
    }

    /// Runs the program at each sample of an event.
    pub fn attach(&mut self, event: BorrowedFd<'_>) -> Result<(), Error> {
        self.object.attach(PROGRAM, event, 0)
    }

    /// Returns the number of lost records.
    pub fn lost(&self) -> Result<u64, Error> {
        Ok(self.object.lost()?.iter().map(|(_, count)| count).sum())
    }

    /// Returns the kernel memory of tables and lists, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.pool.chunks.len() as u64 * u64::from(CHUNK_BLOCKS) * (BLOCK_WORDS as u64 * 8)
    }

    /// Publishes the table of a file: rows by address, and the rules that are too large for rows. Returns `false` if
    /// there is no space.
    pub fn add_table(
        &mut self,
        file: u32,
        rows: impl ExactSizeIterator<Item = (u32, u32)>,
        wide: &[[u64; 2]],
        chains_hold: bool,
    ) -> Result<bool, Error> {
        if file == 0 || file >= FILES_MAX {
            return Ok(false);
        }
        if rows.len() == 0 {
            self.set_file(
                file,
                &[FILE_WITHOUT, 0, 0, u32::from(chains_hold), 0, 0, 0, 0],
            )?;
            return Ok(true);
        }
        let pairs: Vec<u64> = rows.map(|(key, value)| pair(key, value)).collect();
        let mut level = pairs;
        let mut levels = 0;
        let root = loop {
            let Some(blocks) = self.add_blocks(&level, NO_PAIR)? else {
                return Ok(false);
            };
            levels += 1;
            if let [root] = blocks[..] {
                break root;
            }
            let firsts = level.chunks(BLOCK_WORDS).map(|chunk| chunk[0] as u32);
            level = firsts
                .zip(blocks)
                .map(|(key, block)| pair(key, block))
                .collect();
        };
        let mut entry: FileEntry = [FILE_TABLE, levels, root, u32::from(chains_hold), 0, 0, 0, 0];
        for (place, chunk) in entry[4..].iter_mut().zip(wide.chunks(WIDE_PER_BLOCK)) {
            let words: Vec<u64> = chunk.iter().flatten().copied().collect();
            let Some(blocks) = self.add_blocks(&words, 0)? else {
                return Ok(false);
            };
            *place = blocks[0];
        }
        self.set_file(file, &entry)?;
        Ok(true)
    }

    /// Publishes the mappings of a process by address, as of a time, and replaces its previous list. Returns `None` if
    /// there is no space.
    pub fn set_list(
        &mut self,
        process: u32,
        as_of: u64,
        rows: &[ListRow],
        former: Option<List>,
    ) -> Result<Option<List>, Error> {
        self.pool.generation += 1;
        let generation = self.pool.generation;
        let mut list = List::default();
        let rows = searchable(rows);
        let leaves = rows
            .chunks(LIST_ROWS)
            .map(|rows| list_block(generation, rows));
        let mut heads = Vec::new();
        for (block, rows) in leaves.zip(rows.chunks(LIST_ROWS)) {
            let Some(number) = self.add_block(&block)? else {
                return Ok(None);
            };
            list.blocks.push(number);
            heads.push(ListRow {
                file: number,
                file_start: 0,
                ..rows[0]
            });
        }
        let (root, levels) = match list.blocks[..] {
            [] => (0, 0u32),
            [root] => (root, 1),
            // A list has two levels, enough for 16,129 mappings; further mappings are omitted.
            _ => {
                heads.truncate(LIST_ROWS);
                let Some(root) = self.add_block(&list_block(generation, &heads))? else {
                    return Ok(None);
                };
                list.blocks.push(root);
                (root, 2)
            }
        };
        let entry = [
            as_of,
            generation,
            u64::from(root) | u64::from(levels) << 32,
            0,
        ];
        let done = self
            .object
            .insert::<u32, ProcessEntry>("processes", process, entry);
        if let Some(former) = former {
            self.pool.returned.extend(former.blocks);
        }
        match done {
            Ok(()) => Ok(Some(list)),
            // The map is full.
            Err(_) => {
                self.pool.returned.extend(list.blocks);
                Ok(None)
            }
        }
    }

    /// Publishes where the frames of a process's Python interpreter are.
    pub fn set_python(&mut self, process: u32, entry: &PythonEntry) -> Result<(), Error> {
        self.object
            .insert::<u32, [u64; 7]>("pythons", process, entry.words())
    }

    /// Removes the list of a process.
    pub fn remove_list(&mut self, process: u32, list: List) -> Result<(), Error> {
        self.pool.returned.extend(list.blocks);
        let failed = |error| Error::failed("writing the map processes", &error);
        let mut found: HashMap<&mut MapData, u32, ProcessEntry> =
            HashMap::try_from(self.object.map_mut("processes")?).map_err(failed)?;
        match found.remove(&process) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            // The entry may not exist.
            Err(_) => Ok(()),
        }
    }

    /// Makes the blocks that were returned before the previous call available again: no program still reads them.
    pub fn settle(&mut self) {
        let Pool {
            free,
            returned,
            returned_before,
            ..
        } = &mut self.pool;
        free.append(returned_before);
        std::mem::swap(returned, returned_before);
    }

    fn set_file(&mut self, file: u32, entry: &FileEntry) -> Result<(), Error> {
        let failed = |error| Error::failed("writing the map files", &error);
        let mut files: Array<&mut MapData, FileEntry> =
            Array::try_from(self.object.map_mut("files")?).map_err(failed)?;
        files.set(file, entry, 0).map_err(failed)
    }

    /// Writes words into as many blocks as necessary; `None` if there is no space.
    fn add_blocks(&mut self, words: &[u64], unused: u64) -> Result<Option<Vec<u32>>, Error> {
        let mut blocks = Vec::new();
        for chunk in words.chunks(BLOCK_WORDS) {
            let mut block = [unused; BLOCK_WORDS];
            block[..chunk.len()].copy_from_slice(chunk);
            match self.add_block(&block)? {
                Some(number) => blocks.push(number),
                None => {
                    self.pool.free.extend(blocks);
                    return Ok(None);
                }
            }
        }
        Ok(Some(blocks))
    }

    fn add_block(&mut self, block: &Block) -> Result<Option<u32>, Error> {
        let failed = |error| Error::failed("writing a table of unwind rules", &error);
        let number = match self.pool.free.pop() {
            Some(number) => number,
            None => {
                let number = self.pool.next;
                let chunk = number / CHUNK_BLOCKS;
                if chunk >= CHUNKS_MAX {
                    return Ok(None);
                }
                if chunk as usize >= self.pool.chunks.len() {
                    let blocks = Array::create(CHUNK_BLOCKS, 0).map_err(failed)?;
                    let mut chunks: ArrayOfMaps<&mut MapData, Array<MapData, Block>> =
                        ArrayOfMaps::try_from(self.object.map_mut("chunks")?).map_err(failed)?;
                    chunks.set(chunk, &blocks, 0).map_err(failed)?;
                    self.pool.chunks.push(blocks);
                }
                self.pool.next += 1;
                number
            }
        };
        let chunk = &mut self.pool.chunks[(number / CHUNK_BLOCKS) as usize];
        chunk.set(number % CHUNK_BLOCKS, block, 0).map_err(failed)?;
        Ok(Some(number))
    }
}

/// `struct pair`
fn pair(key: u32, value: u32) -> u64 {
    u64::from(key) | u64::from(value) << 32
}

/// Returns the mappings that the program can find. It compares signed numbers: with the page `[vsyscall]`, at the end of all
/// addresses, the rows would not be sorted.
fn searchable(rows: &[ListRow]) -> &[ListRow] {
    &rows[..rows.partition_point(|row| row.start < ADDRESSES)]
}

/// `struct list_block`
fn list_block(generation: u64, rows: &[ListRow]) -> Block {
    let mut block = [0; BLOCK_WORDS];
    let (words, _) = block.as_chunks_mut::<4>();
    words[0][3] = generation;
    for word in &mut words[1..] {
        word[0] = NO_ROW;
    }
    for (word, row) in words[1..].iter_mut().zip(rows) {
        *word = [row.start, row.end, pair(row.file, row.file_start), 0];
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_sorted_and_ends_above_all_addresses() {
        let rows = [
            ListRow {
                start: 0x1000,
                end: 0x2000,
                file: 3,
                file_start: 0x10,
            },
            ListRow {
                start: 0x7fff_0000_0000,
                end: 0x7fff_0000_1000,
                file: 0,
                file_start: 0,
            },
        ];
        let block = list_block(9, &rows);
        let (words, rest) = block.as_chunks::<4>();
        assert!(rest.is_empty());
        assert_eq!(words.len(), LIST_ROWS + 1);
        // The row with the generation has no addresses.
        assert_eq!(words[0], [0, 0, 0, 9]);
        assert_eq!(words[1], [0x1000, 0x2000, 0x10_0000_0003, 0]);
        assert!(words.is_sorted_by_key(|row| row[0]));
        assert!(words[3..].iter().all(|row| row[0] == NO_ROW));
    }

    #[test]
    fn the_vsyscall_page_is_not_in_a_list() {
        let row = |start| ListRow {
            start,
            end: start + 0x1000,
            file: 0,
            file_start: 0,
        };
        let rows = [row(0x7fff_ffff_e000), row(0xffff_ffff_ff60_0000)];
        assert_eq!(searchable(&rows), &rows[..1]);
        assert_eq!(searchable(&rows[..1]), &rows[..1]);
    }

    #[test]
    fn numbers_are_those_of_the_program() {
        let walk = include_str!("walk.h");
        let program = include_str!("walk.bpf.c");
        let python = include_str!("python.h");
        assert!(program.contains("#define COPY_HEAD_BYTES (32 + REGISTERS * 8)\n"));
        let defined = |name: &str, value: u64| {
            let line = format!("#define {name} {value}");
            let is_it = |found: &str| found == line || found.starts_with(&format!("{line} "));
            assert!(
                walk.lines()
                    .chain(program.lines())
                    .chain(python.lines())
                    .any(is_it),
                "{line}"
            );
        };
        defined("CHUNK_BLOCKS", CHUNK_BLOCKS.into());
        defined("ADDRESS_BITS", ADDRESSES.trailing_zeros().into());
        defined("MOST_CHUNKS", CHUNKS_MAX.into());
        defined("MOST_FILES", FILES_MAX.into());
        defined("FILE_TABLE", FILE_TABLE.into());
        defined("FILE_WITHOUT", FILE_WITHOUT.into());
        defined("RECORD_WALK", RECORD_WALK.into());
        defined("RECORD_COPY", RECORD_COPY.into());
        defined("RECORD_PYTHON", RECORD_PYTHON.into());
        defined("RECORD_PIECE", RECORD_PIECE.into());
        defined("WALK_HEAD_BYTES", WALK_HEAD_BYTES as u64);
        defined("REGISTERS", COPY_REGISTERS as u64);
        let ends = [
            "ROOT",
            "LOST",
            "MEMORY",
            "NO_RULE",
            "DEEP",
            "NO_TABLE",
            "NO_LIST",
            "UNSUPPORTED",
        ];
        for (number, name) in (0..).zip(ends) {
            defined(&format!("WALK_{name}"), number.into());
            let end = format!("{:?}", WalkEnd::of(number)).to_uppercase();
            assert_eq!(end, format!("SOME({})", name.replace('_', "")));
        }
    }
}
