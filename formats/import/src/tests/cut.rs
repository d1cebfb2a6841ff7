//! Compressed files that are cut off.

use std::io::Write;

use perfquet_events::event::{Problem, Sink};

use super::*;

/// The messages of problems.
#[derive(Default)]
struct Messages(Vec<String>);

impl Sink for Messages {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::Problem(Problem { message, .. }) = event {
            self.0.push(message.to_owned());
        }
        Ok(())
    }
}

/// The first half of a file, compressed; the end of the stream is missing.
fn cut(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let half = &bytes[..bytes.len() / 2];
    // At the end of a line, where no reader can see that something is missing.
    let end = half.iter().rposition(|&byte| byte == b'\n');
    gz.write_all(&half[..end.map_or(half.len(), |end| end + 1)])
        .unwrap();
    gz.flush().unwrap();
    gz.get_ref().clone()
}

#[test]
fn what_a_cut_file_lacks_is_reported_in_every_format() {
    let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../readers/src");
    let folders = std::fs::read_dir(readers).unwrap();
    let files =
        folders.filter_map(|folder| std::fs::read_dir(folder.unwrap().path().join("golden")).ok());
    let mut formats = std::collections::BTreeSet::new();
    for file in files.flatten() {
        let path = file.unwrap().path();
        let name = path.display().to_string();
        let is_input = !name.ends_with(".snap") && !name.ends_with(".md") && path.is_file();
        let bytes = std::fs::read(&path).unwrap_or_default();
        if !is_input || bytes.len() < 256 || is_compressed(&bytes) {
            continue;
        }
        let mut input = Input::from_bytes(&name, &cut(&bytes)).unwrap();
        let Ok(format) = sniff(&mut input) else {
            continue;
        };
        let mut messages = Messages::default();
        if format.read(&mut input, &mut messages).is_err() {
            continue;
        }
        let cuts = messages
            .0
            .iter()
            .filter(|message| message.starts_with("expected more of the input"));
        assert_eq!(cuts.count(), 1, "{name}: {:?}", messages.0);
        formats.insert(format.name);
    }
    assert!(formats.len() > 15, "{formats:?}");
}

fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK")
        || bytes.starts_with(b"\x1f\x8b")
        || bytes.starts_with(b"\x28\xb5\x2f\xfd")
}
