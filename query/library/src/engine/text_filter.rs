//! Conditions on one text column in filters: once for each distinct text (per_text.rs), as in scans.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};

use super::per_text;
use super::replace::Replace;

/// Replaces the predicates of filters. Runs after the rules that move them into scans.
pub(super) fn rule() -> Replace<FilterExec> {
    Replace {
        name: "text_filter",
        instead_of,
    }
}

fn instead_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<FilterExec>> {
    let Some(filter) = plan.downcast_ref::<FilterExec>() else {
        return Ok(None);
    };
    let predicate = filter.predicate();
    let replaced = per_text::replace(Arc::clone(predicate), &filter.input().schema())?;
    if Arc::ptr_eq(predicate, &replaced) {
        return Ok(None);
    }
    let filter = FilterExecBuilder::from(filter).with_predicate(replaced);
    Ok(Some(filter.build()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::config::ConfigOptions;
    use datafusion::physical_optimizer::PhysicalOptimizerRule;
    use datafusion::prelude::SessionContext;

    /// Whether the rule changes the plan of a query, whose rows stay the same.
    async fn is_replaced(sql: &str) -> bool {
        let context = SessionContext::new();
        let rows = "CREATE TABLE t AS SELECT arrow_cast(column1, 'Utf8View') AS a, column2 AS b FROM (VALUES ('sys_read', 1), (NULL, 2), ('sys_mmap', 3), ('sys_read', 4))";
        context.sql(rows).await.unwrap().collect().await.unwrap();
        let plan = context.sql(sql).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let changed = rule().optimize(Arc::clone(&plan), &ConfigOptions::new());
        let changed = changed.unwrap();
        let task = context.task_ctx();
        let collect = |plan| datafusion::physical_plan::collect(plan, Arc::clone(&task));
        assert_eq!(
            collect(Arc::clone(&plan)).await.unwrap(),
            collect(Arc::clone(&changed)).await.unwrap(),
            "{sql}"
        );
        !Arc::ptr_eq(&plan, &changed)
    }

    #[test]
    fn filters_by_texts_compute_them_once() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            assert!(is_replaced("SELECT b FROM t WHERE a LIKE '%read%'").await);
            assert!(is_replaced("SELECT count(*) FROM t WHERE a NOT LIKE '%mm%' AND b > 1").await);
            assert!(is_replaced("SELECT b FROM t WHERE upper(a) = 'SYS_READ' LIMIT 1").await);
            assert!(!is_replaced("SELECT b FROM t WHERE a = 'sys_read'").await);
            assert!(!is_replaced("SELECT a FROM t WHERE b % 2 = 0").await);
        });
    }
}
