//! `quantile(x, q)`: about the value that the share `q` of all values stays below.

use std::sync::Arc;

use datafusion::functions_aggregate::approx_percentile_cont::approx_percentile_cont_udaf;

use super::Function;

pub(super) const FUNCTION: Function = Function {
    usage: "quantile(x, q)",
    about: "about the value that the share q of all x stays below, as approx_percentile_cont: quantile(duration, 0.99)",
    register: |context, _| {
        let built_in = Arc::unwrap_or_clone(approx_percentile_cont_udaf());
        context.register_udaf(built_in.with_aliases(["quantile", "approx_quantile"]));
    },
};
