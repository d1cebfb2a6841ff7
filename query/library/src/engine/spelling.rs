//! Words that others write and the parser does not read, removed or replaced before it reads the statement.
//!
//! ```text
//! WITH a AS MATERIALIZED (…)            WITH a AS (…)
//! CREATE PERFETTO TABLE a AS …          CREATE TABLE a AS …
//! FROM sched:sched_switch               FROM sched.sched_switch
//! FROM tracepoint:sched:sched_switch    the same, as in bpftrace
//! ```

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Returns the tokens as the parser reads them.
pub(super) fn known(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len())
        .filter(|&index| !matches!(tokens[index].token, Token::Whitespace(_)))
        .collect();
    let token = |place: usize| words.get(place).map(|&index| &tokens[index].token);
    let mut removed = Vec::new();
    let mut dots = Vec::new();
    for place in 0..words.len() {
        if is(token(place), "as") {
            let (first, second) = (token(place + 1), token(place + 2));
            if is(first, "materialized") && second == Some(&Token::LParen) {
                removed.push(words[place + 1]);
            } else if is(first, "not")
                && is(second, "materialized")
                && token(place + 3) == Some(&Token::LParen)
            {
                removed.extend([words[place + 1], words[place + 2]]);
            }
        }
        if is(token(place), "perfetto")
            && (is(token(place.wrapping_sub(1)), "create")
                || is(token(place.wrapping_sub(1)), "replace"))
            && ["table", "view", "macro"]
                .iter()
                .any(|kind| is(token(place + 1), kind))
        {
            removed.push(words[place]);
        }
        let begins = matches!(token(place), Some(Token::Word(word))
            if matches!(word.keyword, Keyword::FROM | Keyword::JOIN));
        if begins {
            let is_name = |place: usize| matches!(token(place), Some(Token::Word(_)));
            let is_colon = |place: usize| token(place) == Some(&Token::Colon);
            let mut first = place + 1;
            if is(token(first), "tracepoint") && is_colon(first + 1) {
                removed.extend([words[first], words[first + 1]]);
                first += 2;
            }
            if is_name(first) && is_colon(first + 1) && is_name(first + 2) {
                dots.push(words[first + 1]);
            }
        }
    }
    if removed.is_empty() && dots.is_empty() {
        return tokens;
    }
    let kept = tokens.into_iter().enumerate();
    let kept = kept.filter(|(index, _)| !removed.contains(index));
    kept.map(|(index, token)| match dots.contains(&index) {
        true => TokenWithSpan::new(Token::Period, token.span),
        false => token,
    })
    .collect()
}

fn is(token: Option<&Token>, text: &str) -> bool {
    token.is_some_and(|token| is_word(token, text))
}

/// Whether a token is this word, without quotes.
pub(super) fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::super::statement;
    use datafusion::prelude::SessionContext;

    fn check(sql: &str, expected: &str) {
        let state = SessionContext::new().state();
        assert_eq!(statement(&state, sql).unwrap().to_string(), expected);
    }

    #[test]
    fn words_of_others_are_read() {
        check(
            "WITH a AS MATERIALIZED (SELECT 1), b AS NOT MATERIALIZED (SELECT 2) SELECT * FROM a",
            "WITH a AS (SELECT 1), b AS (SELECT 2) SELECT * FROM a",
        );
        check(
            "CREATE OR REPLACE PERFETTO VIEW a AS SELECT 1",
            "CREATE OR REPLACE VIEW a AS SELECT 1",
        );
        check(
            "SELECT materialized AS perfetto FROM sched:sched_switch s JOIN tracepoint:irq:softirq_entry ON x",
            "SELECT materialized AS perfetto FROM sched.sched_switch s JOIN irq.softirq_entry ON x",
        );
    }
}
