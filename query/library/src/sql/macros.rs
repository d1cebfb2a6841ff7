//! Macros: named expressions and queries, replaced by their text before planning, so that they take arguments of any type.
//!
//! ```text
//! CREATE MACRO ms(ns) AS ns / 1e6                                      SELECT ms(duration) …   →   SELECT (duration / 1e6) …
//! CREATE MACRO slow(least) AS TABLE SELECT * FROM calls WHERE duration > least      FROM slow(5ms)
//! CREATE FUNCTION ms(ns BIGINT) RETURNS DOUBLE RETURN ns / 1e6         the same, with conversions
//! ```
//! In the body, a name of a parameter is its argument, even if a column has that name.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, CreateFunctionBody, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, FunctionReturnType, Ident, MacroDefinition, ObjectName, Query,
    Statement as SqlStatement, TableFactor, Value, VisitMut, VisitorMut,
};
use perfquet_trace::count::counted;

use crate::engine;

/// Expansions in one statement; more are those of a macro that refers to itself.
const MOST_EXPANSIONS: usize = 1000;
/// Bytes of all inserted arguments: nested macros that repeat their argument would double it each time.
const MOST_BYTES: usize = 1 << 20;

/// The macros of a session by name.
#[derive(Debug, Default)]
pub(crate) struct Macros(Mutex<BTreeMap<String, Arc<Macro>>>);

/// A named expression or query.
#[derive(Debug)]
pub(crate) struct Macro {
    name: String,
    parameters: Vec<Parameter>,
    body: Body,
    /// Whether it replaces another of the same name.
    is_replacement: bool,
    /// File and line of its definition.
    place: Option<String>,
}

#[derive(Debug, Clone)]
struct Parameter {
    name: String,
    kind: Option<DataType>,
    default: Option<Expr>,
}

#[derive(Debug)]
enum Body {
    Value(Box<Expr>),
    Rows(Box<Query>),
}

impl Macro {
    /// Returns the macro that a statement defines; `None` if it is another statement.
    pub(crate) fn of(
        statement: &Statement,
        place: Option<String>,
    ) -> Result<Option<Macro>, String> {
        let Statement::Statement(statement) = statement else {
            return Ok(None);
        };
        let (name, parameters, body, is_replacement) = match statement.as_ref() {
            SqlStatement::CreateMacro {
                or_replace,
                name,
                args,
                definition,
                ..
            } => {
                let parameters = args.iter().flatten().map(|arg| Parameter {
                    name: lower(&arg.name),
                    kind: None,
                    default: arg.default_expr.clone(),
                });
                let body = match definition {
                    MacroDefinition::Expr(expr) => Body::Value(Box::new(expr.clone())),
                    MacroDefinition::Table(query) => Body::Rows(query.clone()),
                };
                (name, parameters.collect::<Vec<_>>(), body, *or_replace)
            }
            SqlStatement::CreateFunction(function) => {
                let parameters = function.args.iter().flatten().enumerate();
                let parameters = parameters.map(|(place, arg)| Parameter {
                    // In the body, `$1` is the first argument.
                    name: (arg.name.as_ref()).map_or_else(|| format!("${}", place + 1), lower),
                    kind: Some(arg.data_type.clone()),
                    default: arg.default_expr.clone(),
                });
                let Some(CreateFunctionBody::Return(body)) = &function.function_body else {
                    return Err(format!(
                        "function {}: expected RETURN and an expression\nhint: CREATE FUNCTION ms(ns BIGINT) RETURNS DOUBLE RETURN ns / 1e6",
                        function.name
                    ));
                };
                let body = match &function.return_type {
                    Some(FunctionReturnType::DataType(kind)) => converted(body.clone(), kind),
                    _ => body.clone(),
                };
                let body = Body::Value(Box::new(body));
                (
                    &function.name,
                    parameters.collect(),
                    body,
                    function.or_replace,
                )
            }
            _ => return Ok(None),
        };
        let Some(name) = single(name) else {
            return Err(format!("macro {name}: expected a name without a schema"));
        };
        Ok(Some(Macro {
            name,
            parameters,
            body,
            is_replacement,
            place,
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Name and parameters.
    pub(crate) fn usage(&self) -> String {
        let names: Vec<&str> = (self.parameters.iter())
            .map(|each| each.name.as_str())
            .collect();
        format!("{}({})", self.name, names.join(", "))
    }

    /// What it stands for.
    pub(crate) fn about(&self) -> String {
        match &self.body {
            Body::Value(expr) => expr.to_string(),
            Body::Rows(query) => format!("TABLE {query}"),
        }
    }

    /// The arguments of a call, one for each parameter.
    fn arguments(&self, args: &[FunctionArg]) -> Result<Vec<(String, Expr)>, String> {
        let usage = self.usage();
        let mut values: Vec<Option<Expr>> = vec![None; self.parameters.len()];
        for (place, arg) in args.iter().enumerate() {
            let (place, arg) = match arg {
                FunctionArg::Unnamed(arg) => (Some(place), arg),
                FunctionArg::Named { name, arg, .. } => {
                    let name = lower(name);
                    (
                        self.parameters.iter().position(|each| each.name == name),
                        arg,
                    )
                }
                FunctionArg::ExprNamed { arg, .. } => (None, arg),
            };
            let FunctionArgExpr::Expr(expr) = arg else {
                return Err(format!("macro {usage}: expected a value, found {arg}"));
            };
            match place.and_then(|place| values.get_mut(place)) {
                Some(value) if value.is_none() => *value = Some(expr.clone()),
                _ => {
                    let expected = counted(self.parameters.len() as u64, "argument");
                    let found = args.len();
                    return Err(format!("macro {usage}: expected {expected}, found {found}"));
                }
            }
        }
        let bound = self
            .parameters
            .iter()
            .zip(values)
            .map(|(parameter, value)| {
                let value = value.or_else(|| parameter.default.clone());
                let value =
                    value.ok_or_else(|| format!("macro {usage}: missing {}", parameter.name))?;
                let value = match &parameter.kind {
                    Some(kind) => converted(value, kind),
                    None => Expr::Nested(Box::new(value)),
                };
                Ok((parameter.name.clone(), value))
            });
        bound.collect()
    }
}

fn converted(expr: Expr, kind: &DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type: kind.clone(),
        array: false,
        format: None,
    }
}

fn lower(name: &Ident) -> String {
    name.value.to_lowercase()
}

/// A name of one part.
fn single(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(lower),
        _ => None,
    }
}

impl Macros {
    /// Adds a macro. Rejects the name of a function, and that of another macro unless it replaces it.
    pub(crate) fn add(&self, new: Macro, state: &SessionState) -> Result<(), String> {
        let name = new.name.as_str();
        let is_function = state.scalar_functions().contains_key(name)
            || state.aggregate_functions().contains_key(name)
            || state.window_functions().contains_key(name)
            || state.table_functions().contains_key(name);
        if is_function {
            return Err(format!("macro {name}: a built-in function has this name"));
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = all.get(name).filter(|_| !new.is_replacement) {
            let place = other.place.as_ref();
            let place = place.map_or_else(String::new, |place| format!(" in {place}"));
            return Err(format!(
                "macro {name} is already defined{place}\nhint: use CREATE OR REPLACE"
            ));
        }
        all.insert(name.to_owned(), Arc::new(new));
        Ok(())
    }

    /// All macros, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Macro>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().cloned().collect()
    }

    /// Replaces the macros in a statement.
    pub(crate) fn expand(&self, statement: &mut Statement) -> Result<(), String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return Ok(());
        }
        let mut expansion = Expansion {
            all: &all,
            count: 0,
            bytes: 0,
            wrong: String::new(),
        };
        match engine::visit_statement(&mut expansion, statement) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(expansion.wrong),
        }
    }
}

/// Replaces macros, also those in the bodies of macros.
struct Expansion<'m> {
    all: &'m BTreeMap<String, Arc<Macro>>,
    count: usize,
    bytes: usize,
    wrong: String,
}

impl Expansion<'_> {
    fn find(&self, name: &ObjectName) -> Option<Arc<Macro>> {
        self.all.get(&single(name)?).cloned()
    }

    /// The body of a call, with its arguments.
    fn body<T: VisitMut + Clone>(
        &mut self,
        called: &Macro,
        body: &T,
        args: &[FunctionArg],
    ) -> Result<T, String> {
        self.count += 1;
        if self.count > MOST_EXPANSIONS {
            return Err(format!(
                "macro {}: more than {MOST_EXPANSIONS} expansions, as of a macro that refers to itself",
                called.name
            ));
        }
        let mut body = body.clone();
        let arguments = called.arguments(args)?;
        let mut insertion = Insertion {
            sizes: arguments
                .iter()
                .map(|(_, value)| value.to_string().len())
                .collect(),
            arguments,
            bytes: self.bytes,
        };
        if body.visit(&mut insertion).is_break() {
            return Err(format!(
                "macro {}: its arguments become longer than {MOST_BYTES} bytes",
                called.name
            ));
        }
        self.bytes = insertion.bytes;
        Ok(body)
    }

    fn fail(&mut self, wrong: String) -> ControlFlow<()> {
        self.wrong = wrong;
        ControlFlow::Break(())
    }
}

/// The arguments of a call, unless it has what only functions have.
fn plain_arguments(call: &Function) -> Option<&[FunctionArg]> {
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let is_plain = call.filter.is_none()
        && call.over.is_none()
        && call.within_group.is_empty()
        && list.duplicate_treatment.is_none()
        && list.clauses.is_empty();
    is_plain.then_some(list.args.as_slice())
}

impl VisitorMut for Expansion<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(call) = expr else {
            return ControlFlow::Continue(());
        };
        let Some(called) = self.find(&call.name) else {
            return ControlFlow::Continue(());
        };
        let Body::Value(body) = &called.body else {
            return self.fail(format!("macro {}: returns rows, not a value", called.name));
        };
        let Some(args) = plain_arguments(call) else {
            return self.fail(format!(
                "macro {}: DISTINCT, FILTER and OVER are for functions",
                called.name
            ));
        };
        match self.body(&called, body, args) {
            Ok(body) => *expr = Expr::Nested(body),
            Err(wrong) => return self.fail(wrong),
        }
        expr.visit(self)
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table {
            name,
            alias,
            args: Some(args),
            ..
        } = table
        else {
            return ControlFlow::Continue(());
        };
        let Some(called) = self.find(name) else {
            return ControlFlow::Continue(());
        };
        let Body::Rows(body) = &called.body else {
            return self.fail(format!("macro {}: returns a value, not rows", called.name));
        };
        match self.body(&called, body, &args.args) {
            Ok(body) => {
                *table = TableFactor::Derived {
                    lateral: false,
                    subquery: body,
                    alias: alias.take(),
                    sample: None,
                };
                ControlFlow::Continue(())
            }
            Err(wrong) => self.fail(wrong),
        }
    }
}

/// Inserts arguments into a body.
struct Insertion {
    arguments: Vec<(String, Expr)>,
    sizes: Vec<usize>,
    bytes: usize,
}

impl VisitorMut for Insertion {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let name = match expr {
            Expr::Identifier(name) => lower(name),
            Expr::Value(value) => match &value.value {
                Value::Placeholder(name) => name.clone(),
                _ => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        let is_named = |(parameter, _): &(String, Expr)| *parameter == name;
        if let Some(place) = self.arguments.iter().position(is_named) {
            self.bytes += self.sizes[place];
            if self.bytes > MOST_BYTES {
                return ControlFlow::Break(());
            }
            *expr = self.arguments[place].1.clone();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    fn check(definitions: &[&str], sql: &str, expected: Result<&str, &str>) {
        let state = SessionContext::new().state();
        let macros = Macros::default();
        for definition in definitions {
            let statement = engine::statement(&state, definition).unwrap();
            let new = Macro::of(&statement, None).unwrap().unwrap();
            macros.add(new, &state).unwrap();
        }
        let mut statement = engine::statement(&state, sql).unwrap();
        let expanded = macros.expand(&mut statement);
        let found = expanded.map(|()| statement.to_string());
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn calls_become_bodies() {
        let ms = "CREATE MACRO ms(ns) AS ns / 1e6";
        check(
            &[ms],
            "SELECT ms(a + b), MS(ns) FROM t",
            Ok("SELECT ((a + b) / 1e6), ((ns) / 1e6) FROM t"),
        );
        check(
            &[ms, "CREATE MACRO late(x, least := 5) AS ms(x) > least"],
            "SELECT late(d), late(d, 7), late(d, least := 9)",
            Ok("SELECT ((((d)) / 1e6) > (5)), ((((d)) / 1e6) > (7)), ((((d)) / 1e6) > (9))"),
        );
        check(
            &["CREATE FUNCTION half(BIGINT) RETURNS BIGINT RETURN $1 / 2"],
            "SELECT half(x)",
            Ok("SELECT (CAST(CAST(x AS BIGINT) / 2 AS BIGINT))"),
        );
        check(
            &[
                "CREATE MACRO slow(least) AS TABLE SELECT * FROM calls WHERE duration > least",
                ms,
            ],
            "SELECT ms(duration) FROM slow(10) AS s",
            Ok("SELECT ((duration) / 1e6) FROM (SELECT * FROM calls WHERE duration > (10)) AS s"),
        );
    }

    #[test]
    fn wrong_calls() {
        let ms = "CREATE MACRO ms(ns) AS ns / 1e6";
        check(
            &[ms],
            "SELECT ms(1, 2)",
            Err("macro ms(ns): expected 1 argument, found 2"),
        );
        check(&[ms], "SELECT ms()", Err("macro ms(ns): missing ns"));
        check(
            &[ms],
            "SELECT * FROM ms(1)",
            Err("macro ms: returns a value, not rows"),
        );
        check(
            &[ms],
            "SELECT ms(x) OVER () FROM t",
            Err("macro ms: DISTINCT, FILTER and OVER are for functions"),
        );
        check(
            &["CREATE MACRO f(x) AS f(x) + 1"],
            "SELECT f(1)",
            Err("macro f: more than 1000 expansions, as of a macro that refers to itself"),
        );
        check(
            &["CREATE MACRO twice(x) AS x + x"],
            &format!("SELECT {}1{}", "twice(".repeat(40), ")".repeat(40)),
            Err("macro twice: its arguments become longer than 1048576 bytes"),
        );
    }
}
