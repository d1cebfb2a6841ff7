//! Joins that yield: an interrupted query ends even if a join has billions of rows.
//!
//! ```text
//! AggregateExec: count(*)      takes rows until there are none
//!   CooperativeExec            yields now and then, and the runtime drops the query
//!     HashJoinExec             many batches from a batch of its inputs
//! ```
//! DataFusion lets only scans yield: between two batches of a scan, a join may keep a worker busy for hours.

use datafusion::physical_plan::coop::CooperativeExec;

use super::replace::Replace;

/// Operators that may have many more rows than their inputs.
const MANY_ROWS: [&str; 8] = [
    "AsOfJoin",
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "RangeJoin",
    "SortMergeJoinExec",
    "UnnestExec",
];

/// Lets joins yield. Runs after the rules that replace joins.
pub(super) fn rule() -> Replace<CooperativeExec> {
    Replace {
        name: "yielding",
        instead_of: |plan| {
            let has_many = MANY_ROWS.contains(&plan.name());
            Ok(has_many.then(|| CooperativeExec::new(plan.clone())))
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use datafusion::error::DataFusionError;
    use datafusion::execution::runtime_env::RuntimeEnv;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::SessionConfig;

    /// A count of the rows of a join, each of which has many.
    const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 100000) a(x) \
                           JOIN generate_series(1, 1000000000) b(x) ON a.x % 2 = b.x % 2";

    #[test]
    fn an_abandoned_join_ends() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let config = SessionConfig::new().with_target_partitions(1);
        let context = crate::engine::test_tables::context(config, Arc::new(RuntimeEnv::default()));
        let planned = async {
            let frame = context.sql(ENDLESS).await?;
            Ok::<_, DataFusionError>((frame.clone(), frame.create_physical_plan().await?))
        };
        let (frame, plan) = runtime.block_on(planned).unwrap();
        let plan = displayable(plan.as_ref()).indent(false).to_string();
        let lines: Vec<&str> = plan.lines().map(str::trim).collect();
        let join = lines.iter().position(|line| line.contains("JoinExec"));
        assert_eq!(lines[join.unwrap() - 1], "CooperativeExec", "{plan}");
        let counting = runtime.spawn(frame.collect());
        std::thread::sleep(Duration::from_millis(200));
        assert!(!counting.is_finished());
        counting.abort();
        let ended = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            counting.is_finished()
        });
        // Dropping a runtime with busy threads would wait for them.
        runtime.shutdown_background();
        assert!(ended);
    }
}
