//! `ASOF JOIN`: each row of the left table with the nearest earlier, or later, row of the right one.
//!
//! ```text
//! samples s ASOF JOIN sched_switch w ON s.cpu = w.cpu AND s.time >= w.time       what ran on the CPU of each sample
//! ```
//! This is the node of the logical plan; `exec.rs` has the operator. Conditions on the result must stay above the node:
//! pushed down, a filter would remove the nearest row of the right table, and a farther one would match instead.

mod exec;
mod sweep;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchemaRef, JoinType, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::logical_plan::builder::build_join_schema;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Extension, LogicalPlan, LogicalPlanBuilder, Operator, UserDefinedLogicalNode,
    UserDefinedLogicalNodeCore, lit,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::integers::Integers;
use super::keys::Keys;
use exec::AsOfJoin;

/// Whether rows of the left table without a match are in the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Matches {
    Required,
    IfAny,
}

impl Matches {
    fn kind(self) -> JoinType {
        match self {
            Matches::Required => JoinType::Inner,
            Matches::IfAny => JoinType::Left,
        }
    }
}

/// Comparison of the left time with the right time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Direction {
    /// The nearest row at or after the left one.
    is_forward: bool,
    /// An equal time matches.
    or_equal: bool,
}

/// The node: comparisons of both tables, of which one is an inequality.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AsOfNode {
    left: LogicalPlan,
    right: LogicalPlan,
    /// The inequality first.
    conditions: Vec<Expr>,
    matches: Matches,
    schema: DFSchemaRef,
}

impl Hash for AsOfNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.left, &self.right, &self.conditions, self.matches).hash(state);
    }
}

impl PartialOrd for AsOfNode {
    fn partial_cmp(&self, other: &AsOfNode) -> Option<Ordering> {
        let order = self.conditions.partial_cmp(&other.conditions);
        order.filter(|order| *order != Ordering::Equal || self == other)
    }
}

/// Whether a plan, or one of its subqueries, has such a node.
pub(super) fn is_in(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    plan.apply_with_subqueries(|plan| {
        let LogicalPlan::Extension(extension) = plan else {
            return Ok(TreeNodeRecursion::Continue);
        };
        is_found = extension.node.as_any().is::<AsOfNode>();
        Ok(match is_found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(is_found)
}

/// Plans a join with conditions, or columns that both tables share, the last of which is the time.
pub(super) fn plan(
    left: LogicalPlan,
    right: LogicalPlan,
    conditions: Vec<Expr>,
    shared: Vec<String>,
    matches: Matches,
) -> Result<LogicalPlan> {
    let mut terms: Vec<Expr> = conditions
        .into_iter()
        .flat_map(split_conjunction_owned)
        .collect();
    // `ON true`: there are no keys.
    terms.retain(|term| *term != lit(true));
    let of = |plan: &LogicalPlan, name: &str| -> Result<Expr> {
        let (qualifier, field) = plan.schema().qualified_field_with_unqualified_name(name)?;
        Ok(Expr::Column(Column::new(qualifier.cloned(), field.name())))
    };
    for (place, name) in shared.iter().enumerate() {
        let (left, right) = (of(&left, name)?, of(&right, name)?);
        terms.push(
            match place + 1 == shared.len() && !terms.iter().any(is_inequality) {
                true => left.gt_eq(right),
                false => left.eq(right),
            },
        );
    }
    terms.sort_by_key(|term| !is_inequality(term));
    let schema = build_join_schema(left.schema(), right.schema(), &matches.kind())?;
    let node = AsOfNode {
        left,
        right,
        conditions: terms,
        matches,
        schema: Arc::new(schema),
    };
    node.check()?;
    let hidden: Vec<Expr> = shared
        .iter()
        .map(|name| of(&node.right, name))
        .collect::<Result<_>>()?;
    let shown: Vec<Expr> = (node.schema.iter())
        .map(|(qualifier, field)| column(qualifier, field.name()))
        .filter(|shown| !hidden.contains(shown))
        .collect();
    let plan = LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    });
    match hidden.is_empty() {
        true => Ok(plan),
        false => LogicalPlanBuilder::from(plan).project(shown)?.build(),
    }
}

fn column(qualifier: Option<&TableReference>, name: &str) -> Expr {
    Expr::Column(Column::new(qualifier.cloned(), name))
}

fn is_inequality(term: &Expr) -> bool {
    use Operator::{Gt, GtEq, Lt, LtEq};
    matches!(term, Expr::BinaryExpr(term) if matches!(term.op, Gt | GtEq | Lt | LtEq))
}

impl AsOfNode {
    /// Whether this is a comparison of times and, besides, of equal values of both tables.
    fn check(&self) -> Result<()> {
        let wrong = |what: String| {
            Err(DataFusionError::Plan(format!(
                "ASOF JOIN: {what}\nhint: ON a.tid = b.tid AND a.time >= b.time"
            )))
        };
        let inequalities = self
            .conditions
            .iter()
            .filter(|term| is_inequality(term))
            .count();
        if inequalities != 1 {
            return wrong(format!(
                "expected one comparison by <, <=, > or >=, found {inequalities}"
            ));
        }
        for term in &self.conditions {
            let is_equality = matches!(term, Expr::BinaryExpr(term) if term.op == Operator::Eq);
            if !is_equality && !is_inequality(term) {
                return wrong(format!("expected comparisons joined by AND, found {term}"));
            }
            if self.sides(term).is_none() {
                return wrong(format!("expected a value of each table, found {term}"));
            }
        }
        Ok(())
    }

    /// The left and the right side of a comparison, and how the left one is compared.
    fn sides(&self, term: &Expr) -> Option<(Expr, Expr, Operator)> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = term else {
            return None;
        };
        let (own, other) = (self.left.schema(), self.right.schema());
        if is_of(left, own) && is_of(right, other) {
            return Some((left.as_ref().clone(), right.as_ref().clone(), *op));
        }
        let swapped = op.swap()?;
        (is_of(left, other) && is_of(right, own))
            .then(|| (right.as_ref().clone(), left.as_ref().clone(), swapped))
    }
}

/// Whether all columns of an expression are from a schema, and there are any.
fn is_of(expr: &Expr, schema: &DFSchemaRef) -> bool {
    let columns = expr.column_refs();
    !columns.is_empty()
        && columns
            .iter()
            .all(|column| schema.is_column_from_schema(column))
}

impl UserDefinedLogicalNodeCore for AsOfNode {
    fn name(&self) -> &str {
        "AsOfJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.conditions.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<String> = self.conditions.iter().map(ToString::to_string).collect();
        write!(
            f,
            "AsOfJoin: {:?} {}",
            self.matches.kind(),
            terms.join(" AND ")
        )
    }

    fn with_exprs_and_inputs(
        &self,
        conditions: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> Result<AsOfNode> {
        let inputs: Result<[LogicalPlan; 2], _> = inputs.try_into();
        let [left, right] =
            inputs.map_err(|_| DataFusionError::Internal("a join has two inputs".to_owned()))?;
        let schema = build_join_schema(left.schema(), right.schema(), &self.matches.kind())?;
        Ok(AsOfNode {
            left,
            right,
            // The optimizer keeps the names of expressions, which have no meaning here.
            conditions: conditions.into_iter().map(Expr::unalias).collect(),
            matches: self.matches,
            schema: Arc::new(schema),
        })
    }

    fn necessary_children_exprs(&self, output: &[usize]) -> Option<Vec<Vec<usize>>> {
        let (left, right) = (self.left.schema(), self.right.schema());
        let mut needed = [Vec::new(), Vec::new()];
        for &index in output {
            match index.checked_sub(left.fields().len()) {
                Some(index) => needed[1].push(index),
                None => needed[0].push(index),
            }
        }
        for column in self.conditions.iter().flat_map(Expr::column_refs) {
            for (schema, needed) in [left, right].into_iter().zip(&mut needed) {
                needed.extend(schema.maybe_index_of_column(column));
            }
        }
        Some(
            needed
                .map(|mut indices| {
                    indices.sort_unstable();
                    indices.dedup();
                    indices
                })
                .to_vec(),
        )
    }
}

/// Turns nodes into operators.
#[derive(Debug)]
pub(super) struct AsOfPlanner;

#[async_trait]
impl ExtensionPlanner for AsOfPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(node), [left, right]) = (node.as_any().downcast_ref::<AsOfNode>(), inputs) else {
            return Ok(None);
        };
        let mut direction = None;
        let mut times = None;
        let mut keys = Vec::new();
        for term in &node.conditions {
            let Some((of_left, of_right, operator)) = node.sides(term) else {
                let message = format!("ASOF JOIN: {term} does not compare the two tables");
                return Err(DataFusionError::Plan(message));
            };
            let physical = |expr: &Expr, plan: &LogicalPlan| -> Result<Arc<dyn PhysicalExpr>> {
                planner.create_physical_expr(expr, plan.schema(), session, context)
            };
            let pair = (
                physical(&of_left, &node.left)?,
                physical(&of_right, &node.right)?,
            );
            let kind = pair.0.data_type(&left.schema())?;
            let is_inequality = is_inequality(term);
            let is_known = match is_inequality {
                true => Integers::hold(&kind),
                false => Keys::hold(&kind),
            };
            if !is_known || kind != pair.1.data_type(&right.schema())? {
                let message = format!("ASOF JOIN: cannot compare values of type {kind} in {term}");
                return Err(DataFusionError::Plan(message));
            }
            if !is_inequality {
                keys.push(pair);
                continue;
            }
            direction = Some(match operator {
                Operator::GtEq => Direction {
                    is_forward: false,
                    or_equal: true,
                },
                Operator::Gt => Direction {
                    is_forward: false,
                    or_equal: false,
                },
                Operator::LtEq => Direction {
                    is_forward: true,
                    or_equal: true,
                },
                _ => Direction {
                    is_forward: true,
                    or_equal: false,
                },
            });
            times = Some(pair);
        }
        let (Some(direction), Some(times)) = (direction, times) else {
            let message = "ASOF JOIN without a comparison of times".to_owned();
            return Err(DataFusionError::Internal(message));
        };
        let schema = Arc::clone(node.schema.inner());
        let inputs = [Arc::clone(left), Arc::clone(right)];
        let join = AsOfJoin::new(inputs, times, keys, direction, node.matches, schema)?;
        Ok(Some(Arc::new(join)))
    }
}
