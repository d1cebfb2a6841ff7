//! Errors of stores as one sentence, which has neither control characters nor secrets.
//!
//! ```text
//! access denied (403 AccessDenied: Access Denied)
//! hint: …
//! ```

use std::error::Error as _;
use std::io::{self, ErrorKind};

use object_store::Error;

/// Maximum length of what a server says.
const LONGEST: usize = 300;

/// The error of a request.
pub(crate) fn of(error: &Error, secrets: &[String]) -> io::Error {
    let reason = reason(error, secrets);
    let (kind, message) = match error {
        Error::NotFound { .. } if reason.contains("NoSuchBucket") => {
            (ErrorKind::NotFound, "no such bucket".to_owned())
        }
        Error::NotFound { .. } => (ErrorKind::NotFound, format!("not found ({reason})")),
        Error::PermissionDenied { .. } => (
            ErrorKind::PermissionDenied,
            format!("access denied ({reason}){CREDENTIALS}"),
        ),
        Error::Unauthenticated { .. } => (
            ErrorKind::PermissionDenied,
            format!("not authenticated ({reason}){CREDENTIALS}"),
        ),
        Error::Precondition { .. } | Error::NotModified { .. } => (
            ErrorKind::Other,
            "the file changed while it was read".to_owned(),
        ),
        _ if reason.contains("without LOCATION") => (
            ErrorKind::Other,
            "the bucket is in another region\nhint: set AWS_REGION to that of the bucket"
                .to_owned(),
        ),
        _ if reason.contains("Failed to get EC2 instance")
            || reason.contains("169.254.169.254")
            || error.to_string().contains("169.254.169.254") =>
        {
            (
                ErrorKind::PermissionDenied,
                format!("no credentials were found{CREDENTIALS}"),
            )
        }
        _ => (ErrorKind::Other, reason),
    };
    io::Error::new(kind, message)
}

const CREDENTIALS: &str = "\nhint: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or those of your store; \
                           AWS_SKIP_SIGNATURE=true reads public buckets";

/// What happened, without the request.
fn reason(error: &Error, secrets: &[String]) -> String {
    let whole = error.to_string();
    let said = whole
        .split_once(" - ")
        .map_or(whole.as_str(), |(_, said)| said);
    let said = said.strip_prefix("HTTP error: ").unwrap_or(said);
    let said = said
        .strip_prefix("Server returned non-2xx status code: ")
        .unwrap_or(said);
    let mut text = match said.split_once('<') {
        // An error of S3 in XML, or a page.
        Some((status, page)) => {
            let within = |tag: &str| {
                let (_, rest) = page.split_once(&format!("{tag}>"))?;
                rest.split_once('<').map(|(inner, _)| inner.to_owned())
            };
            let parts = [within("Code"), within("Message")];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!(
                "{} {}",
                status.trim_end_matches([':', ' ']),
                parts.join(": ")
            )
        }
        None => said.trim_end_matches([':', ' ']).to_owned(),
    };
    let mut cause = error.source();
    while let Some(next) = cause.and_then(|cause| cause.source()) {
        cause = Some(next);
    }
    if let Some(cause) = cause.map(ToString::to_string)
        && !whole.contains(&cause)
    {
        text = format!("{text}: {cause}");
    }
    for secret in secrets {
        text = text.replace(secret, "…");
    }
    plain(&text)
}

/// A text of a server, for a terminal.
fn plain(text: &str) -> String {
    let safe = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = safe.clone().take(LONGEST).collect();
    if safe.count() > LONGEST {
        short.push('…');
    }
    short.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_short_and_plain() {
        let check = |source: &str, expected: &str| {
            let error = Error::Generic {
                store: "S3",
                source: source.into(),
            };
            assert_eq!(of(&error, &["sig=5".to_owned()]).to_string(), expected);
        };
        check(
            "Error performing GET http://h/a?sig=5 in 3ms - Server returned non-2xx status code: 400 Bad Request: \
             <?xml?><Error><Code>Bad</Code><Message>a sig=5\x1b[2J</Message></Error>",
            "400 Bad Request Bad: a … [2J",
        );
        check(
            "Error performing GET http://h/a in 3ms, after 3 retries - HTTP error: error sending request",
            "error sending request",
        );
        let long = of(
            &Error::Generic {
                store: "S3",
                source: "x".repeat(100_000).into(),
            },
            &[],
        );
        assert!(long.to_string().chars().count() <= LONGEST + 1);
    }
}
