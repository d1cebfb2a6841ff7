//! Pages with shell sessions, as run by `tests/cli` and `tests/vm`: prose, directives, blocks of commands.
//!
//! ````text
//! <!-- needs: perf events -->
//! ```console
//! $ perfquet-query top missing.pqt
//! ? 1
//! perfquet-query: missing.pqt: [..]
//! ```
//! ````
//! The commands are run elsewhere; this module parses a page, compares it, and writes it again.

pub mod pattern;
pub mod shell;

/// Lines of a page, in order.
#[derive(Debug)]
pub enum Part<'a> {
    /// Prose or a directive.
    Line(&'a str),
    /// A fenced block.
    Block(Block<'a>),
}

/// A fenced block.
#[derive(Debug)]
pub struct Block<'a> {
    /// The word after the fence: "console".
    pub info: &'a str,
    /// Number of the line with the fence.
    pub line_number: usize,
    /// Its lines.
    pub lines: Vec<&'a str>,
}

/// A command of a block, with the page's expectation.
#[derive(Debug)]
pub struct Step {
    /// Its line in the page.
    pub line_number: usize,
    /// The shell command.
    pub command: String,
    /// The exit status that is expected.
    pub status: i32,
    /// The output that is expected.
    pub expected: Vec<String>,
}

/// Method of comparing an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Line by line, by [`pattern::matches`].
    Exact,
    /// By its kind, with [`pattern::alike`].
    Kind,
}

/// Parses a page.
pub fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            parts.push(Part::Line(line));
            continue;
        };
        let mut block = Vec::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.starts_with("```")) {
            block.push(line);
        }
        lines.next();
        parts.push(Part::Block(Block {
            info,
            line_number: number + 1,
            lines: block,
        }));
    }
    parts
}

/// The words of `<!-- NAME: WORDS -->`; none of `<!-- NAME -->`.
pub fn directive<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix("<!-- ")?.strip_prefix(name)?;
    match rest.strip_prefix(": ") {
        Some(words) => words.strip_suffix(" -->"),
        None => (rest == " -->").then_some(""),
    }
}

impl Block<'_> {
    /// The commands: a line `$ COMMAND`, continuation lines after `> `, the status after `? `, then the output.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (index, &line) in self.lines.iter().enumerate() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step {
                    line_number: self.line_number + 1 + index,
                    command: command.to_owned(),
                    status: 0,
                    expected: Vec::new(),
                });
                continue;
            }
            let Some(step) = steps.last_mut() else {
                panic!("a block must start with `$ COMMAND`, found {line:?}")
            };
            if let (Some(more), true) = (line.strip_prefix("> "), step.expected.is_empty()) {
                step.command += &format!("\n{more}");
            } else if let (Some(status), true) = (line.strip_prefix("? "), step.expected.is_empty())
            {
                step.status = status
                    .trim()
                    .parse()
                    .expect("a line `? N` names an exit status");
            } else {
                step.expected.push(line.to_owned());
            }
        }
        steps
    }

    /// The block as in the page, with other lines.
    pub fn around(&self, lines: &str) -> String {
        format!("```{}\n{lines}```\n", self.info)
    }

    /// Its lines as text.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

impl Step {
    /// The step as in a page that expects the actual output, if that differs; and the difference.
    pub fn compare(
        &self,
        page: &str,
        status: i32,
        output: &str,
        how: Comparison,
    ) -> (String, Option<String>) {
        let mut found: Vec<&str> = output.lines().collect();
        while found.last().is_some_and(|line| line.is_empty()) {
            found.pop();
        }
        let mut expected: Vec<&str> = self.expected.iter().map(String::as_str).collect();
        while expected.last().is_some_and(|line| line.is_empty()) {
            expected.pop();
        }
        let agrees = match how {
            Comparison::Kind => pattern::alike(&expected, &found),
            Comparison::Exact => pattern::matches(&expected, &found),
        };
        if status == self.status && agrees {
            let lines: String = self
                .expected
                .iter()
                .map(|line| format!("{line}\n"))
                .collect();
            return (self.head(status) + &lines, None);
        }
        let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
        let wrong = format!(
            "{page}:{}: $ {}\n--- expected (status {})\n{}\n--- found (status {status})\n{}\n",
            self.line_number,
            self.command,
            self.status,
            expected.join("\n"),
            found.join("\n"),
        );
        (self.head(status) + &lines, Some(wrong))
    }

    /// The step as in the page.
    pub fn text(&self) -> String {
        let lines: String = self
            .expected
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        self.head(self.status) + &lines
    }

    fn head(&self, status: i32) -> String {
        let mut head = String::new();
        for (index, line) in self.command.lines().enumerate() {
            head += if index == 0 { "$ " } else { "> " };
            head += line;
            head.push('\n');
        }
        if status != 0 {
            head += &format!("? {status}\n");
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_parsed_and_printed() {
        let page = "# T\n<!-- needs: x -->\n```console\n$ a\n> b\n? 3\nout\n$ c\n```\n<!-- alone -->\nend\n";
        let mut again = String::new();
        let mut commands = Vec::new();
        for part in parts(page) {
            match part {
                Part::Line(line) => again += &format!("{line}\n"),
                Part::Block(block) => {
                    let steps = block.steps();
                    let text: String = steps.iter().map(Step::text).collect();
                    again += &block.around(&text);
                    commands = steps;
                }
            }
        }
        assert_eq!(again, page);
        assert_eq!(commands[0].command, "a\nb");
        assert_eq!((commands[0].status, commands[1].line_number), (3, 8));
        assert_eq!(directive("<!-- needs: x y -->", "needs"), Some("x y"));
        assert_eq!(directive("<!-- alone -->", "alone"), Some(""));
        assert_eq!(directive("<!-- needs-not: x -->", "needs"), None);
    }

    #[test]
    fn differences_are_shown_and_can_be_accepted() {
        let block = &parts("```console\n$ a\nold\n```\n").pop();
        let Some(Part::Block(block)) = block else {
            panic!("{block:?}")
        };
        let step = &block.steps()[0];
        let (text, wrong) = step.compare("p", 1, "new\n\n", Comparison::Exact);
        assert_eq!(text, "$ a\n? 1\nnew\n");
        assert!(wrong.is_some_and(|wrong| wrong.starts_with("p:2: $ a\n")));
        let (text, wrong) = step.compare("p", 0, "old\n", Comparison::Exact);
        assert_eq!((text.as_str(), wrong), ("$ a\nold\n", None));
    }
}
