//! Plans the joins by time of `syntax.rs`.

use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, JoinConstraint, JoinOperator,
    ObjectName, TableFactor, Value,
};

use super::asof_join::{self, Matches};
use super::span_join;
use super::syntax;

/// Plans `ASOF JOIN` and `span_join`.
#[derive(Debug)]
pub(super) struct TimeRelations;

impl RelationPlanner for TimeRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::NestedJoin {
            table_with_joins,
            alias,
        } = &relation
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let [join] = table_with_joins.joins.as_slice() else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let left = || table_with_joins.relation.clone();
        let plan = match &join.join_operator {
            JoinOperator::AsOf {
                match_condition,
                constraint,
            } => {
                let (left, right) = (context.plan(left())?, context.plan(join.relation.clone())?);
                asof(left, right, match_condition, constraint, context)?
            }
            JoinOperator::StraightJoin(JoinConstraint::On(condition)) => {
                let Some(keys) = span_join_keys(condition, context) else {
                    return Ok(RelationPlanning::Original(Box::new(relation)));
                };
                let right_name = name_of(&join.relation, context);
                let (left_name, relation) = (name_of(&left(), context), left());
                let left = context.plan(relation)?;
                let right = context.plan(join.relation.clone())?;
                span_join::plan((left, &left_name), (right, &right_name), &keys)?
            }
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        let planned = PlannedRelation::new(plan, alias.clone());
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

fn asof(
    left: LogicalPlan,
    right: LogicalPlan,
    match_condition: &SqlExpr,
    constraint: &JoinConstraint,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let schema = left.schema().join(right.schema())?;
    let mut conditions = Vec::new();
    let matches = match form_of(match_condition) {
        Some(syntax::LEFT) => Matches::IfAny,
        Some(_) => Matches::Required,
        None => {
            conditions.push(context.sql_to_expr(match_condition.clone(), &schema)?);
            // As in Snowflake.
            Matches::IfAny
        }
    };
    let is_duckdbs = form_of(match_condition).is_some();
    let mut shared = Vec::new();
    match constraint {
        JoinConstraint::On(condition) => {
            conditions.push(context.sql_to_expr(condition.clone(), &schema)?);
        }
        JoinConstraint::Using(names) => {
            for name in names {
                shared.push(column_name(name, context)?);
            }
        }
        JoinConstraint::None if !is_duckdbs => {}
        JoinConstraint::None | JoinConstraint::Natural => {
            let message = "ASOF JOIN: expected ON or USING with the times to compare";
            return Err(DataFusionError::Plan(message.to_owned()));
        }
    }
    asof_join::plan(left, right, conditions, shared, matches)
}

/// Returns which of DuckDB's forms a match condition represents, if any.
fn form_of(condition: &SqlExpr) -> Option<&str> {
    match condition {
        SqlExpr::Value(value) => match &value.value {
            Value::SingleQuotedString(form) => Some(form.as_str()),
            _ => None,
        },
        _ => None,
    }
}

fn column_name(name: &ObjectName, context: &dyn RelationPlannerContext) -> Result<String> {
    let [part] = name.0.as_slice() else {
        let message = format!("USING: expected a column, found {name}");
        return Err(DataFusionError::Plan(message));
    };
    let ident = part.as_ident().cloned();
    let ident =
        ident.ok_or_else(|| DataFusionError::Plan(format!("USING: {name} is no column")))?;
    Ok(context.normalize_ident(ident))
}

/// Returns the columns of the condition that represents `span_join`; `None` for other conditions.
fn span_join_keys(
    condition: &SqlExpr,
    context: &dyn RelationPlannerContext,
) -> Option<Vec<String>> {
    let SqlExpr::Function(function) = condition else {
        return None;
    };
    if function.name.to_string() != syntax::SPAN_JOIN {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else {
        return Some(Vec::new());
    };
    (list.args.iter())
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(SqlExpr::Identifier(name))) => {
                Some(context.normalize_ident(name.clone()))
            }
            _ => None,
        })
        .collect()
}

/// The name of a table for its columns; empty for a query.
fn name_of(relation: &TableFactor, context: &dyn RelationPlannerContext) -> String {
    match relation {
        TableFactor::Table { name, .. } => {
            let last = name.0.last().and_then(|part| part.as_ident().cloned());
            last.map_or_else(String::new, |name| context.normalize_ident(name))
        }
        _ => String::new(),
    }
}
