//! A first word that is no subcommand, but a trace, a table, a view or SQL: what to type instead.

use std::path::Path;

use clap::error::ErrorKind;
use perfquet::VIEWS;

/// Adds a tip to an error of the command line. Misspelled subcommands have one by clap.
pub(crate) fn with_tip(error: clap::Error) -> clap::Error {
    perfquet_cli::with_tip(error, ErrorKind::InvalidSubcommand, tip)
}

fn tip(word: &str) -> Option<String> {
    if Path::new(word).exists() {
        return Some(format!(
            "a command comes before the trace: 'perfquet-query info {word}', 'perfquet-query shell {word}'"
        ));
    }
    let first = word.split_whitespace().next()?.to_lowercase();
    if ["select", "with"].contains(&first.as_str()) {
        return Some("SQL follows the trace: 'perfquet-query sql TRACE QUERY'".to_owned());
    }
    let name = first.replace('-', "_");
    let tables = perfquet_trace::tables::all();
    if let Some(table) = tables.iter().find(|table| table.name == name) {
        return Some(is("table", &table.name, &table.name));
    }
    // `offcpu` is what others call it.
    let is_named = |known: &str| known == name || known.replace('_', "") == name;
    let view = VIEWS.iter().find(|view| is_named(&view.name))?;
    Some(is("view", &view.name, &view.usage()))
}

fn is(what: &str, name: &str, usage: &str) -> String {
    format!("{name} is a {what}: 'perfquet-query sql TRACE \"SELECT * FROM {usage}\"'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_have_a_tip() {
        let view = "off_cpu is a view: 'perfquet-query sql TRACE \"SELECT * FROM off_cpu\"'";
        assert_eq!(tip("off-cpu").as_deref(), Some(view));
        assert_eq!(tip("offcpu").as_deref(), Some(view));
        assert!(tip("samples").unwrap().starts_with("samples is a table: "));
        let called = tip("cpu_utilization").unwrap();
        assert!(
            called.ends_with("FROM cpu_utilization(step)\"'"),
            "{called}"
        );
        assert!(tip("SELECT 1").unwrap().starts_with("SQL follows "));
        assert!(tip(".").unwrap().ends_with("'perfquet-query shell .'"));
        assert_eq!(tip("nothing"), None);
        assert_eq!(tip(""), None);
    }
}
