//! The metadata's language (TSDL) → schema.
//!
//! ```text
//! trace { major = 1; byte_order = le; packet.header := struct { uint32_t magic; }; };
//! event { name = "shop:order"; id = 26; stream_id = 0; fields := struct { string _who; }; };
//! ```
//! Blocks come in any order; types are declared before their use. Declarations inside of braces are visible there only.

use std::sync::Arc;

use hashbrown::HashMap;
use perfquet_events::bytes::Endian;

use super::lexer::{Flaw, Lexer, Token};
use super::schema::{Clock, EventClass, Integer, Labels, Metadata, Stream, Type};

/// Types inside of types.
const DEPTH_MAX: u32 = 64;
/// Alignments in bits.
const ALIGN_MAX: i128 = 1 << 16;

/// Parses a whole metadata text.
pub(super) fn parse(text: &str) -> Result<Metadata, Flaw> {
    let mut lexer = Lexer::new(text);
    let current = lexer.next()?;
    let line = lexer.line;
    let ahead = lexer.next()?;
    let mut parser = Parser {
        lexer,
        current,
        ahead,
        line,
        depth: 0,
        scopes: vec![HashMap::new()],
        metadata: Metadata::default(),
    };
    parser.file()?;
    Ok(parser.metadata)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    current: Token<'a>,
    ahead: Token<'a>,
    /// Line of the current token.
    line: u64,
    depth: u32,
    /// Declared types by name: `struct NAME`, `unsigned long`.
    scopes: Vec<HashMap<String, Arc<Type>>>,
    metadata: Metadata,
}

/// What follows a type.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    /// The name of a field.
    Name,
    Nothing,
}

/// A value of a block.
enum Setting {
    Type(Arc<Type>),
    Number(i128),
    Text(String),
}

impl Setting {
    fn text(&self) -> String {
        match self {
            Setting::Type(_) => String::new(),
            Setting::Number(number) => number.to_string(),
            Setting::Text(text) => text.clone(),
        }
    }
}

type Settings = Vec<(String, Setting)>;

impl<'a> Parser<'a> {
    fn flaw<T>(&self, message: impl Into<String>) -> Result<T, Flaw> {
        Err(Flaw {
            line: self.line,
            message: message.into(),
        })
    }

    fn expected<T>(&self, what: &str) -> Result<T, Flaw> {
        self.flaw(format!("expected {what}, found {}", self.current.shown()))
    }

    fn next(&mut self) -> Result<Token<'a>, Flaw> {
        let line = self.lexer.line;
        let after = self.lexer.next()?;
        let current = std::mem::replace(&mut self.ahead, after);
        self.line = line;
        Ok(std::mem::replace(&mut self.current, current))
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.current, Token::Sign(known) if known == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.current, Token::Word(known) if known == word)
    }

    fn take(&mut self, sign: &str) -> Result<bool, Flaw> {
        let is_there = self.is(sign);
        if is_there {
            self.next()?;
        }
        Ok(is_there)
    }

    fn expect(&mut self, sign: &str) -> Result<(), Flaw> {
        match self.take(sign)? {
            true => Ok(()),
            false => self.expected(&format!("\"{sign}\"")),
        }
    }

    fn word(&mut self, what: &str) -> Result<&'a str, Flaw> {
        match self.current {
            Token::Word(word) => {
                self.next()?;
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    /// `a.b.c`
    fn path(&mut self) -> Result<String, Flaw> {
        let mut path = self.word("a name")?.to_owned();
        while self.take(".")? {
            path.push('.');
            path.push_str(self.word("a name")?);
        }
        Ok(path)
    }

    fn number(&mut self) -> Result<i128, Flaw> {
        let is_negative = self.take("-")?;
        match self.current {
            Token::Number(number) => {
                self.next()?;
                Ok(if is_negative { -number } else { number })
            }
            _ => self.expected("a number"),
        }
    }

    fn file(&mut self) -> Result<(), Flaw> {
        while self.current != Token::End {
            if self.take(";")? || self.declaration()? {
                continue;
            }
            let line = self.line;
            let Token::Word(kind) = self.current else {
                return self.expected("a block or a declaration");
            };
            if self.ahead != Token::Sign("{") {
                self.next()?;
                return self.expected(&format!("\"{{\" after {kind}"));
            }
            self.next()?;
            match kind {
                "trace" | "env" | "clock" | "stream" | "event" => {
                    let settings = self.block()?;
                    self.apply(kind, settings, line)?;
                }
                _ => {
                    self.skip_block()?;
                    let message = format!("the block {kind} is not supported");
                    self.metadata.skipped.push((line, message));
                }
            }
        }
        Ok(())
    }

    fn skip_block(&mut self) -> Result<(), Flaw> {
        let mut depth = 0_u64;
        loop {
            if self.is("{") {
                depth += 1;
            } else if self.is("}") {
                depth -= 1;
            } else if self.current == Token::End {
                return self.expected("\"}\"");
            }
            self.next()?;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads a declaration of a type, if one follows.
    fn declaration(&mut self) -> Result<bool, Flaw> {
        let Token::Word(word) = self.current else {
            return Ok(false);
        };
        match word {
            "typealias" => {
                self.next()?;
                let of = self.specifier(Ending::Nothing)?;
                self.expect(":=")?;
                let mut name = String::new();
                loop {
                    match self.current {
                        Token::Word(word) => push_word(&mut name, word),
                        Token::Sign("*") => push_word(&mut name, "*"),
                        _ => break,
                    }
                    self.next()?;
                }
                self.declare(name, of);
            }
            "typedef" => {
                self.next()?;
                let of = self.specifier(Ending::Name)?;
                let name = self.word("a name")?.to_owned();
                let of = self.dimensions(of)?;
                self.declare(name, of);
            }
            "struct" | "enum" | "variant" if self.ahead != Token::Sign("=") => {
                self.specifier(Ending::Nothing)?;
            }
            _ => return Ok(false),
        }
        self.expect(";")?;
        Ok(true)
    }

    fn declare(&mut self, name: String, of: Arc<Type>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, of);
        }
    }

    fn look_up(&self, name: &str) -> Result<Arc<Type>, Flaw> {
        let mut scopes = self.scopes.iter().rev();
        match scopes.find_map(|scope| scope.get(name)) {
            Some(of) => Ok(Arc::clone(of)),
            None => self.flaw(format!("unknown type {name}")),
        }
    }

    fn block(&mut self) -> Result<Settings, Flaw> {
        self.expect("{")?;
        self.scopes.push(HashMap::new());
        let mut settings = Settings::new();
        while !self.take("}")? {
            if self.take(";")? || self.declaration()? {
                continue;
            }
            let key = self.path()?;
            let value = self.setting()?;
            settings.push((key, value));
            self.expect(";")?;
        }
        self.scopes.pop();
        Ok(settings)
    }

    fn setting(&mut self) -> Result<Setting, Flaw> {
        if self.take(":=")? {
            return Ok(Setting::Type(self.specifier(Ending::Nothing)?));
        }
        self.expect("=")?;
        Ok(match &self.current {
            Token::Text(text) => {
                let mut text = text.clone().into_owned();
                self.next()?;
                // Adjacent strings are one.
                while let Token::Text(more) = &self.current {
                    text.push_str(more);
                    self.next()?;
                }
                Setting::Text(text)
            }
            Token::Word(_) => Setting::Text(self.path()?),
            _ => Setting::Number(self.number()?),
        })
    }

    fn apply(&mut self, kind: &str, settings: Settings, line: u64) -> Result<(), Flaw> {
        let flawed = |message: String| Flaw { line, message };
        let unsigned = |key: &str, value: &Setting| {
            match value {
                Setting::Number(number) => u64::try_from(*number).ok(),
                Setting::Text(text) => text.parse().ok(),
                Setting::Type(_) => None,
            }
            .ok_or_else(|| flawed(format!("{key}: expected a number")))
        };
        match kind {
            "trace" => {
                for (key, value) in settings {
                    match (key.as_str(), value) {
                        ("major", value) if unsigned("major", &value)? != 1 => {
                            let message =
                                format!("expected version 1 of the format, found {}", value.text());
                            return Err(flawed(message));
                        }
                        ("byte_order", value) => {
                            let text = value.text();
                            let endian = endian(&text).flatten();
                            self.metadata.endian = Some(endian.ok_or_else(|| {
                                flawed(format!("byte_order: expected le or be, found {text}"))
                            })?);
                        }
                        ("uuid", value) => self.metadata.uuid = uuid(&value.text()),
                        ("packet.header", Setting::Type(of)) => {
                            self.metadata.packet_header = Some(of);
                        }
                        _ => {}
                    }
                }
            }
            "env" => {
                let texts = settings.into_iter().map(|(key, value)| (key, value.text()));
                self.metadata.env.extend(texts);
            }
            "clock" => {
                let clock = clock(settings).map_err(flawed)?;
                self.metadata.clocks.push(clock);
            }
            "stream" => {
                let mut stream = Stream::default();
                for (key, value) in settings {
                    match (key.as_str(), value) {
                        ("id", value) => stream.id = unsigned("id", &value)?,
                        ("packet.context", Setting::Type(of)) => stream.packet_context = Some(of),
                        ("event.header", Setting::Type(of)) => stream.event_header = Some(of),
                        ("event.context", Setting::Type(of)) => stream.event_context = Some(of),
                        _ => {}
                    }
                }
                if self
                    .metadata
                    .streams
                    .iter()
                    .any(|known| known.id == stream.id)
                {
                    return Err(flawed(format!("a second stream has the ID {}", stream.id)));
                }
                self.metadata.streams.push(stream);
            }
            _ => {
                let mut event = EventClass::default();
                for (key, value) in settings {
                    match (key.as_str(), value) {
                        ("id", value) => event.id = unsigned("id", &value)?,
                        ("stream_id", value) => event.stream = unsigned("stream_id", &value)?,
                        ("name", value) => event.name = value.text(),
                        ("context", Setting::Type(of)) => event.context = Some(of),
                        ("fields", Setting::Type(of)) => event.fields = Some(of),
                        _ => {}
                    }
                }
                self.metadata.events.push(event);
            }
        }
        Ok(())
    }

    /// A type, as it precedes the name of a field.
    fn specifier(&mut self, ending: Ending) -> Result<Arc<Type>, Flaw> {
        if self.depth >= DEPTH_MAX {
            return self.flaw(format!("more than {DEPTH_MAX} types inside of each other"));
        }
        self.depth += 1;
        let Token::Word(word) = self.current else {
            return self.expected("a type");
        };
        let of = match word {
            "integer" => Type::Integer(self.integer()?).into(),
            "floating_point" => self.float()?.into(),
            "string" => {
                self.next()?;
                if self.is("{") {
                    self.block()?;
                }
                Type::Text.into()
            }
            "enum" => self.enumeration()?,
            "struct" => self.structure()?,
            "variant" => self.variant()?,
            _ => {
                let mut name = String::new();
                while let Token::Word(word) = self.current {
                    let is_more = matches!(self.ahead, Token::Word(_)) || ending == Ending::Nothing;
                    if !is_more && !name.is_empty() {
                        break;
                    }
                    push_word(&mut name, word);
                    self.next()?;
                }
                while self.is("*") {
                    push_word(&mut name, "*");
                    self.next()?;
                }
                self.look_up(&name)?
            }
        };
        self.depth -= 1;
        Ok(of)
    }

    fn integer(&mut self) -> Result<Integer, Flaw> {
        self.next()?;
        let settings = self.block()?;
        let mut integer = Integer {
            size: 0,
            align: 0,
            is_signed: false,
            endian: None,
            is_text: false,
            is_hexadecimal: false,
            clock: None,
        };
        for (key, value) in settings {
            let text = value.text();
            match key.as_str() {
                "size" => match text.parse() {
                    Ok(size @ 1..=64) => integer.size = size,
                    _ => return self.flaw(format!("size: expected 1 to 64 bits, found {text}")),
                },
                "align" => integer.align = self.align(&text)?,
                "signed" => {
                    integer.is_signed = match text.to_ascii_lowercase().as_str() {
                        "false" | "0" => false,
                        "true" | "1" => true,
                        _ => {
                            return self
                                .flaw(format!("signed: expected true or false, found {text}"));
                        }
                    }
                }
                "byte_order" => integer.endian = self.byte_order(&text)?,
                "encoding" => integer.is_text = text != "none",
                "base" => integer.is_hexadecimal = is_hexadecimal(&text),
                "map" => {
                    let clock = text.strip_prefix("clock.");
                    let clock = clock.and_then(|rest| rest.strip_suffix(".value"));
                    integer.clock = clock.map(str::to_owned);
                }
                _ => {}
            }
        }
        if integer.size == 0 {
            return self.flaw("an integer without a size");
        }
        if integer.align == 0 {
            integer.align = if integer.size.is_multiple_of(8) { 8 } else { 1 };
        }
        Ok(integer)
    }

    fn byte_order(&self, text: &str) -> Result<Option<Endian>, Flaw> {
        match endian(text) {
            Some(endian) => Ok(endian),
            None => self.flaw(format!(
                "byte_order: expected le, be, network or native, found {text}"
            )),
        }
    }

    fn align(&self, text: &str) -> Result<u64, Flaw> {
        let align: i128 = text.parse().unwrap_or(0);
        match u64::try_from(align) {
            Ok(bits) if align <= ALIGN_MAX && bits.is_power_of_two() => Ok(bits),
            _ => self.flaw(format!("align: expected a power of two, found {text}")),
        }
    }

    fn float(&mut self) -> Result<Type, Flaw> {
        self.next()?;
        let (mut exponent, mut mantissa, mut align, mut endian) = (0, 0, 1, None);
        for (key, value) in self.block()? {
            let text = value.text();
            match key.as_str() {
                "exp_dig" => exponent = text.parse().unwrap_or(0),
                "mant_dig" => mantissa = text.parse().unwrap_or(0),
                "align" => align = self.align(&text)?,
                "byte_order" => endian = self.byte_order(&text)?,
                _ => {}
            }
        }
        let size = match (exponent, mantissa) {
            (8, 24) => 32,
            (11, 53) => 64,
            _ => {
                return self.flaw(format!(
                    "expected a float of 32 or 64 bits, found exp_dig {exponent}, mant_dig {mantissa}"
                ));
            }
        };
        Ok(Type::Float {
            size,
            align,
            endian,
        })
    }

    /// The name after `struct`, `enum`, `variant`, if it has one.
    fn tag(&mut self) -> Result<Option<String>, Flaw> {
        let kind = self.word("a type")?;
        match self.current {
            Token::Word(name) => {
                self.next()?;
                Ok(Some(format!("{kind} {name}")))
            }
            _ => Ok(None),
        }
    }

    fn enumeration(&mut self) -> Result<Arc<Type>, Flaw> {
        let name = self.tag()?;
        let base = match self.take(":")? {
            true => Some(self.specifier(Ending::Nothing)?),
            false => None,
        };
        if !self.is("{") {
            return self.look_up(&name.unwrap_or_default());
        }
        let base = match base {
            Some(base) => base,
            None => self.look_up("int")?,
        };
        let Type::Integer(integer) = &*base else {
            return self.flaw("expected an integer type of an enumeration");
        };
        self.expect("{")?;
        let mut labels = Labels::default();
        let mut next = 0_i128;
        while !self.take("}")? {
            let label = match self.current.clone() {
                Token::Word(word) => word.to_owned(),
                Token::Text(text) => text.into_owned(),
                _ => return self.expected("a label"),
            };
            self.next()?;
            let (mut low, mut high) = (next, next);
            if self.take("=")? {
                low = self.number()?;
                high = match self.take("...")? {
                    true => self.number()?,
                    false => low,
                };
            }
            if low > high {
                return self.flaw(format!("{label}: the range {low} ... {high} is empty"));
            }
            labels.0.push((label, low, high));
            next = high + 1;
            if !self.take(",")? && !self.is("}") {
                return self.expected("\",\" or \"}\"");
            }
        }
        let of = Arc::new(Type::Enum {
            integer: integer.clone(),
            labels: Arc::new(labels),
        });
        if let Some(name) = name {
            self.declare(name, Arc::clone(&of));
        }
        Ok(of)
    }

    fn structure(&mut self) -> Result<Arc<Type>, Flaw> {
        let name = self.tag()?;
        if !self.is("{") {
            return self.look_up(&name.unwrap_or_default());
        }
        let fields = self.members()?;
        let mut align = 1;
        if self.is_word("align") {
            self.next()?;
            self.expect("(")?;
            let number = self.number()?;
            align = self.align(&number.to_string())?;
            self.expect(")")?;
        }
        let of = Arc::new(Type::Struct { fields, align });
        if let Some(name) = name {
            self.declare(name, Arc::clone(&of));
        }
        Ok(of)
    }

    fn variant(&mut self) -> Result<Arc<Type>, Flaw> {
        let name = self.tag()?;
        let mut selector = None;
        if self.take("<")? {
            selector = Some(self.path()?);
            self.expect(">")?;
        }
        let options = match self.is("{") {
            true => self.members()?,
            false => match &*self.look_up(&name.clone().unwrap_or_default())? {
                Type::Variant { options, .. } => options.clone(),
                _ => return self.flaw("expected a variant"),
            },
        };
        let of = Arc::new(Type::Variant {
            selector,
            options,
            choices: None,
        });
        if let Some(name) = name {
            self.declare(name, Arc::clone(&of));
        }
        Ok(of)
    }

    /// `{ type name; type name[length]; }`
    fn members(&mut self) -> Result<Vec<(String, Arc<Type>)>, Flaw> {
        self.expect("{")?;
        self.scopes.push(HashMap::new());
        let mut fields = Vec::new();
        while !self.take("}")? {
            if self.is_word("typealias") || self.is_word("typedef") {
                self.declaration()?;
                continue;
            }
            let of = self.specifier(Ending::Name)?;
            let name = self.word("the name of a field")?.to_owned();
            let of = self.dimensions(of)?;
            fields.push((name, of));
            self.expect(";")?;
        }
        self.scopes.pop();
        Ok(fields)
    }

    /// `[4][length]`
    fn dimensions(&mut self, of: Arc<Type>) -> Result<Arc<Type>, Flaw> {
        let mut lengths = Vec::new();
        while self.take("[")? {
            if lengths.len() >= DEPTH_MAX as usize {
                return self.flaw("too many dimensions");
            }
            lengths.push(match self.current {
                Token::Number(_) => Ok(self.number()?),
                _ => Err(self.path()?),
            });
            self.expect("]")?;
        }
        let mut of = of;
        for length in lengths.into_iter().rev() {
            let element = of;
            of = Arc::new(match length {
                Ok(number) => Type::Array {
                    element,
                    length: u64::try_from(number).unwrap_or(u64::MAX),
                },
                Err(length) => Type::Sequence { element, length },
            });
        }
        Ok(of)
    }
}

fn push_word(name: &mut String, word: &str) {
    if !name.is_empty() {
        name.push(' ');
    }
    name.push_str(word);
}

/// `Some(None)`: that of the trace.
fn endian(text: &str) -> Option<Option<Endian>> {
    match text {
        "le" => Some(Some(Endian::Little)),
        "be" | "network" => Some(Some(Endian::Big)),
        "native" => Some(None),
        _ => None,
    }
}

fn is_hexadecimal(base: &str) -> bool {
    matches!(base, "16" | "hex" | "hexadecimal" | "x" | "X" | "p")
}

fn clock(settings: Settings) -> Result<Clock, String> {
    let mut clock = Clock::default();
    for (key, value) in settings {
        let text = value.text();
        let number = || {
            match &value {
                Setting::Number(number) => i64::try_from(*number).ok(),
                _ => None,
            }
            .ok_or_else(|| format!("{key}: expected a number below 2^63, found {text}"))
        };
        match key.as_str() {
            "name" => clock.name = text,
            "uuid" => clock.uuid = Some(text),
            "freq" => match number()? {
                frequency @ 1.. => clock.frequency = frequency.cast_unsigned(),
                _ => return Err(format!("freq: expected a positive number, found {text}")),
            },
            "offset_s" => clock.offset_seconds = number()?,
            "offset" => clock.offset_cycles = number()?,
            "absolute" => {
                clock.is_absolute = matches!(text.to_ascii_lowercase().as_str(), "true" | "1")
            }
            _ => {}
        }
    }
    Ok(clock)
}

/// `2a6422d0-6cee-11e0-8c08-cb07d7b3a564`
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let mut uuid = [0; 16];
    for (place, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    (digits.len() == 32).then_some(uuid)
}
