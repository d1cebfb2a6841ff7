//! The directory of a file.

use std::path::Path;

/// Returns the directory of a file; a name alone is in the current one.
///
/// ```text
/// a/b.data    a
/// b.data      .      where Path::parent has ""
/// ```
pub fn directory_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_is_in_the_current_directory() {
        let folders =
            ["a/b.data", "b.data", "/b.data", "./b.data"].map(|file| directory_of(Path::new(file)));
        assert_eq!(folders, ["a", ".", "/", "."].map(Path::new));
    }
}
