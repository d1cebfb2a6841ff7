//! For tests: builds trace.dat files in forms that no available recorder writes.

use perfquet_events::bytes::Endian;

/// The contents of the file.
#[derive(Clone)]
pub(super) struct TestFile {
    pub(super) endian: Endian,
    /// Size of the kernel's `long`.
    pub(super) long_size: usize,
    pub(super) page_size: usize,
    /// Formats: system and text.
    pub(super) formats: Vec<(&'static str, String)>,
    pub(super) kallsyms: &'static str,
    pub(super) printk: &'static str,
    pub(super) cmdlines: &'static str,
    /// Options: id and data.
    pub(super) options: Vec<(u16, Vec<u8>)>,
    /// Name, clock, and the pages of each CPU.
    pub(super) buffers: Vec<(&'static str, &'static str, Vec<Cpu>)>,
}

/// Number and pages.
pub(super) type Cpu = (u32, Vec<Vec<u8>>);

pub(super) const FUNCTION: u16 = 1;
pub(super) const KERNEL_STACK: u16 = 4;
pub(super) const PRINT: u16 = 5;
pub(super) const BPRINT: u16 = 6;
pub(super) const EXIT: u16 = 10;
pub(super) const ENTRY: u16 = 11;
pub(super) const USER_STACK: u16 = 12;
pub(super) const WAKEUP: u16 = 300;

impl TestFile {
    /// A file without events. One function, because it is a list of format files.
    pub(super) fn new(endian: Endian, long_size: usize) -> TestFile {
        let long = |name: &str, offset| (format!("unsigned long {name}"), offset, long_size, 0);
        let int = |name: &str, offset| (format!("int {name}"), offset, 4, 1);
        let u64_ = |name: &str, offset| (format!("unsigned long long {name}"), offset, 8, 0);
        let after = |count: usize| 8 + count * long_size;
        let rest = |text: &str, offset| (text.to_owned(), offset, 0, 0);
        let formats = vec![
            (
                "ftrace",
                format_text(
                    "function",
                    FUNCTION,
                    &[
                        long("ip", 8),
                        long("parent_ip", after(1)),
                        rest("unsigned long args[]", after(2)),
                    ],
                ),
            ),
            (
                "ftrace",
                format_text(
                    "kernel_stack",
                    KERNEL_STACK,
                    &[
                        int("size", 8),
                        (
                            "unsigned long caller[8]".to_owned(),
                            8 + long_size,
                            8 * long_size,
                            0,
                        ),
                    ],
                ),
            ),
            (
                "ftrace",
                format_text(
                    "user_stack",
                    USER_STACK,
                    &[
                        int("tgid", 8),
                        (
                            "unsigned long caller[8]".to_owned(),
                            8 + long_size,
                            8 * long_size,
                            0,
                        ),
                    ],
                ),
            ),
            (
                "ftrace",
                format_text(
                    "print",
                    PRINT,
                    &[long("ip", 8), rest("char buf[]", after(1))],
                ),
            ),
            (
                "ftrace",
                format_text(
                    "bprint",
                    BPRINT,
                    &[
                        long("ip", 8),
                        ("const char * fmt".to_owned(), after(1), long_size, 0),
                        rest("u32 buf[]", after(2)),
                    ],
                ),
            ),
            (
                "ftrace",
                format_text(
                    "funcgraph_entry",
                    ENTRY,
                    &[long("func", 8), int("depth", after(1))],
                ),
            ),
            (
                "ftrace",
                format_text(
                    "funcgraph_exit",
                    EXIT,
                    &[
                        long("func", 8),
                        long("retval", after(1)),
                        int("depth", after(2)),
                        int("overrun", after(2) + 4),
                        u64_("calltime", after(2) + 8),
                        u64_("rettime", after(2) + 16),
                    ],
                ),
            ),
            (
                "sched",
                format_text(
                    "sched_wakeup",
                    WAKEUP,
                    &[("char comm[16]".to_owned(), 8, 16, 0), int("pid", 24)],
                ),
            ),
        ];
        TestFile {
            endian,
            long_size,
            page_size: 4096,
            formats,
            kallsyms: "80001000 T vfs_read\n80002000 t ext4_sync\t[ext4]\n80003000 T schedule\n80003000 T alias\n",
            printk: "0x80008000 : \"%d of %s\\n\"\n",
            cmdlines: "7 dd\n",
            options: Vec::new(),
            buffers: Vec::new(),
        }
    }

    pub(super) fn u16(&self, value: u16) -> Vec<u8> {
        match self.endian {
            Endian::Little => value.to_le_bytes().into(),
            Endian::Big => value.to_be_bytes().into(),
        }
    }

    pub(super) fn u32(&self, value: u32) -> Vec<u8> {
        match self.endian {
            Endian::Little => value.to_le_bytes().into(),
            Endian::Big => value.to_be_bytes().into(),
        }
    }

    pub(super) fn u64(&self, value: u64) -> Vec<u8> {
        match self.endian {
            Endian::Little => value.to_le_bytes().into(),
            Endian::Big => value.to_be_bytes().into(),
        }
    }

    pub(super) fn long(&self, value: u64) -> Vec<u8> {
        match self.long_size {
            4 => self.u32(value as u32),
            _ => self.u64(value),
        }
    }

    /// A payload: the common fields, then `rest`. `flags` are those of the context.
    pub(super) fn payload(&self, id: u16, flags: u8, tid: i32, rest: &[&[u8]]) -> Vec<u8> {
        let mut bytes = self.u16(id);
        bytes.extend([flags, 0]);
        bytes.extend(self.u32(tid as u32));
        rest.iter().for_each(|part| bytes.extend(*part));
        bytes
    }

    /// The head of an event: kind, and time since the preceding event.
    pub(super) fn head(&self, kind: u32, delta: u32) -> Vec<u8> {
        self.u32(match self.endian {
            Endian::Little => kind | delta << 5,
            Endian::Big => kind << 27 | delta,
        })
    }

    /// An event with its head.
    pub(super) fn event(&self, delta: u32, payload: &[u8]) -> Vec<u8> {
        let padded = payload.len().next_multiple_of(4);
        let mut bytes = match padded / 4 {
            words @ 1..=28 => self.head(words as u32, delta),
            _ => [self.head(0, delta), self.u32(payload.len() as u32 + 4)].concat(),
        };
        bytes.extend(payload);
        bytes.resize(bytes.len() + padded - payload.len(), 0);
        bytes
    }

    /// A page with these events; `flags` are the upper bits of `commit`.
    pub(super) fn page(&self, time: u64, flags: u64, events: &[Vec<u8>]) -> Vec<u8> {
        let data = events.concat();
        let mut page = self.u64(time);
        page.extend(self.long(data.len() as u64 | flags));
        page.extend(data);
        if flags >> 30 & 1 == 1 {
            page.extend(self.long(9));
        }
        page.resize(self.page_size, 0);
        page
    }

    fn header_page(&self) -> String {
        let data = 8 + self.long_size;
        format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:{};\tsigned:1;\n\
             \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{data};\tsize:{};\tsigned:0;\n",
            self.long_size,
            self.page_size - data
        )
    }

    fn start(&self, version: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x17\x08\x44tracing".to_vec();
        bytes.extend(version);
        bytes.push(0);
        bytes.push(u8::from(self.endian == Endian::Big));
        bytes.push(self.long_size as u8);
        bytes.extend(self.u32(self.page_size as u32));
        bytes
    }

    fn headers(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, text) in [
            ("header_page", self.header_page()),
            ("header_event", String::new()),
        ] {
            bytes.extend(name.as_bytes());
            bytes.push(0);
            bytes.extend(self.u64(text.len() as u64));
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    fn format_files(&self, of_ftrace: bool) -> Vec<u8> {
        let chosen = |system: &str| (system == "ftrace") == of_ftrace;
        let formats: Vec<_> = self
            .formats
            .iter()
            .filter(|(system, _)| chosen(system))
            .collect();
        let mut bytes = self.u32(formats.len() as u32);
        for (system, text) in formats {
            if !of_ftrace {
                bytes.extend(system.as_bytes());
                bytes.push(0);
                bytes.extend(self.u32(1));
            }
            bytes.extend(self.u64(text.len() as u64));
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    fn sized(&self, text: &str, long: bool) -> Vec<u8> {
        let mut bytes = match long {
            true => self.u64(text.len() as u64),
            false => self.u32(text.len() as u32),
        };
        bytes.extend(text.as_bytes());
        bytes
    }

    pub(super) fn option(&self, id: u16, data: &[u8]) -> Vec<u8> {
        [self.u16(id), self.u32(data.len() as u32), data.to_vec()].concat()
    }

    /// The file as written by trace-cmd before 3.0. CPUs are numbered from 0.
    pub(super) fn version6(&self) -> Vec<u8> {
        let mut bytes = self.start(b"6");
        bytes.extend(self.headers());
        bytes.extend(self.format_files(true));
        bytes.extend(self.format_files(false));
        bytes.extend(self.sized(self.kallsyms, false));
        bytes.extend(self.sized(self.printk, false));
        bytes.extend(self.sized(self.cmdlines, true));
        let cpus = self.buffers[0].2.len();
        bytes.extend(self.u32(cpus as u32));
        bytes.extend(b"options  \0");
        for (id, data) in &self.options {
            bytes.extend(self.option(*id, data));
        }
        let mut places = Vec::new();
        for (name, _, _) in &self.buffers[1..] {
            places.push(bytes.len() + 6);
            bytes.extend(self.option(3, &[&[0; 8], name.as_bytes(), b"\0"].concat()));
        }
        bytes.extend([0, 0]);
        for (index, (_, _, cpus)) in self.buffers.iter().enumerate() {
            if index > 0 {
                let here = self.u64(bytes.len() as u64);
                bytes[places[index - 1]..][..8].copy_from_slice(&here);
            }
            bytes.extend(b"flyrecord\0");
            let table = bytes.len();
            bytes.resize(table + 16 * cpus.len(), 0);
            for (cpu, (_, pages)) in cpus.iter().enumerate() {
                bytes.resize(bytes.len().next_multiple_of(self.page_size), 0);
                let place = [
                    self.u64(bytes.len() as u64),
                    self.u64(pages.concat().len() as u64),
                ];
                bytes[table + 16 * cpu..][..16].copy_from_slice(&place.concat());
                bytes.extend(pages.concat());
            }
        }
        bytes
    }

    /// The file as written by trace-cmd since 3.0, compressed with "none", "zlib" or "zstd".
    pub(super) fn version7(&self, packer: &str) -> Vec<u8> {
        let mut bytes = self.start(b"7");
        bytes.extend(packer.as_bytes());
        bytes.extend(b"\x001.0\0");
        let first_options = bytes.len();
        bytes.extend([0; 8]);
        let mut options = Vec::new();
        for (id, body) in [
            (16, self.headers()),
            (17, self.format_files(true)),
            (18, self.format_files(false)),
            (19, self.sized(self.kallsyms, false)),
            (20, self.sized(self.printk, false)),
            (21, self.sized(self.cmdlines, true)),
        ] {
            options.extend(self.option(id, &self.u64(bytes.len() as u64)));
            bytes.extend(self.section(id, packer, &body));
        }
        for (id, data) in &self.options {
            options.extend(self.option(*id, data));
        }
        let here = self.u64(bytes.len() as u64);
        bytes[first_options..][..8].copy_from_slice(&here);
        for (name, clock, cpus) in &self.buffers {
            // The events follow these options; the next options name them.
            options.extend(self.option(0, &[0; 8]));
            bytes.extend(self.section(0, "none", &options));
            let next_options = bytes.len() - 8;
            let section = bytes.len();
            bytes.extend(self.section(3, "none", b""));
            if packer != "none" {
                bytes[section + 2..][..2].copy_from_slice(&self.u16(1));
            }
            let mut option = self.u64(section as u64);
            option.extend([name.as_bytes(), b"\0", clock.as_bytes(), b"\0"].concat());
            option.extend(self.u32(self.page_size as u32));
            option.extend(self.u32(cpus.len() as u32));
            for (cpu, pages) in cpus {
                bytes.resize(bytes.len().next_multiple_of(self.page_size), 0);
                let start = bytes.len();
                bytes.extend(self.packed_pages(packer, pages));
                option.extend(self.u32(*cpu));
                option.extend(self.u64(start as u64));
                option.extend(self.u64((bytes.len() - start) as u64));
            }
            let size = self.u64((bytes.len() - section - 16) as u64);
            bytes[section + 8..][..8].copy_from_slice(&size);
            options = self.option(3, &option);
            let here = self.u64(bytes.len() as u64);
            bytes[next_options..][..8].copy_from_slice(&here);
        }
        options.extend(self.option(0, &[0; 8]));
        bytes.extend(self.section(0, "none", &options));
        bytes
    }

    fn section(&self, id: u16, packer: &str, body: &[u8]) -> Vec<u8> {
        let body = match packer {
            "none" => body.to_vec(),
            _ => {
                let packed = pack(packer, body);
                [
                    self.u32(packed.len() as u32),
                    self.u32(body.len() as u32),
                    packed,
                ]
                .concat()
            }
        };
        let flags = u16::from(packer != "none");
        let head = [
            self.u16(id),
            self.u16(flags),
            self.u32(0),
            self.u64(body.len() as u64),
        ];
        [head.concat(), body].concat()
    }

    /// Packs two pages per chunk.
    pub(super) fn packed_pages(&self, packer: &str, pages: &[Vec<u8>]) -> Vec<u8> {
        if packer == "none" {
            return pages.concat();
        }
        let mut bytes = self.u32(pages.len().div_ceil(2) as u32);
        for chunk in pages.chunks(2) {
            let packed = pack(packer, &chunk.concat());
            bytes.extend(self.u32(packed.len() as u32));
            bytes.extend(self.u32(chunk.concat().len() as u32));
            bytes.extend(packed);
        }
        bytes
    }
}

fn pack(packer: &str, plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match packer {
        "zstd" => zstd::encode_all(plain, 1).unwrap(),
        _ => {
            let level = flate2::Compression::fast();
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), level);
            packer.write_all(plain).unwrap();
            packer.finish().unwrap()
        }
    }
}

/// A format file: declaration, offset, size, sign of each field.
fn format_text(name: &str, id: u16, fields: &[(String, usize, usize, u8)]) -> String {
    let common = [
        ("unsigned short common_type".to_owned(), 0, 2, 0),
        ("unsigned char common_flags".to_owned(), 2, 1, 0),
        ("unsigned char common_preempt_count".to_owned(), 3, 1, 0),
        ("int common_pid".to_owned(), 4, 4, 1),
    ];
    let line = |(declaration, offset, size, signed): &(String, usize, usize, u8)| {
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
    };
    let common: String = common.iter().map(line).collect();
    let own: String = fields.iter().map(line).collect();
    format!("name: {name}\nID: {id}\nformat:\n{common}\n{own}\nprint fmt: \"\"\n")
}
