//! Pages of a ring buffer in the files of another tool, one file per CPU, with the texts that describe them.
//!
//! ```text
//! uftrace.data/kernel_header    header_page, format files        kallsyms    ffffffff81445d50 T vfs_write
//! uftrace.data/kernel-cpu0.dat  [page][page]…                    kernel-cpu1.dat  …
//! ```
//! They are pulled event by event, so that the other tool's records can be merged with them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use perfquet_events::Error;
use perfquet_events::event::{Place, Sink};

use super::budget::Budget;
use super::clock::Clock;
use super::declare::{Extras, Types};
use super::emit::{Emitter, Named};
use super::facts;
use super::formats::Formats;
use super::kallsyms::Kallsyms;
use super::options::Options;
use super::page::Layout;
use super::printk::Printk;
use super::read::PAGE_BYTES_MAX;
use super::reporter::Reporter;
use super::stream::{Ring, Stream};
use super::unpack::{Packing, Unpacker};
use crate::problems::Problems;
use crate::tracing_data::TracingData;

/// The pages of all CPUs.
pub(crate) struct Pages<'m> {
    ring: Ring,
    streams: Vec<Stream<'m>>,
    emitter: Emitter<'m>,
    problems: Problems,
}

impl<'m> Pages<'m> {
    /// The pages of these CPUs, whose timestamps are nanoseconds; `None` if the size of a page is unknown. Emits the symbols.
    pub(crate) fn new(
        texts: &TracingData<'m>,
        cpus: &[(u32, &'m [u8])],
        sink: &mut dyn Sink,
    ) -> Result<Option<Pages<'m>>, Error> {
        let layout = Layout::parse(texts.header_page, texts.endian, texts.long_size);
        let mut sizes = [layout.page_size, texts.page_size.into()].into_iter();
        let is_possible = |size: &u64| (layout.data_start() + 1..=PAGE_BYTES_MAX).contains(size);
        let Some(page_size) = sizes.find(is_possible) else {
            return Ok(None);
        };
        let (kallsyms, bad_symbols) = Kallsyms::parse(texts.kallsyms);
        let (printk, _) = Printk::parse(texts.printk_formats, texts.endian, layout.long_size);
        let (formats, unnumbered) = Formats::new(texts, layout.long_size);
        let mut reporter = Reporter::of_pages(sink, Problems::default());
        facts::symbols(&kallsyms, &mut reporter)?;
        for (count, what) in [
            (bad_symbols, "kallsyms: lines without a symbol"),
            (unnumbered, "format files without an ID"),
        ] {
            if count > 0 {
                reporter.problem(Place::Whole, what, || format!("{what}: {count}"))?;
            }
        }
        let problems = reporter.into_problems();
        let ring = Ring {
            layout,
            common: formats.common(),
            known: formats.ids(),
            unpacker: RefCell::new(Unpacker::new(Packing::named(b""))),
            budget: Budget::default(),
            unpacked_bytes: Cell::new(0),
        };
        let clock = Clock::new(b"", &Options::default());
        let streams = cpus.iter().map(|&(cpu, bytes)| {
            let size = page_size as usize;
            Stream::new(Rc::from([]), Some(cpu), clock.clone(), size, bytes, 0)
        });
        let types = Types::new(formats, texts.endian, Extras::default());
        let stack_fields =
            |id: Option<u32>| id.map(|id| types.stack_fields(id)).unwrap_or_default();
        Ok(Some(Pages {
            streams: streams.collect(),
            emitter: Emitter {
                kernel_stacks: stack_fields(ring.common.kernel_stack_id()),
                user_stacks: stack_fields(ring.common.user_stack_id()),
                types,
                kallsyms,
                printk,
                endian: texts.endian,
                long_size: layout.long_size,
                named: Named::new(HashSet::new()),
                overruns: HashMap::new(),
                scratch: None,
            },
            ring,
            problems,
        }))
    }

    /// Moves to the next event of a CPU, by its place among them. Returns its time, and the bytes read so far.
    pub(crate) fn advance(
        &mut self,
        place: usize,
        sink: &mut dyn Sink,
    ) -> Result<Option<(i64, u64)>, Error> {
        let Some(stream) = self.streams.get_mut(place) else {
            return Ok(None);
        };
        let mut reporter = Reporter::of_pages(sink, std::mem::take(&mut self.problems));
        let outcome = stream.advance(&self.ring, &mut reporter);
        self.problems = reporter.into_problems();
        outcome?;
        let event = stream.current.as_ref();
        Ok(event.map(|event| (event.key, stream.bytes_read())))
    }

    /// Emits the event of a CPU.
    pub(crate) fn emit(&mut self, place: usize, sink: &mut dyn Sink) -> Result<(), Error> {
        let Some(stream) = self.streams.get(place) else {
            return Ok(());
        };
        let mut reporter = Reporter::of_pages(sink, std::mem::take(&mut self.problems));
        let outcome = self.emitter.emit(stream, &mut reporter);
        self.problems = reporter.into_problems();
        outcome
    }

    /// Emits the losses after the last events, and the problems that were only counted.
    pub(crate) fn finish(mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut reporter = Reporter::of_pages(sink, std::mem::take(&mut self.problems));
        for stream in &self.streams {
            let lost = stream.lost_at_end();
            self.emitter.lost(None, stream.cpu, lost, &mut reporter)?;
        }
        reporter.finish()
    }
}
