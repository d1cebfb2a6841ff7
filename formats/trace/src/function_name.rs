//! Function names as shortened in exports and reports.
//!
//! ```text
//! JavaCalls::call(JavaValue*, int)   →   JavaCalls::call
//! ```

/// `a::b(int)` as `a::b`: cut at the last bracket after the first `::`, like FlameGraph's `stackcollapse.pl`.
pub fn without_arguments(function: &str) -> &str {
    let scope = function.find("::").unwrap_or(function.len());
    let bracket = function[scope..].rfind(['(', '<']);
    bracket.map_or(function, |bracket| &function[..scope + bracket])
}

/// The label of code without a function: `/usr/lib/libc.so.6` as `[libc.so.6]`; names already in brackets stay.
pub fn in_brackets(module: &str) -> String {
    if module.starts_with('[') {
        return module.to_owned();
    }
    let name = module.rsplit('/').next().unwrap_or(module);
    format!("[{name}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_removed() {
        let check = |name: &str, expected: &str| assert_eq!(without_arguments(name), expected);
        check("JavaCalls::call(JavaValue*, int)", "JavaCalls::call");
        check("JavaThread::run()", "JavaThread::run");
        check("thread_entry(JavaThread*)", "thread_entry(JavaThread*)");
        check("a::b", "a::b");
    }
}
