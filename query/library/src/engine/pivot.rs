//! `PIVOT` and `UNPIVOT` of DuckDB as calls that the parser reads; `sql/pivot.rs` gives them their meaning.
//!
//! ```text
//! PIVOT t ON state USING sum(duration) GROUP BY comm     SELECT * FROM "pivot rows"('t', 'sum(duration)', 'comm', 'state', '')
//! UNPIVOT t ON a, b INTO NAME n VALUE v                  SELECT * FROM "unpivot rows"('t', 'n', 'v', 'a', 'b')
//! t PIVOT (sum(x) FOR a IN (1, 2) GROUP BY c)            t PIVOT ("pivot rows"('', 'sum(x)', 'c', 'a', '1, 2') FOR x IN (ANY))
//! ```

use std::ops::Range;

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::spelling::is_word;

/// Names of the calls.
pub(crate) const PIVOT: &str = "pivot rows";
pub(crate) const UNPIVOT: &str = "unpivot rows";

/// Words that end such a statement.
const ENDS: [&str; 5] = ["order", "limit", "offset", "union", "intersect"];
/// Words before such a statement, apart from brackets.
const BEFORE: [&str; 6] = ["as", "explain", "analyze", "verbose", "describe", "desc"];
/// Words at the start of a query.
const QUERIES: [&str; 4] = ["select", "from", "with", "values"];

/// Returns the tokens as the parser reads them.
pub(super) fn known(mut tokens: Vec<TokenWithSpan>, dialect: &dyn Dialect) -> Vec<TokenWithSpan> {
    let mut begin = 0;
    while let Some(at) = (begin..tokens.len()).find(|&at| {
        let token = &tokens[at].token;
        is_word(token, "pivot") || is_word(token, "unpivot")
    }) {
        begin = at + 1;
        let found = statement(&tokens, at).or_else(|| clause(&tokens, at));
        let Some((range, sql)) = found else { continue };
        let Ok(replaced) = Tokenizer::new(dialect, &sql).tokenize() else {
            continue;
        };
        let span = tokens[at].span;
        let replaced = replaced
            .into_iter()
            .map(|token| TokenWithSpan::new(token, span));
        tokens.splice(range, replaced);
    }
    tokens
}

/// The tokens of a statement that begins at `at`, and what replaces them.
fn statement(tokens: &[TokenWithSpan], at: usize) -> Option<(Range<usize>, String)> {
    let next = next(tokens, at + 1)?;
    let is_begin = match previous(tokens, at).map(|before| &tokens[before].token) {
        None | Some(Token::LParen | Token::SemiColon) => true,
        // After definitions of WITH, or after a table.
        Some(Token::RParen) => match &tokens[next].token {
            Token::LParen => self::next(tokens, next + 1).is_some_and(|inside| {
                QUERIES
                    .iter()
                    .any(|word| is_word(&tokens[inside].token, word))
            }),
            _ => true,
        },
        Some(word) => BEFORE.iter().any(|before| is_word(word, before)),
    };
    if !is_begin {
        return None;
    }
    let end = end_of(tokens, at + 1, &ENDS);
    let words = |word: &str| -> Vec<usize> { places(tokens, at + 1..end, word) };
    let on = words("on").last().copied();
    let range = at..end;
    if is_word(&tokens[at].token, "unpivot") {
        let on = on?;
        let into = words("into").last().copied().filter(|into| *into > on);
        let (name, values) = match into {
            Some(into) => {
                let name = self::next(tokens, into + 1)
                    .filter(|at| is_word(&tokens[*at].token, "name"))?;
                let value = words("value")
                    .last()
                    .copied()
                    .filter(|value| *value > name)?;
                (text(tokens, name + 1..value), text(tokens, value + 1..end))
            }
            None => ("name".to_owned(), "value".to_owned()),
        };
        let mut arguments = vec![text(tokens, at + 1..on), name, values];
        let items = split(tokens, on + 1..into.unwrap_or(end));
        arguments.extend(items.into_iter().map(|item| text(tokens, item)));
        return Some((
            range,
            format!("SELECT * FROM {}", call(UNPIVOT, &arguments)),
        ));
    }
    let after_on = |place: &usize| on.is_none_or(|on| *place > on);
    let using = words("using").into_iter().rfind(after_on);
    let group = words("group").into_iter().rfind(after_on);
    let begins = [on, using, group];
    let first = begins.iter().flatten().min()?;
    let ends_at = |place: usize| {
        let later = begins.iter().flatten().filter(|other| **other > place);
        later.min().copied().unwrap_or(end)
    };
    let part = |place: Option<usize>| place.map(|place| place + 1..ends_at(place));
    let mut arguments = vec![
        text(tokens, at + 1..*first),
        part(using).map_or_else(String::new, |part| text(tokens, part)),
        part(group).map_or_else(String::new, |part| grouped(tokens, part)),
    ];
    for item in part(on).map_or_else(Vec::new, |part| split(tokens, part)) {
        arguments.extend(values(tokens, item));
    }
    Some((range, format!("SELECT * FROM {}", call(PIVOT, &arguments))))
}

/// The inside of `t PIVOT (…)`, and what replaces it.
fn clause(tokens: &[TokenWithSpan], at: usize) -> Option<(Range<usize>, String)> {
    let open = next(tokens, at + 1).filter(|next| tokens[*next].token == Token::LParen)?;
    if !is_word(&tokens[at].token, "pivot") {
        return None;
    }
    let range = open + 1..end_of(tokens, open + 1, &[]);
    let on = *places(tokens, range.clone(), "for").first()?;
    let group = places(tokens, range.clone(), "group").last().copied();
    let group = group.filter(|group| *group > on);
    let mut arguments = vec![
        String::new(),
        text(tokens, range.start..on),
        group.map_or_else(String::new, |group| grouped(tokens, group + 1..range.end)),
    ];
    // FOR a IN (…) b IN (…): each ends with its bracket.
    let end = group.unwrap_or(range.end);
    let mut begin = on + 1;
    for place in places(tokens, begin..end, "in") {
        let open = next(tokens, place + 1)?;
        let close = end_of(tokens, open + 1, &[]);
        arguments.extend(values(tokens, begin..close + 1));
        begin = close + 1;
    }
    let call = call(PIVOT, &arguments);
    (arguments.len() > 3).then(|| (range, format!("{call} FOR x IN (ANY)")))
}

/// An expression, and the text of the values after IN; empty for all.
fn values(tokens: &[TokenWithSpan], item: Range<usize>) -> [String; 2] {
    for place in places(tokens, item.clone(), "in") {
        let open = next(tokens, place + 1).filter(|at| tokens[*at].token == Token::LParen);
        let Some(open) = open else { continue };
        let close = end_of(tokens, open + 1, &[]);
        if next(tokens, close + 1).is_none_or(|after| after >= item.end) {
            return [
                text(tokens, item.start..place),
                text(tokens, open + 1..close),
            ];
        }
    }
    [text(tokens, item), String::new()]
}

/// The columns after GROUP BY; `part` begins with BY.
fn grouped(tokens: &[TokenWithSpan], part: Range<usize>) -> String {
    let by = next(tokens, part.start).filter(|at| is_word(&tokens[*at].token, "by"));
    text(tokens, by.map_or(part.start, |by| by + 1)..part.end)
}

/// SQL of a call.
fn call(name: &str, arguments: &[String]) -> String {
    let quoted: Vec<String> = arguments
        .iter()
        .map(|argument| format!("'{}'", argument.replace('\'', "''")))
        .collect();
    format!("\"{name}\"({})", quoted.join(", "))
}

/// The place of the first bracket that closes what is open before `begin`, or of a word of `words` outside of brackets.
fn end_of(tokens: &[TokenWithSpan], begin: usize, words: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        match &token.token {
            token if opens(token) => depth += 1,
            token if closes(token) && depth == 0 => return at,
            token if closes(token) => depth -= 1,
            Token::SemiColon | Token::EOF if depth == 0 => return at,
            token if depth == 0 && words.iter().any(|word| is_word(token, word)) => return at,
            _ => {}
        }
    }
    tokens.len()
}

/// Places of a word outside of brackets.
fn places(tokens: &[TokenWithSpan], range: Range<usize>, word: &str) -> Vec<usize> {
    let mut depth = 0_usize;
    let mut found = Vec::new();
    for at in range {
        match &tokens[at].token {
            token if opens(token) => depth += 1,
            token if closes(token) => depth = depth.saturating_sub(1),
            token if depth == 0 && is_word(token, word) => found.push(at),
            _ => {}
        }
    }
    found
}

/// The parts between commas outside of brackets.
fn split(tokens: &[TokenWithSpan], range: Range<usize>) -> Vec<Range<usize>> {
    let mut depth = 0_usize;
    let mut parts = Vec::new();
    let mut begin = range.start;
    for at in range.clone() {
        match &tokens[at].token {
            token if opens(token) => depth += 1,
            token if closes(token) => depth = depth.saturating_sub(1),
            Token::Comma if depth == 0 => {
                parts.push(begin..at);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(begin..range.end);
    parts
}

fn opens(token: &Token) -> bool {
    matches!(token, Token::LParen | Token::LBracket | Token::LBrace)
}

fn closes(token: &Token) -> bool {
    matches!(token, Token::RParen | Token::RBracket | Token::RBrace)
}

fn text(tokens: &[TokenWithSpan], range: Range<usize>) -> String {
    let words = tokens.get(range).unwrap_or_default().iter();
    let text: String = words.map(|token| written(&token.token)).collect();
    text.trim().to_owned()
}

/// A token as SQL; tokens print their quotes without escapes.
fn written(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        Token::Word(word) if word.quote_style == Some('"') => {
            format!("\"{}\"", word.value.replace('"', "\"\""))
        }
        other => other.to_string(),
    }
}

/// The next token that is no blank.
fn next(tokens: &[TokenWithSpan], begin: usize) -> Option<usize> {
    (begin..tokens.len()).find(|&at| !matches!(tokens[at].token, Token::Whitespace(_)))
}

fn previous(tokens: &[TokenWithSpan], end: usize) -> Option<usize> {
    (0..end).rfind(|&at| !matches!(tokens[at].token, Token::Whitespace(_)))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    use super::*;

    fn rewritten(sql: &str) -> String {
        let dialect = GenericDialect {};
        let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
        let tokens = known(tokens.unwrap(), &dialect);
        text(&tokens, 0..tokens.len())
    }

    #[test]
    fn statements_become_calls() {
        let cases = [
            (
                "PIVOT t ON a, b IN (1, 'x') USING sum(c) AS s, max(d) GROUP BY e ORDER BY e LIMIT 2;",
                "SELECT * FROM \"pivot rows\"('t', 'sum(c) AS s, max(d)', 'e', 'a', '', 'b', '1, ''x''')ORDER BY e LIMIT 2;",
            ),
            (
                "WITH x AS (SELECT 1) PIVOT (SELECT * FROM t JOIN u ON y) ON a",
                "WITH x AS (SELECT 1) SELECT * FROM \"pivot rows\"('(SELECT * FROM t JOIN u ON y)', '', '', 'a', '')",
            ),
            (
                "SELECT * FROM (UNPIVOT t ON * EXCLUDE (a, b)) u",
                "SELECT * FROM (SELECT * FROM \"unpivot rows\"('t', 'name', 'value', '* EXCLUDE (a, b)')) u",
            ),
            (
                "FROM t PIVOT (sum(x) FOR a IN (1, 2) b IN ('c') GROUP BY d) p",
                "FROM t PIVOT (\"pivot rows\"('', 'sum(x)', 'd', 'a', '1, 2', 'b', '''c''') FOR x IN (ANY)) p",
            ),
            (
                "PIVOT t ON comm IN ('it''s', 'a''b') USING count(\"a\"\"b\")",
                "SELECT * FROM \"pivot rows\"('t', 'count(\"a\"\"b\")', '', 'comm', '''it''''s'', ''a''''b''')",
            ),
            (
                "SELECT max(pivot), unpivot FROM pivot",
                "SELECT max(pivot), unpivot FROM pivot",
            ),
        ];
        for (sql, expected) in cases {
            assert_eq!(rewritten(sql), expected);
        }
    }
}
