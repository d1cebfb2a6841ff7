//! Parser of `--agg`.
//!
//! ```text
//! [NAME =] ACTION([FIELD[, NUMBER]...])[, ...] [by KEY[, KEY]...]
//! avg(duration), quantize(duration) by comm, cpu      several actions of one key
//! slow = lquantize(us, 0, 1000, 100)                  its own name; equal steps
//! ```

use perfquet_events::event::Action;

use crate::failure::{Failure, misuse};

/// A parsed `--agg` option.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AggregationSpec {
    pub(super) actions: Vec<ActionSpec>,
    pub(super) keys: Vec<String>,
}

/// An action of the option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActionSpec {
    pub(super) name: String,
    pub(super) action: Action,
    /// The aggregated field.
    pub(super) value: Option<String>,
    /// The numbers after the field.
    pub(super) numbers: Vec<i64>,
}

/// Parses the option.
pub(super) fn parse(text: &str) -> Result<AggregationSpec, Failure> {
    let (actions, keys) = match text.rfind(')') {
        Some(end) => text.split_at(end + 1),
        None => (text, ""),
    };
    let actions = outside_of_brackets(actions)
        .into_iter()
        .map(|action| parse_action(text, action))
        .collect::<Result<_, _>>()?;
    let keys = match keys.trim() {
        "" => Vec::new(),
        keys => {
            let keys = keys
                .strip_prefix("by")
                .filter(|keys| keys.starts_with(char::is_whitespace))
                .ok_or_else(|| expected(text))?;
            keys.split(',').map(|key| key.trim().to_owned()).collect()
        }
    };
    if keys.iter().any(String::is_empty) {
        return Err(expected(text));
    }
    Ok(AggregationSpec { actions, keys })
}

/// Splits at commas outside of parentheses.
fn outside_of_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0i32;
    text.split(|character| {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        character == ',' && depth == 0
    })
    .collect()
}

fn expected(text: &str) -> Failure {
    misuse(format!("--agg {text}: expected ACTION(FIELD) by KEY")).hint(
        "write --agg like 'quantize(bytes) by comm'; actions are count, sum, avg, min, max, stddev, quantize, lquantize, \
         llquantize",
    )
}

fn parse_action(text: &str, one: &str) -> Result<ActionSpec, Failure> {
    let (name, call) = match one.split_once('=') {
        Some((name, call)) => (Some(name.trim()), call),
        None => (None, one),
    };
    let (action, inside) = call
        .trim()
        .strip_suffix(')')
        .and_then(|call| call.split_once('('))
        .filter(|(_, inside)| !inside.contains(['(', ')']))
        .ok_or_else(|| expected(text))?;
    let action_name = action.trim();
    let (action, numbers) = match action_name {
        "count" => (Action::Count, 0),
        "sum" => (Action::Sum, 0),
        "avg" => (Action::Avg, 0),
        "min" => (Action::Min, 0),
        "max" => (Action::Max, 0),
        "stddev" => (Action::Stddev, 0),
        "quantize" => (Action::Quantize, 0),
        "lquantize" => (Action::Lquantize, 3),
        "llquantize" => (Action::Llquantize, 4),
        _ => return Err(expected(text)),
    };
    let mut parts = inside.split(',').map(str::trim);
    let value = parts.next().filter(|value| !value.is_empty());
    let given: Option<Vec<i64>> = parts.map(|part| part.parse().ok()).collect();
    let is_right = given.as_ref().is_some_and(|given| given.len() == numbers)
        && value.is_some() == (action != Action::Count);
    if !is_right {
        let form = match action {
            Action::Count => "count()".to_owned(),
            Action::Lquantize => "lquantize(FIELD, LOW, HIGH, STEP)".to_owned(),
            Action::Llquantize => "llquantize(FIELD, FACTOR, LOW, HIGH, STEPS)".to_owned(),
            _ => format!("{action_name}(FIELD)"),
        };
        return Err(misuse(format!("--agg {text}: expected {form}")));
    }
    if name.is_some_and(str::is_empty) {
        return Err(expected(text));
    }
    Ok(ActionSpec {
        name: name.map_or_else(
            || format!("{action_name}({})", inside.trim()),
            str::to_owned,
        ),
        action,
        value: value.map(str::to_owned),
        numbers: given.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let spec = parse("quantize(bytes) by comm, ustack").unwrap();
        let [action] = &spec.actions[..] else {
            panic!("{spec:?}")
        };
        assert_eq!(
            (action.name.as_str(), action.action),
            ("quantize(bytes)", Action::Quantize)
        );
        assert_eq!(action.value.as_deref(), Some("bytes"));
        assert_eq!(spec.keys, ["comm", "ustack"]);
        let spec = parse(" slow = lquantize( us , 0, 1000,100)").unwrap();
        assert_eq!(
            (&*spec.actions[0].name, &spec.actions[0].numbers[..]),
            ("slow", &[0, 1000, 100][..])
        );
        assert_eq!(parse("count()").unwrap().actions[0].value, None);
        let spec = parse("n=count(), avg(x),lquantize(x, 0, 9, 1) by cpu").unwrap();
        let names: Vec<_> = spec.actions.iter().map(|action| &*action.name).collect();
        assert_eq!(names, ["n", "avg(x)", "lquantize(x, 0, 9, 1)"]);
        assert_eq!(spec.keys, ["cpu"]);
    }

    #[test]
    fn mistakes() {
        for (wrong, said) in [
            ("", "expected ACTION(FIELD) by KEY"),
            ("mean(x)", "expected ACTION(FIELD) by KEY"),
            ("count(x)", "expected count()"),
            ("sum()", "expected sum(FIELD)"),
            ("sum(x, 1)", "expected sum(FIELD)"),
            (
                "lquantize(x, 1)",
                "expected lquantize(FIELD, LOW, HIGH, STEP)",
            ),
            ("llquantize(x, 10, a, 3, 10)", "expected llquantize"),
            ("sum(x) comm", "expected ACTION(FIELD) by KEY"),
            ("sum(x) by", "expected ACTION(FIELD) by KEY"),
            ("sum(x) by a,,b", "expected ACTION(FIELD) by KEY"),
            ("sum(x),", "expected ACTION(FIELD) by KEY"),
            ("sum(x), by a", "expected ACTION(FIELD) by KEY"),
            ("sum(x) avg(x)", "expected"),
            ("=sum(x)", "expected ACTION(FIELD) by KEY"),
            ("sum(x", "expected ACTION(FIELD) by KEY"),
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}
