//! Android's systrace: an HTML page with an embedded trace. Finds the lines of the trace.
//!
//! ```text
//! <script class="trace-data" type="application/text">      var linuxPerfData = "\
//! # tracer: nop                                            # tracer: nop\n\
//! …                                                        …\n\
//! </script>                                                \n";
//! ```
//! Blocks that do not begin with the kernel's text (JSON, the output of `ps`) are skipped and reported.

use perfquet_events::scan::{find_text, trim};

/// The reader's position in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// The input is not a page: all lines belong to the trace.
    None,
    /// Between blocks.
    Outside,
    /// A block has begun; its content is not known yet.
    Begun,
    /// In the text of a trace.
    Inside,
    /// In a block with other content.
    Foreign,
    /// In the old form, a JavaScript string.
    Quoted,
}

/// The role of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageLine<'a> {
    /// A line of a trace.
    Text(&'a [u8]),
    /// A line of the page itself.
    Markup,
    /// A line of the page: begins a block without a trace.
    ForeignBlock,
}

/// Whether the first bytes of an input are those of such a page.
pub(super) fn is_page(head: &[u8]) -> bool {
    let start = trim_lines(head);
    let is_html = start.get(..5).is_some_and(|tag| {
        tag.eq_ignore_ascii_case(b"<html") || tag.eq_ignore_ascii_case(b"<!doc")
    });
    // A page that loads the viewer from another file has no trace in it.
    let is_loader = find_text(head, b"trace_viewer_full.html").is_some();
    is_html
        && !is_loader
        && [
            &b"trace-data"[..],
            b"linuxPerfData",
            b"BEGIN TRACE",
            b"Android System Trace",
            b"trace_viewer",
            b"trace-viewer",
            b"tr.b.",
        ]
        .iter()
        .any(|mark| find_text(head, mark).is_some())
}

fn trim_lines(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

impl Page {
    /// Consumes the next line.
    #[inline]
    pub(super) fn line<'a>(&mut self, line: &'a [u8]) -> PageLine<'a> {
        match self {
            Page::None => PageLine::Text(line),
            _ => self.line_of_page(line),
        }
    }

    fn line_of_page<'a>(&mut self, line: &'a [u8]) -> PageLine<'a> {
        let is_end = find_text(line, b"</script>").is_some();
        match self {
            Page::None => return PageLine::Text(line),
            // In the middle of a line, both strings occur in the viewer's script, which parses such pages.
            Page::Outside => {
                let line = trim(line);
                let is_script = line.starts_with(b"<script");
                if is_script && find_text(line, b"class=\"trace-data\"").is_some() && !is_end {
                    *self = Page::Begun;
                } else if line.starts_with(b"var linuxPerfData = \"") {
                    *self = Page::Quoted;
                }
            }
            _ if is_end => *self = Page::Outside,
            Page::Begun => match trim(line) {
                b"" => {}
                [b'{' | b'[', ..] => {
                    *self = Page::Foreign;
                    return PageLine::ForeignBlock;
                }
                text if text.starts_with(b"USER ") || text.starts_with(b"PROCESS DUMP") => {
                    *self = Page::Foreign;
                    return PageLine::ForeignBlock;
                }
                _ => {
                    *self = Page::Inside;
                    return PageLine::Text(line);
                }
            },
            Page::Inside => return PageLine::Text(line),
            Page::Foreign => {}
            Page::Quoted => {
                if matches!(trim(line), b"\\n\";" | b"\";") {
                    *self = Page::Outside;
                    return PageLine::Markup;
                }
                let line = line.strip_suffix(b"\\").unwrap_or(line);
                return PageLine::Text(line.strip_suffix(b"\\n").unwrap_or(line));
            }
        }
        PageLine::Markup
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        let mut page = Page::Outside;
        let lines = [
            "<html>",
            "if(!r.advanceToLineMatching(/^  var linuxPerfData = \"\\\\$/))",
            "r=/<script class=\"trace-data\" type=\"application\\/text\">/;",
            "<script class=\"trace-data\" type=\"application/text\">",
            "",
            "# tracer: nop",
            " a",
            "</script>",
            "<script class=\"trace-data\" type=\"application/text\">",
            "{\"traceEvents\": []",
            "}",
            "</script>",
            "  var linuxPerfData = \"\\",
            " b\\n\\",
            "\\n\";",
            "</html>",
        ];
        let found: Vec<_> = lines
            .iter()
            .filter_map(|line| match page.line(line.as_bytes()) {
                PageLine::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                PageLine::ForeignBlock => Some("foreign".into()),
                PageLine::Markup => None,
            })
            .collect();
        assert_eq!(found, ["# tracer: nop", " a", "foreign", " b"]);
    }

    #[test]
    fn pages() {
        assert!(is_page(
            b"<!DOCTYPE HTML>\n<title>Android System Trace</title>"
        ));
        assert!(!is_page(b"<!DOCTYPE HTML>\n<title>x</title>"));
        assert!(!is_page(
            b"<!DOCTYPE html><link rel=\"import\" href=\"trace_viewer_full.html\">"
        ));
        assert!(!is_page(b"# tracer: nop trace-data"));
    }
}
