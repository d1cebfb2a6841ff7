//! Who may read: browsers of this host that have opened the printed address.
//!
//! ```text
//! GET /?token=8f1c…     303 to /, with a cookie         the token stays out of history, screenshots and links
//! GET /api/meta         200 with the cookie, else 403
//! ```
//! `Host` must be this server, against names that resolve to this host (DNS rebinding). `Origin` and `Sec-Fetch-Site`,
//! if present, must be those of the page itself. The cookie is Lax: the browser follows a link into the page from anywhere, but no
//! other site can make it send data. Cookies of a host are shared by its ports, so its name has the port.

use std::io::Read;

use anyhow::{Context, Result};

use super::http::{Answer, Request};

/// Bytes of the token.
const BYTES: usize = 16;

pub(super) struct Access {
    port: u16,
    token: String,
}

/// Random digits that nobody can guess.
pub(super) fn secret() -> Result<String> {
    let mut bytes = [0; BYTES];
    let mut source = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    source.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Access {
    pub(super) fn new(port: u16) -> Result<Access> {
        let token = secret()?;
        Ok(Access { port, token })
    }

    /// The address that opens the page.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    fn cookie(&self) -> String {
        format!("perfquet-{}", self.port)
    }

    /// Returns the answer to a request that may not pass, or that brings the token.
    pub(super) fn check(&self, request: &Request) -> Result<(), Answer> {
        let refused = |why: &str| Err(Answer::text(403, why));
        let hosts = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        let host = request.header("host").unwrap_or_default();
        if !hosts.iter().any(|own| own == host) {
            return refused("expected the address that perfquet-query printed\n");
        }
        let is_own = |origin: &str| origin.strip_prefix("http://") == Some(host);
        if request
            .header("origin")
            .is_some_and(|origin| !is_own(origin))
        {
            return refused("expected a request of the page itself\n");
        }
        let is_page = request.path == "/" && request.method == "GET";
        let site = request.header("sec-fetch-site");
        if !is_page && site.is_some_and(|site| !["same-origin", "none"].contains(&site)) {
            return refused("expected a request of the page itself\n");
        }
        if is_page && let Some(token) = request.parameter("token") {
            if !self.is_token(&token) {
                return refused(
                    "the token is another one: open the address that perfquet-query printed\n",
                );
            }
            let cookie = format!("{}={token}; Path=/; HttpOnly; SameSite=Lax", self.cookie());
            let page = Answer::text(303, "")
                .with("Location", "/")
                .with("Set-Cookie", cookie);
            return Err(page);
        }
        let cookies = request.header("cookie").unwrap_or_default();
        let mut pairs = cookies
            .split(';')
            .filter_map(|pair| pair.trim().split_once('='));
        match pairs.any(|(name, value)| name == self.cookie() && self.is_token(value)) {
            true => Ok(()),
            false => refused("no token: open the address that perfquet-query printed\n"),
        }
    }

    /// Compares in constant time.
    fn is_token(&self, text: &str) -> bool {
        let (own, other) = (self.token.as_bytes(), text.as_bytes());
        let differences = own.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == other.len() && differences == 0
    }
}
