//! `cargo xtask site`: the manual as a static site, by mdbook, from the files that the repository shows.
//!
//! ```text
//! docs/README.md, the index by task ─► SUMMARY.md, the order of the pages
//! docs/**, README.md, ARCHITECTURE.md, … ─► target/site/src, with the links of one tree ─► mdbook ─► target/site/html
//! ```
//! The index is the only list of the pages: a page that it lacks is an error, here and in the tidy tests. The links of the HTML are
//! checked once more, since mdbook does not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{place, root, say};

/// Pages of the top level, and their names in the site: a `README.md` would become its `index.html`, too.
const TOP: [(&str, &str); 5] = [
    ("README.md", "introduction.md"),
    ("ARCHITECTURE.md", "ARCHITECTURE.md"),
    ("CONTRIBUTING.md", "CONTRIBUTING.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("SECURITY.md", "SECURITY.md"),
];
/// Files of the top level that pages link to.
const FILES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Builds the site.
pub fn run() -> Result<()> {
    let site = place::target_directory().join("site");
    let _ = fs::remove_dir_all(&site);
    stage(&site)?;
    say::step("mdbook build");
    let status = Command::new("mdbook").arg("build").arg(&site).status();
    let status = status.context("cannot run mdbook\nhint: cargo install mdbook")?;
    ensure!(status.success(), "mdbook: {status}");
    let html = site.join("html");
    let wrong = broken_in_html(&html)?;
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!("{}", html.join("index.html").display());
    Ok(())
}

/// Writes the sources of the site into a directory.
pub fn stage(site: &Path) -> Result<()> {
    let source = site.join("src");
    fs::create_dir_all(&source)?;
    fs::copy(root().join("docs/book.toml"), site.join("book.toml"))?;
    let docs = root().join("docs");
    for file in files_below(&docs)? {
        let inside = file.strip_prefix(&docs)?;
        let target = source.join(inside);
        fs::create_dir_all(target.parent().context("a file has a directory")?)?;
        match file.extension().is_some_and(|ending| ending == "md") {
            true => fs::write(target, of_docs(&fs::read_to_string(&file)?))?,
            false => drop(fs::copy(&file, target)?),
        }
    }
    for (name, page) in TOP {
        let text = fs::read_to_string(root().join(name))?;
        fs::write(source.join(page), of_top(&text))?;
    }
    for name in FILES {
        fs::copy(root().join(name), source.join(name))?;
    }
    fs::write(source.join("SUMMARY.md"), summary()?)?;
    Ok(())
}

/// The pages in the order of the index, below its headings.
fn summary() -> Result<String> {
    let index = fs::read_to_string(root().join("docs/README.md"))?;
    let mut text =
        "# Summary\n\n[The manual by task](README.md)\n[perfquet](introduction.md)\n".to_owned();
    let mut listed = BTreeSet::new();
    for line in index.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            text.push_str(&format!("\n# {heading}\n\n"));
        }
        if !line.starts_with('|') {
            continue;
        }
        for (_, link) in links(line) {
            let path = root().join("docs").join(&link);
            let page =
                fs::read_to_string(&path).with_context(|| format!("docs/README.md: {link}"))?;
            let title = page.lines().find_map(|line| line.strip_prefix("# "));
            let title = title.with_context(|| format!("{link}: expected a heading"))?;
            let link = link.trim_start_matches("../").to_owned();
            if listed.insert(link.clone()) {
                text.push_str(&format!("- [{title}]({link})\n"));
            }
        }
    }
    text.push_str("- [Changelog](CHANGELOG.md)\n");
    let missing: Vec<String> = unlisted(&listed)?;
    ensure!(
        missing.is_empty(),
        "docs/README.md: no row for {}",
        missing.join(", ")
    );
    Ok(text)
}

/// Returns the pages below docs/ that are in no row of the index.
fn unlisted(listed: &BTreeSet<String>) -> Result<Vec<String>> {
    let docs = root().join("docs");
    let mut missing = Vec::new();
    for file in files_below(&docs)? {
        let inside = file.strip_prefix(&docs)?.display().to_string();
        if inside.ends_with(".md") && inside != "README.md" && !listed.contains(&inside) {
            missing.push(inside);
        }
    }
    Ok(missing)
}

/// A page of docs/ with links to pages of the top level beside it.
fn of_docs(text: &str) -> String {
    let mut text = text.to_owned();
    for (name, page) in TOP {
        text = text.replace(&format!("](../../{name}"), &format!("](../{page}"));
        text = text.replace(&format!("](../{name}"), &format!("]({page}"));
    }
    text
}

/// A page of the top level with links to pages of docs/ beside it.
fn of_top(text: &str) -> String {
    let text = text
        .replace("](docs/", "](")
        .replace("src=\"docs/", "src=\"");
    text.replace("](README.md", "](introduction.md")
}

/// Returns the links that lead nowhere in the pages of a directory: to a file, or to a heading of a page.
pub fn broken_in_pages(directory: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for page in files_below(directory)? {
        if page.extension().is_some_and(|ending| ending == "md") {
            wrong.extend(broken_in_page(&page, directory)?);
        }
    }
    Ok(wrong)
}

/// Returns the links of a page that lead nowhere; it is shown relative to `top`.
pub fn broken_in_page(page: &Path, top: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let shown = page.strip_prefix(top)?.display();
    let text = fs::read_to_string(page)?;
    for (line, link) in links(&text) {
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        if file.contains(':') {
            continue;
        }
        let target = match file {
            "" => page.to_owned(),
            file => page.with_file_name("").join(file),
        };
        if !target.exists() {
            wrong.push(format!("{shown}:{line}: {link}: no such file"));
        } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&target)?).contains(anchor) {
            wrong.push(format!("{shown}:{line}: {link}: no such heading"));
        }
    }
    Ok(wrong)
}

/// Returns the targets of the links and pictures of a page, with their lines; those in code are none.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // What is in backticks is code; a link's text may have some.
        for (start, _) in line.match_indices("](") {
            let is_code = line[..start].matches('`').count() % 2 == 1;
            let target = line[start + 2..].split_once(')');
            if let (false, Some((target, _))) = (is_code, target) {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// The lines of a page outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let ticks = line.trim_start();
        let ticks = &ticks[..ticks.len() - ticks.trim_start_matches('`').len()];
        match fence {
            Some(open) if ticks == open => fence = None,
            Some(_) => {}
            None if ticks.len() >= 3 => fence = Some(ticks),
            None => return true,
        }
        false
    })
}

/// Returns the anchors of a page's headings, as GitHub and mdbook form them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let letters = heading.trim().chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            letter if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
            _ => None,
        });
        found.insert(letters.collect());
    }
    found
}

/// Returns the links of built pages that lead to no file.
fn broken_in_html(html: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for page in files_below(html)? {
        if page.extension().is_none_or(|ending| ending != "html") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        for part in text.split(" href=\"").chain(text.split(" src=\"")).skip(1) {
            let link = part.split('"').next().unwrap_or_default();
            let file = link.split(['#', '?']).next().unwrap_or_default();
            let is_elsewhere = file.is_empty() || file.contains(':') || file.starts_with('<');
            if !is_elsewhere && !normal(&page.with_file_name("").join(file)).exists() {
                wrong.push(format!("{}: {link}", page.strip_prefix(html)?.display()));
            }
        }
    }
    Ok(wrong)
}

/// Removes `.` and `..` from a path, which need not exist.
fn normal(path: &Path) -> PathBuf {
    let mut all = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(all.pop()),
            Component::CurDir => {}
            part => all.push(part),
        }
    }
    all
}

fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files_below(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_none() {
        let text = "[a](b.md#c) and `[d](e)` and [`f`](g.md)\n```text\n[h](i)\n```\n![j](k.svg)";
        let found: Vec<String> = links(text).into_iter().map(|(_, link)| link).collect();
        assert_eq!(found, ["b.md#c", "g.md", "k.svg"]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let found = anchors(
            "# Kernel functions, `-g`\n```sh\n# no heading\n```\n## What's new_in 2?\n#hashtag",
        );
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["kernel-functions--g", "whats-new_in-2"]
        );
    }

    #[test]
    fn broken_links_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("a.md"),
            "# A\n[x](b.md#b) [y](c.md) [z](#a)\n[w](b.md#none)",
        )
        .unwrap();
        fs::write(
            folder.path().join("b.md"),
            "# B\n[u](https://example.org/none)",
        )
        .unwrap();
        assert_eq!(
            broken_in_pages(folder.path()).unwrap(),
            [
                "a.md:2: c.md: no such file",
                "a.md:3: b.md#none: no such heading"
            ]
        );
    }
}
