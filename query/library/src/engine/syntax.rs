//! Syntax that the parser lacks: joins by time, and clauses of DuckDB.
//!
//! ```text
//! a ASOF [LEFT] JOIN b ON a.tid = b.tid AND a.time >= b.time      DuckDB's; only rows with a match, unless LEFT
//! a ASOF [LEFT] JOIN b USING (tid, time)                          the same
//! a ASOF JOIN b MATCH_CONDITION (a.time >= b.time) ON …           Snowflake's; every row of a
//! span_join(a, b, tid)                                            Perfetto's
//! ```
//! The parser supports only the third form, so the other forms get a match condition that identifies them. Each such join is
//! then made a separate relation, which `relations.rs` plans.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::parser::{CopyToSource, DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    Select, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, dialect_from_str};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace, Word};

use super::spelling::{self, is_word};
use super::{pivot, precedence};

/// The match conditions of DuckDB's forms.
pub(super) const INNER: &str = "ASOF JOIN";
pub(super) const LEFT: &str = "ASOF LEFT JOIN";
/// Name of the function, and of the condition that represents it.
pub(super) const SPAN_JOIN: &str = "span_join";

/// Parses one statement.
pub(crate) fn statement(state: &SessionState, sql: &str) -> Result<Statement> {
    let options = &state.config().options().sql_parser;
    let dialect = dialect_from_str(options.dialect)
        .unwrap_or_else(|| Box::new(GenericDialect {}) as Box<dyn Dialect>);
    let tokens = Tokenizer::new(dialect.as_ref(), sql)
        .tokenize_with_location()
        .map_err(|error| DataFusionError::from(ParserError::from(error)))?;
    let parsed = |tokens: Vec<TokenWithSpan>| {
        DFParserBuilder::new(tokens)
            .with_dialect(dialect.as_ref())
            .with_recursion_limit(options.recursion_limit.get())
            .build()?
            .parse_statements()
    };
    let tokens = pivot::known(tokens, dialect.as_ref());
    let tokens = with_arrows(without_globs(spelling::known(tokens)));
    let tokens = precedence::with_distinct(with_match_conditions(tokens));
    let mut statements = match with_where(&tokens) {
        // As written first: `(…) filter (…)` may also name a table and its columns.
        Some(completed) => parsed(tokens).or_else(|_| parsed(completed))?,
        None => parsed(tokens)?,
    };
    if statements.len() > 1 {
        let message = "expected one statement, found several".to_owned();
        return Err(DataFusionError::Plan(message));
    }
    let mut statement = statements
        .pop_front()
        .ok_or_else(|| DataFusionError::Plan("expected a statement, found nothing".to_owned()))?;
    let mut order = precedence::Order::default();
    if visit_statement(&mut order, &mut statement).is_break() {
        return Err(DataFusionError::Plan(order.wrong));
    }
    let mut relations = TimeRelations::default();
    if visit_statement(&mut relations, &mut statement).is_break() {
        return Err(DataFusionError::Plan(relations.wrong));
    }
    Ok(statement)
}

/// Visits the queries in a statement of any kind.
pub(crate) fn visit_statement(
    visitor: &mut impl VisitorMut<Break = ()>,
    statement: &mut Statement,
) -> ControlFlow<()> {
    match statement {
        Statement::Statement(statement) => statement.visit(visitor),
        Statement::Explain(explain) => visit_statement(visitor, &mut explain.statement),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    }
}

/// Replaces `GLOB 'a*'` by `~ '^a.*$'`, and `NOT GLOB` by `!~`.
fn without_globs(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_blank = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let mut found: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        if !is_word(&token.token, "glob") {
            found.push(token);
            continue;
        }
        let mut blanks = Vec::new();
        while let Some(blank) = rest.next_if(is_blank) {
            blanks.push(blank);
        }
        let pattern = match rest.peek().map(|next| &next.token) {
            Some(Token::SingleQuotedString(pattern)) => regex(pattern),
            _ => {
                found.push(token);
                found.extend(blanks);
                continue;
            }
        };
        rest.next();
        let before = found.iter().rposition(|token| !is_blank(token));
        let negated = before.filter(|&place| is_word(&found[place].token, "not"));
        let operator = match negated {
            Some(place) => {
                found.truncate(place);
                Token::ExclamationMarkTilde
            }
            None => Token::Tilde,
        };
        found.push(TokenWithSpan::new(operator, token.span));
        found.push(TokenWithSpan::new(
            Token::SingleQuotedString(pattern),
            token.span,
        ));
    }
    found
}

/// Replaces DuckDB's `lambda x: x + 1`, an argument of a function, by `x -> (x + 1)`.
fn with_arrows(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_blank = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let words: Vec<usize> = (0..tokens.len())
        .filter(|&index| !is_blank(&tokens[index]))
        .collect();
    let is_lambda = |four: &&[usize]| {
        let [before, word, name, colon] = [0, 1, 2, 3].map(|place| &tokens[four[place]].token);
        let is_word = match word {
            Token::Word(word) => {
                word.quote_style.is_none() && word.value.eq_ignore_ascii_case("lambda")
            }
            _ => false,
        };
        is_word
            && matches!(before, Token::LParen | Token::Comma)
            && matches!(name, Token::Word(_))
            && *colon == Token::Colon
    };
    let lambdas: Vec<(usize, usize)> = (words.windows(4).filter(is_lambda))
        .map(|four| (four[1], four[3]))
        .collect();
    if lambdas.is_empty() {
        return tokens;
    }
    let end_of = |colon: usize| {
        let mut depth = 0;
        (colon + 1..tokens.len()).find(|&index| {
            match tokens[index].token {
                Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
                Token::RParen | Token::RBracket | Token::RBrace if depth > 0 => depth -= 1,
                Token::RParen | Token::RBracket | Token::RBrace | Token::Comma if depth == 0 => {
                    return true;
                }
                _ => {}
            }
            false
        })
    };
    let ends: Vec<usize> = (lambdas.iter())
        .filter_map(|&(_, colon)| end_of(colon))
        .collect();
    let mut found = Vec::with_capacity(tokens.len() + 2 * lambdas.len());
    for (index, token) in tokens.iter().enumerate() {
        let added = |kind: Token| TokenWithSpan::new(kind, token.span);
        let closed = ends.iter().filter(|&&end| end == index).count();
        found.extend((0..closed).map(|_| added(Token::RParen)));
        match lambdas
            .iter()
            .find(|(word, colon)| [*word, *colon].contains(&index))
        {
            Some((word, _)) if *word == index => {}
            Some(_) => found.extend([added(Token::Arrow), added(Token::LParen)]),
            None => found.push(token.clone()),
        }
    }
    found
}

/// A glob pattern as a regular expression.
fn regex(glob: &str) -> String {
    let mut regex = String::from("(?s)^");
    let mut letters = glob.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' if letters.as_str().contains(']') => {
                regex.push('[');
                let mut is_first = true;
                for letter in letters.by_ref() {
                    match letter {
                        ']' if !is_first => break,
                        '!' | '^' if is_first => {
                            regex.push('^');
                            continue;
                        }
                        '-' => regex.push('-'),
                        letter if letter.is_alphanumeric() => regex.push(letter),
                        letter => regex.extend(['\\', letter]),
                    }
                    is_first = false;
                }
                regex.push(']');
            }
            letter if letter.is_alphanumeric() || letter == '_' || letter == ' ' => {
                regex.push(letter)
            }
            letter if letter.is_ascii() => regex.extend(['\\', letter]),
            letter => regex.push(letter),
        }
    }
    regex + "$"
}

/// Turns DuckDB's `count(*) FILTER (x > 5)` into `count(*) FILTER (WHERE x > 5)`; `None` if no WHERE is missing.
fn with_where(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let is = |token: &TokenWithSpan, keyword: Keyword| match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.keyword == keyword,
        _ => false,
    };
    let words: Vec<usize> = (0..tokens.len())
        .filter(|&index| !matches!(tokens[index].token, Token::Whitespace(_)))
        .collect();
    let bare = words.windows(4).filter(|four| {
        tokens[four[0]].token == Token::RParen
            && is(&tokens[four[1]], Keyword::FILTER)
            && tokens[four[2]].token == Token::LParen
            && !is(&tokens[four[3]], Keyword::WHERE)
    });
    let places: Vec<usize> = bare.map(|four| four[2]).collect();
    let mut found = Vec::with_capacity(tokens.len() + 2 * places.len());
    for (index, token) in tokens.iter().enumerate() {
        found.push(token.clone());
        if places.contains(&index) {
            let added = [
                Token::make_keyword("WHERE"),
                Token::Whitespace(Whitespace::Space),
            ];
            found.extend(added.map(|added| TokenWithSpan::new(added, token.span)));
        }
    }
    (!places.is_empty()).then_some(found)
}

/// Inserts a match condition into every `ASOF JOIN` of DuckDB, before its ON or USING at the same depth of brackets.
fn with_match_conditions(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: &TokenWithSpan, keyword: Keyword| match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.keyword == keyword,
        _ => false,
    };
    let mut found = Vec::with_capacity(tokens.len());
    // The form, and the depth, of each join whose condition is still to come.
    let mut open: Vec<(&str, usize)> = Vec::new();
    let mut depth: usize = 0;
    let words: Vec<usize> = (0..tokens.len())
        .filter(|&index| !matches!(tokens[index].token, Token::Whitespace(_)))
        .collect();
    let mut skipped = usize::MAX;
    for (place, &index) in words.iter().enumerate() {
        let token = &tokens[index];
        let next = |ahead: usize| words.get(place + ahead).map(|&index| &tokens[index]);
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth = depth.saturating_sub(1);
                open.retain(|&(_, at)| at <= depth);
            }
            _ => {}
        }
        if is(token, Keyword::ASOF) {
            let follows = |ahead: usize, keyword| next(ahead).is_some_and(|next| is(next, keyword));
            if follows(1, Keyword::JOIN) {
                open.push((INNER, depth));
            } else if follows(1, Keyword::INNER) && follows(2, Keyword::JOIN) {
                open.push((INNER, depth));
                skipped = words[place + 1];
            } else if follows(1, Keyword::LEFT) && follows(2, Keyword::JOIN) {
                open.push((LEFT, depth));
                skipped = words[place + 1];
            }
        }
        let begins = is(token, Keyword::ON) || is(token, Keyword::USING);
        let of_here = open.last().is_some_and(|&(_, at)| at == depth);
        if of_here && is(token, Keyword::MATCH_CONDITION) {
            open.pop();
        } else if of_here
            && begins
            && let Some((form, _)) = open.pop()
        {
            let word = Token::Word(Word {
                value: "MATCH_CONDITION".to_owned(),
                quote_style: None,
                keyword: Keyword::MATCH_CONDITION,
            });
            let text = Token::SingleQuotedString(form.to_owned());
            for added in [word, Token::LParen, text, Token::RParen] {
                found.push(TokenWithSpan::new(added, token.span));
            }
        }
        if index != skipped {
            found.push(token.clone());
        }
    }
    found
}

/// Makes each join by time a separate relation, that is, a join of two tables in brackets.
#[derive(Default)]
struct TimeRelations {
    wrong: String,
}

impl VisitorMut for TimeRelations {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.from.iter_mut().for_each(separate);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = table
            && !is_asof(table_with_joins)
        {
            separate(table_with_joins);
        }
        match span_join(table) {
            Ok(Some(relation)) => *table = relation,
            Ok(None) => {}
            Err(message) => {
                self.wrong = message;
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether these are the two tables of one ASOF JOIN.
fn is_asof(tables: &TableWithJoins) -> bool {
    let [join] = tables.joins.as_slice() else {
        return false;
    };
    matches!(join.join_operator, JoinOperator::AsOf { .. })
}

/// Turns `a JOIN b … ASOF JOIN c … JOIN d …` into `((a JOIN b …) ASOF JOIN c …) JOIN d …`.
fn separate(tables: &mut TableWithJoins) {
    let is_asof = |join: &Join| matches!(join.join_operator, JoinOperator::AsOf { .. });
    if !tables.joins.iter().any(is_asof) {
        return;
    }
    let in_brackets = |relation: TableFactor, joins: Vec<Join>| TableFactor::NestedJoin {
        table_with_joins: Box::new(TableWithJoins { relation, joins }),
        alias: None,
    };
    for join in std::mem::take(&mut tables.joins) {
        if !is_asof(&join) {
            tables.joins.push(join);
            continue;
        }
        let nothing = table(ObjectName::from(Vec::<Ident>::new()));
        let mut left = std::mem::replace(&mut tables.relation, nothing);
        if !tables.joins.is_empty() {
            left = in_brackets(left, std::mem::take(&mut tables.joins));
        }
        tables.relation = in_brackets(left, vec![join]);
    }
}

fn table(name: ObjectName) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// `span_join(a, b, keys…)` as a join of the two tables in brackets, whose condition holds the keys.
fn span_join(relation: &TableFactor) -> Result<Option<TableFactor>, String> {
    let TableFactor::Table {
        name,
        alias,
        args: Some(arguments),
        ..
    } = relation
    else {
        return Ok(None);
    };
    let is_named = match name.0.as_slice() {
        [part] => part
            .as_ident()
            .is_some_and(|name| name.value.eq_ignore_ascii_case(SPAN_JOIN)),
        _ => false,
    };
    if !is_named {
        return Ok(None);
    }
    let expressions: Option<Vec<&Expr>> = (arguments.args.iter())
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect();
    let expressions = expressions.unwrap_or_default();
    let [left, right, keys @ ..] = expressions.as_slice() else {
        return Err(format!(
            "{SPAN_JOIN}: expected two tables, then columns\n{SPAN_JOIN_HINT}"
        ));
    };
    let (left, right) = (side(left)?, side(right)?);
    let mut columns = Vec::new();
    for key in keys {
        columns.extend(key_columns(key)?);
    }
    let marker = format!("{SPAN_JOIN}({})", columns.join(", "));
    let marker = Parser::new(&GenericDialect {})
        .try_with_sql(&marker)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| format!("{SPAN_JOIN}: {error}"))?;
    let join = Join {
        relation: right,
        global: false,
        join_operator: JoinOperator::StraightJoin(JoinConstraint::On(marker)),
    };
    Ok(Some(TableFactor::NestedJoin {
        table_with_joins: Box::new(TableWithJoins {
            relation: left,
            joins: vec![join],
        }),
        alias: alias.clone(),
    }))
}

const SPAN_JOIN_HINT: &str = "hint: for example span_join(calls, thread_states, tid)";

/// A table: its name, its name as a string, or a query in brackets.
fn side(expr: &Expr) -> Result<TableFactor, String> {
    match expr {
        Expr::Identifier(name) => Ok(table(ObjectName::from(vec![name.clone()]))),
        Expr::CompoundIdentifier(names) => Ok(table(ObjectName::from(names.clone()))),
        Expr::Subquery(query) => Ok(TableFactor::Derived {
            lateral: false,
            subquery: query.clone(),
            alias: None,
            sample: None,
        }),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(name) => {
                let parsed = Parser::new(&GenericDialect {})
                    .try_with_sql(name)
                    .and_then(|mut parser| parser.parse_object_name(false));
                let parsed = parsed.map_err(|error| format!("{SPAN_JOIN}: {name:?}: {error}"))?;
                Ok(table(parsed))
            }
            other => Err(no_table(other)),
        },
        other => Err(no_table(other)),
    }
}

fn no_table(found: &dyn std::fmt::Display) -> String {
    format!("{SPAN_JOIN}: expected a table or a query in brackets, found {found}\n{SPAN_JOIN_HINT}")
}

/// The columns of a key: one, or several in a string.
fn key_columns(expr: &Expr) -> Result<Vec<String>, String> {
    match expr {
        Expr::Identifier(name) => Ok(vec![name.to_string()]),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(names) => {
                let names = names
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                Ok(names.map(str::to_owned).collect())
            }
            other => Err(no_column(other)),
        },
        other => Err(no_column(other)),
    }
}

fn no_column(found: &dyn std::fmt::Display) -> String {
    format!("{SPAN_JOIN}: expected a column of both tables, found {found}\n{SPAN_JOIN_HINT}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    fn check(sql: &str, expected: &str) {
        let state = SessionContext::new().state();
        let found = statement(&state, sql).unwrap().to_string();
        assert_eq!(found, expected);
    }

    #[test]
    fn duckdbs_asof_joins_get_a_match_condition() {
        check(
            "SELECT * FROM a ASOF JOIN b ON a.x = b.x AND a.t >= b.t",
            "SELECT * FROM (a ASOF JOIN b MATCH_CONDITION ('ASOF JOIN') ON a.x = b.x AND a.t >= b.t)",
        );
        check(
            "SELECT * FROM a asof left join (SELECT * FROM c JOIN d ON c.x = d.x) AS b USING (x, t)",
            "SELECT * FROM (a ASOF JOIN (SELECT * FROM c JOIN d ON c.x = d.x) AS b MATCH_CONDITION ('ASOF LEFT JOIN') USING(x, t))",
        );
        check(
            "SELECT * FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.x = b.x",
            "SELECT * FROM (a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.x = b.x)",
        );
        check(
            "SELECT asof FROM a JOIN b ON a.asof = b.x",
            "SELECT asof FROM a JOIN b ON a.asof = b.x",
        );
    }

    #[test]
    fn filters_need_no_where() {
        check(
            "SELECT count(*) filter (x IN (SELECT y FROM u)), sum(x) FILTER (WHERE x > 5), max(x) FILTER(x > 5) FROM t",
            "SELECT count(*) FILTER (WHERE x IN (SELECT y FROM u)), sum(x) FILTER (WHERE x > 5), max(x) FILTER (WHERE x > 5) FROM t",
        );
        check(
            "SELECT a FROM (SELECT 1) filter (a)",
            "SELECT a FROM (SELECT 1) filter (a)",
        );
        let state = SessionContext::new().state();
        let error = statement(&state, "SELECT count(*) FILTER (x >) FROM t").unwrap_err();
        assert!(error.to_string().contains("found: )"), "{error}");
    }

    #[test]
    fn functions_as_arguments_get_arrows() {
        check(
            "SELECT f(a, LAMBDA x: g(x, 1) + x), f(lambda x: f(lambda y: y)), lambda FROM t",
            "SELECT f(a, x -> (g(x, 1) + x)), f(x -> (f(y -> (y)))), lambda FROM t",
        );
        let state = SessionContext::new().state();
        assert!(statement(&state, "SELECT f(lambda x: ").is_err());
    }

    #[test]
    fn globs_are_regular_expressions() {
        check(
            "SELECT x GLOB 'a*?.[!b-d]' FROM t WHERE y NOT GLOB 'k' AND glob = 1",
            "SELECT x ~ '(?s)^a.*.\\.[^b-d]$' FROM t WHERE y !~ '(?s)^k$' AND glob = 1",
        );
    }

    #[test]
    fn joins_by_time_are_separate_relations() {
        check(
            "SELECT 1 FROM a JOIN b ON p ASOF JOIN c ON q LEFT JOIN d ON r",
            "SELECT 1 FROM ((a JOIN b ON p) ASOF JOIN c MATCH_CONDITION ('ASOF JOIN') ON q) LEFT JOIN d ON r",
        );
        check(
            "SELECT 1 FROM a ASOF JOIN b ON p ASOF JOIN c ON q",
            "SELECT 1 FROM ((a ASOF JOIN b MATCH_CONDITION ('ASOF JOIN') ON p) ASOF JOIN c MATCH_CONDITION ('ASOF JOIN') ON q)",
        );
        check(
            "SELECT 1 FROM span_join('sched.x', (SELECT * FROM b), tid, 'cpu, comm') AS s",
            "SELECT 1 FROM (sched.x STRAIGHT_JOIN (SELECT * FROM b) ON span_join(tid, cpu, comm)) AS s",
        );
    }

    #[test]
    fn wrong_arguments_of_span_join_are_errors() {
        let state = SessionContext::new().state();
        for wrong in [
            "span_join()",
            "span_join(a)",
            "span_join(a, 3)",
            "span_join(a, b, 1 + 1)",
        ] {
            let error = statement(&state, &format!("SELECT 1 FROM {wrong}")).unwrap_err();
            assert!(error.to_string().contains("hint: for example"), "{error}");
        }
    }
}
