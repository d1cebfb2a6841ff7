//! The report page: one HTML file with its script, its style and its data. It opens from disk and makes no request.
//!
//! ```text
//! <meta Content-Security-Policy: default-src 'none'; script-src 'sha256-…'; style-src 'sha256-…'>
//! <style>dist/report.css</style>  <script id="data">base64(zlib(JSON, line feed, columns))</script>  <script>dist/report.js</script>
//! ```
//! Numbers are columns after the JSON (`columns.rs`), which has their places.
//! Names from a trace are only in the data, so no name can become markup; the script inserts them as text.

use std::io::Write;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::Value;

use super::columns::Columns;
use super::drawing::escaped;

const SCRIPT: &str = include_str!("../../page/dist/report.js");
const STYLE: &str = include_str!("../../page/dist/report.css");
/// One line per file: its name, and its hash for the content security policy.
const HASHES: &str = include_str!("../../page/dist/hashes.txt");

/// A page and its embedded files.
pub(crate) struct Page {
    pub(crate) title: String,
    /// One for each time axis.
    pub(crate) data: Vec<PageData>,
}

/// What a page shows, packed.
pub(crate) struct PageData(Vec<u8>);

impl PageData {
    pub(crate) fn pack(data: &Value, columns: &Columns) -> Result<PageData> {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        // Compact JSON is one line.
        serde_json::to_writer(&mut packed, data)?;
        packed.write_all(b"\n")?;
        packed.write_all(columns.bytes())?;
        Ok(PageData(packed.finish()?))
    }

    /// Bytes of the file, including its script and style.
    pub(crate) fn size_of_page(&self) -> usize {
        self.0.len().div_ceil(3) * 4 + SCRIPT.len() + STYLE.len()
    }
}

impl Page {
    /// Writes the file.
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<()> {
        let data = self.data.iter().enumerate().map(|(number, data)| {
            let id = if number == 0 {
                "data".to_owned()
            } else {
                format!("data-{number}")
            };
            let data = BASE64_STANDARD.encode(&data.0);
            format!("<script type=\"application/octet-stream\" id=\"{id}\">{data}</script>\n")
        });
        let data: String = data.collect();
        let (script, style) = (hash("report.js")?, hash("report.css")?);
        write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"generator\" content=\"perfquet-query {}\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
             <noscript>This report needs JavaScript. It makes no request.</noscript>\n<main id=\"page\"></main>\n\
             {data}<script>{SCRIPT}</script>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION"),
            escaped(&self.title),
        )?;
        Ok(())
    }
}

fn hash(file: &str) -> Result<&'static str> {
    HASHES
        .lines()
        .find_map(|line| line.strip_prefix(file)?.strip_prefix(' '))
        .with_context(|| format!("query/page/dist/hashes.txt: no hash of {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_markup() {
        let name = "</script><script>alert(1)</script>";
        let page = Page {
            title: name.to_owned(),
            data: vec![
                PageData::pack(&Value::String(name.to_owned()), &Columns::default()).unwrap(),
            ],
        };
        let mut file = Vec::new();
        page.write(&mut file).unwrap();
        let file = String::from_utf8(file).unwrap();
        assert!(!file.contains("alert(1)</script>"));
        assert!(file.contains("<title>&lt;/script&gt;"));
        assert_eq!(file.matches("</script>").count(), 2);
        assert!(file.contains("default-src 'none'; script-src 'sha256-"));
    }
}
