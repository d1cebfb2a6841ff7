//! The data of programs that walk user stacks: a table of unwind rules per file, and a list of mappings per process.
//!
//! ```text
//! table   root block: 512 × (first address, block)  →  …  →  leaf block: 512 × (address, rule)
//! list    block: generation, 127 × (start, end, file, address in the file)
//! ```
//! Both are trees of 4 KiB blocks from one pool, to which chunks of 1 MiB are added as needed. A block that is reused
//! for another list gets a new generation, so that a process entry that still refers to the old list is not walked with
//! the new one. Each object has its own.

use aya::maps::{Array, ArrayOfMaps, HashMap, MapData, PerCpuArray};

use crate::error::Error;
use crate::object::Object;

/// Place of the walks in a map of counts that did not begin.
pub(crate) const WALK_BUSY: u32 = 8;
const BLOCK_WORDS: usize = 512;
pub(crate) const CHUNK_BLOCKS: u32 = 256;
pub(crate) const CHUNKS_MAX: u32 = 256;
/// Number of files that can have tables; 0 is code without a file.
pub const FILES_MAX: u32 = 8192;
const LIST_ROWS: usize = 127;
const WIDE_PER_BLOCK: usize = 256;
/// Larger than every address in a file or process, as the program compares them.
const NO_PAIR: u64 = u32::MAX as u64;
const NO_ROW: u64 = i64::MAX as u64;
/// End of the addresses of user space.
pub(crate) const ADDRESSES: u64 = 1 << 47;

type Block = [u64; BLOCK_WORDS];
/// `struct file_entry`: state, levels, root, chains_hold, wide.
type FileEntry = [u32; 8];
/// `struct process_entry`: as_of, generation, root and levels, lost.
type ProcessEntry = [u64; 4];

pub(crate) const FILE_TABLE: u32 = 1;
pub(crate) const FILE_WITHOUT: u32 = 2;

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
    /// All ends, in the order of their numbers.
    pub const ALL: [WalkEnd; 8] = [
        WalkEnd::Root,
        WalkEnd::Lost,
        WalkEnd::Memory,
        WalkEnd::NoRule,
        WalkEnd::Deep,
        WalkEnd::NoTable,
        WalkEnd::NoList,
        WalkEnd::Unsupported,
    ];

    /// The end by its number.
    pub fn of(number: u32) -> Option<WalkEnd> {
        WalkEnd::ALL.get(number as usize).copied()
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

/// The blocks of a file's table.
#[derive(Debug, Default)]
pub struct Table {
    blocks: Vec<u32>,
}

/// The blocks of a process's list.
#[derive(Debug, Default)]
pub struct List {
    blocks: Vec<u32>,
}

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

/// Where the frames of a process's Ruby interpreter are (`struct ruby_entry`): offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RubyEntry {
    /// In the dynamic thread vector: pointer to the variables of the interpreter's file.
    pub block: u32,
    /// In these: pointer to the execution context.
    pub context: u32,
    /// Size of a control frame.
    pub frame_bytes: u32,
}

impl RubyEntry {
    fn words(&self) -> [u64; 2] {
        [pair(self.block, self.context), pair(self.frame_bytes, 0)]
    }
}

/// Where the functions of a process's V8 are (`struct v8_entry`): offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct V8Entry {
    /// In a function: pointer to its shared function info.
    pub shared: u32,
    /// In that: its name or scope info.
    pub name: u32,
}

impl V8Entry {
    fn words(&self) -> [u64; 1] {
        [pair(self.shared, self.name)]
    }
}

/// Tables and lists of one object.
pub struct WalkTables {
    chunks: ArrayOfMaps<MapData, Array<MapData, Block>>,
    files: Array<MapData, FileEntry>,
    processes: HashMap<MapData, u32, ProcessEntry>,
    /// `None` if the programs do not read Python frames.
    pythons: Option<HashMap<MapData, u32, [u64; 7]>>,
    /// The same for Ruby.
    rubies: Option<HashMap<MapData, u32, [u64; 2]>>,
    v8s: Option<HashMap<MapData, u32, [u64; 1]>>,
    /// `None` if the results of walks are in their records.
    ends: Option<PerCpuArray<MapData, u64>>,
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

impl WalkTables {
    /// Takes the maps of an object whose programs walk stacks. Those that observe new address spaces must be attached before
    /// the first list is published ([`Object::observe_births`]).
    pub fn of(object: &mut Object) -> Result<WalkTables, Error> {
        let failed = |error| Error::failed("opening the maps of unwind tables", &error);
        let pythons = object.take_map("pythons").ok();
        let pythons = pythons.map(HashMap::try_from).transpose();
        let rubies = object.take_map("rubies").ok();
        let rubies = rubies.map(HashMap::try_from).transpose();
        let v8s = object.take_map("v8s").ok();
        let v8s = v8s.map(HashMap::try_from).transpose();
        let ends = object.take_map("walk_ends").ok();
        let ends = ends.map(PerCpuArray::try_from).transpose();
        let mut tables = WalkTables {
            chunks: ArrayOfMaps::try_from(object.take_map("chunks")?).map_err(failed)?,
            files: Array::try_from(object.take_map("files")?).map_err(failed)?,
            processes: HashMap::try_from(object.take_map("processes")?).map_err(failed)?,
            pythons: pythons.map_err(failed)?,
            rubies: rubies.map_err(failed)?,
            v8s: v8s.map_err(failed)?,
            ends: ends.map_err(failed)?,
            pool: Pool {
                next: 1,
                ..Pool::default()
            },
        };
        tables.set_file(0, &[FILE_WITHOUT, 0, 0, 1, 0, 0, 0, 0])?;
        Ok(tables)
    }

    /// Returns the number of walks by an aggregating program that ended for this reason; `None` stands for those that another
    /// one had interrupted.
    pub fn ended(&self, end: Option<WalkEnd>) -> u64 {
        let place = end.map_or(WALK_BUSY, |end| end as u32);
        let counts = self.ends.as_ref().map(|ends| ends.get(&place, 0));
        match counts {
            Some(Ok(counts)) => counts.iter().sum(),
            _ => 0,
        }
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
        let table = Table::default();
        let added = self.replace_table(file, (rows, wide, chains_hold), table)?;
        Ok(added.is_some())
    }

    /// Publishes a table in place of another one of the same file, whose blocks become free. Returns `None` if there is no space: the
    /// file then has no table.
    pub fn replace_table(
        &mut self,
        file: u32,
        (rows, wide, chains_hold): (impl ExactSizeIterator<Item = (u32, u32)>, &[[u64; 2]], bool),
        former: Table,
    ) -> Result<Option<Table>, Error> {
        if file == 0 || file >= FILES_MAX {
            return Ok(None);
        }
        let mut entry: FileEntry = [FILE_WITHOUT, 0, 0, u32::from(chains_hold), 0, 0, 0, 0];
        let mut table = Table::default();
        if rows.len() > 0 && !self.fill_table(&mut table, &mut entry, rows, wide)? {
            self.pool.free.extend(table.blocks);
            if !former.blocks.is_empty() {
                // Otherwise, walks would go on reading blocks of others.
                self.remove_table(file, former)?;
            }
            return Ok(None);
        }
        self.set_file(file, &entry)?;
        self.pool.returned.extend(former.blocks);
        Ok(Some(table))
    }

    /// Removes the table of a file.
    pub fn remove_table(&mut self, file: u32, table: Table) -> Result<(), Error> {
        self.pool.returned.extend(table.blocks);
        self.set_file(file, &[0; 8])
    }

    /// Writes the blocks of a table, and where they are into the file's entry. Returns `false` if there is no space.
    fn fill_table(
        &mut self,
        table: &mut Table,
        entry: &mut FileEntry,
        rows: impl ExactSizeIterator<Item = (u32, u32)>,
        wide: &[[u64; 2]],
    ) -> Result<bool, Error> {
        let block_of = |pair: &u64| (pair >> 32) as u32;
        let pairs = rows.map(|(key, value)| pair(key, value));
        let Some(mut level) = self.add_level(pairs)? else {
            return Ok(false);
        };
        table.blocks.extend(level.iter().map(block_of));
        let mut levels = 1;
        let root = loop {
            if let [root] = &level[..] {
                break block_of(root);
            }
            let Some(next) = self.add_level(level.into_iter())? else {
                return Ok(false);
            };
            table.blocks.extend(next.iter().map(block_of));
            levels += 1;
            level = next;
        };
        let chains_hold = entry[3];
        *entry = [FILE_TABLE, levels, root, chains_hold, 0, 0, 0, 0];
        for (place, chunk) in entry[4..].iter_mut().zip(wide.chunks(WIDE_PER_BLOCK)) {
            let mut block = [0; BLOCK_WORDS];
            for (word, rule) in block.iter_mut().zip(chunk.iter().flatten()) {
                *word = *rule;
            }
            let Some(number) = self.add_block(&block)? else {
                return Ok(false);
            };
            table.blocks.push(number);
            *place = number;
        }
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
        let done = self.processes.insert(process, entry, 0);
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

    /// Publishes where the frames of a process's Python interpreter are, to programs that read them.
    pub fn set_python(&mut self, process: u32, entry: &PythonEntry) -> Result<(), Error> {
        let failed = |error| Error::failed("writing the map pythons", &error);
        match &mut self.pythons {
            Some(pythons) => pythons.insert(process, entry.words(), 0).map_err(failed),
            None => Ok(()),
        }
    }

    /// Publishes where the frames of a process's Ruby interpreter are, to programs that read them.
    pub fn set_ruby(&mut self, process: u32, entry: &RubyEntry) -> Result<(), Error> {
        let failed = |error| Error::failed("writing the map rubies", &error);
        match &mut self.rubies {
            Some(rubies) => rubies.insert(process, entry.words(), 0).map_err(failed),
            None => Ok(()),
        }
    }

    /// Publishes where the functions of a process's V8 are, to programs that read them.
    pub fn set_v8(&mut self, process: u32, entry: &V8Entry) -> Result<(), Error> {
        let failed = |error| Error::failed("writing the map v8s", &error);
        match &mut self.v8s {
            Some(v8s) => v8s.insert(process, entry.words(), 0).map_err(failed),
            None => Ok(()),
        }
    }

    /// Removes the list of a process.
    pub fn remove_list(&mut self, process: u32, list: List) {
        self.pool.returned.extend(list.blocks);
        // The process may have ended, and the program has removed it.
        let _ = self.processes.remove(&process);
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
        self.files.set(file, entry, 0).map_err(failed)
    }

    /// Writes pairs into as many blocks as necessary, without a copy of all of them, which are megabytes for a compiler. Returns the
    /// pairs that lead to the blocks; `None` if there is no space.
    fn add_level(
        &mut self,
        mut pairs: impl Iterator<Item = u64>,
    ) -> Result<Option<Vec<u64>>, Error> {
        let mut level: Vec<u64> = Vec::new();
        loop {
            let mut block = [NO_PAIR; BLOCK_WORDS];
            let mut count = 0;
            for (word, pair) in block.iter_mut().zip(pairs.by_ref().take(BLOCK_WORDS)) {
                *word = pair;
                count += 1;
            }
            if count == 0 {
                return Ok(Some(level));
            }
            match self.add_block(&block)? {
                Some(number) => level.push(pair(block[0] as u32, number)),
                None => {
                    let added = level.iter().map(|pair| (pair >> 32) as u32);
                    self.pool.free.extend(added);
                    return Ok(None);
                }
            }
        }
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
                    self.chunks.set(chunk, &blocks, 0).map_err(failed)?;
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
}
