//! A column chunk being built: each batch becomes a page.
//!
//! ```text
//! page 1: dictionary, keys        page 2: dictionary, keys        page 3: too many distinct values: plain
//! ```
//! The dictionary grows from page to page and is written before them when the row group is closed. If it does not pay
//! (values that rarely repeat) or becomes too large, the remaining pages are plain.

use bytes::Bytes;
use parquet::basic::{
    BoundaryOrder, Compression, Encoding as PageEncoding, PageType, Type as PhysicalType, ZstdLevel,
};
use parquet::column::page::{CompressedPage, Page as ParquetPage, PageWriter as _};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::bounds::Bounds;
use super::dictionary::{Integers, Texts};
use super::{delta, hybrid, levels, plain};
use crate::store::column::{Data, Presence, TextData, Values};
use crate::store::intern::Entries;
use crate::store::shape;
use crate::store::table::{ColumnType, Encoding};

/// Maximum size of the plain strings in a page; more go to another page, since readers hold a page in memory.
const PAGE_BYTES: usize = 4 << 20;

/// Buffers shared by all columns, used for one column at a time.
pub(in crate::store) struct Workshop {
    compressor: zstd::bulk::Compressor<'static>,
    /// The page before and after compression.
    body: Vec<u8>,
    packed: Vec<u8>,
    keys: Vec<u32>,
    /// Keys by distance from the minimum, or the distinct keys of a page.
    scratch: Vec<u32>,
}

impl Workshop {
    pub(in crate::store) fn new() -> std::io::Result<Workshop> {
        Ok(Workshop {
            // Level 1: level 3 costs 9 to 27% more time for a 3 to 4% smaller file.
            compressor: zstd::bulk::Compressor::new(1)?,
            body: Vec::new(),
            packed: Vec::new(),
            keys: Vec::new(),
            scratch: Vec::new(),
        })
    }

    fn compress(&mut self) -> Result<Bytes> {
        let Workshop {
            compressor,
            body,
            packed,
            ..
        } = self;
        packed.clear();
        packed.reserve(zstd::zstd_safe::compress_bound(body.len()));
        compressor.compress_to_buffer(body, packed)?;
        Ok(Bytes::copy_from_slice(packed))
    }

    /// Appends the keys to the page, preceded by their width.
    fn write_keys(&mut self, width: u32) {
        self.body.push(width as u8);
        hybrid::encode(&self.keys, width, &mut self.body);
    }
}

/// The pages of one column of a row group.
#[derive(Debug)]
pub(in crate::store) struct Chunk {
    kind: ColumnType,
    nullable: bool,
    mode: Mode,
    dictionary: Dictionary,
    pages: Vec<Page>,
    /// Compressed size of the pages.
    bytes: usize,
    bounds: Bounds,
    nulls: usize,
    /// Bounds of the last page that has any, while they ascend from page to page.
    last: Option<Bounds>,
}

/// Encoding of the next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain,
    Delta,
    Dictionary,
}

#[derive(Debug)]
enum Dictionary {
    None,
    Integers(Integers),
    Texts(Texts),
}

#[derive(Debug)]
struct Page {
    packed: Bytes,
    unpacked_bytes: usize,
    encoding: PageEncoding,
    rows: usize,
    /// Values, and entries that represent NULL and an empty list.
    levels: usize,
    nulls: usize,
    /// Minimum and maximum, as stored in the column index.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
}

/// The contents of a page.
struct Body {
    encoding: PageEncoding,
    rows: usize,
    levels: usize,
    nulls: usize,
    bounds: Bounds,
}

impl Chunk {
    pub(in crate::store) fn new(kind: ColumnType, nullable: bool, encoding: Encoding) -> Chunk {
        let is_text = matches!(
            kind,
            ColumnType::Text | ColumnType::Binary | ColumnType::TextList
        );
        let mode = match encoding {
            _ if kind == ColumnType::Bool => Mode::Plain,
            Encoding::Plain => Mode::Plain,
            Encoding::Delta if !is_text && kind != ColumnType::Float64 => Mode::Delta,
            Encoding::Dictionary | Encoding::Delta => Mode::Dictionary,
        };
        let dictionary = match mode {
            Mode::Plain | Mode::Delta => Dictionary::None,
            Mode::Dictionary if is_text => Dictionary::Texts(Texts::default()),
            Mode::Dictionary => Dictionary::Integers(Integers::new()),
        };
        Chunk {
            kind,
            nullable,
            mode,
            dictionary,
            pages: Vec::new(),
            bytes: 0,
            bounds: Bounds::None,
            nulls: 0,
            last: Some(Bounds::None),
        }
    }

    /// Memory of the pages and the dictionary.
    pub(in crate::store) fn memory(&self) -> usize {
        let dictionary = match &self.dictionary {
            Dictionary::None => 0,
            Dictionary::Integers(integers) => integers.memory(),
            Dictionary::Texts(texts) => texts.memory(),
        };
        self.bytes + self.pages.len() * size_of::<Page>() + dictionary
    }

    /// Minimum and maximum of all pages.
    pub(in crate::store) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Builds a page from the values, or several pages from very long strings.
    pub(in crate::store) fn append(
        &mut self,
        values: &Values,
        texts: &Entries,
        shop: &mut Workshop,
    ) -> Result<()> {
        let presence = &values.presence;
        shop.body.clear();
        let lengths = match &values.data {
            Data::WideList { lengths, .. } | Data::TextList { lengths, .. } => Some(&lengths[..]),
            _ => None,
        };
        let levels = self.write_levels(presence, lengths, shop);
        let (encoding, bounds, count) = match &values.data {
            Data::Narrow(data) => {
                let bounds = Bounds::narrow(data, self.is_signed());
                (self.write_narrow(data, &bounds, shop), bounds, data.len())
            }
            Data::Wide(data) | Data::WideList { items: data, .. } => {
                let bounds = Bounds::wide(data, self.is_signed());
                (self.write_wide(data, &bounds, shop), bounds, data.len())
            }
            Data::Float(data) => {
                let bounds = Bounds::float(data);
                (self.write_float(data, shop), bounds, data.len())
            }
            Data::Text(data) | Data::TextList { items: data, .. } => {
                let Some((encoding, bounds)) = self.write_keys(data, texts, shop) else {
                    return self.append_plain(presence, lengths, &data.keys, texts, shop);
                };
                (encoding, bounds, data.keys.len())
            }
        };
        let body = Body {
            encoding,
            rows: presence.rows(),
            levels,
            nulls: levels - count,
            bounds,
        };
        self.end_page(body, shop)
    }

    fn write_levels(
        &self,
        presence: &Presence,
        lengths: Option<&[u32]>,
        shop: &mut Workshop,
    ) -> usize {
        if let Some(lengths) = lengths {
            return levels::encode_lists(presence, lengths, self.nullable, &mut shop.body);
        }
        if self.nullable {
            levels::encode_presence(presence, &mut shop.body);
        }
        presence.rows()
    }

    fn write_narrow(&mut self, data: &[u32], bounds: &Bounds, shop: &mut Workshop) -> PageEncoding {
        let encoding = match self.is_signed() {
            true => {
                let values = data.iter().map(|&value| i64::from(value as i32) as u64);
                self.write_integers(values, 4, bounds, shop)
            }
            false => {
                let values = data.iter().map(|&value| u64::from(value));
                self.write_integers(values, 4, bounds, shop)
            }
        };
        match encoding {
            PageEncoding::DELTA_BINARY_PACKED => delta::encode_narrow(data, &mut shop.body),
            PageEncoding::PLAIN if self.kind == ColumnType::Bool => {
                plain::encode_truth(data, &mut shop.body);
            }
            PageEncoding::PLAIN => plain::encode_narrow(data, &mut shop.body),
            _ => {}
        }
        encoding
    }

    fn write_wide(&mut self, data: &[u64], bounds: &Bounds, shop: &mut Workshop) -> PageEncoding {
        let encoding = self.write_integers(data.iter().copied(), 8, bounds, shop);
        match encoding {
            PageEncoding::DELTA_BINARY_PACKED => delta::encode_wide(data, &mut shop.body),
            PageEncoding::PLAIN => plain::encode_wide(data, &mut shop.body),
            _ => {}
        }
        encoding
    }

    fn write_float(&mut self, data: &[f64], shop: &mut Workshop) -> PageEncoding {
        let bits = data.iter().map(|value| value.to_bits());
        let encoding = self.write_integers(bits, 8, &Bounds::None, shop);
        if encoding == PageEncoding::PLAIN {
            for value in data {
                shop.body.extend_from_slice(&value.to_le_bytes());
            }
        }
        encoding
    }

    /// Writes the keys of the values if a dictionary pays. Otherwise returns the encoding for the values.
    fn write_integers(
        &mut self,
        values: impl ExactSizeIterator<Item = u64>,
        size: usize,
        bounds: &Bounds,
        shop: &mut Workshop,
    ) -> PageEncoding {
        let integers = match (self.mode, &mut self.dictionary) {
            (Mode::Delta, _) => return PageEncoding::DELTA_BINARY_PACKED,
            (Mode::Dictionary, Dictionary::Integers(integers)) => integers,
            _ => return PageEncoding::PLAIN,
        };
        let count = values.len();
        let before = integers.values.len();
        let (low, span) = bounds.span();
        let few = integers.keys_of(values, low, span, &mut shop.scratch, &mut shop.keys);
        let width = hybrid::width(integers.values.len());
        let fresh = integers.values.len() - before;
        if few && fresh * size + count * width as usize / 8 < count * size {
            shop.write_keys(width);
            return PageEncoding::RLE_DICTIONARY;
        }
        // Without values there is nothing to decide yet.
        if count > 0 {
            self.mode = Mode::Plain;
            integers.end(before);
        }
        PageEncoding::PLAIN
    }

    /// Writes the keys of the strings if a dictionary saves space; `None` if the strings must be written themselves.
    fn write_keys(
        &mut self,
        data: &TextData,
        texts: &Entries,
        shop: &mut Workshop,
    ) -> Option<(PageEncoding, Bounds)> {
        if data.keys.is_empty() {
            return Some((PageEncoding::PLAIN, Bounds::None));
        }
        let (Mode::Dictionary, Dictionary::Texts(dictionary)) = (self.mode, &mut self.dictionary)
        else {
            return None;
        };
        let before = dictionary.entries.len();
        if data.texts.begins && before > 0 {
            dictionary.restart();
        }
        if dictionary.keys_of(&data.keys, texts, &mut shop.keys, &mut shop.scratch) {
            let entries = &dictionary.entries;
            let width = hybrid::width(entries.len());
            if pays(&data.keys, texts, entries.len() - before, width) {
                let used = shop.scratch.iter().map(|&key| entries.get(key));
                let bounds = Bounds::text(used);
                shop.write_keys(width);
                return Some((PageEncoding::RLE_DICTIONARY, bounds));
            }
        }
        self.mode = Mode::Plain;
        dictionary.end(before);
        None
    }

    /// Writes plain strings, in pages of limited size.
    fn append_plain(
        &mut self,
        presence: &Presence,
        lengths: Option<&[u32]>,
        keys: &[u32],
        texts: &Entries,
        shop: &mut Workshop,
    ) -> Result<()> {
        let size = |keys: &[u32]| -> usize { keys.iter().map(|&key| texts.get(key).len()).sum() };
        // Rows, values and items before the page; values are lists in list columns.
        let (mut row, mut value, mut item) = (0, 0, 0);
        while row < presence.rows() {
            let (first_row, first_value, first_item) = (row, value, item);
            let mut bytes = 0;
            while row < presence.rows() && bytes < PAGE_BYTES {
                if presence.has(row) {
                    let items = match lengths {
                        Some(lengths) => lengths.get(value).map_or(0, |&length| length as usize),
                        None => 1,
                    };
                    bytes += size(keys.get(item..item + items).unwrap_or_default());
                    value += 1;
                    item += items;
                }
                row += 1;
            }
            shop.body.clear();
            let part = presence.slice(first_row..row);
            let lengths = lengths.and_then(|lengths| lengths.get(first_value..value));
            let levels = self.write_levels(&part, lengths, shop);
            let keys = keys.get(first_item..item).unwrap_or_default();
            for &key in keys {
                plain::encode_text(texts.get(key), &mut shop.body);
            }
            let body = Body {
                encoding: PageEncoding::PLAIN,
                rows: row - first_row,
                levels,
                nulls: levels - keys.len(),
                bounds: Bounds::text(keys.iter().map(|&key| texts.get(key))),
            };
            self.end_page(body, shop)?;
        }
        Ok(())
    }

    fn end_page(&mut self, body: Body, shop: &mut Workshop) -> Result<()> {
        let page = Page {
            packed: shop.compress()?,
            unpacked_bytes: shop.body.len(),
            encoding: body.encoding,
            rows: body.rows,
            levels: body.levels,
            nulls: body.nulls,
            bounds: body.bounds.bytes(self.kind),
        };
        self.bytes += page.packed.len();
        self.nulls += body.nulls;
        self.bounds.widen(&body.bounds);
        if body.bounds != Bounds::None {
            let ascends = |last: &Bounds| *last == Bounds::None || last.precede(&body.bounds);
            self.last = self.last.take().filter(ascends).and(Some(body.bounds));
        }
        self.pages.push(page);
        Ok(())
    }

    fn is_signed(&self) -> bool {
        matches!(
            self.kind,
            ColumnType::Int8
                | ColumnType::Int16
                | ColumnType::Int32
                | ColumnType::Int64
                | ColumnType::Int64List
                | ColumnType::Bits
                | ColumnType::BitsList
        )
    }

    /// Ends the chunk: returns its bytes, and its metadata for the footer with offsets relative to their start.
    pub(in crate::store) fn close(
        mut self,
        column: &ColumnDescPtr,
        shop: &mut Workshop,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        let mut sink = TrackedWrite::new(Vec::with_capacity(self.bytes + 1024));
        let mut writer = SerializedPageWriter::new(&mut sink);
        let mut unpacked_bytes = 0;
        let mut counts = Vec::new();
        let mut data_offset = 0;
        let dictionary = self.dictionary_page(shop)?;
        if let Some(page) = dictionary {
            let written = writer.write_page(page)?;
            unpacked_bytes += written.uncompressed_size;
            data_offset = written.bytes_written;
            count(&mut counts, PageType::DICTIONARY_PAGE, PageEncoding::PLAIN);
        }
        let mut columns = ColumnIndexBuilder::new(column.physical_type());
        let mut offsets = OffsetIndexBuilder::new();
        let (mut rows, mut levels) = (0, 0);
        for page in std::mem::take(&mut self.pages) {
            rows += page.rows as u64;
            levels += page.levels;
            offsets.append_row_count(page.rows as i64);
            count(&mut counts, PageType::DATA_PAGE, page.encoding);
            let nulls = page.nulls as i64;
            match page.bounds.clone() {
                Some((low, high)) => columns.append(false, low, high, nulls),
                None if page.nulls == page.levels => {
                    columns.append(true, Vec::new(), Vec::new(), nulls);
                }
                // Only values that cannot be compared.
                None => columns.to_invalid(),
            }
            let written = writer.write_page(page.into_parquet())?;
            unpacked_bytes += written.uncompressed_size;
            offsets.append_offset_and_size(written.offset as i64, written.bytes_written as i32);
        }
        if self.last.is_some_and(|last| last != Bounds::None) {
            columns.set_boundary_order(BoundaryOrder::ASCENDING);
        }
        writer.close()?;
        let bytes = Bytes::from(sink.into_inner()?);
        let mut encodings: Vec<PageEncoding> = counts.iter().map(|count| count.encoding).collect();
        if column.max_def_level() > 0 {
            encodings.push(PageEncoding::RLE);
        }
        let metadata = ColumnChunkMetaData::builder(column.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_encodings(encodings)
            .set_page_encoding_stats(counts)
            .set_num_values(levels as i64)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(unpacked_bytes as i64)
            .set_data_page_offset(data_offset as i64)
            .set_dictionary_page_offset((data_offset > 0).then_some(0))
            .set_statistics(self.bounds.statistics(self.kind, self.nulls as u64))
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows,
            metadata,
            bloom_filter: None,
            column_index: Some(if columns.valid() {
                columns.build()?
            } else {
                ColumnIndexMetaData::NONE
            }),
            offset_index: Some(offsets.build()),
        };
        Ok((bytes, close))
    }

    fn dictionary_page(&self, shop: &mut Workshop) -> Result<Option<CompressedPage>> {
        shop.body.clear();
        let count = match &self.dictionary {
            Dictionary::None => 0,
            Dictionary::Integers(integers) => {
                let narrow = shape::physical(self.kind) == PhysicalType::INT32;
                for value in &integers.values {
                    let bytes = value.to_le_bytes();
                    let used = if narrow { 4 } else { 8 };
                    shop.body
                        .extend_from_slice(bytes.get(..used).unwrap_or_default());
                }
                integers.values.len()
            }
            Dictionary::Texts(texts) => {
                for key in 0..texts.entries.len() as u32 {
                    plain::encode_text(texts.entries.get(key), &mut shop.body);
                }
                texts.entries.len()
            }
        };
        if count == 0 {
            return Ok(None);
        }
        let page = ParquetPage::DictionaryPage {
            buf: shop.compress()?,
            num_values: count as u32,
            encoding: PageEncoding::PLAIN,
            is_sorted: false,
        };
        Ok(Some(CompressedPage::new(page, shop.body.len())))
    }
}

impl Page {
    fn into_parquet(self) -> CompressedPage {
        let page = ParquetPage::DataPage {
            buf: self.packed,
            num_values: self.levels as u32,
            encoding: self.encoding,
            def_level_encoding: PageEncoding::RLE,
            rep_level_encoding: PageEncoding::RLE,
            // Readers use the column index; in the page header, statistics would only take space.
            statistics: None,
        };
        CompressedPage::new(page, self.unpacked_bytes)
    }
}

/// Whether a dictionary is smaller than the strings themselves.
fn pays(keys: &[u32], texts: &Entries, fresh: usize, width: u32) -> bool {
    if fresh < keys.len() / 4 {
        return true;
    }
    let whole: usize = keys.iter().map(|&key| texts.get(key).len() + 4).sum();
    // The new ones are among them, assumed to have the mean length.
    let dictionary = whole / keys.len() * fresh;
    dictionary + keys.len() * width as usize / 8 < whole
}

fn count(counts: &mut Vec<PageEncodingStats>, page_type: PageType, encoding: PageEncoding) {
    let known = counts
        .iter_mut()
        .find(|count| count.page_type == page_type && count.encoding == encoding);
    match known {
        Some(count) => count.count += 1,
        None => counts.push(PageEncodingStats {
            page_type,
            encoding,
            count: 1,
        }),
    }
}
